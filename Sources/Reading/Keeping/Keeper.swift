import Base
import Manifest
import Storing

/// What other threads ask of the keeper.
enum KeeperMessage: Sendable {
  /// A change to commit within a second, or at once.
  case record(CatalogChange, promptly: Bool)
  /// More bytes of the content are stored than the catalog knows.
  case grew(Content)
  /// Disk work, done in the order of the messages.
  case job(@Sendable (Keeper) -> Void)
  /// Room is scarce, or the disk refused a write: make some, and look again until there is enough.
  case measureSpace
  /// Sync all data, commit everything, and end.
  case stop
}

/// Commits the stored extents each second, makes space, and removes stored bytes. It is the only thread that commits
/// the extents of growing files. All that it owns is made on its thread, and no other thread can reach it.
///
/// A commit has the recorded changes first, then the extents of every content that grew. Until an fdatasync of their
/// file, each 256 MiB or 30 s, extents are believed in this boot only (docs/STORE-FORMAT.md).
final class Keeper {
  /// Seconds from the first change to its commit: the most that a kill can lose.
  static let interval = 1.0
  static let syncBytes: Int64 = 256 << 20
  static let syncSeconds = 30.0
  /// With more changes than this that cannot be committed, the incidental ones (``CatalogChange/isIncidental``) are
  /// dropped.
  static let mostChanges = 4096

  let room: ReadingRoom
  private var changes: [CatalogChange] = []
  /// Contents with stored bytes that the catalog does not know.
  private var grown: [Content] = []
  private var unsynced: [Content] = []
  private var isPrompt = false
  private var isSpaceScarce = false
  private var isStopping = false
  /// When the next commit is due; nil while there is nothing to commit.
  private var due: Instant?
  private var lastError: String?
  /// How many jobs of ``each(of:_:then:)`` have a part to come.
  var parted = 0
  lazy var space = SpaceKeeping(room: room)

  /// Called on the keeper's thread.
  init(room: ReadingRoom) { self.room = room }

  /// Works until the message `stop`.
  func run() {
    while true {
      ThreadRecord.rest()
      let next = min(due ?? .never, space.nextAging)
      room.keeperSignal.wait(seconds: next == .never ? nil : max(0, next.seconds(since: room.clock.now)))
      if !turn() { return }
    }
  }

  /// Takes the messages and commits what is due; false after `stop`.
  func turn() -> Bool {
    takeMessages()
    let now = room.clock.now
    if isStopping {
      takeMessages()  // messages from the last jobs
      commit(everything: true, now)
      disclaim(grown)
      return false
    }
    if isSpaceScarce || space.nextAging <= now {
      isSpaceScarce = false
      // What was closed a moment ago is not what was used least recently.
      if changes.contains(where: \.isUse) { commit(everything: false, now) }
      ThreadRecord.work(.space)
      space.makeSpaceSoon(now)
    }
    if isPrompt || due.map({ $0 <= now }) ?? false {
      isPrompt = false
      takeMessages()
      let noted = grown
      commit(everything: false, now)
      for content in noted where content.isReadOn { _ = room.films.index(of: content) }
      ThreadRecord.work(.space)
      space.makeSpace(now)
      due = hasWork || !unsynced.isEmpty ? now.adding(seconds: Self.interval) : nil
    } else if due == nil, hasWork {
      due = now.adding(seconds: Self.interval)
    }
    return true
  }

  /// Deletes the partial file of a resource that is not listed any more. False while it is in memory.
  func evictUnlisted(_ known: GenerationRecord) -> Bool {
    guard space.evict(known.key, generation: known.id, isUnlisted: true) else { return false }
    changes.append(.pinned(known.key, false))
    return true
  }

  /// Makes space at once: the limit was changed.
  func makeSpaceNow() { space.makeSpaceNow(room.clock.now) }

  /// Measures how many more bytes fit within the store's limits, without making space.
  func measureSpare() { space.measure() }

  private var hasWork: Bool { !changes.isEmpty || !grown.isEmpty || room.health.intake != .everything }

  private func takeMessages() {
    for message in room.keeper.takeAll() {
      ThreadRecord.work(.messages)
      switch message {
      case .record(let change, let promptly):
        changes.append(change)
        if promptly { isPrompt = true }
      case .grew(let content): grown.append(content)
      case .job(let job): job(self)
      case .measureSpace: isSpaceScarce = true
      case .stop: isStopping = true
      }
    }
  }

  func commit(everything: Bool, _ now: Instant) {
    ThreadRecord.work(.commit)
    let (recorded, noted) = (changes, grown)
    changes = []
    grown = []
    for content in noted where !unsynced.contains(where: { $0 === content }) { unsynced.append(content) }
    var stillUnsynced: [Content] = []
    var extents: [Extents] = []
    var uses: [CatalogChange] = []
    for content in unsynced {
      let isNoted = noted.contains { $0 === content }
      guard let taken = snapshot(content, isNoted: isNoted, syncing: everything, now) else { continue }
      if taken.isSynced, !everything, let use = use(of: content, now) { uses.append(use) }
      if let change = taken.change { extents.append(Extents(content: content, change: change)) }
      if !taken.isSynced { stillUnsynced.append(content) }
    }
    unsynced = stillUnsynced
    if everything { uses = room.table.withLock { $0.current.values.map { $0 } }.compactMap { use(of: $0, now) } }
    let all = recorded + extents.map(\.change) + uses
    if all.isEmpty && !everything { return }
    do {
      try room.store.changes.apply(all, durably: everything)
      lastError = nil
      room.recorded(recorded)
      for taken in extents { taken.content.guarded.withLock { $0.held.committed() } }
    } catch {
      // One of the changes is invalid. It must not keep the others from being committed.
      if error.kind == .invalid { return commitSingly(recorded + uses, extents, durably: everything) }
      // Keeps them for the next try: a failed commit must not lose the extents.
      if lastError != error.message { Log.error("the catalog cannot be written, trying again: \(error.message)") }
      lastError = error.message
      changes = recorded + uses + changes
      grown += extents.map(\.content)
      if changes.count > Self.mostChanges { changes.removeAll(where: \.isIncidental) }
    }
  }

