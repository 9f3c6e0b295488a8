import Base

/// How many bytes a second came of late: over the present slice of time and the one before it. Pure, and cheap enough
/// for the way of a read.
struct RecentRate: Sendable, Equatable {
  /// The seconds of a slice.
  private let slice: Double
  private var begun: Instant?
  private var bytes: Int64 = 0
  private var former: Slice?
  /// When bytes came last.
  private(set) var last: Instant?

  private struct Slice: Equatable {
    let begun: Instant
    let bytes: Int64
  }

  init(slice: Double) { self.slice = slice }

  /// `count` bytes came.
  mutating func note(_ count: Int64, now: Instant) {
    last = now
    if let begun {
      let seconds = now.seconds(since: begun)
      if seconds < slice {
        bytes += count
        return
      }
      // What came before a long pause says nothing of the rate after it.
      former = seconds < 3 * slice ? Slice(begun: begun, bytes: bytes) : nil
    }
    (begun, bytes) = (now, count)
  }

  /// Bytes a second; 0 once none have come for `pause` seconds. The first bytes count as those of a second.
  func rate(now: Instant, pause: Double) -> Double {
    guard let begun, let last, now.seconds(since: last) < pause else { return 0 }
    let seconds = now.seconds(since: former?.begun ?? begun)
    return Double(bytes + (former?.bytes ?? 0)) / max(seconds, 1)
  }
}
