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
      let isThere = there.contains(generation.id)
      // Else an eviction took a part of it since, or the disk lost one: no file at the path is known to have all bytes.
      let isWhole = generation.synced.count == generation.size
      var copy: LibraryCopy?
      if isWhole {
        copy = try library.recover(
          intent: path, size: generation.size ?? -1, modified: generation.validators.lastModified,
          partialExists: isThere)
      }
      if let copy {
        try catalog.changes.apply([.placed(generation: generation.id, copy, adopted: false)], durably: true)
      } else if isThere {
        if isWhole { try catalog.changes.apply([.continues(generation: generation.id, true)], durably: true) }
      } else {
        try catalog.changes.apply([.dropped(generation: generation.id)], durably: true)
      }
    }
    if !keepsSuperseded { try forgetSuperseded(catalog) }
    for id in there {
      let generation = try catalog.generations.find(id)
      if let generation, generation.state != .complete {
        if generation.state == .partial { try trim(generation, of: catalog, in: folder) }
      } else {
        _ = try PartialFile.remove(id, in: folder)
      }
    }
  }

  /// Bytes that a killed server wrote but did not commit take space, and no eviction would find them.
  private static func trim(
    _ generation: GenerationRecord, of catalog: Catalog, in folder: StoreFolder
  ) throws(StoreError) {
    guard let taken = try PartialFile.allocated(of: generation.id, in: folder) else { return }
    let known = generation.stored.ranges.reduce(Int64(0)) { .clampedSum($0, $1.blocks(of: StoreSpace.block).count) }
    guard taken > .clampedSum(known, trimmed) else { return }
    if generation.stored.isEmpty {
      _ = try PartialFile.remove(generation.id, in: folder)
      return
    }
    do throws(StoreError) {
      let file = try PartialFile(in: folder, id: generation.id, create: false)
      let length = try calling("cannot look at it") { () throws(Errno) in try file.length() }
      var unknown = ByteRangeSet(ByteRange(0, length).blocks(of: StoreSpace.block))
      for range in generation.stored.ranges { unknown.remove(range.blocks(of: StoreSpace.block)) }
      for range in unknown.ranges { try calling("cannot trim it") { () throws(Errno) in try file.punch(range) } }
    } catch {
      // They take space, and do no other harm. A filesystem may be unable to do this.
      let path = try catalog.tree.entries(of: generation.key).first?.path ?? "partial file \(generation.id)"
      Log.warning("\(path): \(taken - known) bytes on the disk are unused: \(error.message)")
    }
  }

  /// Less than this is not worth a look, in bytes: blocks in which the disk keeps its own lists.
  private static let trimmed: Int64 = 64 << 10

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
