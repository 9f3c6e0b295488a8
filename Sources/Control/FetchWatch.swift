/// Follows a fetch of any number of files. The cost of a poll is bounded: it asks for at most ``ControlLimits/polled``
/// files, in turn, and never again for a file that has ended.
struct FetchWatch {
  /// What the last poll of a file added to the sums.
  private struct Share {
    var stored: Int64 = 0
    var size: Int64 = 0
    var knowsSize = false
    var rate = 0.0
    var isHeldUp = false
  }

  private var waiting: [(target: FetchTarget, share: Share)]
  private var position = 0
  private var sums = FetchReport()
  /// Wide, because a few files may claim more than 63 bits hold, and what was added is subtracted again.
  private var stored: Int128 = 0
  private var size: Int128 = 0

  init(_ targets: [FetchTarget]) {
    waiting = targets.map { ($0, Share()) }
    sums.files = targets.count
    sums.unknownSizes = targets.count
  }

  /// Polls the next files in turn, and returns the sums.
  mutating func look(_ handler: any ControlHandler) -> FetchReport {
    sums.changes = []
    if position >= waiting.count { position = 0 }
    let end = min(position + ControlLimits.polled, waiting.count)
    let news = handler.progress(of: waiting[position..<end].map(\.target))
    var shown = 0
    let isFew = waiting.count <= ControlLimits.shown
    var kept = position
    for (index, progress) in zip(position..<end, news) {
      let before = waiting[index].share
      var share = before
      share.stored = progress.stored
      share.isHeldUp = progress.isHeldUp
      share.rate = progress.isOver ? 0 : progress.rate  // an ended file receives no data
      if let size = progress.size {
        share.size = size
        share.knowsSize = true
      }
      waiting[index].share = share
      account(before, share)
      if progress.isOver {
        if progress.state == .complete { sums.complete += 1 } else { sums.failed += 1 }
        sums.changes.append(progress)
      } else {
        // Of many, those that wait for their turn are not of interest.
        let isTold = progress.rate > 0 || progress.isHeldUp || (progress.waitsFor != nil && isFew)
        if isTold, shown < ControlLimits.shown {
          shown += 1
          sums.changes.append(progress)
        }
        waiting.swapAt(index, kept)
        kept += 1
      }
    }
    // A file without news stays as it was.
    let asked = position + min(news.count, end - position)
    waiting.removeSubrange(kept..<asked)
    position = kept + (end - asked)
    if sums.rate < 1e-3 { sums.rate = 0 }  // the rest that rounding leaves
    return sums
  }

  /// Replaces what a file added to the sums before.
  private mutating func account(_ before: Share, _ now: Share) {
    stored += Int128(now.stored) - Int128(before.stored)
    size += Int128(now.size) - Int128(before.size)
    sums.stored = Int64(clamping: stored)
    sums.size = Int64(clamping: size)
    sums.rate += now.rate - before.rate
    sums.heldUp = (sums.heldUp ?? 0) + (now.isHeldUp ? 1 : 0) - (before.isHeldUp ? 1 : 0)
    if now.knowsSize, !before.knowsSize { sums.unknownSizes -= 1 }
  }
}
