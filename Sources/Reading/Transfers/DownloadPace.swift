import Base
import Fetching

/// How fast the bytes of one resource arrive, and how many were new or wasted. Pure.
struct DownloadPace {
  /// Bytes of progress in each of the last seconds, by which a trickle is judged.
  private var seconds: [Int64]
  private var second: Int64 = 0
  private(set) var received = RecentRate(slice: 1)
  /// When bytes arrived last.
  private(set) var lastBytes = Instant(nanoseconds: 0)
  /// Bytes that were stored so far in this mount.
  var fresh: Int64 = 0
  /// Bytes in flight that were lost because a transfer was cancelled early: an estimate.
  private var cut: Int64 = 0

  /// `seconds` is how long a trickle may last.
  init(seconds: Int) { self.seconds = [Int64](repeating: 0, count: max(1, seconds)) }

  /// `count` bytes arrived from the network.
  mutating func received(_ count: Int, now: Instant) {
    received.note(Int64(count), now: now)
    lastBytes = now
  }

  /// `bytes` bytes arrived that count as progress.
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

  /// How many more bytes in flight may be thrown away: half a percent of the file's size in all (P4).
  func spareBytes(of size: Int64) -> Int64 { max(0, size / 200 - cut) }

  /// When a transfer was cancelled last because it was stuck.
  private var cutAt: Instant?
  /// For how many seconds no other is: an origin that pauses within its bodies would be asked again and again.
  private static let cutRest = 1.0

  /// Whether a transfer that is stuck may be cancelled.
  func mayCut(_ now: Instant) -> Bool { cutAt.map { now.seconds(since: $0) >= Self.cutRest } ?? true }

  /// A transfer was cancelled because it was stuck.
  mutating func cutStuck(_ now: Instant) { cutAt = now }

  /// Notes that a transfer was cancelled early, which loses `bytes` in flight.
  mutating func lost(_ bytes: Int64) { cut += bytes }
}
