import Base

/// Completes or undoes what a crash interrupted (docs/STORE-FORMAT.md, "Order of writing").
///
/// The holder of the store's lock calls it before anything else. It may itself be interrupted at any point, and
/// repeated.
package enum StoreRecovery {
  /// Recovers the store. Throws if the disk fails; what it did until then stays. `keepsSuperseded`: readers may have
  /// handles on superseded generations, because their mount goes on.
  package static func run(
    catalog: Catalog, folder: StoreFolder, library: LibraryFolder, keepsSuperseded: Bool = false
  ) throws(StoreError) {
    try noticeMove(catalog: catalog, folder: folder, library: library)
    try IncomingCopy.removeLeftovers(of: folder, in: library)
    let there = Set(try folder.partialIDs())
    for (generation, path) in try catalog.generations.placements() {
      let copy = try library.recover(
        intent: path, size: generation.size ?? -1, modified: generation.validators.lastModified,
        partialExists: there.contains(generation.id))
      if let copy {
        try catalog.changes.apply([.placed(generation: generation.id, copy)], durably: true)
      } else if there.contains(generation.id) {
        try catalog.changes.apply([.continues(generation: generation.id, true)], durably: true)
      } else {
        try catalog.changes.apply([.dropped(generation: generation.id)], durably: true)
      }
    }
    if !keepsSuperseded { try forgetSuperseded(catalog) }
    for id in there {
      let generation = try catalog.generations.find(id)
      if generation == nil || generation?.state == .complete { _ = try PartialFile.remove(id, in: folder) }
    }
  }

  /// At the start of a mount nobody has a handle on a superseded generation.
  private static func forgetSuperseded(_ catalog: Catalog) throws(StoreError) {
    var last: Int64 = 0
    while true {
      let old = try catalog.generations.superseded(limit: 256, after: last)
      guard let end = old.last else { return }
      try catalog.changes.apply(old.map { .forgotten(generation: $0.id) }, durably: true)
      last = end.id
    }
  }
}
