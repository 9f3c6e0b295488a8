/// How many bytes a second a line brings while bytes are due: the mean of its last seconds. ``LineEstimate`` rises with
/// every burst, which is right for the size of windows, and wrong for a forecast.
struct LinePace: Sendable {
  /// Over how many seconds it is a mean.
  private static let memory = 5.0
  /// How many seconds have to be measured before it counts.
  private static let least = 0.2

  private var bytes = 0.0
  private var seconds = 0.0

  /// Bytes a second; nil until it is known.
  var rate: Double? { seconds >= Self.least && bytes > 0 ? bytes / seconds : nil }

  /// `count` bytes arrived, `elapsed` seconds after the ones before.
  mutating func add(_ count: Int, after elapsed: Double) {
    let kept = max(0, 1 - elapsed / Self.memory)
    bytes = bytes * kept + Double(count)
    seconds = seconds * kept + elapsed
  }
}
