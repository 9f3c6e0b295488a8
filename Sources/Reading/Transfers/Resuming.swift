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
extension TransferThread {
  /// How many unfinished files are fetched side by side after a mount.
  static let resumed = 16
  /// The most unfinished files in memory, of those that may be put away: each has its partial file open.
  static let mostUnfinished = 256

  /// Looks for more unfinished files where few are under way. Behind an origin that does not answer they pile up: then
  /// what is stuck makes room, and has its turn again when the list has come to its end.
  func resumeNext(_ now: Instant) {
    let isRoom = downloads.all.count { isUnderWay($0) } < Self.resumed
    if isRoom { resuming.beginRound(now) }
    let more = isRoom && resuming.cursor != nil ? Self.resumed : 0
    var unfinished = downloads.all.count { $0.wish.rest && !$0.wish.isByName }
    if unfinished + more > Self.mostUnfinished {
      for download in downloads.inOrder
      where unfinished + more > Self.mostUnfinished && isStuck(download, now) {
        downloads.putAway(download)
        guard downloads[download.key] == nil else { continue }  // in use
        unfinished -= 1
        resuming.hasLeftOut = true
      }
    }
    guard more > 0, unfinished + more <= Self.mostUnfinished, let cursor = resuming.take() else { return }
    room.keeper.post(.job { $0.resumeMore(after: cursor) })
  }

  /// Whether the rest of a file may come soon: what is stuck does not keep others from being resumed.
  private func isUnderWay(_ download: Download) -> Bool {
    download.wish.rest && download.attempts.failure == nil && !isFailing(download)
  }

  /// Whether nothing comes of it for now, and a later round finds it again. A round does not go through what users
  /// asked for by name, and it does not know of what an origin named a time for.
  private func isStuck(_ download: Download, _ now: Instant) -> Bool {
    guard download.wish.rest, !download.wish.isByName, isFailing(download) else { return false }
    if download.attempts.retry.isAsked, !download.attempts.retry.permits(now, readerWaits: false) { return false }
    return download.content.guarded.withLock { $0.held.generation?.continues == true }
  }

  private func isFailing(_ download: Download) -> Bool {
    download.attempts.retry.failures >= 3 || lines.line(of: download).isUnreachableForLong
  }
}
