/// The line to one host: the connections that all of its files share.
package struct LineStatus: Sendable, Equatable {
  /// Scheme, host and port.
  package var host: String
  /// Bytes a second that it brings now.
  package var rate: Double
  /// Transfers in flight.
  package var transfers: Int
  /// Connections that are open, as far as that is known: servers close those that nothing uses.
  package var connections: Int
  /// The most transfers at once: the option, less what the host refused (429, 503).
  package var limit: Int
  /// The version of HTTP: 1.1 or 2; nil before its first answer.
  package var http: Double?
  /// Seconds from a request to its first byte, the least of late; nil before the first.
  package var roundTrip: Double?
  /// Transfers that failed since the server started.
  package var errors: Int64
  /// The last failure, without secrets; nil for none.
  package var error: String?
  /// Seconds since then.
  package var errorAge: Int64?
  /// When a host that does not answer is asked again, in seconds since 1970; nil if it answers.
  package var waitsUntil: Int64?
  /// By how many seconds the server's clock is ahead of the host's; nil where the host does not tell its time.
  package var clockAhead: Int64?

  package init(
    host: String, rate: Double = 0, transfers: Int = 0, connections: Int = 0, limit: Int = 0, http: Double? = nil,
    roundTrip: Double? = nil, errors: Int64 = 0, error: String? = nil, errorAge: Int64? = nil, waitsUntil: Int64? = nil,
    clockAhead: Int64? = nil
  ) {
    self.host = host
    self.rate = rate
    self.transfers = transfers
    self.connections = connections
    self.limit = limit
    self.http = http
    self.roundTrip = roundTrip
    self.errors = errors
    self.error = error
    self.errorAge = errorAge
    self.waitsUntil = waitsUntil
    self.clockAhead = clockAhead
  }
}

extension LineStatus: Codable {
  private enum CodingKeys: String, CodingKey {
    case host, rate, transfers, connections, limit, http, roundTrip, errors, error, errorAge, waitsUntil, clockAhead
  }

  /// Writes every key, as ``FileStatus`` does.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(host, forKey: .host)
    try container.encode(rate.isFinite ? rate : 0, forKey: .rate)
    try container.encode(transfers, forKey: .transfers)
    try container.encode(connections, forKey: .connections)
    try container.encode(limit, forKey: .limit)
    try container.encode(http, forKey: .http)
    try container.encode(roundTrip, forKey: .roundTrip)
    try container.encode(errors, forKey: .errors)
    try container.encode(error, forKey: .error)
    try container.encode(errorAge, forKey: .errorAge)
    try container.encode(waitsUntil, forKey: .waitsUntil)
  }
}
