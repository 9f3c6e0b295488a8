import Base
import Manifest
import Storing

/// What is held of one generation of a resource. Threads send it events; each event returns what the thread does next.
///
/// Pure: no event calls the system. ``Content`` holds the lock; the marks below say which thread sends which events.
/// Three values and one flag, `isSuperseded`, describe a file:
///
/// - *holding*: `partial` -> `completing` (all bytes are stored) -> `verifying` (the finisher works on it, waits until
///   the catalog takes that it is in the library, or has refused it and the transfer thread does not know yet) ->
///   `copy` (it is in the library, as the catalog knows). When a user changed the copy, the file becomes `modified`: a
///   partial file again, which never completes under this inode, because the kernel's page cache may have the user's
///   bytes.
/// - *claim*: what the catalog believes of the stored bytes.
/// - *removal*: whether its bytes are being removed, or it was put away from memory.
///
/// The events that each state takes. Any other event changes nothing:
///
///     event          partial   modified  completing  verifying  copy   also
///     identified     yes       -         -           -          -      removal none, no generation yet
///     landed         yes       yes       -           -          -      removal none, claim not overclaimed, same file
///     reopened       yes       yes       -           -          -      removal none, claim not overclaimed, no file
///     snapshot       yes       yes       yes         yes        -      removal none, has a generation and a file
///     synced         yes       yes       yes         yes        -      removal none, same file
///     committed      yes       yes       yes         yes        yes    any
///     syncFailed     yes       yes       yes         yes        -      removal none, same file
///     withdrawn      yes       yes       yes         yes        -      removal none, claim overclaimed
///     becameWhole    yes       -         -           -          -      removal none, every byte stored, has a file
///     taken          -         -         yes         -          -      has a file
///     released       -         -         -           yes        -
///     rejected       -         -         -           yes        -
///     placed         -         -         -           yes        -      same file
///     copyChanged    -         -         -           -          yes
///     frozen         yes       yes       -           -          yes    removal none
///     dropped        yes       yes       -           -          yes    removal frozen
///     evicted        yes       yes       -           -          -      removal frozen
///     thawed         yes       yes       -           -          yes    removal frozen
///     putAway        yes       yes       -           -          yes    removal none, claim current, all synced
///     superseded     yes       yes       yes         yes        yes    any
///
/// Every state takes the events of the length (`grow`, `ended`: while it grows), of the wish (`continues`, `pinned`),
/// of the origin (`checked`, `came`, `mixed`), of a program (`used`) and of the bytes in memory (`kept`, which a copy
/// does not take, `shrankMemory`, `emptiedMemory`). None of them changes the values above, but `ended` leaves the claim
/// behind.
struct FileState: Sendable {
  private(set) var holding = Holding.partial
  private(set) var claim = Claim.current
  private(set) var removal = Removal.none
  /// Whether a newer generation replaced this one: its missing bytes will never be fetched.
  private(set) var isSuperseded = false
  /// Whether a user asked for the file by name, as the catalog knows it: no policy stops it, also after the next mount.
  private(set) var isPinned = false
  /// nil until the origin answers for the first time.
  private(set) var generation: GenerationRecord?
  /// The catalog's generation if it is useless. The catalog forgets it once another one is known.
  private(set) var useless: Int64?
  private(set) var length = Length.unknown
  private(set) var stored = ByteRangeSet()
  /// The part of `stored` that is known to be on disk.
  private(set) var synced = ByteRangeSet()
  /// When the oldest unsynced byte was written; nil when all bytes are synced.
  private(set) var unsyncedSince: Instant?
  /// nil until there is a file to read or write.
  private(set) var file: ServedFile?
  /// Bytes that could not be stored.
  private(set) var memory = MemoryWindow()
  /// When the origin last answered with this version; nil: not since it is in memory.
  private(set) var checkedAt: Instant?
  /// When stat first showed the size.
  private var shownAt: Instant?

  init(isPinned: Bool = false) { self.isPinned = isPinned }

  /// ``isLegal`` holds after each event.
  private func checkLegal() { assert(isLegal, "an illegal state of a file: \(self)") }

  // MARK: From the catalog

