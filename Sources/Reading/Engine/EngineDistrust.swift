import Base
import Storing

/// What becomes of a partial file whose sync failed.
///
/// Linux tells of a failed write-back once and may drop the pages: what was written since the last sync that succeeded
/// may read as it should for a while, and as zeros later. It is fetched again, into the same file, through a new
/// descriptor, so that the next sync speaks of what is written from now on. The kernel forgets what it read of that: a
/// reader that came between the loss and the sync may have left zeros in the mount's page cache.
extension Engine {
  /// Goes back to what is known to be on disk of a content whose `file` could not be synced. On the keeper's thread.
  func distrust(_ content: Content, _ file: ServedFile, _ error: Errno) {
    guard let partial = file.partial else { return }
    let message = "the disk lost what was stored: \(error)"
    guard content.guarded.withLock({ $0.file === file }) else {
      // It was found out before, by another sync.
      let pausedUntil = keeper.pause(of: content.key) ?? clock.now
      return post(.distrusted(content, message: message, lost: nil, pausedUntil: pausedUntil))
    }
    Log.error(
      "\(content.path): what was stored of it cannot be synced: \(error); what was not on disk before is fetched again")
    let pausedUntil = keeper.syncFailed(content.key)
    let reopened = reopen(content, partial.id)
    let (kept, lost) = content.guarded.withLock { guarded -> (ByteRangeSet?, ByteRange?) in
      guard guarded.file === file, !guarded.isFrozen else { return (nil, nil) }
      let stored = guarded.state.stored
      let kept = reopened == nil ? ByteRangeSet() : Self.onDisk(stored, synced: guarded.synced)
      Self.fallBack(&guarded, to: kept, reopened)
      file.distrust()
      return (kept, Self.hull(of: stored, without: kept))
    }
    if let kept { commit(kept, of: content, partial.id) }
    post(.distrusted(content, message: message, lost: lost, pausedUntil: pausedUntil))
  }

  /// Before anything is written to it: a failure from here on is the new descriptor's to tell.
  private func reopen(_ content: Content, _ id: Int64) -> ServedFile? {
    do throws(StoreError) {
      return ServedFile(partial: try PartialFile(in: store.folder, id: id, create: true))
    } catch {
      Log.error("\(content.path): \(error.message)")
      return nil
    }
  }

  /// `kept` is all that is stored, in `file`; the catalog claims more.
  private static func fallBack(_ guarded: inout Content.Guarded, to kept: ByteRangeSet, _ file: ServedFile?) {
    guarded.file = file
    guarded.state.stored = kept
    guarded.state.isDirty = false
    guarded.synced = kept
    guarded.unsynced = 0
    guarded.unsyncedSince = nil
    guarded.isCommitting = true
    guarded.isOverclaimed = true
    guarded.phase = .partial
  }

  /// From the first byte of `stored` that is not in `kept` to the last; nil when there is none.
  static func hull(of stored: ByteRangeSet, without kept: ByteRangeSet) -> ByteRange? {
    var lost = stored
    for range in kept.ranges { lost.remove(range) }
    guard let first = lost.ranges.first, let last = lost.ranges.last else { return nil }
    return ByteRange(first.start, last.end)
  }

  /// Has the kernel forget `range` of every inode that shows the content. On the transfer thread.
  func forgetPages(of content: Content, _ range: ByteRange) {
    let inodes = table.withLock { table in table.contents.filter { $0.value === content }.map(\.key).sorted() }
    for inode in inodes { port.forgetPages(of: inode, range) }
  }

  /// Answers who came while nobody knew what was left. On the transfer thread.
  func answerParked(_ content: Content) {
    let (whole, stale) = content.guarded.withLock { guarded -> ([ParkedRead], [ParkedRead]) in
      let whole = guarded.state.releaseWhole()
      return (whole, guarded.state.isSuperseded ? guarded.state.takeAll().reads : [])
    }
    for read in whole { answer(read, content) }
    for read in stale { port.reply(read.ticket, error: .stale) }
  }

  private func commit(_ kept: ByteRangeSet, of content: Content, _ id: Int64) {
    do throws(StoreError) {
      try store.catalog.apply([.extents(generation: id, stored: kept, synced: kept)], durably: true)
      content.guarded.withLock { guarded in
        guarded.isCommitting = false
        guarded.isOverclaimed = false
      }
    } catch {
      Log.error("\(content.path): the catalog cannot be told yet that bytes were lost: \(error.message)")
      withdraw(content, id)
      keeper.markDirty(content)
    }
  }

  /// Takes away the file of which the catalog claims too much: should the server be killed before the catalog is told,
  /// a claim without a file is found out at the next mount.
  private func withdraw(_ content: Content, _ id: Int64) {
    do throws(StoreError) {
      _ = try PartialFile.remove(id, in: store.folder)
      content.guarded.withLock { guarded in
        // Frozen: its bytes are being taken away, the catalog's claim with them.
        if guarded.isOverclaimed, !guarded.isFrozen { Self.fallBack(&guarded, to: ByteRangeSet(), nil) }
      }
    } catch {
      Log.error("\(content.path): \(error.message); until the catalog is told, it claims bytes that were lost")
    }
  }

  /// A block of a file system's, generously.
  private static let block: Int64 = 64 << 10

  /// Of what is synced, all that shares no block with what is not: a write that failed may have torn such a block.
  static func onDisk(_ stored: ByteRangeSet, synced: ByteRangeSet) -> ByteRangeSet {
    var lost = stored
    for range in synced.ranges { lost.remove(range) }
    var kept = synced
    for range in lost.ranges {
      kept.remove(ByteRange(range.start / block * block, (range.end + block - 1) / block * block))
    }
    return kept
  }
}
