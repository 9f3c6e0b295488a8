import Base
import Storing

/// What is known of the length of a resource.
enum Length: Sendable, Equatable {
  /// Not asked yet.
  case unknown
  /// So many bytes.
  case known(Int64)
  /// The origin does not tell; so many bytes came so far. The end is where the body ends.
  case growing(Int64)
}

/// What is held of one generation of a resource: events go in, what follows from them comes out.
///
/// Pure: no event calls the system. ``Content`` holds the lock; the marks below say which thread sends which events.
/// Four values describe a file; `isSuperseded` goes with all of them:
///
/// - *holding*: `partial` -> `completing` (all bytes are stored) -> `verifying` (the finisher works on it) -> `copy`
///   (it is in the library). A copy that a user changed becomes `touched`: a partial file again, which never completes
///   under this inode, because the kernel's page cache may have the user's bytes.
/// - *claim*: what the catalog believes of the stored bytes.
/// - *removal*: whether its bytes are being removed, or it was put away from memory.
///
/// Which event a state takes; one that it does not take changes nothing:
///
///     event          partial   touched   completing  verifying  copy   also
///     identified     yes       -         -           -          -      removal none, no generation yet
///     landed         yes       yes       -           -          -      removal none, claim not overclaimed, same file
///     snapshot       yes       yes       yes         yes        -      removal none
///     synced         yes       yes       yes         yes        -      removal none, same file
///     committed      yes       yes       yes         yes        yes    any
///     syncFailed     yes       yes       yes         yes        -      removal none, same file
///     withdrawn      yes       yes       yes         yes        -      removal none, claim overclaimed
///     whole          yes       -         -           -          -      removal none, every byte stored
///     taken          -         -         yes         -          -
///     released       -         -         -           yes        -
///     rejected       -         -         -           yes        -
///     placed         -         -         -           yes        -      same file
///     copyTouched    -         -         -           -          yes
///     frozen         yes       yes       -           -          yes    removal none
///     dropped        yes       yes       -           -          yes    removal frozen
///     thawed         yes       yes       -           -          yes    removal frozen
///     putAway        yes       yes       -           -          yes    removal none, claim current, all synced
///     superseded     yes       yes       yes         yes        yes    any
struct FileState: Sendable {
  /// How far the file has come.
  enum Holding: Sendable, CaseIterable { case partial, touched, completing, verifying, copy }
  /// What the catalog believes of the stored bytes.
  enum Claim: Sendable, CaseIterable {
    /// All of it, or there is nothing to believe.
    case current
    /// Less: bytes are stored that it has not been told of.
    case behind
    /// It is being told. Until it has been, the file may not be put away: it would be loaded again with less.
    case committing
    /// It is being told, and more bytes came meanwhile.
    case committingBehind
    /// More than there is: a sync failed. Nothing may be written until it is told: behind a lost range that would look
    /// stored to whoever believes the claim.
    case overclaimed
  }
  /// Whether the file is leaving.
  enum Removal: Sendable, CaseIterable {
    /// It is not.
    case none
    /// Its bytes are being removed: nothing is written until that is done.
    case frozen
    /// It is not in memory any more: whoever still has the object asks for the resource again.
    case putAway
  }

  private(set) var holding = Holding.partial
  private(set) var claim = Claim.current
  private(set) var removal = Removal.none
  /// A newer generation took its place: what is not stored never will be.
  private(set) var isSuperseded = false
  /// Whether a user asked for it by name, as the catalog knows it: also at the next mount policies do not stop it.
  private(set) var isPinned = false
  /// nil until the origin answered for the first time.
  private(set) var generation: GenerationRecord?
  /// The catalog's generation, when that is of no use any more: forgotten once another is known.
  private(set) var useless: Int64?
  private(set) var length = Length.unknown
  private(set) var stored = ByteRangeSet()
  /// The part of `stored` that is known to be on disk.
  private(set) var synced = ByteRangeSet()
  /// When the first byte was written that is not known to be on disk; nil when all of them are.
  private(set) var unsyncedSince: Instant?
  /// nil until there is something to read or to write to.
  private(set) var file: ServedFile?
  /// Bytes that could not be stored.
  private(set) var memory = MemoryWindow()

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
    case .touched:
      holding = .touched
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

  /// The file that was opened for what was loaded or dropped. Before any other thread knows the content, or on the
  /// keeper.
  mutating func serves(_ file: ServedFile) { self.file = file }

  /// The state of a new generation of a resource whose former one was superseded.
  init(beginning generation: GenerationRecord, file: ServedFile?, isPinned: Bool = false) {
    self.generation = generation
    self.isPinned = isPinned
    self.file = file
    length = generation.size.map { .known($0) } ?? .growing(0)
  }

