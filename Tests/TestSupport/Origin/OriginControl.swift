import Base

/// What is answered under `/.origin/`: the log as JSON, and the commands of ``OriginCommand``. Neither shaped nor
/// logged.
enum OriginControl {
  static let prefix = "/.origin/"

  /// Status line without the version, type and body of the answer.
  static func answer(
    _ method: String, path: String, query: [String: String], of origin: Origin
  ) -> (status: String, type: String, body: String) {
    let name = String(path.dropFirst(prefix.count))
    switch (method, name) {
    case ("GET", "log"): return ("200 OK", "application/json", log(of: origin, path: query["path"]).text + "\n")
    case ("GET", "totals"): return ("200 OK", "application/json", totals(origin.log.totals).text + "\n")
    case ("POST", _), ("PUT", _):
      do {
        try OriginCommand.apply(name, query, to: origin)
        return ("200 OK", "text/plain", "ok\n")
      } catch {
        return ("400 Bad Request", "text/plain", "\(error)\n")
      }
    default: return ("404 Not Found", "text/plain", "GET log or totals, POST a command\n")
    }
  }

  private static func totals(_ totals: OriginTotals) -> JSONText {
    .object([
      ("connections", .integer(Int64(totals.connections))), ("turnedAway", .integer(Int64(totals.turnedAway))),
      ("requests", .integer(Int64(totals.requests))), ("bytesSent", .integer(totals.bytesSent)),
      ("peakConnections", .integer(Int64(totals.peakConnections))),
      ("peakRequests", .integer(Int64(totals.peakRequests))),
      ("openConnections", .integer(Int64(totals.openConnections))),
      ("openRequests", .integer(Int64(totals.openRequests))),
    ])
  }

  private static func log(of origin: Origin, path: String?) -> JSONText {
    let entries = origin.log.entries.filter { path == nil || $0.request.path == path }
    let byPath = Dictionary(grouping: entries, by: \.request.path).sorted { $0.key < $1.key }
    return .object([
      ("totals", totals(origin.log.totals)),
      ("resources", .array(byPath.map { resource($0.key, $0.value) })),
      ("requests", .array(entries.map(entry))),
    ])
  }

  private static func resource(_ path: String, _ entries: [OriginLogEntry]) -> JSONText {
    let coverage = OriginCoverage(entries.flatMap(\.sent).map(\.range))
    return .object([
      ("path", .string(path)), ("requests", .integer(Int64(entries.count))),
      ("bytesSent", .integer(coverage.bytesSent)), ("distinctBytes", .integer(coverage.distinctBytes)),
      ("sentMoreThanOnce", .array(coverage.sentMoreThanOnce.ranges.map(range))),
      ("runs", .array(coverage.runs.map { .array([range($0.range), .integer(Int64($0.times))]) })),
    ])
  }

  private static func entry(_ entry: OriginLogEntry) -> JSONText {
    let request = entry.request
    return .object([
      ("id", .integer(Int64(request.id))), ("connection", .integer(Int64(request.connection))),
      ("indexOnConnection", .integer(Int64(request.indexOnConnection))), ("time", .number(request.time)),
      ("method", .string(request.method)), ("target", .string(request.target)), ("path", .string(request.path)),
      ("headers", .array(request.headers.map { .array([.string($0.name), .string($0.value)]) })),
      ("range", request.range.map(range) ?? .null),
      ("status", entry.status.map { .integer(Int64($0)) } ?? .null),
      ("firstByteTime", entry.firstByteTime.map { .number($0) } ?? .null),
      ("sent", .array(entry.sent.map { .array([.integer(Int64(clamping: $0.generation)), range($0.range)]) })),
      ("bodyBytes", .integer(entry.bodyBytes)), ("end", .optional(entry.end?.rawValue)),
      ("endTime", entry.endTime.map { .number($0) } ?? .null),
    ])
  }

  private static func range(_ range: ByteRange) -> JSONText { .array([.integer(range.start), .integer(range.end)]) }
}
