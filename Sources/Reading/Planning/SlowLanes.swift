/// Windows over slow connections (``SlowConnections``): a reader that takes more than one brings gets several at once.
extension Planner {
  /// The most play-ahead in bytes over slow connections, of which each brings a part.
  private static let largestAheadOfLanes: Int64 = 128 << 20
  /// A window in seconds of its connection, and in round trips at least: waiting for answers costs little of the time.
  private static let laneSeconds = 0.75
  private static let laneRoundTrips = 6.0

  /// What is known of the connections, if `reader` is to have several because each is slow; else nil. A player that one
  /// connection serves needs no more.
  static func slowConnections(for reader: ReaderView, _ input: PlanInput) -> SlowConnections.Known? {
    guard let slow = input.slowConnections, !reader.isLooker, reader.length >= provenLength,
      !reader.isPaced || reader.rate > slow.rate
    else { return nil }
    return slow
  }

  /// A window for `reader` from `start` on. Over slow connections it follows the connection's own rate: the line's is
  /// only measured once all lanes are in use. The lanes share what may be requested, and what is left of the file: so
  /// they end together.
  static func readerWindow(of reader: ReaderView, from start: Int64, _ input: PlanInput) -> Int64 {
    guard let slow = slowConnections(for: reader, input) else { return readerWindow(input) }
    let part = min(allowance(of: reader, input), input.size - start) / Int64(slow.count)
    let least = max(smallestWindow, clamped(slow.rate * input.line.roundTrip))
    return max(least, min(laneWindow(slow, input), part))
  }

  private static func laneWindow(_ slow: SlowConnections.Known, _ input: PlanInput) -> Int64 {
    clamped(slow.rate * max(laneSeconds, laneRoundTrips * input.line.roundTrip))
  }

  /// How many bytes ahead of `reader` are worth a request: two windows in each lane. The reader waited for what it
  /// read, so it earns as much from the start.
  static func allowance(of reader: ReaderView, over slow: SlowConnections.Known, _ input: PlanInput) -> Int64 {
    let pace = reader.isPaced ? Int64(min(reader.rate, 1e12)) : 0
    let wanted = min(max(2 * laneWindow(slow, input) * Int64(slow.count), pace * 10), largestAheadOfLanes)
    return max(lookAhead, min(max(reader.length, pace * Int64(Playouts.leadSeconds)), wanted))
  }
}
