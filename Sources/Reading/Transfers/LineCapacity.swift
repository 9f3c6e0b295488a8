/// How many transfers an origin takes at once: connections, or streams of HTTP/2. 429 and 503 reduce the number. Pure.
struct LineCapacity {
  private var connections: Int
  /// Whether the origin speaks HTTP/2.
  private(set) var isMultiplexed = false
  /// The most transfers at once.
  private(set) var most: Int
  /// ``most``, reduced by the origin's 429 and 503.
  private(set) var limit: Int

  /// `connections` is the most connections that the line may use.
  init(connections: Int) {
    self.connections = connections
    most = connections
    limit = connections
  }

  /// From now on the line may use so many connections. A limit from 429 or 503 stays.
  mutating func allow(connections: Int) {
    if self.connections == connections { return }
    self.connections = connections
    if isMultiplexed { return }
    let isPushedBack = limit < most
    most = connections
    limit = isPushedBack ? min(limit, most) : most
  }

  /// The origin answered 429 or 503 while `active` transfers were in flight: halves the limit.
  mutating func pushedBack(active: Int) { limit = max(1, min(limit, max(1, active)) / 2) }

  /// The origin answered well: the limit grows back, one transfer at each answer.
  mutating func answered() {
    if limit < most { limit += 1 }
  }

  /// Takes note of the HTTP version. Another server may answer under the same name; a limit from 429 or 503 stays.
  mutating func speaks(isMultiplexed speaksHTTP2: Bool) {
    if isMultiplexed == speaksHTTP2 { return }
    isMultiplexed = speaksHTTP2
    let isPushedBack = limit < most
    most = isMultiplexed ? Line.streamLimit : connections
    limit = isPushedBack ? min(limit, most) : most
  }
}
