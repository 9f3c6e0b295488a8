import Base

/// A token bucket for `--limit-rate`. Pure. A token is a byte: tokens arrive at the limit's rate, and each byte takes
/// one.
///
/// A window is requested only if the tokens cover the bytes in flight. So the limit holds over any second without
/// pausing a transfer, which would leave its connection full of unread bytes.
struct RateAllowance: Sendable {
  /// The most tokens that collect while nothing is fetched, in seconds of the limit.
  private static let burst = 0.25

  private let limit: Double?
  private var tokens: Double
  private var refilled: Instant?

  /// `limit` in bytes a second; nil for no limit.
  init(limit: Int64?) {
    self.limit = limit.map(Double.init)
    tokens = (self.limit ?? 0) * Self.burst
  }

  /// `count` bytes arrived.
  mutating func took(_ count: Int64) {
    if limit != nil { tokens -= Double(count) }
  }

  /// Whether a window may be requested while `outstanding` bytes are in flight.
  mutating func admits(outstanding: Int64, now: Instant) -> Bool {
    guard let limit else { return true }
    if let refilled { tokens = min(limit * Self.burst, tokens + limit * max(0, now.seconds(since: refilled))) }
    refilled = now
    return tokens - Double(outstanding) > 0
  }
}
