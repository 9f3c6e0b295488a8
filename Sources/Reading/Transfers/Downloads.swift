import Base
import Fetching
import Manifest

/// The downloads in memory, and which of them the scheduler plans next. Owned by the transfer thread.
final class Downloads {
  private let room: ReadingRoom
  private let service: any TransferService
  private let lines: Lines
  private let second: (any SecondSource)?
  private var byKey: [ResourceKey: Download] = [:]
  /// All downloads in the order of their keys; nil after a change.
  private var ordered: [Download]?
  private var byTransfer: [TransferID: Download] = [:]
  private var dirty: Set<ResourceKey> = []
  /// Who goes from file to file.
  private(set) var passers = Passers()
  /// Downloads that wanted a transfer when their line or the rate limit had no room.
  private var blocked: Set<ResourceKey> = []

  init(room: ReadingRoom, service: any TransferService, lines: Lines, second: (any SecondSource)? = nil) {
    self.room = room
    self.second = second
    self.service = service
    self.lines = lines
  }

  /// All downloads, in any order.
  var all: Dictionary<ResourceKey, Download>.Values { byKey.values }
  /// All downloads in the same order in every run, for decisions on one that affect the next.
  var inOrder: [Download] {
    if let ordered { return ordered }
    let sorted = byKey.values.sorted { $0.key < $1.key }
    ordered = sorted
    return sorted
  }
  subscript(key: ResourceKey) -> Download? { byKey[key] }

  /// The download of a content. Makes one if there is none; updates its content when that is the resource's current
  /// one.
  func download(of content: Content) -> Download {
    if let download = byKey[content.key] {
      let isCurrent = room.table.withLock { $0.current[content.key] === content }
      if download.content !== content && isCurrent { download.content = content }
      // The rules change while nobody holds the content's lock.
      download.wish.rules = download.content.guarded.withLock { $0.rules }
      download.isDormant = false
      return download
    }
    // The content in the message may be older than a new generation of its resource.
    let current = room.table.withLock { $0.current[content.key] } ?? content
    let download = Download(content: current, service: service, timeout: room.options.timeout)
    download.ownFile.pausedUntil = room.health.pause(of: content.key)
    (download.attempts.lastError, download.fetched) = room.table.withLock {
      ($0.errors[content.key], $0.fetched[content.key] ?? FetchedBytes())
    }
    (download.wish.isByName, download.wish.rules) = current.guarded.withLock { ($0.held.isPinned, $0.rules) }
    byKey[content.key] = download
    ordered = nil
    return download
  }

  // MARK: Transfers

  func download(of id: TransferID) -> Download? { byTransfer[id] }
  func began(_ id: TransferID, of download: Download) { byTransfer[id] = download }
  func ended(_ id: TransferID) -> Download? { byTransfer.removeValue(forKey: id) }
  /// The downloads that have a transfer in flight: one element for each transfer.
  var transferring: Dictionary<TransferID, Download>.Values { byTransfer.values }

  /// The last handle of a file was closed. Whose reader showed no pace passes by: another one may follow it. The clocks
  /// are those of the current version's readers, and tell nothing of another one's.
  func closed(_ content: Content, _ now: Instant) {
    let (runs, size) = content.guarded.withLock { ($0.waiters.runs, $0.held.size ?? 0) }
    guard let download = byKey[content.key], download.content === content else { return }
    let read = Passers.read(runs, now: now, program: download.program)
    let paced = (runs.runs + runs.gone).filter { download.lineUse.playouts.pace(of: $0) != nil }
    let players = Set(paced.flatMap { download.program(of: $0.process).numbers })
    passers.closed(content.key, read: read, players: players, size: size, now: now)
    guard download.lineUse.playouts.playsSince == nil else { return }
    lines.update(download.mirrors.host) { $0.readers.lastPassing = now }
  }

  // MARK: Planning

  /// Marks a download whose state changed: the scheduler plans it at the end of this turn.
  func changed(_ download: Download) {
    download.isDormant = false
    dirty.insert(download.key)
  }
  func changed(_ key: ResourceKey) {
    byKey[key]?.isDormant = false
    dirty.insert(key)
  }

  /// Removes and returns the downloads to plan, ordered by key.
  func takeChanged() -> [Download] {
    if dirty.isEmpty { return [] }
    let keys = dirty.sorted()  // a plan may change what the next one may do
    dirty.removeAll(keepingCapacity: true)
    return keys.compactMap { byKey[$0] }
  }

  /// Notes that a download wants a transfer and its line or the rate limit has no room.
  func noteBlocked(_ download: Download) { blocked.insert(download.key) }

  /// Marks the downloads that had no room, so that the scheduler plans them again.
  func replanBlocked() {
    lines.unblock()
    dirty.formUnion(blocked)
    blocked.removeAll(keepingCapacity: true)
  }

