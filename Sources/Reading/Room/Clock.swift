import Base
import Glibc

/// The source of the time: the machine's clocks, or clocks that a test moves.
struct Clock: Sendable {
  /// The machine's clocks.
  static let system = Clock({ Instant.now }, date: { Int64(time(nil)) })

  private let read: @Sendable () -> Instant
  private let readDate: @Sendable () -> Int64

  init(_ read: @escaping @Sendable () -> Instant, date: @escaping @Sendable () -> Int64) {
    self.read = read
    readDate = date
  }

  var now: Instant { read() }
  /// Seconds since 1970.
  var date: Int64 { readDate() }
}
