import Base
import Glibc

/// The copy of the catalog from before a raise, beside it (docs/STORE-FORMAT.md, "The format's version"). It is there
/// only while an upgrade of a live mount may still fail.
enum CatalogCopy {
  /// Its path, also while it is being written. The catalog may be a symbolic link: the copy is beside its target.
  private static func path(of catalog: String) -> (real: String, copy: String, unfinished: String) {
    let real = resolvedPath(catalog) ?? catalog
    return (real, real + "-before", real + "-before-new")
  }

  /// Copies a catalog that has no write-ahead log and no journal, durably. No connection of this process may be within
  /// a transaction: the close of the file here would drop its locks.
  static func make(of catalog: String) throws(StoreError) {
    let (real, copy, unfinished) = path(of: catalog)
    do throws(Errno) {
      try remove(unfinished)
      let new = try FileDescriptor.open(unfinished, O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
      try fill(new, from: FileDescriptor.open(real, O_RDONLY))
      try new.sync()
      _ = try retrying { rename(unfinished, copy) }
      try syncFolder(of: real)
    } catch {
      unlink(unfinished)  // the disk may be full
      throw StoreError(
        error.isFullDisk ? .full : .io(error), "cannot copy the catalog \(real), to raise its format: \(error)")
    }
  }

  /// Puts the copy in the catalog's place. What was written since the copy is dropped: the
  /// program that wrote it never served. If this is interrupted, the catalog is still the newer one.
  static func putBack(to catalog: String) throws(StoreError) {
    let (real, copy, _) = path(of: catalog)
    do throws(Errno) {
      for stale in [real + "-journal", real + "-wal", real + "-shm"] { try remove(stale) }
      _ = try retrying { rename(copy, real) }
      try syncFolder(of: real)
    } catch {
      throw StoreError(.io(error), "cannot put back the catalog \(copy): \(error)")
    }
    Log.info("catalog \(real): put back as it was before the upgrade that failed")
  }

  /// The path of the copy of this catalog, if there is one.
  static func find(for catalog: String) -> String? {
    let copy = path(of: catalog).copy
    return access(copy, F_OK) == 0 ? copy : nil
  }

  /// Deletes what a server left that was killed while it made a copy. Where that fails, it only takes space.
  static func removeUnfinished(of catalog: String) { unlink(path(of: catalog).unfinished) }

  /// Deletes the copy, if there is one: the program that raised the catalog serves.
  static func discard(of catalog: String) throws(StoreError) {
    let copy = path(of: catalog).copy
    do throws(Errno) { try remove(copy) } catch { throw StoreError(.io(error), "cannot delete \(copy): \(error)") }
  }

  private static func remove(_ path: String) throws(Errno) {
    if unlink(path) != 0, Errno.current != .notFound { throw Errno.current }
  }

  private static func fill(_ new: borrowing FileDescriptor, from old: borrowing FileDescriptor) throws(Errno) {
    let piece = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
    defer { piece.deallocate() }
    var at: Int64 = 0
    while true {
      let count = try old.readFully(at: at, into: piece)
      if count == 0 { return }
      try new.writeFully(UnsafeRawBufferPointer(rebasing: piece[..<count]), at: at)
      at += Int64(count)
    }
  }

  private static func syncFolder(of path: String) throws(Errno) {
    try FileDescriptor.open(Folder.parent(of: path), O_RDONLY | O_DIRECTORY).sync()
  }
}