  /// When its blocks were used, for the next commit: a kill costs little of it, and it is written rarely.
  private func use(of content: Content, _ now: Instant) -> CatalogChange? {
    let date = room.clock.date
    return content.guarded.withLock { guarded in
      guard let id = guarded.held.generation?.id, guarded.held.isPartial else { return nil }
      return guarded.uses.taken(now, date: date).map { .usedBlocks(generation: id, $0) }
    }
  }

  /// Has the catalog told of a content at the next commit; after the last commit its file is deleted instead.
  func toldLater(_ content: Content) { grown.append(content) }

  /// The stored extents of a content, about to be committed.
  struct Extents {
    let content: Content
    let change: CatalogChange
  }

  /// Commits each change by itself. Drops a change that the catalog calls invalid; keeps the others for the next try.
  func commitSingly(_ recorded: [CatalogChange], _ extents: [Extents], durably: Bool) {
    for change in recorded {
      if commit(change, durably: durably) { room.recorded([change]) } else { changes.append(change) }
    }
    for taken in extents {
      if commit(taken.change, durably: durably) {
        taken.content.guarded.withLock { $0.held.committed() }
      } else {
        grown.append(taken.content)
      }
    }
  }

  /// False when the change has to be tried again.
  private func commit(_ change: CatalogChange, durably: Bool) -> Bool {
    do {
      try room.store.changes.apply([change], durably: durably)
      return true
    } catch {
      Log.error("the catalog \(error.kind == .invalid ? "refuses" : "cannot take") a change: \(error.message)")
      // Extents are never dropped: without this commit the catalog would not know the bytes.
      switch change {
      case .extents, .lost: return false
      default: return error.kind == .invalid
      }
    }
  }

  /// Handles contents that the last commit did not take. Where the catalog claims bytes that the disk lost, the file is
  /// deleted: the next mount notices a claim without a file.
  private func disclaim(_ contents: [Content]) {
    for content in contents {
      let id = content.guarded.withLock { $0.held.claim == .overclaimed ? $0.held.generation?.id : nil }
      guard let id else { continue }
      do throws(StoreError) {
        try room.removePartial(id)
      } catch {
        Log.error(
          "\(content.path): its partial file \(id) has lost bytes that the catalog claims, and cannot be removed: "
            + "\(error.message); remove it by hand")
      }
    }
  }

  /// The extents to commit for a content; syncs its file when that is due. nil when its bytes are being removed.
  private func snapshot(
    _ content: Content, isNoted: Bool, syncing: Bool, _ now: Instant
  ) -> (change: CatalogChange?, isSynced: Bool)? {
    ThreadRecord.work(.commit)  // many files: each one is another piece of work
    // The file could not be opened again: only the catalog has to be told.
    let told = content.guarded.withLock { guarded -> CatalogChange? in
      let held = guarded.held
      guard held.claim == .overclaimed, held.file == nil, held.removal == .none else { return nil }
      return held.generation.map { .lost(generation: $0.id, stored: held.stored, synced: held.synced) }
    }
    if let told { return (told, true) }
    let lacksSpace = room.health.intake != .everything
    let taken = content.guarded.withLock { guarded -> (FileState.Snapshot, mustSync: Bool)? in
      guard let snapshot = guarded.held.snapshot(isNoted: isNoted) else { return nil }
      let held = guarded.held
      let isOld = held.unsyncedSince.map { now.seconds(since: $0) >= Self.syncSeconds } ?? false
      // At the store's limit, a file that nobody has open is synced at once: only then can it be put away and evicted.
      let isWanted = lacksSpace && guarded.waiters.opens == 0
      // The finisher syncs the file that it verifies, unless the server ends. A file in its queue may wait long.
      let isFinishers = held.holding == .verifying && !syncing
      let isDue = !isFinishers && (syncing || isOld || isWanted || held.unsynced >= Self.syncBytes)
      return (snapshot, isDue && held.unsynced > 0)
    }
    guard let (snapshot, mustSync) = taken, let partial = snapshot.file.partial else { return nil }
    if mustSync {
      do {
        try partial.syncData()
        room.health.syncSucceeded(content.key)
      } catch {
        snapshot.file.invalidate()  // at once, because reads may be about to use it
        syncFailed(content, snapshot.file, error)
        return nil
      }
    }
    return content.guarded.withLock { guarded in
      // The finisher has committed the extents of a completed file; those of a cleared file are gone.
      guard guarded.held.isCurrent(snapshot) else { return nil }
      if mustSync { guarded.held.synced(snapshot, now: now) }
      let (id, stored, synced) = (snapshot.generation, snapshot.stored, guarded.held.synced)
      let change: CatalogChange =
        guarded.held.claim == .overclaimed
        ? .lost(generation: id, stored: stored, synced: synced)
        : .extents(generation: id, stored: stored, synced: synced)
      return (isNoted || mustSync ? change : nil, guarded.held.unsynced == 0)
    }
  }
}

extension CatalogChange {
  /// Whether it says when something was used.
  fileprivate var isUse: Bool {
    switch self {
    case .used, .usedBlocks: true
    default: false
    }
  }

  /// Whether no stored byte depends on the change.
  var isIncidental: Bool {
    switch self {
    case .used, .usedBlocks, .problem, .host, .kind, .gainedExtension: true
    default: false
    }
  }
}
