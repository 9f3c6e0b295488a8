import Base

/// A line of a certain rate, as a queue of reservations: whoever wants to send some bytes gets the time at which the
/// line will have carried them, and sends them then.
///
/// Each connection has at most one reservation of a few milliseconds at a time, so that connections take turns and
/// share the line evenly, and one that does not read takes no part of it. Times are absolute: a late wake-up costs no
/// rate, up to the credit below. Any thread may call.
final class OriginLine: Sendable {
  private struct State {
    /// When the line has carried everything that was reserved, in nanoseconds.
    var free: Int64 = 0
    var senders = 0
  }

  /// What a sender asks for at a time, as a part of a second: the granularity of the shaping.
  private static let slice = 0.002
  /// How long an idle line saves up: makes good for late wake-ups.
  private static let credit: Int64 = 5_000_000
  /// A common packet's payload: what is asked for is no smaller, unless the line is so slow that it would take long.
  private static let packet = 1460.0

  private let state = Lock(State())

  init() {}

  /// A sender comes (goes, with -1): the more there are, the smaller each one's turn.
  func addSenders(_ count: Int) { state.withLock { $0.senders += count } }

  /// How many bytes to reserve at a time at `rate` bytes a second.
  func turn(rate: Double) -> Int {
    let senders = Double(max(1, state.withLock { $0.senders }))
    let least = min(Self.packet, max(1, rate * 0.02))
    return Int(min(256 * 1024, max(least, rate * Self.slice / senders)))
  }

  /// When `count` more bytes will have been carried.
  func reserve(_ count: Int, rate: Double) -> Instant {
    let now = Instant.now.nanoseconds
    return state.withLock { state in
      state.free = max(state.free, now - Self.credit) + Int64(Double(count) / rate * 1e9)
      return Instant(nanoseconds: state.free)
    }
  }
}
