import Base
import Glibc
import Manifest
import Storing

/// Taking stored bytes away: always the catalog first, durably, then the file. On the keeper's thread, with the content
/// frozen or not in memory.
extension Content.Guarded {
  /// Whether it is stored in part and nobody has it open or waits for it.
  var isIdle: Bool { state.opens == 0 && !state.hasWaiters && phase == .partial && !isFrozen && !isAway }
}

extension Engine {
  /// Drops what is stored of a frozen content. `keepsCopy`: a completed copy stays as an ordinary file of the library.
  func discard(_ content: Content, keepsCopy: Bool) {
    let generation = content.guarded.withLock { $0.generation }
    guard let generation else { return }
    do {
      try store.catalog.apply([.dropped(generation: generation.id)], durably: true)
      let old = content.guarded.withLock { guarded -> ServedFile? in
        defer {
          guarded.file = nil
          guarded.state.stored = ByteRangeSet()
          guarded.state.memory = MemoryWindow()
          guarded.state.isDirty = false
          guarded.isCommitting = false
          guarded.isOverclaimed = false
          guarded.state.runs = ReaderRuns()  // who read before is not read ahead for: it would all come back at once
          guarded.synced = ByteRangeSet()
          guarded.unsynced = 0
          guarded.unsyncedSince = nil
          guarded.phase = .partial
          guarded.generation?.copy = nil
          guarded.generation?.state = .partial
          guarded.generation?.stored = ByteRangeSet()
          guarded.generation?.continues = false
        }
        return guarded.file
      }
      _ = old  // readers that are in pread hold it until they are done; unlinked, it is gone with the last of them
      _ = try PartialFile.remove(generation.id, in: store.folder)
      if !keepsCopy, let copy = generation.copy { try store.library.remove(copy) }
      let file = ServedFile(partial: try PartialFile(in: store.folder, id: generation.id, create: true))
      content.guarded.withLock { $0.file = file }
    } catch {
      Log.error("\(content.path): what is stored cannot be dropped: \(error.message)")
    }
  }

  /// Drops a partial file that is not in memory. False when it is.
  func evict(_ key: ResourceKey, generation: Int64) -> Bool {
    let isFree = table.withLock { table -> Bool in
      guard table.current[key] == nil else { return false }
      table.leaving.insert(key)
      table.departures += 1
      return true
    }
    guard isFree else { return false }
    defer { table.withLock { _ = $0.leaving.remove(key) } }
    do {
      if try store.catalog.isPinned(key) { return false }  // it would be fetched again
      try store.catalog.apply([.dropped(generation: generation)], durably: true)
      _ = try PartialFile.remove(generation, in: store.folder)
      Log.debug("evicted generation \(generation)")
      return true
    } catch {
      Log.error("generation \(generation) cannot be evicted: \(error.message)")
      return false
    }
  }

  /// Asks for a partial file that is in memory to be dropped, if nobody uses it. False when somebody does.
  func evictFromMemory(_ key: ResourceKey) -> Bool {
    guard let content = table.withLock({ $0.current[key] }) else { return false }
    let isIdle = content.guarded.withLock { $0.isIdle && $0.activity?.transfers ?? 0 == 0 }
    if isIdle { post(.evict(content)) }
    return isIdle
  }

  /// A superseded generation goes with its last handle.
  func dropIfUnused(_ content: Content) {
    let generation = table.withLock { table -> GenerationRecord? in
      let unused = content.guarded.withLock { guarded in
        guarded.state.isSuperseded && guarded.state.opens == 0 ? guarded.generation : nil
      }
      if unused != nil { table.remove(content) }
      return unused
    }
    guard let generation else { return }
    keeper.perform { [store] in
      do throws(StoreError) {
        try store.catalog.apply([.forgotten(generation: generation.id)], durably: true)
        _ = try PartialFile.remove(generation.id, in: store.folder)
      } catch {
        Log.error("generation \(generation.id), superseded, cannot be removed: \(error.message)")
      }
    }
  }

  /// Drops everything that is stored of an entry; `then` follows on the keeper's thread.
  func clear(_ content: Content, then: @escaping @Sendable () -> Void) {
    post(
      .freeze(content) { [self] in
        discard(content, keepsCopy: false)
        post(.thaw(content))
        then()
      })
  }
}
