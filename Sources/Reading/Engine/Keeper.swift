import Base
import Glibc
import Manifest
import Storing

/// Commits what is stored, each second, and makes room: one thread, the only one that commits extents.
///
/// Order of a commit: changes that were recorded, then the extents of every content that grew. Extents are believed in
/// this boot only until an fdatasync of their file, each 256 MiB or 30 s (docs/STORE-FORMAT.md).
final class Keeper: @unchecked Sendable {
  // @unchecked: `engine` is written once, before the thread starts; `unsynced` and the checks' times are the thread's
  // own; the rest is immutable or guards itself.

  /// A commit follows the first change after so many seconds: the most that a kill can cost.
  static let interval = 1.0
  static let syncBytes: Int64 = 256 << 20
  static let syncSeconds = 30.0
  /// How often the room is measured while something is being stored, in seconds.
  static let spaceInterval = 2.0
  /// How long nothing is written after a write that failed, in seconds.
  static let refusedSeconds = 10.0
  /// The same for one content after syncs that failed, one after the other: what was written is lost each time, and is
  /// fetched again.
  static let longestRefusal = 600.0
  /// How far what is read may go beyond `--max-size`, in bytes.
  static let leeway: Int64 = 64 << 20

  /// Beyond so many changes that cannot be committed, those that only say when and what for are dropped.
  static let mostChanges = 4096

  private struct Pending: Sendable {
    var changes: [CatalogChange] = []
    var dirty: [Content] = []
    var jobs: [@Sendable () -> Void] = []
    var isPrompt = false
    var isStopping = false
    var isFull = false
    /// Far beyond the limit with nothing left to drop, or a write failed.
    var isStuck = false
    /// Until when nothing is written, because the disk refused something.
    var refusedUntil: Instant?
    /// Contents whose last sync failed: until when nothing is written of them, and how long the next pause is.
    var unsyncable: [ResourceKey: (until: Instant, next: Double)] = [:]

    mutating func refuse(until: Instant) {
      isFull = true
      isStuck = true
      refusedUntil = max(refusedUntil ?? until, until)
    }
  }

  weak var engine: Engine?
  private let store: StoreAccess
  private let options: ReadingOptions
  private let clock: Clock
  private let pending = Lock(Pending())
  private let signal = Signal()
  private let thread = Lock<OwnedThread?>(nil)
  private var unsynced: [Content] = []
  /// When the next commit is due; nil while there is nothing to commit.
  private var due: Instant?
  private var nextSpaceCheck = Instant(nanoseconds: 0)
  private var lastError: String?

  init(store: StoreAccess, options: ReadingOptions, clock: Clock) {
    self.store = store
    self.options = options
    self.clock = clock
  }

  /// Whether nothing may be stored for a continuation: the store or its disk is at its limit.
  var isFull: Bool { pending.withLock { $0.isFull } }
  /// As ``isFull``, and whether nothing at all is to be stored, not even what is read.
  var room: (isFull: Bool, isStuck: Bool) { pending.withLock { ($0.isFull, $0.isStuck) } }

  func start() {
    let started = OwnedThread(name: "keeper") { [self] in run() }
    thread.withLock { $0 = started }
  }

  /// Commits everything, with the data synced, and ends the thread.
  func stop() {
    pending.withLock { $0.isStopping = true }
    signal.raise()
    thread.withLock { thread in
      defer { thread = nil }
      return thread
    }?.join()
  }

  /// To be committed within a second, or at once.
  func record(_ change: CatalogChange, promptly: Bool = false) {
    pending.withLock { pending in
      pending.changes.append(change)
      if promptly { pending.isPrompt = true }
    }
    signal.raise()
  }

  /// The content has stored more than the catalog knows.
  func markDirty(_ content: Content) {
    pending.withLock { $0.dirty.append(content) }
    signal.raise()
  }

  /// Runs `job` on the keeper's thread, behind what is being committed.
  func perform(_ job: @escaping @Sendable () -> Void) {
    pending.withLock { $0.jobs.append(job) }
    signal.raise()
  }

  /// Returns when what was recorded before is in the catalog (not durably), or after two seconds. Not on the keeper's
  /// thread.
  func flush() {
    let done = Signal()
    perform { [self] in
      commit(everything: false, .now)
      done.raise()
    }
    done.wait(seconds: 2)
  }

  /// The disk refused a write: for a while nothing is stored.
  func storeFailed() {
    let now = clock.now
    pending.withLock { $0.refuse(until: now.adding(seconds: Self.refusedSeconds)) }
    signal.raise()
  }

  /// The disk lost what was written of a resource: for a while nothing of it is stored, and for longer each time. Until
  /// when.
  func syncFailed(_ key: ResourceKey) -> Instant {
    let now = clock.now
    return pending.withLock { pending in
      let (until, pause) = pending.unsyncable[key] ?? (now, Self.refusedSeconds)
      if now < until { return until }  // told twice
      let next = now.adding(seconds: pause)
      pending.unsyncable[key] = (next, min(2 * pause, Self.longestRefusal))
      return next
    }
  }

