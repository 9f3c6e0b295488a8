import Base
import Storing

/// What becomes of a partial file whose sync failed.
///
/// Linux tells of a failed write-back once and may drop the pages: what was written since the last sync that succeeded
/// may read as it should for a while, and as zeros later. It is fetched again, into the same file, through a new
/// descriptor, so that the next sync speaks of what is written from now on. The kernel forgets what it read of that: a
/// reader that came between the loss and the sync may have left zeros in the mount's page cache.
extension Keeper {
  /// Goes back to what is known to be on disk of a content whose `file` could not be synced.
  func syncFailed(_ content: Content, _ file: ServedFile, _ error: Errno) {
    guard let partial = file.partial else { return }
    let message = "the disk lost what was stored: \(error)"
    guard content.guarded.withLock({ $0.held.file === file }) else {
      // It was found out before, by another sync.
      let pausedUntil = room.health.pause(of: content.key) ?? room.clock.now
      return room.transfers.post(.syncFailed(content, message: message, lost: nil, pausedUntil: pausedUntil))
    }
    Log.error(
      "\(content.path): what was stored of it cannot be synced: \(error); what was not on disk before is fetched again")
    let pausedUntil = room.health.syncFailed(content.key)
    let reopened = reopen(content, partial.id)
    let fallen = content.guarded.withLock { $0.held.syncFailed(file, reopened: reopened) }
    if let fallen { tell(fallen.kept, of: content, partial.id) }
    room.transfers.post(.syncFailed(content, message: message, lost: fallen?.lost, pausedUntil: pausedUntil))
  }

  /// Before anything is written to it: a failure from here on is the new descriptor's to tell.
  private func reopen(_ content: Content, _ id: Int64) -> ServedFile? {
    do throws(StoreError) {
      return ServedFile(partial: try PartialFile(in: room.store.folder, id: id, create: true))
    } catch {
      Log.error("\(content.path): \(error.message)")
      return nil
    }
  }

  private func tell(_ kept: ByteRangeSet, of content: Content, _ id: Int64) {
    do throws(StoreError) {
      try room.store.catalog.apply([.extents(generation: id, stored: kept, synced: kept)], durably: true)
      content.guarded.withLock { $0.held.committed() }
    } catch {
      Log.error("\(content.path): the catalog cannot be told yet that bytes were lost: \(error.message)")
      withdraw(content, id)
      toldLater(content)
    }
  }

  /// Takes away the file of which the catalog claims too much: should the server be killed before the catalog is told,
  /// a claim without a file is found out at the next mount.
  private func withdraw(_ content: Content, _ id: Int64) {
    do throws(StoreError) {
      _ = try PartialFile.remove(id, in: room.store.folder)
      _ = content.guarded.withLock { $0.held.withdrawn() }  // where it is being removed, the claim goes with it
    } catch {
      Log.error("\(content.path): \(error.message); until the catalog is told, it claims bytes that were lost")
    }
  }
}
