import Base
import Storing

/// What the transfer thread tells of a resource: its last error, and what a ``FileReport`` is derived from.
extension Engine {
  /// Remembers what went wrong with a resource.
  func note(_ message: String, of source: Source) {
    let error = LastError(message: message, at: clock.now)
    source.lastError = error
    table.withLock { $0.errors.note(error, of: source.key) }
  }

  /// Bytes came, or it is whole: what went wrong before is over.
  func forgetError(of source: Source) {
    guard source.lastError != nil else { return }
    source.lastError = nil
    table.withLock { $0.errors.forget(source.key) }
    keeper.record(.problem(source.key, nil))
  }

  /// Publishes what goes on, for status.
  func publish(_ source: Source, _ now: Instant) {
    let isFlowing = now.seconds(since: source.lastBytes) < 1
    var activity = Activity()
    activity.rate = isFlowing && !source.transfers.isEmpty ? source.meter.rate ?? 0 : 0
    activity.transfers = source.transfers.count
    activity.isFailed = source.failure != nil
    activity.isPaused = source.pausedUntil != nil
    activity.cannotBeStored = source.cannotBeStored
    activity.standsBack = hungry.contains(source.key)
    let host = hosts[HostState.key(of: source.target.url)]
    let (hasWaiters, isOpen) = source.content.guarded.withLock { ($0.state.hasWaiters, $0.state.opens > 0) }
    activity.hasWaiters = hasWaiters
    activity.lacksConnection = host?.lacksConnection(isBackground: !hasWaiters) ?? false
    activity.isWanted =
      source.wantsHead
      || (source.continues && options.continuation.goesOn(isRequested: source.isRequested, isOpen: isOpen))
    activity.retryAt = source.retry.due(readerWaits: hasWaiters)
    if !hasWaiters, let host, host.isAway, let due = host.outage.due(readerWaits: false) {
      activity.retryAt = max(due, activity.retryAt ?? due)
    }
    let published = activity
    source.content.guarded.withLock { $0.activity = published }
  }
}

extension ContinuationPolicy {
  /// Whether the rest of a file that was played, or that a user asked for by name, is to be fetched now.
  func goesOn(isRequested: Bool, isOpen: Bool) -> Bool {
    if isRequested { return true }
    switch self {
    case .playing, .always: return true
    case .open: return isOpen
    case .never: return false
    }
  }
}
