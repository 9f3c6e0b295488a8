import Base
import Glibc

/// What has the name that a copy wants.
enum Occupant {
  /// Nothing.
  case nothing
  /// The same file that is being placed: an earlier attempt got that far.
  case ourOwn
  /// Another file with the same bytes; synced, with its present attributes.
  case identical(LibraryCopy)
  /// Something else, or something that cannot be read. It stays, and the copy takes another name.
  case other
}

extension Placing {
  /// Checks `name` in `folder`: by size first, then byte for byte.
  func occupant(
    of name: String, in folder: borrowing Folder, path: String, _ isCancelled: () -> Bool
  ) throws(StoreError) -> Occupant {
    let (found, own) = try calling("cannot look at \(library.path)/\(path)") { () throws(Errno) in
      (try folder.status(of: name), try partial.descriptor.status())
    }
    guard let found else { return .nothing }
    if found.isSame(as: own) { return .ourOwn }
    guard found.isPlainFile, Int64(found.st_size) == size else { return .other }
    guard let file = readable(name, in: folder, path: path) else { return .other }
    guard try isEqual(file, path: path, isCancelled) else { return .other }
    return try calling("cannot sync \(library.path)/\(path)") { () throws(Errno) in
      // It will replace the partial file, so it must be as durable as a copy of mediafs.
      try file.sync()
      try folder.sync()
      let now = try file.status()
      // A program is writing to it: the bytes that were compared may be gone.
      let isSteady = now.st_size == found.st_size && now.modifiedNanoseconds == found.modifiedNanoseconds
      return isSteady ? .identical(LibraryCopy(at: path, now)) : .other
    }
  }

  private func readable(_ name: String, in folder: borrowing Folder, path: String) -> FileDescriptor? {
    do throws(Errno) {
      return try folder.file(name, O_RDONLY)
    } catch {
      Log.debug("cannot compare with \(library.path)/\(path): \(error)")
      return nil
    }
  }

  private func isEqual(
    _ file: borrowing FileDescriptor, path: String, _ isCancelled: () -> Bool
  ) throws(StoreError) -> Bool {
    let ours = PieceBuffer()
    let theirs = PieceBuffer()
    var position: Int64 = 0
    while position < size {
      if isCancelled() { throw .cancelled("the comparison with \(library.path)/\(path) was cancelled") }
      let own = try ours.read(partial.fileDescriptor, at: position, limit: size)
      let other: UnsafeRawBufferPointer
      do throws(StoreError) {
        other = try theirs.read(file.rawValue, at: position, limit: size)
      } catch {
        // The other file is unreadable or was truncated. That must not stop the placing.
        Log.warning("cannot compare with \(library.path)/\(path): \(error.message)")
        return false
      }
      guard let left = own.baseAddress, let right = other.baseAddress, memcmp(left, right, own.count) == 0 else {
        return false
      }
      position += Int64(own.count)
    }
    return true
  }
}
