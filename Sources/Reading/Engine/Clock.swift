import Base

/// Where the reading room has the time from: the machine's clock, or one that a test moves.
struct Clock: Sendable {
  /// The machine's.
  static let system = Clock { Instant.now }

  private let read: @Sendable () -> Instant

  init(_ read: @escaping @Sendable () -> Instant) { self.read = read }

  var now: Instant { read() }
}
