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

  private var silent = 0.0
  private var seconds = 0.0
  private var seenAt: Instant?

  /// Bytes came, `elapsed` seconds after the ones before, while a response was under way.
  mutating func received(after elapsed: Double, roundTrip: Double, now: Instant) {
    guard elapsed <= Self.silences.upperBound * roundTrip else { return }
    let kept = max(0, 1 - elapsed / Self.memory)
    seconds = seconds * kept + elapsed
    silent *= kept
    if elapsed >= max(Self.silences.lowerBound * roundTrip, Self.shortest) { silent += elapsed }
    if seconds >= Self.least, silent >= Self.leastPart * seconds { seenAt = now }
  }

  func areSmall(_ now: Instant) -> Bool { seenAt.map { now.seconds(since: $0) < Self.kept } ?? false }
}
