import Base

/// What is known of the line to one origin: its round trip and what it brings.
///
/// The rate is taken over the time in which bytes were on their way: while windows are asked for one after the other,
/// the line waits for requests too, and an estimate that counted that time would shrink the windows, and so itself.
struct LineEstimate: Sendable {
  /// Assumed until measured: a fast home line to a near origin. Too small a rate only costs the first windows some
  /// size.
  private static let assumedRate = 4e6
  private static let assumedRoundTrip = 0.1
  /// How long a slice is over which the rate is taken.
  private static let slice = 0.1
  /// From this on a part of a slice can raise the rate, if this much came: not just what a socket's buffer held.
  private static let shortest = 0.004
  private static let significant: Int64 = 512 << 10

  private var recentTrips: [Double] = []
  private var nextTrip = 0
  /// Responses whose head came and whose end did not: while there is one, silence is the line's.
  private var sending = 0
  /// When bytes came last, nil when nothing was on its way since.
  private var last: Instant?
  /// All that came over it.
  private(set) var bytes: Int64 = 0
  private var busySeconds = 0.0
  private var busyBytes: Int64 = 0
  private var measuredRate: Double?

  /// Seconds from asking to the first byte: the least of late, since a busy line only adds to it.
  var roundTrip: Double { recentTrips.min() ?? Self.assumedRoundTrip }

  /// Bytes a second over all transfers, smoothed.
  var rate: Double { measuredRate ?? Self.assumedRate }

  /// A response's head came `seconds` after it was asked for; its body follows.
  mutating func responded(after seconds: Double) {
    sending += 1
    guard seconds > 0 else { return }
    if recentTrips.count < 16 {
      recentTrips.append(seconds)
    } else {
      recentTrips[nextTrip] = seconds
      nextTrip = (nextTrip + 1) % recentTrips.count
    }
  }

  /// `count` bytes came.
  mutating func received(_ count: Int, now: Instant) {
    defer { last = now }
    bytes += Int64(count)
    // The first after a silence in which nothing was to come: they say nothing of how long they took.
    guard let last else { return }
    busySeconds += now.seconds(since: last)
    busyBytes += Int64(count)
    let sample = Double(busyBytes) / max(busySeconds, 1e-6)
    guard busySeconds >= Self.slice else {
      // A fast line must not be asked for small windows until a slice is over.
      if busySeconds >= Self.shortest, busyBytes >= Self.significant, sample > 2 * rate { measuredRate = sample / 2 }
      return
    }
    // Up at once half the way, down slowly: a window that is somewhat too large costs less than a line left idle.
    if let old = measuredRate {
      measuredRate = sample > old ? (old + sample) / 2 : old * 0.9 + sample * 0.1
    } else {
      measuredRate = sample
    }
    busySeconds = 0
    busyBytes = 0
  }

  /// A response whose head came is over. When it was the last, the silence that follows is nobody's rate.
  mutating func ended() {
    sending = max(0, sending - 1)
    if sending == 0 { last = nil }
  }
}

/// The rate of one transfer of late.
struct RateMeter: Sendable {
  private var start: Instant?
  private var bytes: Int64 = 0
  private var smoothed: Double?

  /// Bytes a second, nil before there is something to tell it from.
  var rate: Double? { smoothed }

  /// `count` bytes came.
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
