import Base

/// Whether a line's connections lose packets again and again: those after a lost one come out of order, and the kernel
/// counts them. A server that pauses, or has no processor time, looks like one with small congestion windows, but loses
/// none. Where a router's queue is short, slow start ends with many losses, and then the connection fills the line for
/// seconds. Pure.
///
/// What follows a lost packet waits in the kernel until that has come again, a round trip later. So a connection pauses
/// after each loss, even where its server goes on at full speed, as BBR's does.
struct PacketLosses: Sendable {
  /// For how many seconds a loss counts: at one in 200 packets, 0.5 MB/s have two in a second.
  private static let kept = 10.0

  /// Losses that are less than so many seconds apart, or so many round trips, may all come from one end of slow start.
  private static let once = 1.2
  private static let onceTrips = 10.0

  /// Of so many connections the count is kept, those that were read last.
  private static let mostConnections = 64

  /// A count is read at the head of each response and at the end of each pause, which may be long after the losses.
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

  /// In how many readings there were more than before, on any connection. They count less the more bytes come after
  /// them, down to nothing after ``fading`` bytes or ``lasting`` seconds. Where one packet in 200 is lost, there are
  /// about three in a MiB; where a full queue of one round trip drops some, 0.4.
  private var recent = 0.0
  private var recentBytes: Int64 = 0
  private var recentAt = Instant(nanoseconds: 0)
  private static let fading = 4.0 * 1_048_576
  private static let lasting = 60.0
  private static let frequent = 5.0
  /// Below so many, the losses may be those of a full line.
  private static let few = 3.0
  /// What is seen within so many bytes is one loss: a full queue drops packets of many connections at once.
  private static let together: Int64 = 64 << 10

  /// The kernel has counted `count` packets out of order on connection `number`; nil: it does not tell. `bytes`: what
  /// the line has brought so far.
  mutating func counted(_ count: Int?, over number: Int?, bytes: Int64, now: Instant) {
    guard let count else { return }
    let index = counters.firstIndex { $0.connection == number }
    // What a connection lost before its first reading, or since a forgotten one, is not news.
    var counter = index.map { counters.remove(at: $0) } ?? Counter(connection: number, count: count, readAt: now)
    if count > counter.count {
      let isAgain = isRecent(counter, now)
      if !isAgain { counter.firstAt = now }
      counter.after = isAgain ? counter.readAt : nil
      counter.lastAt = now
      if bytes - recentBytes >= Self.together || recent == 0 {
        (recent, recentBytes, recentAt) = (recent(bytes, now) + 1, bytes, now)
      }
    }
    (counter.count, counter.readAt) = (count, now)
    counters.append(counter)
    if counters.count > Self.mostConnections { counters.removeFirst() }
  }

  /// Whether a packet was found lost on connection `number` in the last `seconds`. If it brought nothing in these, what
  /// comes now waited for that packet.
  func explain(_ seconds: Double, over number: Int?, _ now: Instant) -> Bool {
    counters.contains { counter in
      counter.connection == number && counter.lastAt.map { now.seconds(since: $0) <= seconds } ?? false
    }
  }

  /// Whether a connection lost packets lately and some time before, or may have: not every kernel counts them.
  func areLikely(roundTrip: Double, _ now: Instant) -> Bool {
    counters.isEmpty
      || counters.contains { counter in
        guard isRecent(counter, now), let first = counter.firstAt, let after = counter.after else { return false }
        return after.seconds(since: first) >= max(Self.once, Self.onceTrips * roundTrip)
      }
  }

  /// Whether many more are lost than a full line drops. `bytes`: what the line has brought so far.
  func areFrequent(_ bytes: Int64, _ now: Instant) -> Bool { recent(bytes, now) >= Self.frequent }

  /// Whether it is known that no more are lost than a full line drops.
  func areFew(_ bytes: Int64, _ now: Instant) -> Bool { !counters.isEmpty && recent(bytes, now) < Self.few }

  private func recent(_ bytes: Int64, _ now: Instant) -> Double {
    now.seconds(since: recentAt) > Self.lasting
      ? 0 : recent * max(0, 1 - Double(bytes - recentBytes) / Self.fading)
  }

  private func isRecent(_ counter: Counter, _ now: Instant) -> Bool {
    counter.lastAt.map { now.seconds(since: $0) < Self.kept } ?? false
  }
}
