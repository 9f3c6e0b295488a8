import Base

/// Whether a line's connection loses packets again and again: those after a lost one come out of order, and the kernel
/// counts them. A server that pauses, or has no processor time, looks like one with small congestion windows, but loses
/// none. Where a router's queue is short, slow start ends with many losses within a second, and then the connection
/// fills the line for several. Pure.
struct PacketLosses: Sendable {
  /// For how many seconds a loss counts: at one in 200 packets, 0.5 MB/s have two in a second.
  private static let kept = 10.0

  /// Losses within so many seconds are those of one end of slow start, which a response's head may tell of a second
  /// late.
  private static let once = 2.0

  /// Of so many connections the count is kept: a line has one, or a few in turns.
  private static let mostConnections = 4

  private var counts: [(connection: Int?, count: Int)] = []
  /// The first and the last of those that count.
  private var firstAt: Instant?
  private var lastAt: Instant?

  /// The kernel has counted `count` packets out of order on connection `number`; nil: it does not tell.
  mutating func counted(_ count: Int?, over number: Int?, now: Instant) {
    guard let count else { return }
    let index = counts.firstIndex { $0.connection == number }
    let before = index.map { counts.remove(at: $0).count } ?? 0
    if count > before {
      if !isRecent(now) { firstAt = now }
      lastAt = now
    }
    counts.append((number, count))
    if counts.count > Self.mostConnections { counts.removeFirst() }
  }

  /// Whether some were lost lately and before, or may have been: not every kernel counts them.
  func areLikely(_ now: Instant) -> Bool {
    if counts.isEmpty { return true }
    guard isRecent(now), let firstAt, let lastAt else { return false }
    return lastAt.seconds(since: firstAt) >= Self.once
  }

  private func isRecent(_ now: Instant) -> Bool { lastAt.map { now.seconds(since: $0) < Self.kept } ?? false }
}
