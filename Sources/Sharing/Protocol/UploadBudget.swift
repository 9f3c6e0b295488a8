import Base

/// What may wait for its upload: so many bytes, at such a rate. What has no room is dropped: another node fetches it
/// again, and nothing here waits. Pure.
package struct UploadBudget: Hashable, Sendable {
  /// The most bytes that wait or are under way.
  package let limit: Int64
  /// The most bytes a second; nil: any.
  package let rate: Int64?
  /// How many wait or are under way.
  package private(set) var waiting: Int64 = 0
  /// How many blocks were dropped.
  package private(set) var dropped: Int64 = 0
  private var freeAt: Instant?

  /// A budget of `limit` bytes.
  package init(limit: Int64, rate: Int64? = nil) {
    self.limit = limit
    self.rate = rate
  }

  /// When an upload of `bytes` may begin; nil when there is no room: then it is dropped.
  package mutating func admit(_ bytes: Int64, now: Instant) -> Instant? {
    guard bytes <= limit - waiting else {
      dropped += 1
      return nil
    }
    waiting += bytes
    guard let rate, rate > 0 else { return now }
    let start = max(freeAt ?? now, now)
    freeAt = start.adding(seconds: Double(bytes) / Double(rate))
    return start
  }

  /// An upload of `bytes` that was admitted has ended.
  package mutating func ended(_ bytes: Int64) { waiting = max(0, waiting - bytes) }
}
