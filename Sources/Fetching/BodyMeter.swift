/// Counts a body against what its head announced. Pure.
struct BodyMeter: Equatable {
  /// The announced bytes, nil when the end of the body is all there is to know.
  let expected: Int64?
  /// Bytes taken so far; never over `expected`.
  private(set) var received: Int64 = 0

  init(expected: Int64?) { self.expected = expected }

  /// How many of the next `count` bytes belong to the body: fewer than `count` when the origin sends more than it
  /// announced.
  mutating func take(_ count: Int) -> Int {
    let usable = expected.map { Int(min(Int64(count), $0 - received)) } ?? count
    received += Int64(usable)
    return usable
  }

  /// Whether the whole body came; true for one without a length.
  var isComplete: Bool { expected == nil || received == expected }

  /// `X of Y bytes`.
  var progress: String { expected.map { "\(received) of \($0) bytes" } ?? "\(received) bytes" }
}
