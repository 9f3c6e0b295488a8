import Base

/// The seconds from requests on a line to their first bytes, of late. Pure.
struct TripTimes: Sendable {
  private static let count = 16
  /// For how many seconds at least the least time is kept: for up to twice as many, and for the last ``count`` answers.
  /// While a line is filled, all answers wait behind what is in flight: the last few would show that as the path's own
  /// time, and let more be in flight. TCP BBR keeps its least time for ten seconds for the same reason.
  private static let kept = 5.0

  private var recent: [Double] = []
  private var next = 0
  /// The least times of the current spell of ``kept`` seconds, and of the one before.
  private var current = Double.infinity
  private var former = Double.infinity
  private var spell: Instant?

  /// The least; nil until there is one.
  private(set) var least: Double?
  /// A late one: three of the last 16 are longer; nil until there is one.
  private(set) var late: Double?

  /// A response began `seconds` after its request.
  mutating func note(_ seconds: Double, now: Instant) {
    if recent.count < Self.count {
      recent.append(seconds)
    } else {
      recent[next] = seconds
      next = (next + 1) % Self.count
    }
    let age = spell.map { now.seconds(since: $0) } ?? .infinity
    if age >= Self.kept {
      former = age < 2 * Self.kept ? current : .infinity
      current = .infinity
      spell = now
    }
    current = min(current, seconds)
    let sorted = recent.sorted()
    late = sorted[sorted.count * 3 / 4]
    least = min(former, current, sorted[0])
  }
}