  /// What was written of a resource is on disk: its pauses begin anew. Another's sync says nothing of it.
  func syncSucceeded(_ key: ResourceKey) { pending.withLock { $0.unsyncable[key] = nil } }

  /// Until when nothing of a resource is to be stored, as its syncs fail; nil when it may be.
  func pause(of key: ResourceKey) -> Instant? {
    let now = clock.now
    return pending.withLock { $0.unsyncable[key].flatMap { now < $0.until ? $0.until : nil } }
  }

  // MARK: The keeper's thread

  private func run() {
    while true {
      signal.wait(seconds: due.map { max(0, $0.seconds(since: clock.now)) })
      if !turn() { return }
    }
  }

  /// Does what is to be done now; false when that was the last of it.
  func turn() -> Bool {
    let (jobs, isPrompt, isStopping, hasWork) = pending.withLock { pending in
      let jobs = pending.jobs
      pending.jobs = []
      let isPrompt = pending.isPrompt
      pending.isPrompt = false
      return (
        jobs, isPrompt, pending.isStopping, !pending.changes.isEmpty || !pending.dirty.isEmpty || pending.isFull
      )
    }
    for job in jobs { job() }
    let now = clock.now
    if isStopping {
      commit(everything: true, now)
      disclaim(pending.withLock { $0.dirty })
      return false
    }
    if isPrompt || due.map({ $0 <= now }) ?? false {
      commit(everything: false, now)
      makeRoom(now)
      let more = pending.withLock { !$0.changes.isEmpty || !$0.dirty.isEmpty || $0.isFull }
      due = more || !unsynced.isEmpty ? now.adding(seconds: Self.interval) : nil
    } else if due == nil, hasWork {
      due = now.adding(seconds: Self.interval)
    }
    return true
  }

  private func commit(everything: Bool, _ now: Instant) {
    let (recorded, dirty) = pending.withLock { pending in
      defer {
        pending.changes = []
        pending.dirty = []
      }
      return (pending.changes, pending.dirty)
    }
    for content in dirty where !unsynced.contains(where: { $0 === content }) { unsynced.append(content) }
    var stillUnsynced: [Content] = []
    var extents: [Extents] = []
    for content in unsynced {
      let isDirty = dirty.contains { $0 === content }
      guard let taken = snapshot(content, isDirty: isDirty, syncing: everything, now) else { continue }
      if let change = taken.change { extents.append(Extents(content: content, change: change)) }
      if !taken.isSynced { stillUnsynced.append(content) }
    }
    unsynced = stillUnsynced
    let changes = recorded + extents.map(\.change)
    if changes.isEmpty && !everything { return }
    do {
      try store.catalog.apply(changes, durably: everything)
      lastError = nil
      for committed in extents { settle(committed.content) }
    } catch {
      // One of them makes no sense. It must not keep the others from being committed for ever.
      if error.kind == .invalid { return commitSingly(recorded, extents, durably: everything) }
      // Kept for the next try: what is stored must not be forgotten because a commit failed.
      if lastError != error.message { Log.error("the catalog cannot be written, trying again: \(error.message)") }
      lastError = error.message
      pending.withLock { pending in
        pending.changes = recorded + pending.changes
        pending.dirty += extents.map(\.content)
        if pending.changes.count > Self.mostChanges { pending.changes.removeAll(where: \.isIncidental) }
      }
    }
  }

  /// What is stored of a content, on its way into the catalog.
  struct Extents {
    let content: Content
    let change: CatalogChange
  }

  /// Each by itself. What the catalog calls invalid is dropped, what it could not take now is kept for the next try.
  func commitSingly(_ recorded: [CatalogChange], _ extents: [Extents], durably: Bool) {
    for change in recorded where !commit(change, durably: durably) {
      pending.withLock { $0.changes.append(change) }
    }
    for taken in extents {
      if commit(taken.change, durably: durably) {
        settle(taken.content)
      } else {
        pending.withLock { $0.dirty.append(taken.content) }
      }
    }
  }

  /// False when it is to be tried again.
  private func commit(_ change: CatalogChange, durably: Bool) -> Bool {
    do {
      try store.catalog.apply([change], durably: durably)
      return true
    } catch {
      Log.error("the catalog \(error.kind == .invalid ? "refuses" : "cannot take") what was learned: \(error.message)")
      // Extents make sense at all times: a content whose bytes the catalog does not have is never settled.
      if case .extents = change { return false }
      return error.kind == .invalid
    }
  }

  /// The catalog has what is stored of it.
  private func settle(_ content: Content) {
    content.guarded.withLock { guarded in
      guarded.isCommitting = false
      guarded.isOverclaimed = false
    }
  }

  /// After the last commit: these it did not take. Where the catalog claims what the disk lost, the file goes: a claim
  /// without a file is found out at the next mount.
  private func disclaim(_ contents: [Content]) {
    for content in contents {
      let id = content.guarded.withLock { $0.isOverclaimed ? $0.generation?.id : nil }
      guard let id else { continue }
      do throws(StoreError) {
        _ = try PartialFile.remove(id, in: store.folder)
      } catch {
        Log.error(
          "\(content.path): its partial file \(id) has lost bytes that the catalog claims, and cannot be removed: "
            + "\(error.message); remove it by hand")
      }
    }
  }

