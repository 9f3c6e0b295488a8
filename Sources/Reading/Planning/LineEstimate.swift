import Base
import Storing

/// The measured round trip and rate of the line to one origin.
///
/// The rate counts only the time in which bytes were due. While windows are requested one after the other, the line
/// also waits for requests: an estimate with that time would shrink the windows, and so itself.
struct LineEstimate: Sendable {
  /// Assumed until measured: a fast home line. Too low a rate only makes the first windows smaller.
  private static let assumedRate = 4e6
  /// Assumed until measured: a near origin, or what an earlier mount measured.
  private var assumedRoundTrip = 0.1
  /// The seconds over which the rate is measured.
  private static let sliceSeconds = 0.1
  /// Seconds and bytes from which on a part of a slice may raise the rate: fewer bytes may just have been in a socket's
  /// buffer.
  private static let shortest = 0.004
  private static let significant: Int64 = 512 << 10

  private var trips = TripTimes()
  /// The last part of each of these times, in which nothing came on the line.
  private var silences = TripTimes()
  /// Responses whose head has arrived and whose end has not. While there is one, a silence counts as the line's.
  private var sending = 0
  /// When bytes arrived last; nil when none has been due since.
  private var last: Instant?
  /// When bytes arrived last; nil before the first.
  private(set) var lastArrival: Instant?
  /// Since when bytes have come without a ``longSilence``, and until when they came before it.
  private(set) var arrivesSince: Instant?
  private(set) var arrivedUntil: Instant?
  /// All bytes that arrived on the line.
  private(set) var bytes: Int64 = 0
  /// What came in the seconds in which bytes were due, of a slice.
  private struct Slice {
    var seconds = 0.0
    var bytes: Int64 = 0

    var rate: Double { Double(bytes) / max(seconds, 1e-6) }
    static func + (left: Slice, right: Slice) -> Slice {
      Slice(seconds: left.seconds + right.seconds, bytes: left.bytes + right.bytes)
    }
  }
  private var slice = Slice()
  /// The two slices before. A rate is raised only to what came over all three: after a loss, TCP holds back what
  /// follows until the lost packet has come again, and then delivers it at once.
  private var former = Slice()
  private var earlier = Slice()
  private var measuredRate: Double?
  /// The mean rate, for forecasts.
  private(set) var pace = LinePace()
  /// Whether each connection is slow.
  var connections = SlowConnections()
  /// Whether the servers' congestion windows bound what each brings.
  private(set) var windows = CongestionWindows()

  /// An earlier mount learned this. Its rate is not used: it may be that of a short download, and a low one would slow
  /// the first reader.
  mutating func expect(_ note: HostNote) {
    if note.roundTrip > 0 { assumedRoundTrip = min(note.roundTrip, 1) }
    if let rate = note.connectionRate { connections.expect(.init(rate: rate, count: note.lanes)) }
  }

  /// Seconds from a request to its first byte: the least of late, since a busy line only adds to it.
  var roundTrip: Double { trips.least ?? assumedRoundTrip }

  /// The same where it was measured; nil: it was not.
  var measuredRoundTrip: Double? { trips.least }

  /// Seconds to a late first byte. Where answers are late now and then, the planner requests the next window early.
  var lateTrip: Double { trips.late ?? assumedRoundTrip }

  /// Seconds of a long silence of the line before an answer. An answer that is late behind others comes after none.
  var lateSilence: Double { silences.late ?? 0 }

  /// For how many seconds nothing came, while a response was under way.
  func silence(_ now: Instant) -> Double { last.map { now.seconds(since: $0) } ?? 0 }

  /// Whether both come from what arrived.
  var isMeasured: Bool { measuredRate != nil && trips.least != nil }

  /// Bytes a second over all transfers, smoothed.
  var rate: Double { measuredRate ?? Self.assumedRate }

  /// Seconds without a byte that are longer than answers take.
  var longSilence: Double { max(Self.leastSilence, 2.5 * lateTrip) }
  private static let leastSilence = 0.2

  /// Something comes. Before what it says of ``lateTrip`` counts: an answer may be as late as the silence was long.
  private mutating func goesOn(_ now: Instant) {
    if let lastArrival, now.seconds(since: lastArrival) <= longSilence { return }
    arrivesSince = now
    arrivedUntil = lastArrival
  }

  /// A response's head arrived `seconds` after its request; its body follows.
  mutating func responded(after seconds: Double, now: Instant) {
    sending += 1
    let silence = lastArrival.map { now.seconds(since: $0) } ?? seconds
    if seconds > 0 { silences.note(min(seconds, silence), now: now) }
    goesOn(now)
    connections.changed()
    if seconds > 0 { trips.note(seconds, now: now) }
  }

  /// `count` bytes arrived. `areFlights`: windows are small, and some response may be no more than a flight or two.
  /// `isHeld`: they waited for a lost packet.
  mutating func received(_ count: Int, areFlights: Bool = false, isHeld: Bool = false, now: Instant) {
    defer { last = now }
    goesOn(now)
    lastArrival = now
    bytes += Int64(count)
    // The first bytes after a silence in which none were due: how long they took is unknown.
    guard let last else { return }
    slice.seconds += now.seconds(since: last)
    windows.received(after: now.seconds(since: last), isHeld: isHeld, roundTrip: roundTrip, now: now)
    pace.add(count, after: now.seconds(since: last))
    // A flight comes as fast as the line brings it, over however many connections. What is known is checked all the
    // same.
    if areFlights, connections.noted == nil { connections.changed() }
    connections.received(
      count, over: sending, after: now.seconds(since: last), roundTrip: roundTrip, now: now)
    slice.bytes += Int64(count)
    let lasting = min(slice.rate, (slice + former + earlier).rate)
    guard slice.seconds >= Self.sliceSeconds else {
      // Otherwise a fast line would get small windows until a slice is over.
      if slice.seconds >= Self.shortest, slice.bytes >= Self.significant, lasting > 2 * rate {
        measuredRate = lasting / 2
      }
      return
    }
    // Up by half of the difference at once, down slowly: too large a window costs less than an idle line.
    if let old = measuredRate {
      measuredRate = lasting > old ? (old + lasting) / 2 : old * 0.9 + min(slice.rate, old) * 0.1
    } else {
      measuredRate = slice.rate
    }
    (slice, former, earlier) = (Slice(), slice, former)
  }

  /// A response whose head had arrived has ended. It brought `count` bytes, `seconds` after its request. After the last
  /// one, silence does not lower the rate.
  mutating func ended(_ count: Int64, after seconds: Double, now: Instant) {
    sending = max(0, sending - 1)
    connections.ended(count, after: seconds - roundTrip, now: now)
    if sending == 0 { last = nil }
  }
}

/// The rate of one transfer, over its last tenths of a second.
struct RateMeter: Sendable {
  private var start: Instant?
  private var bytes: Int64 = 0
  private var smoothed: Double?

  /// Bytes a second; nil until enough have arrived.
  var rate: Double? { smoothed }

  /// `count` bytes arrived.
  mutating func received(_ count: Int, now: Instant) {
    guard let begun = start else {
      start = now
      bytes = Int64(count)
      return
    }
    bytes += Int64(count)
    let elapsed = now.seconds(since: begun)
    guard elapsed >= 0.05 else { return }
    let sample = Double(bytes) / elapsed
    smoothed = smoothed.map { $0 * 0.5 + sample * 0.5 } ?? sample
    start = now
    bytes = 0
  }
}
