import Base
import Manifest
import Storing

/// Removing stored bytes: always the catalog first, durably, then the file; and what else of the disk's work others
/// leave to the keeper.
extension Keeper {
  /// Drops what is stored of a frozen content, and thaws it. `keepsCopy`: a completed copy stays as an ordinary file of
  /// the library.
  func discard(_ content: Content, keepsCopy: Bool) {
    defer { room.transfers.post(.thaw(content)) }
    let generation = content.guarded.withLock { $0.held.generation }
    guard let generation else { return }
    do {
      try room.store.catalog.apply([.dropped(generation: generation.id)], durably: true)
      let old = content.guarded.withLock { guarded -> ServedFile? in
        guarded.waiters.runs = ReaderRuns()  // who read before is not read ahead for: it would all come back at once
        return guarded.held.dropped()
      }
      _ = old  // readers that are in pread hold it until they are done; unlinked, it is gone with the last of them
      _ = try PartialFile.remove(generation.id, in: room.store.folder)
      if !keepsCopy, let copy = generation.copy { try room.store.library.remove(copy) }
      let file = ServedFile(partial: try PartialFile(in: room.store.folder, id: generation.id, create: true))
      content.guarded.withLock { $0.held.opened(file) }
    } catch {
      Log.error("\(content.path): what is stored cannot be dropped: \(error.message)")
    }
  }

  /// Forgets a generation that nothing leads to any more, and its partial file.
  func forget(_ generation: Int64) throws(StoreError) {
    try room.store.catalog.apply([.forgotten(generation: generation)], durably: true)
    _ = try PartialFile.remove(generation, in: room.store.folder)
  }
}
