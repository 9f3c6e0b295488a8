import Base
import Manifest

/// The state of one file, for `status`, `fetch` and the extended attributes: with a server or without one, derived here
/// and nowhere else (``init(path:_:now:)``).
package struct FileReport: Sendable {
  /// What a file is.
  package enum State: String, Sendable {
    /// Nothing of it is stored.
    case remote
    /// Some of it is.
    case partial
    /// All of it, verified, in the library.
    case complete
    /// The origin (or the store) failed for good.
    case failed
    /// A user changed the copy in the library: it is theirs.
    case modified
  }

  /// What a file waits for while nothing of it is on its way.
  package enum Awaited: Sendable, Equatable {
    /// Somebody who reads, opens or fetches it: the policy does not ask for the rest by itself.
    case reader
    /// The line: readers of other files go first, or the rate limit is used up.
    case line
    /// A connection: other files have them all, or come first.
    case turn
    /// Space: the store or its disk is at its limit, or refused a write.
    case space
    /// The origin: it is asked again then.
    case origin(until: Instant)
  }

  /// Its path in the mount.
  package var path: String
  /// What it is.
  package var state: State
  /// Stored bytes.
  package var stored: Int64
  /// Bytes, when known.
  package var size: Int64?
  /// What is stored.
  package var ranges: ByteRangeSet
  /// Bytes a second of late.
  package var rate: Double
  /// Transfers under way.
  package var transfers: Int
  /// What went wrong last.
  package var error: String?
  /// When; nil where nobody knows.
  package var errorAt: Instant?
  /// What it waits for; nil: for nothing, or without a server.
  package var awaits: Awaited?
  /// What to do about its state; nil: nothing.
  package var advice: String?
}

extension FileReport {
  /// Derives the report from what is known.
  init(path: String, _ facts: FileFacts, now: Instant) {
    self.init(
      path: path, state: .remote, stored: 0, size: facts.size, ranges: facts.stored,
      rate: facts.activity?.rate ?? 0, transfers: facts.activity?.transfers ?? 0)
    let last = facts.lastError ?? facts.problem
    (error, errorAt) = (last?.message, last?.at)
    switch facts.copy {
    case .intact: state = .complete
    case .unreachable(let library):
      state = .complete
      (error, errorAt) = ("the library \(library) is not there", nil)
    case .modified(let copy):
      state = .modified
      (error, errorAt) = ("the copy \(copy) was changed", nil)
    case .missing, nil:
      if facts.copy == .missing { ranges = ByteRangeSet() }
      let isFailed = facts.activity?.isFailed ?? (facts.problem != nil)
      state = isFailed ? .failed : ranges.isEmpty ? .remote : .partial
    }
    stored = ranges.count
    awaits = awaited(facts, now)
    advice = advice(facts)
  }

  /// The first thing that keeps the next transfer from starting.
  private func awaited(_ facts: FileFacts, _ now: Instant) -> Awaited? {
    guard let server = facts.server, state == .remote || state == .partial else { return nil }
    if let size, ranges.contains(ByteRange(0, size)) { return nil }  // it is being verified
    guard let activity = facts.activity else {
      if !server.isWanted { return .reader }
      return server.lacksSpace ? .space : .turn  // it is in the list of what goes on
    }
    if activity.transfers > 0 { return nil }
    if !activity.hasWaiters {
      if !activity.isWanted || activity.cannotBeStored { return .reader }
      if server.lacksSpace || activity.isPaused { return .space }
    }
    if let retryAt = activity.retryAt, retryAt > now { return .origin(until: retryAt) }
    if activity.standsBack { return activity.lacksConnection ? .turn : .line }
    return nil
  }

  private func advice(_ facts: FileFacts) -> String? {
    switch state {
    case .modified: return "move the copy elsewhere to have the original fetched again"
    case .complete:
      if case .unreachable = facts.copy { return "mount the disk that it is on" }
      return nil
    case .failed:
      let again = "open the file or fetch it, to try again"
      return facts.server == nil
        ? "mount, and \(again)"
        : "see whether the link and the credentials are right (--header, --netrc-file); \(again)"
    case .remote, .partial:
      if awaits == .space { return "free disk space, raise --max-size or lower --min-free" }
      if error == nil { return nil }
      return awaits == .reader
        ? "open the file or fetch it, to try again" : "nothing: it is tried again by itself while it is wanted"
    }
  }
}
