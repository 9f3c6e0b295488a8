import Base
import Storing

/// Where the list of unfinished files is, which the catalog has and memory need not: a few are gone on with at a time.
struct Resuming {
  /// Behind which generation the list goes on; nil at its end, and while the keeper looks.
  private(set) var cursor: Int64?
  /// The keeper looks for more.
  private var isLooking = false
  /// Unfinished files were put away in favour of others: the list is to be gone through once more.
  var hasLeftOut = false
  /// Not before this.
  private var nextRound = Instant(nanoseconds: 0)

  /// Whether there may be more to do.
  var goesOn: Bool { cursor != nil || hasLeftOut || isLooking }

  /// The keeper has looked at everything up to `id`; nil: the list is at its end.
  mutating func reached(_ id: Int64?, _ now: Instant) {
    cursor = id
    isLooking = false
    // Its files' own pauses end when they are put away: as many attempts as with the longest of them.
    if id == nil { nextRound = now.adding(seconds: Retry.longest) }
  }

  /// Begins the list anew where that is due.
  mutating func beginRound(_ now: Instant) {
    guard cursor == nil, !isLooking, hasLeftOut, now >= nextRound else { return }
    cursor = 0
    hasLeftOut = false
  }

  /// Where the keeper is to look now.
  mutating func take() -> Int64? {
    guard let cursor else { return nil }
    self.cursor = nil
    isLooking = true
    return cursor
  }
}

/// Going on with what was being fetched before.
extension Engine {
  /// How many unfinished files are fetched side by side after a mount.
  static let resumed = 16
  /// The most unfinished files in memory, of those that may be put away: each has its partial file open.
  static let mostUnfinished = 256

  /// Looks for more unfinished files where few are under way. Behind an origin that does not answer they pile up: then
  /// what is stuck makes room, and has its turn again when the list has come to its end.
  func resumeNext(_ now: Instant) {
    let isRoom = sources.values.count { isUnderWay($0) } < Self.resumed
    if isRoom { resuming.beginRound(now) }
    let more = isRoom && resuming.cursor != nil ? Self.resumed : 0
    var held = sources.values.count { $0.continues && !$0.isRequested }
    if held + more > Self.mostUnfinished {
      for source in Array(sources.values) where held + more > Self.mostUnfinished && isStuck(source, now) {
        putAway(source)
        guard sources[source.key] == nil else { continue }  // in use
        held -= 1
        resuming.hasLeftOut = true
      }
    }
    guard more > 0, held + more <= Self.mostUnfinished, let cursor = resuming.take() else { return }
    keeper.perform { [self] in resumeMore(after: cursor) }
  }

  /// Whether the rest of a file may come soon: what is stuck does not keep others from being resumed.
  private func isUnderWay(_ source: Source) -> Bool {
    source.continues && source.failure == nil && !isFailing(source)
  }

  /// Whether nothing comes of it for now, and the list of unfinished files has it. Not what a user asked for by name,
  /// nor what an origin named a time for: of that the list does not tell.
  private func isStuck(_ source: Source, _ now: Instant) -> Bool {
    guard source.continues, !source.isRequested, isFailing(source) else { return false }
    if source.retry.isAsked, !source.retry.permits(now, readerWaits: false) { return false }
    return source.content.guarded.withLock { $0.generation?.continues == true }
  }

  private func isFailing(_ source: Source) -> Bool {
    source.retry.failures >= 3 || hosts[HostState.key(of: source.target.url)]?.isAwayForLong == true
  }

  /// Goes on with what was being fetched, a few files at a time. On the keeper's thread.
  func resumeMore(after cursor: Int64) {
    var last: Int64?
    do {
      let next = try store.catalog.continuing(limit: Self.resumed, after: cursor)
      for generation in next {
        guard let entry = try store.catalog.entries(of: generation.key).first else { continue }
        if let content = try? content(of: entry.node.inode) { post(.resume(content)) }
      }
      if next.count == Self.resumed { last = next.last?.id }
    } catch {
      Log.error("what was being fetched cannot be looked up: \(error.message)")
    }
    post(.resumedUntil(last))
  }
}
