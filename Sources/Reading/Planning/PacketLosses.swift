import Base

/// Whether a line's connection loses packets again and again: those after a lost one come out of order, and the kernel
/// counts them. A server that pauses, or has no processor time, looks like one with small congestion windows, but loses
/// none. Where a router's queue is short, slow start ends with many losses, and then the connection fills the line for
/// seconds. Pure.
struct PacketLosses: Sendable {
  /// For how many seconds a loss counts: at one in 200 packets, 0.5 MB/s have two in a second.
  private static let kept = 10.0

  /// Losses that are less than so many seconds apart, or so many round trips, may all come from one end of slow start.
  private static let once = 1.2
  private static let onceTrips = 10.0

  /// Of so many connections the count is kept: a line has one, or a few in turns.
  private static let mostConnections = 4

  /// A count is read at the head of each response, which may be long after the losses.
  private struct Counter: Sendable {
    let connection: Int?
    var count: Int
    var readAt: Instant
    /// When the first loss was seen, of those that count.
    var firstAt: Instant?
    /// When the last was seen.
    var lastAt: Instant?
    /// The reading before that one: the last loss came after it.
    var after: Instant?
  }
  private var counters: [Counter] = []

  /// The kernel has counted `count` packets out of order on connection `number`; nil: it does not tell.
  mutating func counted(_ count: Int?, over number: Int?, now: Instant) {
    guard let count else { return }
    let index = counters.firstIndex { $0.connection == number }
    var counter = index.map { counters.remove(at: $0) } ?? Counter(connection: number, count: 0, readAt: now)
    if count > counter.count {
      let isAgain = isRecent(counter, now)
      if !isAgain { counter.firstAt = now }
      counter.after = isAgain ? counter.readAt : nil
      counter.lastAt = now
    }
    (counter.count, counter.readAt) = (count, now)
    counters.append(counter)
    if counters.count > Self.mostConnections { counters.removeFirst() }
  }

  /// Whether a connection lost packets lately and some time before, or may have: not every kernel counts them.
  func areLikely(roundTrip: Double, _ now: Instant) -> Bool {
    counters.isEmpty
      || counters.contains { counter in
        guard isRecent(counter, now), let first = counter.firstAt, let after = counter.after else { return false }
        return after.seconds(since: first) >= max(Self.once, Self.onceTrips * roundTrip)
      }
  }

  private func isRecent(_ counter: Counter, _ now: Instant) -> Bool {
    counter.lastAt.map { now.seconds(since: $0) < Self.kept } ?? false
  }
}
