import Base

/// The state of the line to one host, for `status`. The transfer thread publishes it at each look; what depends on the
/// time is derived when it is asked for.
package struct LineReport: Sendable {
  /// Scheme, host and port, without secrets.
  package fileprivate(set) var host: String
  /// Transfers in flight.
  package let transfers: Int
  /// The most transfers at once, at present.
  package let limit: Int
  /// The version of HTTP in which the host answered last: 11, 20; nil: it has not answered.
  package let httpVersion: Int?
  /// By how many seconds the clock here is ahead of the host's; nil: not known.
  package let clockAhead: Int64?
  /// Seconds to a first byte; nil: not measured.
  package let roundTrip: Double?
  /// How many transfers have failed.
  package let errors: Int64
  /// The last failure, and its time.
  package let error: (message: String, at: Instant)?
  /// When the host is asked again that does not answer; nil: it answers.
  package let retryAt: Instant?
  private let received: RecentRate
  private let opened: Int

  /// A line that brought nothing for so many seconds brings nothing now.
  private static let pause = 2.0

  init(host: String, _ line: Line, now: Instant) {
    self.host = host
    transfers = line.active
    limit = line.limit
    httpVersion = line.httpVersion
    clockAhead = line.clockAhead
    roundTrip = line.estimate.measuredRoundTrip
    errors = line.failures.count
    error = line.failures.last.map { ($0.message, $0.at) }
    retryAt = line.isUnreachable ? line.outage.due(readerWaits: line.readers.waiting > 0) : nil
    received = line.received
    // All streams of HTTP/2 share a connection.
    opened = line.httpVersion == 20 ? min(line.active, 1) : line.openConnections(now: now)
  }

  /// Bytes a second that it brings now.
  package func rate(now: Instant) -> Double { received.rate(now: now, pause: Self.pause) }

  /// How many connections are open. Servers close those that nothing uses.
  package func connections(now: Instant) -> Int {
    transfers > 0 || rate(now: now) > 0 ? opened : 0
  }
}

/// The failed transfers of a line, counted.
struct LineFailures: Sendable {
  private(set) var count: Int64 = 0
  private(set) var last: LastError?

  /// A transfer failed.
  mutating func note(_ message: String, now: Instant) {
    count += 1
    last = LastError(message: message, at: now)
  }
}

/// What the transfer thread published of all lines. Any thread may ask.
final class LineReports: Sendable {
  private let published = Lock<[LineReport]>([])

  func publish(_ reports: [LineReport]) { published.withLock { $0 = reports } }

  /// At most `most` of them, those that bring most first, then by name.
  func busiest(_ most: Int, now: Instant) -> [LineReport] {
    let all = published.withLock { $0 }.map { (report: $0, rate: $0.rate(now: now)) }
    let sorted = all.sorted { left, right in
      let (a, b) = (left.report, right.report)
      if (a.transfers > 0) != (b.transfers > 0) { return a.transfers > 0 }
      if left.rate != right.rate { return left.rate > right.rate }
      return a.host < b.host
    }
    return sorted.prefix(most).map { line in
      var report = line.report
      report.host = Log.redacted(url: report.host)
      return report
    }
  }
}
