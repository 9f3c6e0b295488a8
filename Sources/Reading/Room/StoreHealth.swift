import Base
import Manifest

/// Why the store does not take everything.
package enum StoreLack: Sendable, Equatable {
  /// The complete copies alone fill `--max-size`, and may not go.
  case copies
  /// `--max-size` is reached, and what is left is complete, open, kept or being fetched.
  case inUse
  /// The disk has less than `--min-free`.
  case disk
  /// The disk refused a write.
  case refused

  /// What is so, and what would help.
  package var advice: String {
    switch self {
    case .copies:
      "the complete files alone fill --max-size, so nothing is deleted: raise it (mediafs set max-size=SIZE), "
        + "delete some (mediafs clear FILE), or let them go by themselves (mediafs set evict=complete)"
    case .inUse:
      "--max-size is reached, and all that is left is complete, open, kept or being downloaded: raise it (mediafs set "
        + "max-size=SIZE), or clear or cancel some"
    case .disk: "the disk has less than --min-free: free disk space, or lower --min-free"
    case .refused: "the disk refused a write: free disk space, or raise the quota"
    }
  }
}

/// Whether the store takes new bytes, as a whole and for each resource. Any thread may read and update it.
final class StoreHealth: Sendable {
  /// Which of the arriving bytes are stored.
  enum Intake: Sendable, Equatable {
    case everything
    /// The store or its disk is at its limit: what readers ask for is stored, background downloads pause.
    case whatIsRead
    /// The disk has too little space, or refused a write: the bytes that readers wait for are kept in memory for a
    /// while (P9). The same holds where `--max-size` leaves no room for them (``StoreLedger``).
    case nothing
  }

  /// How long nothing is written after a failed write, in seconds.
  static let refusedSeconds = 10.0
  /// The longest pause of one resource whose syncs fail again and again, in seconds. Each failed sync loses what was
  /// written, and it is fetched again.
  static let longestPause = 600.0

  private struct State: Sendable {
    var intake = Intake.everything
    var lack: StoreLack?
    /// Until when nothing is written, because the disk refused a write.
    var refusedUntil: Instant?
    /// Whether the keeper has still to make room for that.
    var lacksRoom = false
    /// Resources whose last sync failed: until when nothing of them is written, and how long the next pause is.
    var pauses: [ResourceKey: (until: Instant, next: Double)] = [:]
    /// How many more bytes fit within the store's limits; nil until it was measured.
    var spare: Int64?
  }
  private let state = Lock(State())
  private let clock: Clock

  init(clock: Clock) { self.clock = clock }

  var intake: Intake { state.withLock { $0.intake } }
  /// Why it does not take everything; nil while it does.
  var lack: StoreLack? { state.withLock { $0.lack } }
  /// Whether the disk has just refused a write.
  func isRefused(_ now: Instant) -> Bool { state.withLock { $0.refusedUntil.map { now < $0 } ?? false } }

  /// How many more bytes fit within the store's limits, as the keeper measured it last; nil until it has.
  var spare: Int64? { state.withLock { $0.spare } }
  /// Notes how many more bytes fit.
  func measured(spare: Int64) { state.withLock { $0.spare = spare } }

  /// Notes that the disk refused a write: nothing is stored for ``refusedSeconds``.
  func writeFailed() {
    let until = clock.now.adding(seconds: Self.refusedSeconds)
    state.withLock { state in
      state.intake = .nothing
      state.lack = .refused
      state.lacksRoom = true
      state.refusedUntil = max(state.refusedUntil ?? until, until)
    }
  }

  /// Whether the disk refused a write since the last call: a quota does not show in its free space.
  func takeRefusal() -> Bool {
    state.withLock { state in
      defer { state.lacksRoom = false }
      return state.lacksRoom
    }
  }

  /// Takes over what the measured space allows. Returns the new intake when the store reached its limit or has space
  /// again, nil when neither changed.
  func measured(_ measured: Intake, _ lack: StoreLack?, now: Instant) -> Intake? {
    state.withLock { state in
      let before = state.intake
      // A disk that has just refused a write is not tried at every read, whatever free space it reports.
      let isRefused = state.refusedUntil.map { now < $0 } ?? false
      state.intake = isRefused ? .nothing : measured
      state.lack = isRefused ? .refused : lack
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
