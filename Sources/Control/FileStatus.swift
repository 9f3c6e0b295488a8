/// How much of a file is here.
package enum FileState: String, Codable, Sendable, CaseIterable {
  /// Nothing of it is stored.
  case remote
  /// Some of it is stored.
  case partial
  /// All of it is in the library, verified.
  case complete
  /// The last attempt to get it failed; it is not tried again by itself.
  case failed
  /// A user changed the library's copy: it is kept, and not served as the origin's.
  case modified
}

/// What a file waits for while nothing of it is on its way.
package enum FileWait: String, Codable, Sendable, CaseIterable {
  /// Somebody who reads, opens or fetches it.
  case reader
  /// The line: readers of other files go first, or the rate limit is used up.
  case line
  /// A connection: other files have them all, or come first.
  case turn
  /// Room in the store or on its disk.
  case space
  /// The origin, which failed, or named a time.
  case origin
}

/// What `status` tells of one file.
package struct FileStatus: Sendable, Equatable {
  /// Its path in the mount, without a leading slash.
  package var path: String
  /// How much of it is here.
  package var state: FileState
  /// Bytes that are stored.
  package var stored: Int64
  /// Bytes it has; nil while that is not known.
  package var size: Int64?
  /// Which bytes are stored: `[start, end]` pairs, ascending, half-open.
  package var ranges: [[Int64]]
  /// Bytes a second that arrive now.
  package var rate: Double
  /// Transfers that run now.
  package var transfers: Int
  /// The last error, for a person, without secrets; nil for none.
  package var error: String?
  /// Seconds since that error; nil where nobody knows.
  package var errorAge: Int64?
  /// What it waits for; nil for nothing, and without a server.
  package var waitsFor: FileWait?
  /// Until when, in seconds since 1970; nil: nobody knows.
  package var waitsUntil: Int64?
  /// What to do about `error` and `waitsFor`; nil for nothing.
  package var advice: String?

  /// A file of which nothing is known, unless given.
  package init(
    path: String, state: FileState = .remote, stored: Int64 = 0, size: Int64? = nil, ranges: [[Int64]] = [],
    rate: Double = 0, transfers: Int = 0, error: String? = nil, errorAge: Int64? = nil, waitsFor: FileWait? = nil,
    waitsUntil: Int64? = nil, advice: String? = nil
  ) {
    self.path = path
    self.state = state
    self.stored = stored
    self.size = size
    self.ranges = ranges
    self.rate = rate
    self.transfers = transfers
    self.error = error
    self.errorAge = errorAge
    self.waitsFor = waitsFor
    self.waitsUntil = waitsUntil
    self.advice = advice
  }
}

extension FileStatus {
  /// Whether it waits for a reader and nothing is known of it but its size, perhaps: what most files of a large mount
  /// are.
  var isUntouched: Bool { self == FileStatus(path: path, size: size, waitsFor: .reader) }
}

extension FileStatus: Codable {
  private enum CodingKeys: String, CodingKey {
    case path, state, stored, size, ranges, rate, transfers, error, errorAge, waitsFor, waitsUntil, advice
  }

  /// Writes every key, with null for what is not known: who reads the JSON need not ask whether a key is there.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(path, forKey: .path)
    try container.encode(state, forKey: .state)
    try container.encode(stored, forKey: .stored)
    try container.encode(size, forKey: .size)
    try container.encode(ranges, forKey: .ranges)
    // JSON has no infinity: a rate over an interval of nothing is none.
    try container.encode(rate.isFinite ? rate : 0, forKey: .rate)
    try container.encode(transfers, forKey: .transfers)
    try container.encode(error, forKey: .error)
    try container.encode(errorAge, forKey: .errorAge)
    try container.encode(waitsFor, forKey: .waitsFor)
    try container.encode(waitsUntil, forKey: .waitsUntil)
    try container.encode(advice, forKey: .advice)
  }
}

/// Sums over all files of a mount, or over those below the paths that were asked for.
package struct StatusTotals: Codable, Sendable, Equatable {
  /// Files.
  package var files: Int64 = 0
  /// Of these, in state ``FileState/remote``.
  package var remote: Int64 = 0
  /// In state ``FileState/partial``.
  package var partial: Int64 = 0
  /// In state ``FileState/complete``.
  package var complete: Int64 = 0
  /// In state ``FileState/failed``.
  package var failed: Int64 = 0
  /// In state ``FileState/modified``.
  package var modified: Int64 = 0
  /// Bytes that are stored.
  package var stored: Int64 = 0
  /// Bytes of the files whose size is known.
  package var size: Int64 = 0
  /// Files whose size is not known.
  package var unknownSizes: Int64 = 0
  /// Bytes a second that arrive now.
  package var rate: Double = 0
  /// Transfers that run now.
  package var transfers: Int64 = 0

  /// All zero.
  package init() {}

  /// Counts one file in.
  package mutating func add(_ file: FileStatus) {
    files += 1
    switch file.state {
    case .remote: remote += 1
    case .partial: partial += 1
    case .complete: complete += 1
    case .failed: failed += 1
    case .modified: modified += 1
    }
    stored = .clampedSum(stored, file.stored)
    if let known = file.size { size = .clampedSum(size, known) } else { unknownSizes += 1 }
    rate += file.rate.isFinite ? file.rate : 0
    transfers += Int64(file.transfers)
  }
}

/// Which files `status` is to tell of, and from where on.
package struct StatusQuery: Sendable, Equatable {
  /// Paths in the mount, without a leading slash; a folder means all below it, an empty path the root. Nil: the whole
  /// mount.
  package var paths: [String]?
  /// Whether files of which nothing is known, stored or failed are listed as well. With `paths` all are, in any case.
  package var all: Bool
  /// Where the page before ended (``StatusPage/next``); nil for the first page. Opaque to who asks.
  package var after: String?
  /// Files a page has at most (a few more where several names share one resource); 1 to ``ControlLimits/page``.
  package var limit: Int

  /// The first page of what was touched, unless given.
  package init(paths: [String]? = nil, all: Bool = false, after: String? = nil, limit: Int = ControlLimits.page) {
    self.paths = paths
    self.all = all
    self.after = after
    self.limit = limit
  }
}

/// Some files, and where to go on: a mount may have a million, which are never in memory at once.
package struct StatusPage: Sendable, Equatable {
  /// The files, in the source's own order, which stays from page to page.
  package var files: [FileStatus]
  /// What to give as ``StatusQuery/after`` for the next page; nil: this was the last.
  package var next: String?

  /// That page.
  package init(files: [FileStatus], next: String?) {
    self.files = files
    self.next = next
  }
}

/// Whoever can tell the state of a mount's files: a running server, or the catalog of its store.
package protocol StatusSource {
  /// Sums over what `query.paths` name, whatever `all`, `after` and `limit` say. `notFound` for a path that is not
  /// there.
  func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals
  /// The next page. `notFound` for a path that is not there.
  func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage
}
