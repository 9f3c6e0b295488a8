import Base
import Manifest
import Storing

/// Going on with what was asked for or played before: the keeper reads the list of it, which the catalog has.
extension Keeper {
  /// Goes on with what was being fetched, a few files at a time.
  func resumeMore(after place: Resuming.Place) {
    var next: Resuming.Place?
    do {
      switch place {
      case .pins(let key): next = try resumePins(after: key)
      case .generations(let id):
        let found = try room.store.catalog.continuing(limit: TransferThread.resumed, after: id)
        for generation in found { _ = try resume(generation.key) }
        if let last = found.last, found.count == TransferThread.resumed { next = .generations(after: last.id) }
      }
    } catch {
      Log.error("what was being fetched cannot be looked up: \(error.message)")
    }
    room.transfers.post(.resumedUntil(next))
  }

  private func resumePins(after key: ResourceKey?) throws(StoreError) -> Resuming.Place {
    let keys = try room.store.catalog.pins(limit: TransferThread.resumed, after: key)
    for key in keys {
      let content = try resume(key)
      // A server that ended between the two commits, or one that knows no pins, completed it.
      if content?.guarded.withLock({ $0.held.isCopy }) ?? false { room.record(.pinned(key, false)) }
    }
    if let last = keys.last, keys.count == TransferThread.resumed { return .pins(after: last) }
    return .generations(after: 0)
  }

  private func resume(_ key: ResourceKey) throws(StoreError) -> Content? {
    guard let entry = try room.store.catalog.entries(of: key).first else { return nil }
    // The log has why a content cannot be loaded. The others go on.
    guard let content = try? room.content(of: entry.node.inode) else { return nil }
    room.transfers.post(.resume(content))
    return content
  }
}
