import Base
import Manifest
import Storing

/// The position in the lists of unfinished files: those that users asked for by name, those that a rule keeps, and
/// those that were played. Only a few of them are in memory and resumed at a time, however many there are.
struct Resuming {
  /// A position in the lists, which are gone through in this order.
  enum Place: Sendable {
    /// After that resource among the pinned ones; nil: before the first.
    case pins(after: ResourceKey?)
    /// After the part of the tree that the walk has seen. `isRetry`: failed files are left out.
    case kept(KeptWalk, isRetry: Bool)
    /// After that generation among those to be continued.
    case generations(after: Int64)
  }

  /// Where the list goes on; nil at its end, and while the keeper reads it.
  private(set) var cursor: Place?
  /// Whether the keeper is reading the next part of the list.
  private var isLooking = false
  /// Whether unfinished files were put away to make room: the list is gone through once more.
  var hasLeftOut = false
  /// Whether the keeper reads a part of the lists that was true before the rules changed.
  private var isStale = false
  /// When the next round may begin.
  private var nextRound = Instant(nanoseconds: 0)
  /// Where the list could not be read, and when the keeper tries again.
  private var unread: (place: Place, due: Instant)?

  /// How long the catalog is left alone after it could not be read, in seconds.
  private static let pause = 60.0

  /// Whether there may be more files to resume.
  var goesOn: Bool { cursor != nil || hasLeftOut || isLooking || unread != nil }

  /// The keeper has resumed everything up to `place`; nil: it has reached the end of the list.
  mutating func reached(_ place: Place?, _ now: Instant) {
    isLooking = false
    if isStale { return startOver() }
    cursor = place
    // Putting a file away ends its own backoff. Rounds at the longest backoff make no more attempts than that would.
    if place == nil { nextRound = now.adding(seconds: Retry.longest) }
  }

  /// The list could not be read after `place`: it goes on from there, later.
  mutating func failed(after place: Place, _ now: Instant) {
    isLooking = false
    if isStale { return startOver() }
    unread = (place, now.adding(seconds: Self.pause))
  }

  /// Goes on where the list could not be read, or begins another round, when that is due.
  mutating func beginRound(_ now: Instant) {
    guard cursor == nil, !isLooking else { return }
    if let next = unread {
      if now < next.due { return }
      cursor = next.place
      unread = nil
      return
    }
    guard hasLeftOut, now >= nextRound else { return }
    cursor = .kept(KeptWalk(), isRetry: true)
    hasLeftOut = false
  }

  /// The rules changed: begins anew.
  mutating func startOver() {
    isStale = isLooking
    unread = nil
    if !isLooking { cursor = .pins(after: nil) }
  }

  /// The place from which the keeper reads on. nil while there is nothing to read.
  mutating func take() -> Place? {
    guard let cursor else { return nil }
    self.cursor = nil
    isLooking = true
    return cursor
  }
}

/// Resumes the downloads that earlier mounts did not finish.
extension TransferThread {
  /// How many unfinished files are fetched at once after a mount.
  static let resumedAtOnce = 16
  /// The most unfinished files in memory that may be put away: each has its partial file open.
  static let mostUnfinished = 256

  /// Has the keeper look for more unfinished files when few are in progress. Behind an origin that does not answer they
  /// pile up. Then the stuck ones are put away to make room; the next round finds them again.
  func resumeNext(_ now: Instant) {
    let isRoom = downloads.all.count { isUnderWay($0) } < Self.resumedAtOnce
    if isRoom { resuming.beginRound(now) }
    let more = isRoom && resuming.cursor != nil ? Self.resumedAtOnce : 0
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

  /// Whether the rest of a file may come soon. A stuck file does not keep others from being resumed.
  private func isUnderWay(_ download: Download) -> Bool {
    download.wish.rest && download.wish.mayRunAhead && !download.attempts.hasFailed && !isFailing(download)
  }

  /// Whether a file gets no bytes for now and a later round finds it again. Rounds do not cover the files that users
  /// asked for by name, and they do not know of a time that the origin named (Retry-After).
  private func isStuck(_ download: Download, _ now: Instant) -> Bool {
    guard download.wish.rest, !download.wish.isByName, isFailing(download) else { return false }
    if download.attempts.retry.hasRetryAfter, !download.attempts.retry.permits(now, readerWaits: false) { return false }
    if download.wish.rules.storage == .keep { return true }
    return download.content.guarded.withLock { $0.held.generation?.continues == true }
  }

  private func isFailing(_ download: Download) -> Bool {
    download.attempts.retry.failures >= 3 || lines.line(of: download).isUnreachableForLong
  }
}
