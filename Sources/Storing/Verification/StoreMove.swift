import Base
import Glibc

extension StoreRecovery {
  /// What the catalog remembers the store's folder by.
  private static let inodeName = "store_inode"

  /// Takes a store over that was copied or restored from a backup, seen by its folder's inode.
  ///
  /// All its files have other inodes and change times then, and each copy in the library would look as if a user had
  /// modified it, and be fetched again. So once, size and mtime (which a copy keeps, and which is the origin's
  /// Last-Modified) decide.
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
      Log.info("the store was copied or restored: its complete files are known again by size and time")
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
          changes.append(.placed(generation: id, now))
        }
        if !changes.isEmpty { try catalog.changes.apply(changes, durably: true) }
        last = end
      }
    }
    try catalog.remember(inodeName, inode)
  }
}