  /// The state of `generation` as it was loaded.
  init(loading generation: GenerationRecord, _ loaded: Loaded, isPinned: Bool, now: Instant) {
    self.generation = generation
    self.isPinned = isPinned
    length = generation.size.map { .known($0) } ?? .unknown
    switch loaded {
    case .copy(let copy, let opened):
      file = opened
      holding = .copy
      stored = ByteRangeSet(ByteRange(0, copy.size))
      synced = stored
    case .modified:
      holding = .modified
      self.generation?.state = .partial
      self.generation?.copy = nil
    case .useless:
      useless = generation.id
      self.generation = nil
      length = .unknown
    case .partial(let stored, let synced):
      self.stored = stored
      self.synced = synced
      if unsynced > 0 { unsyncedSince = now }
    }
    checkLegal()
  }

  /// Sets the file that was opened after loading or dropping. Called before any other thread knows the content, or on
  /// the keeper.
  mutating func serves(_ file: ServedFile) {
    defer { checkLegal() }
    self.file = file
  }

  /// The state of a new generation of a resource whose former one was superseded.
  init(beginning generation: GenerationRecord, file: ServedFile?, isPinned: Bool = false) {
    self.generation = generation
    self.isPinned = isPinned
    self.file = file
    length = generation.size.map { .known($0) } ?? .growing(0)
    checkLegal()
  }

  // MARK: Bytes arrive (the transfer thread)

  /// The first response: the resource's generation begins. nil when one is known already.
  mutating func identified(_ generation: GenerationRecord, file: ServedFile?) -> Identified? {
    guard awaitsGeneration else { return nil }
    defer { checkLegal() }
    let former = useless
    useless = nil
    self.generation = generation
    self.file = file
    length = generation.size.map { .known($0) } ?? .growing(0)
    return Identified(useless: former)
  }

  /// `range` was written to `file`. Returns whether to tell the keeper that there is something to commit. nil when
  /// `file` is not this content's any more: then the write does not count.
  mutating func landed(_ range: ByteRange, in file: ServedFile, now: Instant) -> Bool? {
    guard isWritable, self.file === file else { return nil }
    if stored.contains(range) { return false }
    defer { checkLegal() }
    stored.insert(range)
    if unsynced > 0, unsyncedSince == nil { unsyncedSince = now }
    grow(to: range.end)
    return fellBehind()
  }

  /// Notes that the catalog knows fewer bytes than are stored. Returns whether the keeper has to be told.
  private mutating func fellBehind() -> Bool {
    switch claim {
    case .current: claim = .behind
    case .committing: claim = .committingBehind
    case .behind, .committingBehind, .overclaimed: return false
    }
    return true
  }

  /// A growing body has arrived up to `end`.
  mutating func grow(to end: Int64) {
    if case .growing(let size) = length, end > size { length = .growing(end) }
  }

  /// A growing body ended at `size`. Returns the record for the catalog; nil when the length was known.
  mutating func ended(at size: Int64) -> GenerationRecord? {
    defer { checkLegal() }
    guard case .growing = length else { return nil }
    length = .known(size)
    generation?.size = size
    // The file stays in memory until the catalog knows the length.
    if file != nil { _ = fellBehind() }
    return generation
  }

  /// The file, which could not be opened before, was opened. Returns the file to write to; nil when nothing may be
  /// written.
  mutating func reopened(_ opened: ServedFile) -> ServedFile? {
    defer { checkLegal() }
    guard isWritable, generation != nil else { return nil }
    if file == nil { file = opened }
    return file
  }

  /// The rest of the file is wanted, or no longer wanted. Returns the id of the generation to record that for.
  mutating func continues(_ continues: Bool) -> Int64? {
    defer { checkLegal() }
    generation?.continues = continues
    return generation?.id
  }

  /// The mirror with that key describes it. Returns the id of the generation to record that for; nil: it is recorded.
  mutating func came(from mirror: ResourceKey) -> Int64? {
    defer { checkLegal() }
    guard let id = generation?.id, generation?.mirror != mirror else { return nil }
    generation?.mirror = mirror
    return id
  }

  /// Bytes of another mirror are about to be stored, and the catalog knows it.
  mutating func mixed() {
    defer { checkLegal() }
    generation?.isMixed = true
  }

  /// A user asked for the file by name, or that is over. Returns whether the catalog has to be told.
  mutating func pinned(_ pinned: Bool) -> Bool {
    defer { checkLegal() }
    defer { isPinned = pinned }
    return isPinned != pinned
  }

  /// The origin answered with this version.
  mutating func checked(at now: Instant) { checkedAt = now }

