import Base
import Manifest

/// Whether the store takes what comes, as a whole and of each resource. Any thread may ask and tell.
final class StoreHealth: Sendable {
  /// What is stored of what comes.
  enum Intake: Sendable, Equatable {
    case everything
    /// The store or its disk is at its limit: what is read, and nothing for a background download.
    case whatIsRead
    /// It is far beyond the limit with nothing left to evict, or the disk refused a write: what readers wait for is
    /// kept in memory for a while (P9).
    case nothing
  }

  /// How long nothing is written after a write that failed, in seconds.
  static let refusedSeconds = 10.0
  /// The longest pause of one resource after syncs that failed one after the other, in seconds: what was written is
  /// lost each time, and is fetched again.
  static let longestPause = 600.0

  private struct State: Sendable {
    var intake = Intake.everything
    /// Until when nothing is written, because the disk refused something.
    var refusedUntil: Instant?
    /// Resources whose last sync failed: until when nothing is written of them, and how long the next pause is.
    var pauses: [ResourceKey: (until: Instant, next: Double)] = [:]
  }
  private let state = Lock(State())
  private let clock: Clock

  init(clock: Clock) { self.clock = clock }

  var intake: Intake { state.withLock { $0.intake } }

  /// The disk refused a write: for a while nothing is stored.
  func writeFailed() {
    let until = clock.now.adding(seconds: Self.refusedSeconds)
    state.withLock { state in
      state.intake = .nothing
      state.refusedUntil = max(state.refusedUntil ?? until, until)
    }
  }

  /// The space was measured: `measured` is what it allows. Whether the store came to its limit or has space again; nil
  /// when neither changed.
  func measured(_ measured: Intake, now: Instant) -> Intake? {
    state.withLock { state in
      let before = state.intake
      // A disk that just refused is not asked with every read, whatever it says of its room.
      let isRefused = state.refusedUntil.map { now < $0 } ?? false
      state.intake = isRefused ? .nothing : measured
      return (before == .everything) == (state.intake == .everything) ? nil : state.intake
    }
  }

  /// The disk lost what was written of a resource: until when nothing of it is stored, longer each time.
  func syncFailed(_ key: ResourceKey) -> Instant {
    let now = clock.now
    return state.withLock { state in
      let (until, pause) = state.pauses[key] ?? (now, Self.refusedSeconds)
      if now < until { return until }  // told twice
      let next = now.adding(seconds: pause)
      state.pauses[key] = (next, min(2 * pause, Self.longestPause))
      return next
    }
  }

  /// What was written of a resource is on disk: its pauses begin anew. Another's sync says nothing of it.
  func syncSucceeded(_ key: ResourceKey) { state.withLock { $0.pauses[key] = nil } }

  /// Until when nothing of a resource is to be stored, as its syncs fail; nil when it may be.
  func pause(of key: ResourceKey) -> Instant? {
    let now = clock.now
    return state.withLock { $0.pauses[key].flatMap { now < $0.until ? $0.until : nil } }
  }
}
