import Base
import Manifest

/// The state of one file, for `status`, `fetch` and the extended attributes, with or without a server. It is derived in
/// one place: ``init(path:_:now:)``.
package struct FileReport: Sendable {
  /// The state of a file.
  package enum State: String, Sendable {
    /// No byte is stored.
    case remote
    /// Some bytes are stored.
    case partial
    /// All bytes are stored, verified, in the library.
    case complete
    /// The download failed for good.
    case failed
    /// A user changed the copy in the library: it is theirs.
    case modified
  }

  /// What a file without a transfer waits for.
  package enum Awaited: Sendable, Equatable {
    /// A reader, an open or `mediafs fetch`: the policy does not fetch the rest.
    case reader
    /// The line: readers of other files go first, or the rate limit is used up.
    case line
    /// A free connection: other files use all of them, or come first.
    case turn
    /// Space: the store or its disk is at its limit, or refused a write.
    case space
    /// The user, who paused its downloads.
    case resume
    /// The origin: the next retry is at that time.
    case origin(until: Instant)
  }

  /// Its path in the mount.
  package var path: String
  /// The file's state.
  package var state: State
  /// The number of stored bytes.
  package var stored: Int64
  /// The size in bytes; nil until it is known.
  package var size: Int64?
  /// The stored ranges.
  package var ranges: ByteRangeSet
  /// Bytes a second.
  package var rate: Double
  /// Transfers in flight.
  package var transfers: Int
  /// The last error.
  package var error: String?
  /// The time of the last error; nil when it is unknown.
  package var errorAt: Instant?
  /// What the file waits for; nil: nothing, or no server runs.
  package var awaits: Awaited?
  /// What the user can do; nil: nothing.
  package var advice: String?
  /// How many handles of it are open.
  package var opens = 0
  /// Who reads it, as far as the server sees: the kernel answers reads of its cache, and of complete files, by itself.
  package var readers: [Reader] = []
  /// When it plays; nil: not known.
  package var film: FilmReport?
}

extension FileReport {
  /// Derives the report from the facts.
  init(path: String, _ facts: FileFacts, now: Instant) {
    self.init(
      path: path, state: .remote, stored: 0, size: facts.size, ranges: facts.stored,
      rate: facts.activity?.rate(now: now) ?? 0, transfers: facts.activity?.transfers ?? 0)
    let last = facts.lastError ?? facts.problem
    (error, errorAt) = (last?.message, last?.at)
    switch facts.copy {
    case .intact: state = .complete
    case .unreachable(let library):
      state = .complete
      (error, errorAt) = ("the library \(library) cannot be found", nil)
    case .modified(let copy):
      state = .modified
      (error, errorAt) = ("the copy \(copy) was changed", nil)
    case .missing, nil:
      if facts.copy == .missing { ranges = ByteRangeSet() }
      let isFailed = facts.activity?.isFailed ?? (facts.problem != nil)
      state = isFailed ? .failed : ranges.isEmpty ? .remote : .partial
    }
    stored = ranges.count
    if state == .complete || state == .modified { rate = 0 }
    if state != .modified { film = facts.film.map { FilmReport($0, stored: ranges, now: now) } }
    awaits = awaited(facts, now)
    (opens, readers) = (facts.opens, facts.readers)
    // With a transfer in flight, or one about to start, its bytes are on the way.
    for index in readers.indices where readers[index].waitsSince != nil {
      readers[index].awaits = awaits == .reader ? nil : awaits
    }
    advice = advice(facts)
  }

  /// The first thing that keeps the next transfer from starting.
  private func awaited(_ facts: FileFacts, _ now: Instant) -> Awaited? {
    guard let server = facts.server, state == .remote || state == .partial else { return nil }
    if let size, ranges.contains(ByteRange(0, size)) { return nil }  // the finisher verifies it
    guard let activity = facts.activity else {
      if !server.isWanted || server.rules.storage == .online { return .reader }
      if server.rules.isPaused { return .resume }
      return server.lacksSpace ? .space : .turn  // the keeper's list of unfinished files has it
    }
    if activity.transfers > 0 { return nil }
    if !activity.hasWaiters {
      if !activity.isWanted || activity.cannotBeStored || server.rules.storage == .online { return .reader }
      if server.rules.isPaused { return .resume }
      if server.lacksSpace || activity.isPaused { return .space }
    }
    if let retryAt = activity.retryAt, retryAt > now { return .origin(until: retryAt) }
    if activity.standsBack { return activity.lacksConnection ? .turn : .line }
    return nil
  }

  private func advice(_ facts: FileFacts) -> String? {
    switch state {
    case .modified: return "move the copy elsewhere, and mediafs downloads the original again"
    case .complete:
      if case .unreachable = facts.copy { return "mount the disk of the library" }
      return nil
    case .failed:
      // The error itself says what is wrong with the URL or the credentials, if that is so.
      let again = "open or fetch the file to try again"
      return facts.server == nil ? "mount, and \(again)" : again
    case .remote, .partial:
      if awaits == .resume { return "let it go on with 'mediafs resume'" }
      if facts.server?.isWanted == true, facts.server?.rules.storage == .online {
        return "end the rule 'online' with 'mediafs auto': of this file mediafs stores nothing"
      }
      if awaits == .space {
        return facts.server?.lack?.advice ?? "free disk space, raise --max-size or lower --min-free"
      }
      if error == nil { return nil }
      return awaits == .reader
        ? "open or fetch the file to try again" : "nothing: mediafs tries again while the file is wanted"
    }
  }
}