  /// A program that had the file open closed it.
  mutating func used() { generation?.isUsed = true }

  /// stat shows the file now. Returns whether the kernel may cache what it gets.
  ///
  /// The kernel sets the time until which it may use its attributes, and then the size, without a lock that others
  /// take (fuse_change_attributes, Linux 6.18). Between the two, a stat would get the placeholder as cached. So the
  /// first replies that have the size are not for the cache: later ones change nothing any more.
  mutating func showsSize(at now: Instant) -> Bool {
    guard size != nil else { return false }
    guard let shownAt else {
      shownAt = now
      return false
    }
    return now.seconds(since: shownAt) >= 1
  }

  /// Every byte is stored. Returns whether to give the file to the finisher. An empty file may have none to give.
  mutating func becameWhole() -> Bool {
    defer { checkLegal() }
    guard holding == .partial, removal == .none, generation != nil, file != nil, isWhole else { return false }
    holding = .completing
    return true
  }

  /// The finisher refused the file, or found no room for its copy. Until the transfer thread knows, the file is not
  /// given to the finisher again.
  mutating func rejected() {
    defer { checkLegal() }
    if holding == .verifying { holding = .partial }
  }

  /// A newer generation replaced this one.
  mutating func superseded() {
    defer { checkLegal() }
    isSuperseded = true
    memory = MemoryWindow()
  }

  // MARK: Bytes that cannot be stored (the transfer thread)

  /// Keeps `bytes` in memory, at most `most` in all, without dropping bytes that `waited` needs. False when there is no
  /// space.
  mutating func kept(_ bytes: UnsafeRawBufferPointer, at offset: Int64, most: Int64, waited: [ByteRange]) -> Bool {
    defer { checkLegal() }
    guard holding != .copy else { return false }
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    guard memory.makeSpace(for: range.count, keeping: waited, before: range.end, most: most) else { return false }
    memory.insert(bytes, at: offset)
    grow(to: range.end)
    return true
  }

  /// Shrinks the bytes in memory to `most`, except those that `waited` needs. Returns how many were dropped.
  mutating func shrankMemory(to most: Int64, waited: [ByteRange]) -> Int64 {
    defer { checkLegal() }
    let before = memory.count
    memory.shrink(to: most, keeping: waited)
    return before - memory.count
  }

  /// Removes and returns all pieces that were kept in memory.
  mutating func emptiedMemory() -> [(offset: Int64, bytes: [UInt8])] { memory.takeAll() }

  // MARK: Commit and sync (the keeper)

  /// What the keeper is about to commit. `isNoted`: the keeper was told that the catalog is behind. nil when there is
  /// nothing to write: the bytes are being removed, the file is in the library, or there is no file.
  mutating func snapshot(isNoted: Bool) -> Snapshot? {
    defer { checkLegal() }
    guard removal == .none, holding != .copy, let generation, let file else { return nil }
    if isNoted, claim != .overclaimed { claim = .committing }
    return Snapshot(generation: generation.id, stored: stored, file: file)
  }

  /// The data of `snapshot` is on disk. Ignored if it is another file's.
  mutating func synced(_ snapshot: Snapshot, now: Instant) {
    guard isCurrent(snapshot) else { return }
    defer { checkLegal() }
    synced = snapshot.stored
    unsyncedSince = unsynced > 0 ? now : nil
    switch claim {
    case .current: claim = .committing
    case .behind: claim = .committingBehind
    case .committing, .committingBehind, .overclaimed: break
    }
  }

  /// The catalog knows what the last snapshot said.
  mutating func committed() {
    defer { checkLegal() }
    switch claim {
    case .committing, .overclaimed: claim = .current
    case .committingBehind: claim = .behind
    case .current, .behind: break
    }
  }

  /// A sync of `file` failed: its unsynced bytes are holes again, `reopened` replaces it, and the catalog claims too
  /// much. Returns the bytes still stored and the range that lost some; nil when `file` is not this content's any more.
  /// Without `reopened` no byte stays stored.
  mutating func syncFailed(_ file: ServedFile, reopened: ServedFile?) -> (kept: ByteRangeSet, lost: ByteRange?)? {
    defer { checkLegal() }
    guard removal == .none, holding != .copy, self.file === file else { return nil }
    let kept = reopened == nil ? ByteRangeSet() : Self.onDisk(stored, synced: synced)
    let lost = Self.hull(of: stored, without: kept)
    fallBack(to: kept, reopened)
    return (kept, lost)
  }

