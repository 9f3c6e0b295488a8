extension FileStatus {
  /// How much of a file is stored.
  package enum State: String, Codable, Sendable, CaseIterable {
    /// Nothing of it is stored.
    case remote
    /// A part is stored.
    case partial
    /// The whole file is verified and in the library.
    case complete
    /// The download failed, and the server does not try again by itself.
    case failed
    /// A user changed the copy in the library. The server keeps the copy, and does not serve it as the original.
    case modified
  }
}

/// What a file waits for while no transfer of it is in flight.
package enum FileWait: String, Codable, Sendable, CaseIterable {
  /// A program that reads or opens it, or a user who fetches it.
  case reader
  /// The line: downloads for readers of other files go first, or the rate limit is reached.
  case line
  /// A connection: other files use all of them, or come first.
  case turn
  /// Free space in the store or on its disk.
  case space
  /// The origin, which failed or asked to retry later.
  case origin
  /// The user, who paused its downloads.
  case resume
}

/// The status of one file.
package struct FileStatus: Sendable, Equatable {
  /// Its path in the mount, without a leading slash.
  package var path: String
  /// How much of the file is stored.
  package var state: State
  /// Bytes that are stored.
  package var stored: Int64
  /// The size in bytes; nil while it is not known.
  package var size: Int64?
  /// Which bytes are stored: `[start, end]` pairs, ascending, half-open.
  package var ranges: [[Int64]]
  /// The current download rate in bytes a second.
  package var rate: Double
  /// Transfers in flight.
  package var transfers: Int
  /// The last error, without secrets; nil for none.
  package var error: String?
  /// Seconds since that error; nil if the server does not know.
  package var errorAge: Int64?
  /// What it waits for; nil for nothing, or if no server runs.
  package var waitsFor: FileWait?
  /// When the wait ends, in seconds since 1970; nil if that is not known.
  package var waitsUntil: Int64?
  /// What the user can do about `error` and `waitsFor`; nil for nothing.
  package var advice: String?
  /// How many handles of it programs have open; nil for none.
  package var opens: Int64?
  /// Who reads it, by place; nil if no one does.
  package var readers: [ReaderStatus]?
  /// What else is known of it; nil unless the query asks for it.
  package var story: FileStory?
  /// The rule that says what of it is stored, for which path or pattern; nil without one.
  package var rule: AppliedRule?
  /// The rule that says whether its downloads are paused; nil without one.
  package var downloads: AppliedRule?
  /// How long it plays, in seconds; nil if that is not known.
  package var duration: Double?
  /// Up to which of these seconds it is stored without a hole, from where a program reads it, or from its start.
  package var holdsTo: Double?
  /// The earliest second from which it never stalls if it is played now; nil if there is none, or it is not known.
  package var playsFrom: Double?

  /// A file of which only the given values are known.
  package init(
    path: String, state: State = .remote, stored: Int64 = 0, size: Int64? = nil, ranges: [[Int64]] = [],
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
  /// Whether the file waits for a reader and at most its size is known. Most files of a large mount are so.
  var isUntouched: Bool { self == FileStatus(path: path, size: size, waitsFor: .reader) }
}

extension FileStatus: Codable {
  private enum CodingKeys: String, CodingKey {
    case path, state, stored, size, ranges, rate, transfers, error, errorAge, waitsFor, waitsUntil, advice
    case opens, readers, story, duration, holdsTo, playsFrom, rule, downloads
  }

  /// Writes every key, with null for an unknown value, so that readers of the JSON find every key.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(path, forKey: .path)
    try container.encode(state, forKey: .state)
    try container.encode(stored, forKey: .stored)
    try container.encode(size, forKey: .size)
    try container.encode(ranges, forKey: .ranges)
    // JSON has no infinity, which a rate over an empty interval may be.
    try container.encode(rate.isFinite ? rate : 0, forKey: .rate)
    try container.encode(transfers, forKey: .transfers)
    try container.encode(error, forKey: .error)
    try container.encode(errorAge, forKey: .errorAge)
    try container.encode(waitsFor, forKey: .waitsFor)
    try container.encode(waitsUntil, forKey: .waitsUntil)
    try container.encode(advice, forKey: .advice)
    try container.encode(opens, forKey: .opens)
    try container.encode(readers, forKey: .readers)
    try container.encode(story, forKey: .story)
    try container.encode(duration, forKey: .duration)
    try container.encode(holdsTo, forKey: .holdsTo)
    try container.encode(playsFrom, forKey: .playsFrom)
    try container.encode(rule, forKey: .rule)
    try container.encode(downloads, forKey: .downloads)
  }
}

