import Base
import Fetching
import Manifest

/// The resources that the transfer thread knows, and which of them are to be planned. Owned by that thread.
final class Downloads {
  private let room: ReadingRoom
  private let service: any TransferService
  private let lines: Lines
  private var byKey: [ResourceKey: Download] = [:]
  /// All of them by their keys; nil when that is to be found out anew.
  private var ordered: [Download]?
  private var byTransfer: [TransferID: Download] = [:]
  private var dirty: Set<ResourceKey> = []
  /// Those that wanted a transfer when no connection was free for one.
  private var hungry: Set<ResourceKey> = []

  init(room: ReadingRoom, service: any TransferService, lines: Lines) {
    self.room = room
    self.service = service
    self.lines = lines
  }

  /// All of them, in any order.
  var all: Dictionary<ResourceKey, Download>.Values { byKey.values }
  /// All of them in an order that does not change from run to run: for decisions on one that bear on the next.
  var inOrder: [Download] {
    if let ordered { return ordered }
    let sorted = byKey.values.sorted { $0.key < $1.key }
    ordered = sorted
    return sorted
  }
  subscript(key: ResourceKey) -> Download? { byKey[key] }

  /// The download of a content; made when there is none, taken over when the content is a newer object of the same
  /// resource.
  func download(of content: Content) -> Download {
    if let download = byKey[content.key] {
      let isCurrent = room.table.withLock { $0.current[content.key] === content }
      if download.content !== content && isCurrent { download.content = content }
      return download
    }
    // The message may be older than a new generation of its resource.
    let current = room.table.withLock { $0.current[content.key] } ?? content
    let download = Download(content: current, service: service, timeout: room.options.timeout)
    download.ownFile.pausedUntil = room.health.pause(of: content.key)
    download.attempts.lastError = room.table.withLock { $0.errors[content.key] }
    download.wish.isByName = current.guarded.withLock { $0.held.isPinned }
    byKey[content.key] = download
    ordered = nil
    return download
  }

  // MARK: Transfers

  func download(of id: TransferID) -> Download? { byTransfer[id] }
  func began(_ id: TransferID, of download: Download) { byTransfer[id] = download }
  func ended(_ id: TransferID) -> Download? { byTransfer.removeValue(forKey: id) }
  /// The downloads that have a transfer in flight, once for each.
  var transferring: Dictionary<TransferID, Download>.Values { byTransfer.values }

  // MARK: What is to be planned

  /// Its state changed: it is planned at the end of this turn.
  func changed(_ download: Download) { dirty.insert(download.key) }
  func changed(_ key: ResourceKey) { dirty.insert(key) }

  /// Takes out what is to be planned.
  func takeChanged() -> [Download] {
    if dirty.isEmpty { return [] }
    let keys = dirty.sorted()  // a plan may change what the next one may do
    dirty.removeAll(keepingCapacity: true)
    return keys.compactMap { byKey[$0] }
  }

  /// It wants a transfer, and no connection is free for one.
  func starves(_ download: Download) { hungry.insert(download.key) }

  /// A connection may be free for what had to stand back.
  func feedHungry() {
    dirty.formUnion(hungry)
    hungry.removeAll(keepingCapacity: true)
  }

  /// Notes whether its readers wait: background downloads of the same line stand back meanwhile.
  func setWaits(_ download: Download, _ waits: Bool) {
    lines.setWaits(download, on: waits ? Line.key(of: download.mirrors.target.url) : nil, now: room.clock.now)
    if !waits { feedHungry() }
  }

  // MARK: What is wanted

  /// The rest of the file is wanted from now on, also at the next mount.
  func wantRest(_ download: Download) {
    if download.wish.rest { return }
    download.wish.rest = true
    let id = download.content.guarded.withLock { $0.held.continues(true) }
    if let id { room.record(.continues(generation: id, true)) }
  }

  /// A user asked for the file by name: it is completed whatever the policy, also at the next mount.
  func pin(_ download: Download) {
    download.wish.isByName = true
    let isNew = download.content.guarded.withLock { $0.held.pinned(true) }
    if isNew { room.record(.pinned(download.key, true)) }
  }

  /// It is whole, a user cleared it, or it cannot become whole.
  func unpin(_ download: Download) {
    download.wish.isByName = false
    let was = download.content.guarded.withLock { $0.held.pinned(false) }
    if was { room.record(.pinned(download.key, false)) }
  }

  // MARK: What is told of it

  /// Remembers what went wrong with a resource.
  func note(_ message: String, of download: Download) {
    let error = LastError(message: message, at: room.clock.now)
    download.attempts.lastError = error
    room.table.withLock { $0.errors.note(error, of: download.key) }
  }

  /// Bytes came, or it is whole: what went wrong before is over.
  func forgetError(of download: Download) {
    guard download.attempts.lastError != nil else { return }
    download.attempts.lastError = nil
    room.table.withLock { $0.errors.forget(download.key) }
    room.record(.problem(download.key, nil))
  }

  /// Publishes what goes on, for status.
  func publish(_ download: Download, _ now: Instant) {
    let isFlowing = now.seconds(since: download.pace.lastBytes) < 1
    var activity = Activity()
    activity.rate = isFlowing && !download.transfers.isEmpty ? download.pace.meter.rate ?? 0 : 0
    activity.transfers = download.transfers.count
    activity.isFailed = download.attempts.failure != nil
    activity.isPaused = download.ownFile.pausedUntil != nil
    activity.cannotBeStored = download.ownFile.isUnwritable
    activity.standsBack = hungry.contains(download.key)
    let line = lines.line(of: download)
    let (hasWaiters, isOpen) = download.content.guarded.withLock { (!$0.waiters.isEmpty, $0.waiters.opens > 0) }
    activity.hasWaiters = hasWaiters
    activity.lacksConnection = line.lacksConnection(isBackground: !hasWaiters)
    activity.isWanted =
      download.wish.head
      || (download.wish.rest && room.options.continuation.goesOn(isRequested: download.wish.isByName, isOpen: isOpen))
    activity.retryAt = download.attempts.retry.due(readerWaits: hasWaiters)
    if !hasWaiters, line.isUnreachable, let due = line.outage.due(readerWaits: false) {
      activity.retryAt = max(due, activity.retryAt ?? due)
    }
    let published = activity
    download.content.guarded.withLock { $0.activity = published }
  }

  // MARK: The end of its use

  /// Forgets a resource if nobody uses it; the catalog knows all that is worth knowing.
  func putAway(_ download: Download) {
    guard download.transfers.isEmpty else { return }
    let content = download.content
    let isIdle = room.table.withLock { table -> Bool in
      // What is not synced yet keeps it: the keeper commits from this object, and a second one would know less.
      let idle = content.guarded.withLock { guarded in
        guarded.held.isPutAway || (guarded.waiters.opens == 0 && guarded.waiters.isEmpty && guarded.held.putAway())
      }
      if idle { table.remove(content) }
      return idle
    }
    guard isIdle else { return }
    if download.lineUse.waitsOn != nil { setWaits(download, false) }
    byKey[download.key] = nil
    ordered = nil
    hungry.remove(download.key)
  }
}
