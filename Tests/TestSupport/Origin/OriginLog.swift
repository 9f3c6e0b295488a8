import Base

/// Sums over an origin's log.
package struct OriginTotals: Sendable {
  /// Connections that were accepted.
  package var connections = 0
  /// Connections that were turned away above the maximum.
  package var turnedAway = 0
  /// Requests whose head was complete.
  package var requests = 0
  /// Bytes of resources that were written.
  package var bytesSent: Int64 = 0
  /// The most connections that were open at once.
  package var peakConnections = 0
  /// The most requests that were being answered at once.
  package var peakRequests = 0
  /// Connections that are open now.
  package var openConnections = 0
  /// Requests that are being answered now.
  package var openRequests = 0
}

/// How often bytes were sent.
package struct OriginCoverage: Sendable {
  /// A run of bytes that were all sent `times` times; `times` is at least 1.
  package struct Run: Sendable, Equatable {
    /// The bytes.
    package let range: ByteRange
    /// How often they were sent.
    package let times: Int
  }

  /// The runs, ascending, those that touch having different counts.
  package let runs: [Run]

  /// All bytes that were sent, those sent twice counted twice.
  package var bytesSent: Int64 { runs.reduce(0) { $0 + $1.range.count * Int64($1.times) } }
  /// Bytes that were sent at least once, each counted once.
  package var distinctBytes: Int64 { runs.reduce(0) { $0 + $1.range.count } }
  /// What was sent for nothing: every sending after a byte's first.
  package var bytesSentAgain: Int64 { bytesSent - distinctBytes }
  /// The bytes that were sent more than once.
  package var sentMoreThanOnce: ByteRangeSet {
    var set = ByteRangeSet()
    for run in runs where run.times > 1 { set.insert(run.range) }
    return set
  }

  /// Counts `ranges` by a sweep over their ends.
  init(_ ranges: [ByteRange]) {
    var changes: [Int64: Int] = [:]
    for range in ranges where !range.isEmpty {
      changes[range.start, default: 0] += 1
      changes[range.end, default: 0] -= 1
    }
    var runs: [Run] = []
    var times = 0
    var start: Int64 = 0
    // Where as many end as begin, nothing changes.
    for (offset, change) in changes.sorted(by: { $0.key < $1.key }) where change != 0 {
      if times > 0 { runs.append(Run(range: ByteRange(start, offset), times: times)) }
      times += change
      start = offset
    }
    self.runs = runs
  }
}

/// The log of an origin: written by its connections' threads, asked by tests. Any thread may call.
package final class OriginLog: Sendable {
  private struct State {
    var entries: [OriginLogEntry] = []
    /// Where the entry of a request that is being answered is.
    var open: [Int: Int] = [:]
    var totals = OriginTotals()
    var requestsOfPath: [String: Int] = [:]
    var lastRequest = 0
  }

  private let state = Lock(State())
  /// When the origin started; the log's times count from here.
  package let start = Instant.now

  init() {}

  /// Every request since the start or the last ``reset()``, in the order their heads were complete.
  package var entries: [OriginLogEntry] { state.withLock { $0.entries } }
  /// The requests of one path.
  package func entries(of path: String) -> [OriginLogEntry] { entries.filter { $0.request.path == path } }
  /// The sums.
  package var totals: OriginTotals { state.withLock { $0.totals } }

  /// How often which bytes of `path` were sent, of one generation or (nil) of all together.
  package func coverage(of path: String, generation: UInt64? = nil) -> OriginCoverage {
    let parts = entries(of: path).flatMap(\.sent)
    return OriginCoverage(parts.filter { generation == nil || $0.generation == generation }.map(\.range))
  }

  /// Bytes of `path` that were written, repeats included.
  package func bytesSent(of path: String) -> Int64 { coverage(of: path).bytesSent }

  /// Which bytes of `path` were written more than once.
  package func sentMoreThanOnce(of path: String) -> ByteRangeSet { coverage(of: path).sentMoreThanOnce }

  /// Forgets what has ended; of what is being answered, what was written so far. Peaks start at what is open now.
  package func reset() {
    state.withLock { state in
      var kept: [OriginLogEntry] = []
      state.open = [:]
      for var entry in state.entries where entry.end == nil {
        entry.sent = []
        entry.bodyBytes = 0
        state.open[entry.request.id] = kept.count
        kept.append(entry)
      }
      state.entries = kept
      let old = state.totals
      state.totals = OriginTotals()
      state.totals.openConnections = old.openConnections
      state.totals.peakConnections = old.openConnections
      state.totals.openRequests = old.openRequests
      state.totals.peakRequests = old.openRequests
    }
  }

  // MARK: Written by the connections

  /// Gives whether that made a new peak.
  func connectionOpened() -> Bool {
    state.withLock { state in
      state.totals.connections += 1
      state.totals.openConnections += 1
      let isPeak = state.totals.openConnections > state.totals.peakConnections
      if isPeak { state.totals.peakConnections = state.totals.openConnections }
      return isPeak
    }
  }

  /// A connection, which may have made a peak, turned out to serve the control commands: it is not to be counted.
  func connectionIsControl(madePeak: Bool) {
    state.withLock { state in
      state.totals.connections -= 1
      if madePeak { state.totals.peakConnections -= 1 }
      state.totals.openConnections -= 1
    }
  }

  func connectionClosed() { state.withLock { $0.totals.openConnections -= 1 } }

  func connectionTurnedAway() { state.withLock { $0.totals.turnedAway += 1 } }

  /// Numbers a request and opens its entry.
  func begin(_ make: (_ id: Int, _ indexOfPath: Int, _ time: Double) -> OriginRequest, path: String) -> OriginRequest {
    let time = Instant.now.seconds(since: start)
    Figures.add("requests that the test origin answered")
    return state.withLock { state in
      state.lastRequest += 1
      state.requestsOfPath[path, default: 0] += 1
      let request = make(state.lastRequest, state.requestsOfPath[path, default: 0], time)
      state.open[request.id] = state.entries.count
      state.entries.append(OriginLogEntry(request: request))
      state.totals.requests += 1
      state.totals.openRequests += 1
      state.totals.peakRequests = max(state.totals.peakRequests, state.totals.openRequests)
      return request
    }
  }

  func answered(_ id: Int, status: Int, range: ByteRange?) {
    let time = Instant.now.seconds(since: start)
    change(id) { entry in
      entry.status = status
      entry.request.range = range
      entry.firstByteTime = time
    }
  }

  /// `body` bytes of the body were written, which brought `range` of the resource.
  func wrote(_ id: Int, body: Int64, range: ByteRange?, generation: UInt64) {
    state.withLock { state in
      guard let index = state.open[id] else { return }
      state.entries[index].bodyBytes += body
      guard let range, !range.isEmpty else { return }
      state.totals.bytesSent += range.count
      let last = state.entries[index].sent.count - 1
      if last >= 0, state.entries[index].sent[last].generation == generation,
        state.entries[index].sent[last].range.end == range.start
      {
        state.entries[index].sent[last].range.end = range.end
      } else {
        state.entries[index].sent.append(OriginLogEntry.Part(generation: generation, range: range))
      }
    }
  }

  func ended(_ id: Int, _ end: OriginEnd) {
    let time = Instant.now.seconds(since: start)
    change(id) { entry in
      entry.end = end
      entry.endTime = time
    }
    state.withLock { state in
      state.open[id] = nil
      state.totals.openRequests -= 1
    }
  }

  private func change(_ id: Int, _ body: (inout OriginLogEntry) -> Void) {
    state.withLock { state in
      if let index = state.open[id] { body(&state.entries[index]) }
    }
  }
}
