import Base
import Manifest
import Storing

extension Keeper {
  /// Notes, durably, that the user does not want the rest of these resources any more.
  func cancel(_ keys: [ResourceKey]) throws(StoreError) {
    commit(everything: false, room.clock.now)  // what was asked for before
    var changes: [CatalogChange] = []
    for key in keys {
      changes.append(.pinned(key, false))
      if let known = try room.store.generations.current(of: key) {
        changes.append(.continues(generation: known.id, false))
      }
    }
    try room.store.changes.apply(changes, durably: true)
    // A thread that loads one of them at the moment reads the catalog anew.
    let contents = room.table.withLock { table -> [Content] in
      table.departures += 1
      return keys.compactMap { table.current[$0] }
    }
    for content in contents { room.transfers.post(.cancelled(content)) }
  }
}

extension MediaFileSystem {
  /// How many downloads are ended at once.
  private static let cancelledAtOnce = 256

  /// Ends the background downloads of the resources of which `isMeant` is true of a path in the mount, and keeps what
  /// is stored. Returns how many; `visit` gets the path of each that a rule keeps, which goes on, and the rule. Blocks
  /// for the disk.
  package func cancel(
    _ isMeant: (String) -> Bool, kept visit: (String, PathRule) -> Void
  ) throws(StoreError) -> Int64 {
    try finishFetches()
    commit()
    var count: Int64 = 0
    let rules = self.rules
    func cancel(_ keys: [ResourceKey]) throws(StoreError) {
      var meant: [ResourceKey] = []
      for key in keys {
        let names = try store.tree.entries(of: key).map(\.path)
        guard let path = names.first(where: isMeant) else { continue }
        if let rule = rules.keeping(names) { visit(path, rule) } else { meant.append(key) }
      }
      if meant.isEmpty { return }
      try onKeeper { [meant] (keeper) throws(StoreError) in try keeper.cancel(meant) }
      count += Int64(meant.count)
    }
    var key: ResourceKey?
    repeat {
      if room.isEnding { return count }  // the listener has closed the connection, or is about to
      let keys = try store.notes.pins(limit: Self.cancelledAtOnce, after: key)
      try cancel(keys)
      key = keys.last
    } while key != nil
    var id: Int64? = 0
    while let after = id, !room.isEnding {
      let found = try store.generations.continuing(limit: Self.cancelledAtOnce, after: after)
      var others: [ResourceKey] = []
      // The pinned ones were looked at.
      for one in found where !(try store.notes.isPinned(one.key)) { others.append(one.key) }
      try cancel(others)
      id = found.last?.id
    }
    return count
  }
}
