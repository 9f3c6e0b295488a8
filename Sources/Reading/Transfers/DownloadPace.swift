import Base
import Fetching

/// How fast the bytes of one resource come, and which of them were of use. Pure.
struct DownloadPace {
  /// Bytes that came in each of the last seconds: what a trickle is judged by.
  private var seconds: [Int64]
  private var second: Int64 = 0
  var meter = RateMeter()
  /// When bytes came last.
  private(set) var lastBytes = Instant(nanoseconds: 0)
  /// Bytes that were stored so far in this mount.
  var fresh: Int64 = 0
  /// Bytes that were in flight when a transfer was ended before its end, as far as can be told.
  private var cut: Int64 = 0

  /// `seconds` is how long a trickle may last.
  init(seconds: Int) { self.seconds = [Int64](repeating: 0, count: max(1, seconds)) }

  /// Bytes came from the network.
  mutating func received(_ count: Int, now: Instant) {
    meter.received(count, now: now)
    lastBytes = now
  }

  /// Bytes came that count as progress.
  mutating func progressed(_ bytes: Int64, now: Instant) {
    advance(to: now)
    seconds[Int(second % Int64(seconds.count))] += bytes
  }

  /// The progress of the last seconds, in bytes.
  mutating func recentProgress(now: Instant) -> Int64 {
    advance(to: now)
    return seconds.reduce(0, +)
  }

  private mutating func advance(to now: Instant) {
    let second = now.nanoseconds / 1_000_000_000
    if second - self.second >= Int64(seconds.count) {
      for index in seconds.indices { seconds[index] = 0 }
      self.second = second
    }
    while self.second < second {
      self.second += 1
      seconds[Int(self.second % Int64(seconds.count))] = 0
    }
  }

  /// How many bytes in flight may be thrown away yet: half a percent of the file's in all (P4).
  func spareBytes(of size: Int64) -> Int64 { max(0, size / 200 - cut) }

  /// A transfer is ended before its end: so many bytes in flight are lost.
  mutating func lost(_ bytes: Int64) { cut += bytes }
}
