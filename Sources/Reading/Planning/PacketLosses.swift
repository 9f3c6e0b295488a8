import Base

/// Whether packets of a line's connection get lost: those after a lost one come out of order, and the kernel counts
/// them. A server that pauses, or has no processor time, looks like one with small congestion windows, but loses none.
/// Pure.
struct PacketLosses: Sendable {
  /// For how many seconds a loss counts: at one in 200 packets, 0.5 MB/s have two in a second.
  private static let kept = 10.0

  /// Of so many connections the count is kept: a line has one, or a few in turns.
  private static let mostConnections = 4

  private var counts: [(connection: Int?, count: Int)] = []
  private var lastAt: Instant?

  /// The kernel has counted `count` packets out of order on connection `number`; nil: it does not tell.
  mutating func counted(_ count: Int?, over number: Int?, now: Instant) {
    guard let count else { return }
    let index = counts.firstIndex { $0.connection == number }
    let before = index.map { counts.remove(at: $0).count } ?? 0
    if count > before { lastAt = now }
    counts.append((number, count))
    if counts.count > Self.mostConnections { counts.removeFirst() }
  }

  /// Whether some were lost lately, or may have been: not every kernel counts them.
  func areLikely(_ now: Instant) -> Bool {
    counts.isEmpty || lastAt.map { now.seconds(since: $0) < Self.kept } ?? false
  }
}