/// Sums over all files of a mount, or over those at and below the paths of a query.
package struct StatusTotals: Codable, Sendable, Equatable {
  /// How many files there are.
  package var files: Int64 = 0
  /// Files in state ``FileStatus/State/remote``.
  package var remote: Int64 = 0
  /// Files in state ``FileStatus/State/partial``.
  package var partial: Int64 = 0
  /// Files in state ``FileStatus/State/complete``.
  package var complete: Int64 = 0
  /// Files in state ``FileStatus/State/failed``.
  package var failed: Int64 = 0
  /// Files in state ``FileStatus/State/modified``.
  package var modified: Int64 = 0
  /// Bytes that are stored.
  package var stored: Int64 = 0
  /// The sum of the known sizes.
  package var size: Int64 = 0
  /// Files whose size is not known.
  package var unknownSizes: Int64 = 0
  /// The current download rate in bytes a second.
  package var rate: Double = 0
  /// Transfers in flight.
  package var transfers: Int64 = 0
  /// The lines of the whole mount, the busiest first, at most ``ControlLimits/lines``; nil if no server runs, or the
  /// query names paths.
  package var lines: [LineStatus]?
  /// Where the mount keeps what, and its limits; nil from a server that does not tell.
  package var mount: MountFacts?

  /// The first ``ControlLimits/shown`` rules of the mount, the earliest first; nil from a server that does not tell.
  package var rules: [AppliedRule]?
  /// Bytes of partial files that the list does not name any more, which are in no other sum; nil from a server that
  /// does not tell, and for a part of the mount.
  package var unlisted: Int64?
  /// How many rules the mount has.
  package var ruleCount: Int?

  /// Sums over no file.
  package init() {}

  /// Adds one file.
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

/// Which files a client asks the status of, and where the page starts.
package struct StatusQuery: Sendable, Equatable {
  /// Paths in the mount, without a leading slash. A folder stands for all files below it, the empty path for the root,
  /// and nil for the whole mount.
  package var paths: [String]?
  /// Whether to list also files of which nothing is stored and no error is known. With `paths`, all files are listed.
  package var all: Bool
  /// Where the previous page ended (``StatusPage/next``); nil for the first page. Opaque to the client.
  package var after: String?
  /// Whether to read the indexes of files that no program uses, to tell when they play.
  package var film = false
  /// Whether to tell what else is known of each file (``FileStatus/story``). Only with `paths`.
  package var story = false
  /// Whether to list, and to sum up, only the files that something goes on with: programs have them open or wait for
  /// them, transfers are in flight, or the rest is wanted. What is read comes first. There is one page of them.
  package var active = false
  /// The most ranges of each file; nil for the first ``ControlLimits/ranges``. The server closes the smallest gaps,
  /// each less than that part of the file, for a client that draws them.
  package var ranges: Int?
  /// The most files of a page, 1 to ``ControlLimits/page``. A page has a few more if several names share a resource.
  package var limit: Int

  /// A query for the first page of the files of which something is known, unless values are given.
  package init(paths: [String]? = nil, all: Bool = false, after: String? = nil, limit: Int = ControlLimits.page) {
    self.paths = paths
    self.all = all
    self.after = after
    self.limit = limit
  }
}

/// Some files, and where the next page starts. A mount may have a million files, which are never in memory at once.
package struct StatusPage: Sendable, Equatable {
  /// The files, in the source's own order, which is the same for every page.
  package var files: [FileStatus]
  /// The value of ``StatusQuery/after`` for the next page; nil after the last page.
  package var next: String?

  package init(files: [FileStatus], next: String?) {
    self.files = files
    self.next = next
  }
}

/// A source of the status of a mount's files: a running server, or the catalog of its store.
package protocol StatusSource {
  /// The sums over the files that `query.paths` name, whatever `all`, `after` and `limit` say. Throws `notFound` if a
  /// path does not exist.
  func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals
  /// The next page. Throws `notFound` if a path does not exist.
  func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage
}
