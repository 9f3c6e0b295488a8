import Base
import CSystem
import Glibc

/// A copy that grows in the library's hidden folder `.mediafs-incoming`, because the store is on another filesystem.
///
/// Its name is the store's tag and the generation's id. So two servers that share a library do not collide, and a
/// server finds at its start what its crash left. Only one thread uses an object.
final class IncomingCopy {
  let folder: Folder
  let name: String
  let descriptor: FileDescriptor

  /// Creates the empty file.
  init(for partial: PartialFile, in library: LibraryFolder) throws(StoreError) {
    let name = try IncomingCopy.tag(of: partial.folder) + "\(partial.id)"
    let folder = try library.reach([LibraryFolder.incoming])
    descriptor = try calling("cannot copy into \(library.path)/\(LibraryFolder.incoming)") { () throws(Errno) in
      try folder.remove(name)  // left by an attempt that a crash ended
      return try folder.file(name, O_RDWR | O_CREAT | O_EXCL)
    }
    self.folder = folder
    self.name = name
  }

  /// Removes the file, unless it was moved away.
  func remove() {
    do throws(Errno) {
      try folder.remove(name)
    } catch {
      // The file uses space until the next start; there is no other harm.
      Log.warning("cannot remove \(LibraryFolder.incoming)/\(name) in the library: \(error)")
    }
  }

  /// Copies the first `size` bytes of `partial`, without a sync.
  func fill(from partial: PartialFile, size: Int64, isCancelled: () -> Bool) throws(StoreError) {
    let buffer = PieceBuffer()
    var position: Int64 = 0
    try calling("cannot copy \(size) bytes into the library") { () throws(Errno) in
      // If the copy cannot fit, it does not start: it would fill the disk of the user's other files.
      let available = try StoreSpace.measure(descriptor: descriptor.rawValue).available
      if available < UInt64(clamping: size) { throw .noSpace }
    }
    while position < size {
      if isCancelled() { throw .cancelled("the copy into the library was cancelled") }
      let piece = try buffer.read(partial.fileDescriptor, at: position, limit: size)
      try calling("cannot copy into the library") { () throws(Errno) in try descriptor.writeFully(piece, at: position) }
      position += Int64(piece.count)
    }
  }

  /// Removes the unfinished copies of `store` that a crash left in the library. The server calls it at its start,
  /// before it places anything.
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
      // ENOTEMPTY: another server started a copy meanwhile.
      if error.rawValue == ENOTEMPTY || error == .notFound { return }
      throw .file(error, "cannot clean up \(library.path)/\(LibraryFolder.incoming)")
    }
  }

  /// The prefix of the names of a store's copies.
  static func tag(of store: StoreFolder) throws(StoreError) -> String {
    hexadecimal(try Digester.digest(of: store.path, .sha256).prefix(6)) + "-"
  }
}