  // MARK: Bytes come (the transfer thread)

  /// The first answer about the resource: its generation begins. nil when one is known already.
  mutating func identified(_ generation: GenerationRecord, file: ServedFile?) -> Identified? {
    guard self.generation == nil, removal == .none else { return nil }
    defer { checkLegal() }
    let former = useless
    useless = nil
    self.generation = generation
    self.file = file
    length = generation.size.map { .known($0) } ?? .growing(0)
    return Identified(useless: former)
  }

  /// `range` is in `file` now. Whether the keeper is to be told that there is something to commit; nil when that is not
  /// this content's file any more: then nothing is stored.
  mutating func landed(_ range: ByteRange, in file: ServedFile, now: Instant) -> Bool? {
    guard isWritable, self.file === file else { return nil }
    if stored.contains(range) { return false }
    defer { checkLegal() }
    stored.insert(range)
    if unsynced > 0, unsyncedSince == nil { unsyncedSince = now }
    grow(to: range.end)
    return fellBehind()
  }

  /// The catalog has less than there is. Whether the keeper does not know that yet.
  private mutating func fellBehind() -> Bool {
    switch claim {
    case .current: claim = .behind
    case .committing: claim = .committingBehind
    case .behind, .committingBehind, .overclaimed: return false
    }
    return true
  }

  /// Bytes of a growing body came, to `end`.
  mutating func grow(to end: Int64) {
    if case .growing(let size) = length, end > size { length = .growing(end) }
  }

  /// A growing body ended at `size`: what the catalog is to learn; nil when the length was known.
  mutating func ended(at size: Int64) -> GenerationRecord? {
    defer { checkLegal() }
    guard case .growing = length else { return nil }
    length = .known(size)
    generation?.size = size
    // Until the catalog has the length, the file may not be put away.
    if file != nil { _ = fellBehind() }
    return generation
  }

  /// Its file was opened again, which could not be opened before. The file to write to; nil when none may be written
  /// to.
  mutating func reopened(_ opened: ServedFile) -> ServedFile? {
    defer { checkLegal() }
    guard isWritable else { return nil }
    if file == nil { file = opened }
    return file
  }

  /// The rest of it is wanted, or not any more: the generation to note that of.
  mutating func continues(_ continues: Bool) -> Int64? {
    defer { checkLegal() }
    generation?.continues = continues
    return generation?.id
  }

  /// A user asked for it by name, or that is over. Whether the catalog is to be told.
  mutating func pinned(_ pinned: Bool) -> Bool {
    defer { checkLegal() }
    defer { isPinned = pinned }
    return isPinned != pinned
  }

  /// Every byte is stored: whether it is the finisher's from now on.
  mutating func whole() -> Bool {
    defer { checkLegal() }
    guard holding == .partial, removal == .none, generation != nil, isWhole else { return false }
    holding = .completing
    return true
  }

  /// A newer generation took its place.
  mutating func superseded() {
    defer { checkLegal() }
    isSuperseded = true
    memory = MemoryWindow()
  }

  // MARK: Bytes that cannot be stored (the transfer thread)

  /// `bytes` are kept in memory, `most` of them in all, but none that `waited` needs goes for them. False when there is
  /// no space for them.
  mutating func kept(_ bytes: UnsafeRawBufferPointer, at offset: Int64, most: Int64, waited: [ByteRange]) -> Bool {
    defer { checkLegal() }
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    guard memory.makeSpace(for: range.count, keeping: waited, before: range.end, most: most) else { return false }
    memory.insert(bytes, at: offset)
    grow(to: range.end)
    return true
  }

  /// What is kept in memory shrinks to `most` bytes where no read of `waited` needs more: how many bytes went.
  mutating func shrankMemory(to most: Int64, waited: [ByteRange]) -> Int64 {
    let before = memory.count
    memory.shrink(to: most, keeping: waited)
    return before - memory.count
  }

  /// Nothing is kept in memory any more: the pieces that were.
  mutating func emptiedMemory() -> [(offset: Int64, bytes: [UInt8])] { memory.takeAll() }

  // MARK: Commit and sync (the keeper)

  /// Its stored bytes are about to be committed. `isNoted`: the keeper was told that the catalog is behind. nil when
  /// there is nothing to write: its bytes are being removed, it is in the library, or it has no file.
  mutating func snapshot(isNoted: Bool) -> Snapshot? {
    defer { checkLegal() }
    guard removal == .none, holding != .copy, let generation, let file else { return nil }
    if isNoted, claim != .overclaimed { claim = .committing }
    return Snapshot(generation: generation.id, stored: stored, file: file)
  }

