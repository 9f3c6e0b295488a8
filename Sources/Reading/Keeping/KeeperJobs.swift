import Base
import Manifest
import Storing

/// Jobs of the keeper. Removing stored bytes always changes the catalog first, durably, then the file.
extension Keeper {
  /// Removes the stored bytes of a frozen content, then has it thawed. `keepsCopy`: a completed copy stays in the
  /// library as an ordinary file.
  func discard(_ content: Content, keepsCopy: Bool) {
    defer { room.transfers.post(.thaw(content)) }
    let generation = content.guarded.withLock { $0.held.generation }
    guard let generation else { return }
    do {
      try room.store.changes.apply([.dropped(generation: generation.id)], durably: true)
      let old = content.guarded.withLock { guarded -> ServedFile? in
        guarded.waiters.forgetRuns()
        return guarded.held.dropped()
      }
      room.films.forget(generation.id)
      _ = old  // reads in progress keep it open; its disk space is freed with the last of them
      try room.store.partials.remove(generation.id)
      if !keepsCopy, let copy = generation.copy { try room.store.copies.remove(copy) }
      let file = ServedFile(partial: try room.store.partials.open(generation.id, create: true))
      content.guarded.withLock { $0.held.serves(file) }
    } catch {
      Log.error("\(content.path): the stored bytes cannot be removed: \(error.message)")
    }
  }

  /// Forgets a generation that no inode leads to any more, and deletes its partial file.
  func forget(_ generation: Int64) throws(StoreError) {
    try room.store.changes.apply([.forgotten(generation: generation)], durably: true)
    try room.store.partials.remove(generation)
  }

  /// Tells the transfer thread what earlier mounts learned of hosts.
  func tellHosts() {
    do throws(StoreError) {
      let notes = try room.store.notes.hosts()
      if !notes.isEmpty { room.transfers.post(.hosts(notes)) }
    } catch {
      Log.warning("what earlier mounts learned of hosts cannot be read: \(error.message)")
    }
  }

  // MARK: Unfinished files

  /// Resumes unfinished files, a few at a time.
  func resumeMore(after place: Resuming.Place) {
    var next: Resuming.Place?
    do {
      switch place {
      case .pins(let key): next = try resumePins(after: key)
      case .generations(let id):
        let found = try room.store.generations.continuing(limit: TransferThread.resumedAtOnce, after: id)
        for generation in found { _ = try resume(generation.key) }
        if let last = found.last, found.count == TransferThread.resumedAtOnce { next = .generations(after: last.id) }
      }
    } catch {
      Log.error("unfinished downloads cannot be looked up: \(error.message)")
    }
    room.transfers.post(.resumedUntil(next))
  }

  private func resumePins(after key: ResourceKey?) throws(StoreError) -> Resuming.Place {
    let keys = try room.store.notes.pins(limit: TransferThread.resumedAtOnce, after: key)
    for key in keys {
      let content = try resume(key)
      // An earlier server completed the file, but ended before it committed this, or did not know pins.
      if content?.guarded.withLock({ $0.held.isCopy }) ?? false { room.record(.pinned(key, false)) }
    }
    if let last = keys.last, keys.count == TransferThread.resumedAtOnce { return .pins(after: last) }
    return .generations(after: 0)
  }

  private func resume(_ key: ResourceKey) throws(StoreError) -> Content? {
    guard let entry = try room.store.tree.entries(of: key).first else { return nil }
    // The log says why a content cannot be loaded. The others are resumed.
    guard let content = try? room.content(of: entry.node.inode) else { return nil }
    room.transfers.post(.resume(content))
    return content
  }
}
