import Base
import Manifest
import Storing

/// Where the list of unfinished files is, which the catalog has and memory need not: a few are gone on with at a time.
struct Resuming {
  /// A place in the list: first what users asked for by name, then what was played.
  enum Place: Sendable {
    /// Behind that resource, of the pinned ones; nil: before the first.
    case pins(after: ResourceKey?)
    /// Behind that generation, of those that continue.
    case generations(after: Int64)
  }

  /// Where the list goes on; nil at its end, and while the keeper looks.
  private(set) var cursor: Place?
  /// The keeper looks for more.
  private var isLooking = false
  /// Unfinished files were put away in favour of others: the list is to be gone through once more.
  var hasLeftOut = false
  /// Not before this.
  private var nextRound = Instant(nanoseconds: 0)

  /// Whether there may be more to do.
  var goesOn: Bool { cursor != nil || hasLeftOut || isLooking }

  /// The keeper has looked at everything up to `place`; nil: the list is at its end.
  mutating func reached(_ place: Place?, _ now: Instant) {
    cursor = place
    isLooking = false
    // Its files' own pauses end when they are put away: as many attempts as with the longest of them.
    if place == nil { nextRound = now.adding(seconds: Retry.longest) }
  }

  /// Begins the list anew where that is due.
  mutating func beginRound(_ now: Instant) {
    guard cursor == nil, !isLooking, hasLeftOut, now >= nextRound else { return }
    cursor = .generations(after: 0)
    hasLeftOut = false
  }

  /// Where the keeper is to look now.
  mutating func take() -> Place? {
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
      for source in sourcesInOrder where held + more > Self.mostUnfinished && isStuck(source, now) {
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

  /// Whether nothing comes of it for now, and a later round finds it again. A round does not go through what users
  /// asked for by name, and it does not know of what an origin named a time for.
  private func isStuck(_ source: Source, _ now: Instant) -> Bool {
    guard source.continues, !source.isRequested, isFailing(source) else { return false }
    if source.retry.isAsked, !source.retry.permits(now, readerWaits: false) { return false }
    return source.content.guarded.withLock { $0.generation?.continues == true }
  }

  private func isFailing(_ source: Source) -> Bool {
    source.retry.failures >= 3 || hosts[HostState.key(of: source.target.url)]?.isAwayForLong == true
  }

  /// Goes on with what was being fetched, a few files at a time. On the keeper's thread.
  func resumeMore(after place: Resuming.Place) {
    var next: Resuming.Place?
    do {
      switch place {
      case .pins(let key): next = try resumePins(after: key)
      case .generations(let id):
        let found = try store.catalog.continuing(limit: Self.resumed, after: id)
        for generation in found { _ = try resume(generation.key) }
        if let last = found.last, found.count == Self.resumed { next = .generations(after: last.id) }
      }
    } catch {
      Log.error("what was being fetched cannot be looked up: \(error.message)")
    }
    post(.resumedUntil(next))
  }

  private func resumePins(after key: ResourceKey?) throws(StoreError) -> Resuming.Place {
    let keys = try store.catalog.pins(limit: Self.resumed, after: key)
    for key in keys {
      let content = try resume(key)
      // A server that ended between the two commits, or one that knows no pins, completed it.
      if content?.guarded.withLock({ $0.phase == .complete }) ?? false { keeper.record(.pinned(key, false)) }
    }
    if let last = keys.last, keys.count == Self.resumed { return .pins(after: last) }
    return .generations(after: 0)
  }

  private func resume(_ key: ResourceKey) throws(StoreError) -> Content? {
    guard let entry = try store.catalog.entries(of: key).first else { return nil }
    // The log has why a content cannot be loaded. The others go on.
    guard let content = try? content(of: entry.node.inode) else { return nil }
    post(.resume(content))
    return content
  }
}
