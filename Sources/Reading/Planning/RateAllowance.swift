import Base

/// A token bucket for `--limit-rate`: pure. Tokens are bytes; they come at the limit's rate and go as bytes arrive.
///
/// A window is asked for only when what is outstanding already is covered, so that the limit holds over any second
/// without pausing a transfer, which would leave its connection full of unread bytes.
struct RateAllowance: Sendable {
  /// How much may gather while nothing is fetched, in seconds of the limit.
  private static let burst = 0.25

  private let limit: Double?
  private var tokens: Double
  private var refilled: Instant?

  /// `limit` in bytes a second; nil for none.
  init(limit: Int64?) {
    self.limit = limit.map(Double.init)
    tokens = (self.limit ?? 0) * Self.burst
  }

  /// `count` bytes came.
  mutating func took(_ count: Int64) {
    if limit != nil { tokens -= Double(count) }
  }

  /// Whether something more may be asked for while `outstanding` bytes are on their way.
  mutating func admits(outstanding: Int64, now: Instant) -> Bool {
    guard let limit else { return true }
    if let refilled { tokens = min(limit * Self.burst, tokens + limit * max(0, now.seconds(since: refilled))) }
    refilled = now
    return tokens - Double(outstanding) > 0
  }
}