  /// What to commit of one content; syncs its file when that is due. nil when its bytes are being taken away.
  private func snapshot(
    _ content: Content, isDirty: Bool, syncing: Bool, _ now: Instant
  ) -> (change: CatalogChange?, isSynced: Bool)? {
    // Its file could not be opened again: only the catalog is to be told.
    let told = content.guarded.withLock { guarded -> CatalogChange? in
      guard guarded.isOverclaimed, guarded.file == nil, !guarded.isFrozen else { return nil }
      return guarded.generation.map {
        .extents(generation: $0.id, stored: guarded.state.stored, synced: guarded.synced)
      }
    }
    if let told { return (told, true) }
    let isFull = self.isFull
    let taken = content.guarded.withLock { guarded -> (Int64, ByteRangeSet, ServedFile, Bool)? in
      guard !guarded.isFrozen, let generation = guarded.generation, let file = guarded.file else { return nil }
      guarded.state.isDirty = false
      // Until the catalog has it, the content may not be put away: it would be loaded again with less.
      if isDirty { guarded.isCommitting = true }
      let isOld = guarded.unsyncedSince.map { now.seconds(since: $0) >= Self.syncSeconds } ?? false
      // At a limit what nobody has open is synced at once: only then it can be put away, and evicted.
      let isWanted = isFull && guarded.state.opens == 0
      // The finisher syncs what it verifies, unless it was broken off. What waits for it may wait long.
      let isHis = guarded.isFinishing && !syncing
      let isDue = !isHis && (syncing || isOld || isWanted || guarded.unsynced >= Self.syncBytes)
      return (generation.id, guarded.state.stored, file, isDue && guarded.unsynced > 0)
    }
    guard let (id, stored, file, mustSync) = taken else { return nil }
    var didSync = false
    if mustSync, let partial = file.partial {
      do {
        try partial.syncData()
        didSync = true
        syncSucceeded(content.key)
      } catch {
        file.distrust()  // at once: readers are on their way to it
        engine?.distrust(content, file, error)
        return nil
      }
    }
    let (synced, isSynced, isSame) = content.guarded.withLock { guarded -> (ByteRangeSet, Bool, Bool) in
      guard guarded.file === file, !guarded.isFrozen else { return (ByteRangeSet(), true, false) }
      if didSync {
        guarded.isCommitting = true
        guarded.synced = stored
        guarded.unsynced = guarded.state.stored.count - stored.count
        guarded.unsyncedSince = guarded.unsynced > 0 ? now : nil
      }
      return (guarded.synced, guarded.unsynced == 0, true)
    }
    // A completed or cleared file's extents are the finisher's, or gone.
    guard isSame, file.partial != nil else {
      content.guarded.withLock { $0.isCommitting = false }
      return (nil, true)
    }
    let change: CatalogChange? =
      isDirty || didSync ? .extents(generation: id, stored: stored, synced: synced) : nil
    return (change, isSynced)
  }

  /// Keeps the partial files within `--max-size` and the disk above `--min-free`: the least recently used go first,
  /// never one that is open, waited for or being fetched.
  private func makeRoom(_ now: Instant) {
    guard now >= nextSpaceCheck, let engine else { return }
    nextSpaceCheck = now.adding(seconds: Self.spaceInterval)
    do {
      let partials = try store.catalog.partialsByUse()
      var total = partials.reduce(Int64(0)) { .clampedSum($0, $1.storedBytes) }
      var lacking = options.minimumFree - Int64(clamping: try StoreSpace.measure(store.folder.path).available)
      for partial in partials {
        if total <= options.maximumSize && lacking <= 0 { break }
        guard partial.storedBytes > 0,
          engine.evict(partial.key, generation: partial.id) || engine.evictFromMemory(partial.key)
        else { continue }
        total -= partial.storedBytes
        lacking = .clampedSum(lacking, -partial.storedBytes)
      }
      let isOver = total > options.maximumSize || lacking > 0
      let (was, isFull) = pending.withLock { pending in
        let was = pending.isFull
        // A disk that just refused is not asked with every read, whatever it says of its room.
        let hasFailed = pending.refusedUntil.map { now < $0 } ?? false
        let isFull = isOver || hasFailed
        pending.isFull = isFull
        // A little beyond, what is read is stored all the same: other files are about to make room.
        let isFar = total - Self.leeway > options.maximumSize
        pending.isStuck = hasFailed || (isOver && (isFar || lacking > options.minimumFree / 2))
        return (was, isFull)
      }
      if isFull && !was {
        Log.warning("the store is at its limit: only what is read is fetched (--max-size, --min-free)")
      }
      if was && !isFull { Log.info("the store has room again") }
    } catch {
      Log.error("the store's room cannot be measured: \(error.message)")
    }
  }
}

extension CatalogChange {
  /// Whether nothing that is stored depends on it.
  var isIncidental: Bool {
    switch self {
    case .used, .problem, .gainedExtension: true
    default: false
    }
  }
}
