import Base
import Storing

/// What becomes of a partial file whose sync failed.
///
/// Linux tells of a failed write-back once and may drop the pages: what was written since the last sync that succeeded may read
/// as it should for a while, and as zeros later. It is fetched again, into the same file, through a new descriptor, so that
/// the next sync speaks of what is written from now on. What the kernel remembers of the mount's file stays: those bytes
/// were right when they were read.
extension Engine {
  /// Goes back to what is known to be on disk of a content whose `file` could not be synced. On the keeper's thread.
  func distrust(_ content: Content, _ file: ServedFile, _ error: Errno) {
    guard let partial = file.partial else { return }
    Log.error(
      "\(content.path): what was stored of it cannot be synced: \(error); what was not on disk before is fetched again")
    keeper.syncFailed()
    // Opened before anything is written to it: a failure from here on is this descriptor's to tell.
    let reopened: ServedFile?
    do throws(StoreError) {
      reopened = ServedFile(partial: try PartialFile(in: store.folder, id: partial.id, create: true))
    } catch {
      Log.error("\(content.path): \(error.message)")
      reopened = nil
    }
    let kept = content.guarded.withLock { guarded -> ByteRangeSet? in
      guard guarded.file === file, !guarded.isFrozen else { return nil }
      let kept = reopened == nil ? ByteRangeSet() : Self.onDisk(guarded.state.stored, synced: guarded.synced)
      guarded.file = reopened
      guarded.state.stored = kept
      guarded.state.isDirty = false
      guarded.synced = kept
      guarded.unsynced = 0
      guarded.unsyncedSince = nil
      guarded.isCommitting = true
      guarded.phase = .partial
      file.distrust()
      return kept
    }
    if let kept { commit(kept, of: content, partial.id) }
    post(.distrusted(content, message: "the disk lost what was stored: \(error)"))
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
      content.guarded.withLock { $0.isCommitting = false }
    } catch {
      Log.error("\(content.path): the catalog cannot be told yet that bytes were lost: \(error.message)")
      content.guarded.withLock { $0.isOverclaimed = true }
      keeper.markDirty(content)
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