  /// Notes what the download's readers count for. Others on the same line stand back meanwhile.
  func setStanding(_ download: Download, _ standing: LineStanding?) {
    lines.setStanding(download, standing, now: room.clock.now)
    if standing.map({ !$0.isNew && !$0.isUrgent }) ?? true { replanBlocked() }
  }

  // MARK: Wishes

  /// Has the rest of the file fetched from now on, also after the next mount.
  func wantRest(_ download: Download) {
    if download.wish.rest { return }
    download.wish.rest = true
    let id = download.content.guarded.withLock { $0.held.continues(true) }
    if let id { room.record(.continues(generation: id, true)) }
  }

  /// Notes that a user asked for the file by name: it is completed whatever the policy, also after the next mount.
  func pin(_ download: Download) {
    download.wish.isByName = true
    let isNew = download.content.guarded.withLock { $0.held.pinned(true) }
    if isNew { room.record(.pinned(download.key, true)) }
  }

  /// Ends that: the file is complete, a user cleared it, or it cannot be completed.
  func unpin(_ download: Download) {
    download.wish.isByName = false
    let was = download.content.guarded.withLock { $0.held.pinned(false) }
    if was { room.record(.pinned(download.key, false)) }
  }

  // MARK: Errors and activity

  /// Records the last error of a resource.
  func note(_ message: String, of download: Download) {
    let error = LastError(message: message, at: room.clock.now)
    if download.attempts.lastError?.message != message { room.happened(.failing, to: download.content, message) }
    download.attempts.lastError = error
    room.table.withLock { $0.errors.note(error, of: download.key) }
  }

  /// Forgets the last error: bytes arrived, or the file is complete.
  func forgetError(of download: Download) {
    guard download.attempts.lastError != nil else { return }
    download.attempts.lastError = nil
    room.table.withLock { $0.errors.forget(download.key) }
    room.record(.problem(download.key, nil))
  }

  /// Publishes the download's activity, for `status`.
  func publish(_ download: Download) {
    var activity = Activity()
    activity.received = download.pace.received
    activity.transfers = download.transfers.count
    activity.isFailed = download.attempts.hasFailed
    let ahead = download.wish.ahead
    activity.isPaused = download.ownFile.pausedUntil != nil || ahead?.hold == .space
    activity.cannotBeStored = download.ownFile.isUnwritable
    activity.standsBack = blocked.contains(download.key) || ahead?.hold == .line
    let line = lines.line(of: download)
    let (hasWaiters, isOpen, lacksAhead) = download.content.guarded.withLock { guarded in
      (!guarded.waiters.isEmpty, guarded.waiters.opens > 0, ahead.map { $0.missing(in: guarded.held.stored) > 0 })
    }
    activity.hasWaiters = hasWaiters
    let others = download.lineUse.playouts.playsSince == nil ? line.readers.need : download.lineUse.elders
    activity.supply = lines.supply(line, of: download.mirrors.host, besides: others)
    activity.film = download.lineUse.playouts.film
    activity.lacksConnection = line.lacksConnection(isBackground: !hasWaiters)
    activity.isWanted =
      download.wish.head || lacksAhead == true
      || (download.wish.rest
        && room.options.continuation.goesOn(isRequested: download.wish.isRequested, isOpen: isOpen))
    // A resolver's links are told to nobody.
    let isNamed = download.content.entry.resolver == nil
    (activity.mirror, activity.refusals) = isNamed ? (download.mirrors.index, download.mirrors.refusals) : (0, [])
    (activity.servesRanges, activity.fetched) = (download.ranges.works, download.fetched)
    activity.retryAt = download.attempts.retry.due(readerWaits: hasWaiters)
    if !hasWaiters, line.isUnreachable, let due = line.outage.due(readerWaits: false) {
      activity.retryAt = max(due, activity.retryAt ?? due)
    }
    let published = activity
    download.content.guarded.withLock { $0.activity = published }
  }

  // MARK: Putting away

  /// Removes a resource from memory if nobody uses it. The catalog knows everything that must last.
  func putAway(_ download: Download) {
    // Who waits for a message that is postponed would wait for ever.
    guard download.transfers.isEmpty, download.postponed.isEmpty else { return }
    let content = download.content
    let isIdle = room.table.withLock { table -> Bool in
      // Unsynced bytes keep the content here: the keeper commits from this object, and a second one would know less.
      let idle = content.guarded.withLock { guarded in
        guarded.held.isPutAway || (guarded.waiters.opens == 0 && guarded.waiters.isEmpty && guarded.held.putAway())
      }
      if idle {
        table.remove(content)
        table.fetched.note(download.fetched, of: download.key)
      }
      return idle
    }
    guard isIdle else { return }
    if let generation = download.second { second?.close(generation, isReplaced: false) }
    if download.lineUse.standing != nil { setStanding(download, nil) }
    byKey[download.key] = nil
    ordered = nil
    blocked.remove(download.key)
  }
}
