import Base
import CSystem
import Glibc

/// A copy that grows in the library's hidden folder `.mediafs-incoming`, because the store is on another filesystem.
///
/// Its name is the store's tag and the generation's id, so that servers with one library between them do not meet, and
/// what a crash leaves is known as ours at the next start. One thread's.
final class IncomingCopy {
  let folder: Folder
  let name: String
  let descriptor: FileDescriptor

  /// Makes the empty file.
  init(for partial: PartialFile, in library: LibraryFolder) throws(StoreError) {
    let name = try IncomingCopy.tag(of: partial.folder) + "\(partial.id)"
    let folder = try library.reach([LibraryFolder.incoming])
    descriptor = try calling("cannot copy into \(library.path)/\(LibraryFolder.incoming)") { () throws(Errno) in
      try folder.remove(name)  // of an attempt that a crash ended
      return try folder.file(name, O_RDWR | O_CREAT | O_EXCL)
    }
    self.folder = folder
    self.name = name
  }

  /// Removes the file, if it was not moved away.
  func remove() {
    do throws(Errno) {
      try folder.remove(name)
    } catch {
      // It costs space until the next start, and nothing else.
      Log.warning("cannot remove \(LibraryFolder.incoming)/\(name) in the library: \(error)")
    }
  }

  /// Copies the first `size` bytes of `partial`. Not yet synced.
  func fill(from partial: PartialFile, size: Int64, isCancelled: () -> Bool) throws(StoreError) {
    let buffer = PieceBuffer()
    var position: Int64 = 0
    try calling("cannot copy \(size) bytes into the library") { () throws(Errno) in
      // Not begun, rather than broken off, when it is bound to fill the disk of the user's other things.
      let available = try StoreSpace.measure(descriptor: descriptor.rawValue).available
      if available < UInt64(clamping: size) { throw .noSpace }
    }
    while position < size {
      if isCancelled() { throw .cancelled("the copy into the library was broken off") }
      let piece = try buffer.read(partial.fileDescriptor, at: position, limit: size)
      try calling("cannot copy into the library") { () throws(Errno) in try descriptor.writeFully(piece, at: position) }
      position += Int64(piece.count)
    }
  }

  /// Removes what copies of `store` a crash left half-way in the library. To be called at the start, before any
  /// placing.
  static func removeLeftovers(of store: StoreFolder, in library: LibraryFolder) throws(StoreError) {
    let tag = try tag(of: store)
    guard let top = try library.existing([]) else { return }
    do throws(Errno) {
      guard let status = try top.status(of: LibraryFolder.incoming), status.isFolder else { return }
      let folder = try top.folder(LibraryFolder.incoming)
      for name in try folder.names() where name.hasPrefix(tag) { try folder.remove(name) }
      guard try folder.names().isEmpty else { return }
      _ = try retrying { unlinkat(top.descriptor.rawValue, LibraryFolder.incoming, AT_REMOVEDIR) }
    } catch {
      // ENOTEMPTY: another server began a copy meanwhile.
      if error.rawValue == ENOTEMPTY || error == .notFound { return }
      throw .file(error, "cannot clean \(library.path)/\(LibraryFolder.incoming)")
    }
  }

  /// What the names of a store's copies begin with.
  static func tag(of store: StoreFolder) throws(StoreError) -> String {
    hexadecimal(try Digester.digest(of: store.path, .sha256).prefix(6)) + "-"
  }
}
