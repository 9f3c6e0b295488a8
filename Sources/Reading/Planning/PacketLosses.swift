import Base

/// Whether packets of a line's connection get lost: those after a lost one come out of order, and the kernel counts
/// them. A server that pauses, or has no processor time, looks like one with small congestion windows, but loses none.
/// Pure.
struct PacketLosses: Sendable, Equatable {
  /// For how many seconds a loss counts: at one in 200 packets, 0.5 MB/s have two in a second.
  private static let kept = 10.0

  private var connection: Int?
  private var count = 0
  private var isKnown = false
  private var lastAt: Instant?

  /// The kernel has counted `count` packets out of order on connection `number`; nil: it does not tell.
  mutating func counted(_ count: Int?, over number: Int?, now: Instant) {
    guard let count else { return }
    isKnown = true
    if connection != number { (connection, self.count) = (number, 0) }
    if count > self.count { lastAt = now }
    self.count = count
  }

  /// Whether some were lost lately, or may have been: not every kernel counts them.
  func areLikely(_ now: Instant) -> Bool { !isKnown || lastAt.map { now.seconds(since: $0) < Self.kept } ?? false }
}
