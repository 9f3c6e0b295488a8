import Base

/// Whether the servers' congestion windows bound what the connections of a line bring, and not the line itself. Pure.
///
/// A server sends as many bytes as a connection's congestion window holds, and then waits a round trip for their
/// acknowledgements. The window is small on a new connection, after a loss (RFC 9438), and when the connection was idle
/// (RFC 2861): 64 KiB take two or three round trips, and the line is silent in between, though responses are under way.
/// Then several connections bring short pieces sooner than one brings a long one.
struct CongestionWindows: Sendable, Equatable {
  /// The silences, in round trips, in which servers wait: what is shorter is the time between packets or between
  /// requests, what is longer an outage.
  private static let silences = 0.3...3.0
  private static let shortest = 0.008
  /// Over how many seconds silences are counted, and from how many on they say something.
  private static let memory = 2.0
  private static let least = 0.4
  /// The part of the time that they take where windows are small.
  private static let leastPart = 0.15
  /// For how many seconds windows count as small: short pieces leave few silences that could show it again.
  private static let kept = 60.0
  /// Slow start is over after so many round trips of bytes, on a line that was not idle for longer than a server's
  /// retransmission timeout. Windows that are small for so many seconds more are bound by losses.
  private static let slowStart = 12.0
  private static let longestIdle = 0.3
  private static let lasting = 0.5

  private var silent = 0.0
  private var seconds = 0.0
  private var seenAt: Instant?
  private var lastAt: Instant?
  private var busy = 0.0
  private var small = 0.0

  /// The seconds of the shortest silence that says something.
  static func leastSilence(roundTrip: Double) -> Double { max(silences.lowerBound * roundTrip, shortest) }

  /// Bytes came, `elapsed` seconds after the ones before, while a response was under way. `isHeld`: they waited for a
  /// lost packet, and say nothing of the server.
  mutating func received(after elapsed: Double, isHeld: Bool = false, roundTrip: Double, now: Instant) {
    let idle = lastAt.map { now.seconds(since: $0) - elapsed } ?? 0
    lastAt = now
    if idle > Self.longestIdle + roundTrip { busy = 0 }
    guard elapsed <= Self.silences.upperBound * roundTrip else { return }
    let kept = max(0, 1 - elapsed / Self.memory)
    seconds = seconds * kept + elapsed
    silent *= kept
    if !isHeld, elapsed >= Self.leastSilence(roundTrip: roundTrip) { silent += elapsed }
    let areSmall = seconds >= Self.least && silent >= Self.leastPart * seconds
    if areSmall { seenAt = now }
    busy += elapsed
    if !areSmall {
      small = max(0, small - elapsed)
    } else if busy > Self.slowStart * roundTrip {
      small = min(small + elapsed, 2 * Self.lasting)
    }
  }

  /// Whether responses pause as where windows are small, by what has come so far; true while nothing has.
  func pause(_ now: Instant) -> Bool { areSmall(now) || pauseNow }

  /// The same by the last seconds alone.
  var pauseNow: Bool { silent >= Self.leastPart * seconds }

  /// Whether they were small for long, though the line was busy: one connection does not fill it.
  var areSmallForLong: Bool { small >= Self.lasting }

  func areSmall(_ now: Instant) -> Bool { seenAt.map { now.seconds(since: $0) < Self.kept } ?? false }
}
