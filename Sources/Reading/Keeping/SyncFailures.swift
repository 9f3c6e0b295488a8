import Base
import Storing

/// What the keeper does with a partial file whose sync failed.
///
/// Linux reports a failed write-back once and may drop the pages: bytes written since the last successful sync may read
/// correctly for a while, and as zeros later. They are fetched again into the same file, through a new descriptor, so
/// that the next sync reports only on writes from now on. The kernel drops its cached pages of those bytes: a read
/// between the loss and the sync may have left zeros in the mount's page cache.
extension Keeper {
  /// Reduces a content whose `file` could not be synced to the bytes that are known to be on disk.
  func syncFailed(_ content: Content, _ file: ServedFile, _ error: Errno) {
    guard let partial = file.partial else { return }
    let message = "the disk lost stored bytes: \(error)"
    guard content.guarded.withLock({ $0.held.file === file }) else {
      // Another sync has found the failure before.
      let pausedUntil = room.health.pause(of: content.key) ?? room.clock.now
      return room.transfers.post(.syncFailed(content, message: message, lost: nil, pausedUntil: pausedUntil))
    }
    Log.error(
      "\(content.path): its partial file cannot be synced: \(error); unsynced bytes are fetched again")
    let pausedUntil = room.health.syncFailed(content.key)
    let reopened = reopen(content, partial.id)
    let fallen = content.guarded.withLock { $0.held.syncFailed(file, reopened: reopened) }
    if let fallen { tell(fallen.kept, of: content, partial.id) }
    room.transfers.post(.syncFailed(content, message: message, lost: fallen?.lost, pausedUntil: pausedUntil))
  }

  /// Opens the file again before anything is written to it: the new descriptor reports all later failures. A new file
  /// would have none of the synced bytes: they would read as zeros behind the first write.
  private func reopen(_ content: Content, _ id: Int64) -> ServedFile? {
    do throws(StoreError) {
      return ServedFile(partial: try room.store.partials.open(id, create: false))
    } catch {
      Log.error("\(content.path): \(error.message)")
      return nil
    }
  }

  private func tell(_ kept: ByteRangeSet, of content: Content, _ id: Int64) {
    do throws(StoreError) {
      try room.store.changes.apply([.lost(generation: id, stored: kept, synced: kept)], durably: true)
      content.guarded.withLock { $0.held.committed() }
    } catch {
      Log.error("\(content.path): the catalog cannot be told yet that bytes were lost: \(error.message)")
      withdraw(content, id)
      toldLater(content)
    }
  }

  /// Deletes the file of which the catalog claims too much. If the server is killed before the catalog is corrected,
  /// the next mount notices a claim without a file.
  private func withdraw(_ content: Content, _ id: Int64) {
    do throws(StoreError) {
      try room.removePartial(id)
      _ = content.guarded.withLock { $0.held.withdrawn() }  // if the file is being removed, its claim is removed too
    } catch {
      Log.error("\(content.path): \(error.message); until the catalog is corrected, it claims lost bytes")
    }
  }
}
