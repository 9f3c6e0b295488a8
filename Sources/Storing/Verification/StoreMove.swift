import Base
import Glibc

extension StoreRecovery {
  /// The name in `meta` of the inode of the store's folder.
  private static let inodeName = "store_inode"

  /// Adapts the catalog to a store that was copied or restored from a backup, which it notices by the folder's inode.
  ///
  /// All files then have other inodes and change times. Each copy in the library would look as if a user had modified
  /// it, and mediafs would download it again. So once, size and mtime decide: a copy keeps the mtime, and it is the
  /// origin's Last-Modified.
  static func noticeMove(
    catalog: Catalog, folder: StoreFolder, library: LibraryFolder
  ) throws(StoreError) {
    let status = try calling("cannot look at the store \(folder.path)") { () throws(Errno) in
      try folder.directory.descriptor.status()
    }
    let inode = Int64(truncatingIfNeeded: status.st_ino)
    let known = try catalog.remembered(inodeName)
    if known == inode { return }
    if known != nil {
      Log.info("the store was copied or restored: mediafs recognizes its complete files by size and time")
      // The store that this one was made from may be in use, with the same library: its copies are not for this one to
      // evict.
      try catalog.connections.write(durably: true) { (connection) throws(StoreError) in
        try connection.forgetPlacements()
      }
      var last: Int64 = 0
      while true {
        let ids = try catalog.generations.ids(limit: 256, after: last)
        guard let end = ids.last else { break }
        var changes: [CatalogChange] = []
        for id in ids {
          guard let generation = try catalog.generations.find(id), generation.state == .complete,
            let copy = generation.copy,
            let now = try library.copied(copy)
          else { continue }
          changes.append(.placed(generation: id, now, adopted: nil))
        }
        if !changes.isEmpty { try catalog.changes.apply(changes, durably: true) }
        last = end
      }
    }
    try catalog.remember(inodeName, inode)
  }
}