  /// Whether `snapshot` is still of its file, and its bytes are not being removed.
  func isCurrent(_ snapshot: Snapshot) -> Bool { removal == .none && file === snapshot.file }

  /// The data of `snapshot` is on disk; nothing follows when that was another file's.
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

  /// The catalog has what the last snapshot said.
  mutating func committed() {
    defer { checkLegal() }
    switch claim {
    case .committing, .overclaimed: claim = .current
    case .committingBehind: claim = .behind
    case .current, .behind: break
    }
  }

  /// A sync of `file` failed: what was not on disk before is a hole again, `reopened` is its file from now on, and the
  /// catalog claims too much. What is still stored, and from where to where bytes were lost; nil when that is not its
  /// file any more. Without `reopened` nothing is stored.
  mutating func syncFailed(_ file: ServedFile, reopened: ServedFile?) -> (kept: ByteRangeSet, lost: ByteRange?)? {
    defer { checkLegal() }
    guard removal == .none, holding != .copy, self.file === file else { return nil }
    let kept = reopened == nil ? ByteRangeSet() : Self.onDisk(stored, synced: synced)
    let lost = Self.hull(of: stored, without: kept)
    fallBack(to: kept, reopened)
    return (kept, lost)
  }

  /// Its file is deleted, as the catalog could not be told that bytes were lost. False when the claim is right by now.
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
    if holding != .touched { holding = .partial }
  }

  // MARK: Completion (the finisher)

  /// The finisher begins with it: what it is, and the file. nil when the disk lost a part of it meanwhile.
  mutating func taken() -> (generation: GenerationRecord, file: ServedFile)? {
    defer { checkLegal() }
    guard holding == .completing, let generation, let file else { return nil }
    holding = .verifying
    return (generation, file)
  }

  /// The finisher leaves it as it is: its sync failed, which the keeper deals with, or the server ends.
  mutating func released() {
    defer { checkLegal() }
    if holding == .verifying { holding = .completing }
  }

  /// Its bytes are wrong, or it cannot be placed.
  mutating func rejected() {
    defer { checkLegal() }
    if holding == .verifying { holding = .partial }
  }

  /// The bytes of `partial` are in the library and in the catalog, as `copy`, which is open as `file`. False when the
  /// file changed meanwhile.
  mutating func placed(_ copy: LibraryCopy, from partial: ServedFile, as file: ServedFile) -> Bool {
    guard holding == .verifying, self.file === partial else { return false }
    defer { checkLegal() }
    self.file = file
    holding = .copy
    claim = .current
    generation?.state = .complete
    generation?.copy = copy
    stored = ByteRangeSet(ByteRange(0, copy.size))
    synced = stored
    unsyncedSince = nil
    return true
  }

  /// Its copy is not as it was placed: the file is remote again, and `file` is empty. `isModified`: the page cache may
  /// have what a user made of the copy. Any thread. False when it is no copy any more.
  mutating func copyTouched(isModified: Bool, file: ServedFile) -> Bool {
    guard holding == .copy else { return false }
    defer { checkLegal() }
    holding = isModified ? .touched : .partial
    generation?.state = .partial
    generation?.copy = nil
    stored = ByteRangeSet()
    synced = ByteRangeSet()
    self.file = file
    return true
  }

  // MARK: Removal (the transfer thread decides, the keeper carries it out)

  /// Its bytes are to be removed: nothing is written from now on. False when the finisher has it, or it is being
  /// removed already.
  mutating func frozen() -> Bool {
    defer { checkLegal() }
    guard removal == .none, isPartial || isCopy else { return false }
    removal = .frozen
    return true
  }

  /// The catalog has nothing of it any more. The file that was open, which readers may still be in.
  mutating func dropped() -> ServedFile? {
    guard removal == .frozen else { return nil }
    defer { checkLegal() }
    defer { file = nil }
    stored = ByteRangeSet()
    synced = ByteRangeSet()
    unsyncedSince = nil
    memory = MemoryWindow()
    claim = .current
    if holding != .touched { holding = .partial }
    generation?.copy = nil
    generation?.state = .partial
    generation?.stored = ByteRangeSet()
    generation?.continues = false
    return file
  }

  /// Its bytes were removed, or could not be: it may be fetched again.
  mutating func thawed() {
    defer { checkLegal() }
    if removal == .frozen { removal = .none }
  }

  /// Nobody uses it: nothing can be parked in it from here on. False when it has something that the catalog does not.
  mutating func putAway() -> Bool {
    defer { checkLegal() }
    guard removal == .none, isPartial || isCopy, claim == .current, unsynced == 0 else { return false }
    removal = .putAway
    return true
  }
}
