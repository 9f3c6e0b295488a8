/// Counts the bytes of a body against the length that its head announced. Pure.
struct BodyMeter: Equatable {
  /// The announced length; nil when only the end of the body shows it.
  let expected: Int64?
  /// Bytes counted so far; never more than `expected`.
  private(set) var received: Int64 = 0

  init(expected: Int64?) { self.expected = expected }

  /// Counts the next `count` bytes. Returns how many of them belong to the body: fewer than `count` when the origin
  /// sends more than it announced.
  mutating func take(_ count: Int) -> Int {
    let usable = expected.map { Int(min(Int64(count), $0 - received)) } ?? count
    received += Int64(usable)
    return usable
  }

  /// Whether the whole body arrived; true for one without an announced length.
  var isComplete: Bool { expected == nil || received == expected }

  /// `X of Y bytes`.
  var progress: String { expected.map { "\(received) of \($0) bytes" } ?? "\(received) bytes" }
}
