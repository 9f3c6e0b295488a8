import Base
import Glibc

/// What is under a name that a copy wants.
enum Occupant {
  /// Nothing.
  case nothing
  /// The very file that is to be placed: an earlier attempt got that far.
  case ourOwn
  /// Another file with the same bytes; synced, as it looks now.
  case identical(LibraryCopy)
  /// Something else, or something that cannot be read: it stays, and ours takes another name.
  case other
}

extension Placing {
  /// Looks at `name` in `folder`: first by size, then byte for byte.
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
      // It is to stand for what is removed: it must be as durable as our own copy would be.
      try file.sync()
      try folder.sync()
      let now = try file.status()
      // Somebody writes to it at this moment: what was compared may be gone.
      let isSteady = now.st_size == found.st_size && now.modifiedNanoseconds == found.modifiedNanoseconds
      return isSteady ? .identical(now.copy(at: path)) : .other
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
      if isCancelled() { throw .cancelled("the comparison with \(library.path)/\(path) was broken off") }
      let own = try ours.read(partial.fileDescriptor, at: position, limit: size)
      let other: UnsafeRawBufferPointer
      do throws(StoreError) {
        other = try theirs.read(file.rawValue, at: position, limit: size)
      } catch {
        // Theirs is unreadable or was cut: no reason for ours not to be placed.
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
