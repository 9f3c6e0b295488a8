import Base
import Manifest

/// Whether the store takes new bytes, as a whole and for each resource. Any thread may read and update it.
final class StoreHealth: Sendable {
  /// Which of the arriving bytes are stored.
  enum Intake: Sendable, Equatable {
    case everything
    /// The store or its disk is at its limit: what readers ask for is stored, background downloads pause.
    case whatIsRead
    /// The store is far beyond its limit with nothing left to evict, or the disk refused a write: the bytes that
    /// readers wait for are kept in memory for a while (P9).
    case nothing
  }

  /// How long nothing is written after a failed write, in seconds.
  static let refusedSeconds = 10.0
  /// The longest pause of one resource whose syncs fail again and again, in seconds. Each failed sync loses what was
  /// written, and it is fetched again.
  static let longestPause = 600.0

  private struct State: Sendable {
    var intake = Intake.everything
    /// Until when nothing is written, because the disk refused a write.
    var refusedUntil: Instant?
    /// Resources whose last sync failed: until when nothing of them is written, and how long the next pause is.
    var pauses: [ResourceKey: (until: Instant, next: Double)] = [:]
    /// How many more bytes fit within the store's limits; nil until it was measured.
    var spare: Int64?
  }
  private let state = Lock(State())
  private let clock: Clock

  init(clock: Clock) { self.clock = clock }

  var intake: Intake { state.withLock { $0.intake } }

  /// How many more bytes fit within the store's limits, as the keeper measured it last; nil until it has.
  var spare: Int64? { state.withLock { $0.spare } }
  /// Notes how many more bytes fit.
  func measured(spare: Int64) { state.withLock { $0.spare = spare } }

  /// Notes that the disk refused a write: nothing is stored for ``refusedSeconds``.
  func writeFailed() {
    let until = clock.now.adding(seconds: Self.refusedSeconds)
    state.withLock { state in
      state.intake = .nothing
      state.refusedUntil = max(state.refusedUntil ?? until, until)
    }
  }

  /// Takes over what the measured space allows. Returns the new intake when the store reached its limit or has space
  /// again, nil when neither changed.
  func measured(_ measured: Intake, now: Instant) -> Intake? {
    state.withLock { state in
      let before = state.intake
      // A disk that has just refused a write is not tried at every read, whatever free space it reports.
      let isRefused = state.refusedUntil.map { now < $0 } ?? false
      state.intake = isRefused ? .nothing : measured
      return (before == .everything) == (state.intake == .everything) ? nil : state.intake
    }
  }

  /// Notes that the disk lost written bytes of a resource. Returns until when nothing of it is stored: longer after
  /// each failure.
  func syncFailed(_ key: ResourceKey) -> Instant {
    let now = clock.now
    return state.withLock { state in
      let (until, pause) = state.pauses[key] ?? (now, Self.refusedSeconds)
      if now < until { return until }  // a second report of the same failure
      let next = now.adding(seconds: pause)
      state.pauses[key] = (next, min(2 * pause, Self.longestPause))
      return next
    }
  }

  /// Notes that the written bytes of a resource are on disk: its next pause is short again. Other resources keep
  /// theirs.
  func syncSucceeded(_ key: ResourceKey) { state.withLock { $0.pauses[key] = nil } }

  /// Until when nothing of a resource is stored because its syncs fail; nil when it may be stored.
  func pause(of key: ResourceKey) -> Instant? {
    let now = clock.now
    return state.withLock { $0.pauses[key].flatMap { now < $0.until ? $0.until : nil } }
  }
}
