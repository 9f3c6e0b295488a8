/// How many transfers an origin takes at once: connections, or streams of HTTP/2; fewer after 429 and 503. Pure.
struct LineCapacity {
  private let connections: Int
  /// Whether it speaks HTTP/2.
  private(set) var isMultiplexed = false
  /// The most transfers at once.
  private(set) var most: Int
  /// `most`, as the origin's 429 and 503 shrank it.
  private(set) var limit: Int

  /// A line that allows so many connections.
  init(connections: Int) {
    self.connections = connections
    most = connections
    limit = connections
  }

  /// The origin said that so many transfers are too many.
  mutating func pushedBack(active: Int) { limit = max(1, min(limit, max(1, active)) / 2) }

  /// The origin answered well: the limit grows back, slowly.
  mutating func answered() {
    if limit < most { limit += 1 }
  }

  /// What the origin speaks may change under one name; what it said of too much stays.
  mutating func speaks(isMultiplexed speaksHTTP2: Bool) {
    if isMultiplexed == speaksHTTP2 { return }
    isMultiplexed = speaksHTTP2
    let isPushedBack = limit < most
    most = isMultiplexed ? Line.streamLimit : connections
    limit = isPushedBack ? min(limit, most) : most
  }
}