  /// The file is deleted because the catalog could not be told of the loss. False when the claim is right by now.
  mutating func withdrawn() -> Bool {
    defer { checkLegal() }
    guard removal == .none, claim == .overclaimed else { return false }
    fallBack(to: ByteRangeSet(), nil)
    return true
  }

  private mutating func fallBack(to kept: ByteRangeSet, _ file: ServedFile?) {
    defer { checkLegal() }
    self.file = file
    stored = kept
    synced = kept
    unsyncedSince = nil
    claim = .overclaimed
    if holding != .modified { holding = .partial }
  }

  // MARK: Completion (the finisher)

  /// The finisher begins with the file. nil when the disk lost a part of it meanwhile.
  mutating func taken() -> (generation: GenerationRecord, file: ServedFile)? {
    defer { checkLegal() }
    guard holding == .completing, let generation, let file else { return nil }
    holding = .verifying
    return (generation, file)
  }

  /// The finisher gives the file up unchanged: its sync failed, which the keeper handles, or the server ends.
  mutating func released() {
    defer { checkLegal() }
    if holding == .verifying { holding = .completing }
  }

  /// The finisher placed the bytes of `partial` in the library as `copy`, open as `file`, and committed that. False
  /// when the file changed meanwhile.
  mutating func placed(_ copy: LibraryCopy, from partial: ServedFile, as file: ServedFile) -> Bool {
    guard holding == .verifying, self.file === partial else { return false }
    defer { checkLegal() }
    self.file = file
    holding = .copy
    claim = .current
    generation?.state = .complete
    generation?.copy = copy
    generation?.continues = false
    generation?.isMixed = false
    stored = ByteRangeSet(ByteRange(0, copy.size))
    synced = stored
    unsyncedSince = nil
    memory = MemoryWindow()
    return true
  }

  /// A user changed or removed the copy: the file is remote again, and `file` is empty. `isModified`: the page cache
  /// may have the user's bytes. Any thread. False when it is no copy any more.
  mutating func copyChanged(isModified: Bool, file: ServedFile) -> Bool {
    guard holding == .copy else { return false }
    defer { checkLegal() }
    holdNothing()
    holding = isModified ? .modified : .partial
    self.file = file
    return true
  }

  /// No byte is stored or in memory, and nothing is wanted.
  private mutating func holdNothing() {
    stored = ByteRangeSet()
    synced = ByteRangeSet()
    unsyncedSince = nil
    memory = MemoryWindow()
    claim = .current
    generation?.isMixed = false
    generation?.copy = nil
    generation?.state = .partial
    generation?.stored = ByteRangeSet()
    generation?.continues = false
  }

  // MARK: Removal (the transfer thread decides, the keeper carries it out)

  /// Its bytes will be removed: nothing is written from now on. False when the finisher has the file, or it is being
  /// removed already.
  mutating func frozen() -> Bool {
    defer { checkLegal() }
    guard removal == .none, isPartial || isCopy else { return false }
    removal = .frozen
    return true
  }

  /// The catalog has dropped its bytes. Returns the file that was open; reads may still be using it.
  mutating func dropped() -> ServedFile? {
    guard removal == .frozen else { return nil }
    defer { checkLegal() }
    defer { file = nil }
    holdNothing()
    if holding != .modified { holding = .partial }
    return file
  }

  /// The catalog has dropped a part of its bytes, and knows all others. `file` is the same file, for reads from now on.
  /// False when it takes none.
  mutating func evicted(_ ranges: ByteRangeSet, file: ServedFile) -> Bool {
    guard removal == .frozen, isPartial, self.file != nil else { return false }
    defer { checkLegal() }
    stored = stored.without(ranges)
    synced = synced.intersection(stored)
    if unsynced == 0 { unsyncedSince = nil }
    claim = .current
    self.file = file
    return true
  }

  /// The keeper has removed its bytes, or could not: it may be fetched again.
  mutating func thawed() {
    defer { checkLegal() }
    if removal == .frozen { removal = .none }
  }

  /// Puts an unused file away: no read can park in it any more. False when it has something that the catalog does not.
  mutating func putAway() -> Bool {
    defer { checkLegal() }
    guard removal == .none, isPartial || isCopy, claim == .current, unsynced == 0 else { return false }
    removal = .putAway
    return true
  }
}
