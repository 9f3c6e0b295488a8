import Base
import CSystem
import Glibc

/// An open folder. Calls below it use its descriptor, so nobody can redirect a call by renaming or replacing a folder
/// further up. No call follows a symbolic link at the name it is given.
struct Folder: ~Copyable, Sendable {
  let descriptor: FileDescriptor

  /// Opens the folder at `path` and follows symbolic links, because the user chose the path.
  static func open(_ path: String) throws(Errno) -> Folder {
    Folder(descriptor: try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY))
  }

  /// Opens the folder `name` in this one. ENOTDIR if it is something else, including a symbolic link.
  func folder(_ name: String) throws(Errno) -> Folder {
    Folder(descriptor: try file(name, O_RDONLY | O_DIRECTORY))
  }

  /// openat(2) with O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK: the open of a FIFO fails or succeeds, but never waits.
  func file(_ name: String, _ flags: Int32, mode: mode_t = 0o600) throws(Errno) -> FileDescriptor {
    let all = flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK
    return FileDescriptor(owning: try retrying { csystem_openat(descriptor.rawValue, name, all, mode) })
  }

  /// The status of `name` (lstat); nil if nothing has that name.
  func status(of name: String) throws(Errno) -> stat? {
    var result = stat()
    do throws(Errno) {
      _ = try retrying { fstatat(descriptor.rawValue, name, &result, AT_SYMLINK_NOFOLLOW) }
    } catch .notFound {
      return nil
    }
    return result
  }

  /// mkdirat(2); false if something already has that name.
  func makeFolder(_ name: String, mode: mode_t) throws(Errno) -> Bool {
    do throws(Errno) {
      _ = try retrying { mkdirat(descriptor.rawValue, name, mode) }
      return true
    } catch .exists {
      return false
    }
  }

  /// unlinkat(2); false if nothing had that name.
  @discardableResult
  func remove(_ name: String) throws(Errno) -> Bool {
    do throws(Errno) {
      _ = try retrying { unlinkat(descriptor.rawValue, name, 0) }
      return true
    } catch .notFound {
      return false
    }
  }

  /// fsync(2) of the folder, which makes created, renamed and removed names durable. Some network filesystems have no
  /// fsync for folders and return EINVAL or ENOSYS. They keep the order of names themselves; databases rely on that
  /// too.
  func sync() throws(Errno) {
    do throws(Errno) {
      try descriptor.sync()
    } catch {
      guard [EINVAL, ENOSYS, EOPNOTSUPP].contains(error.rawValue) else { throw error }
    }
  }

  /// The names in it, without `.` and `..`, in no order. Names that are not UTF-8 are repaired, so they do not open.
  func names() throws(Errno) -> [String] {
    // Opens a second description: reading moves its offset, and closedir(3) closes it.
    let second = try retrying { csystem_openat(descriptor.rawValue, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) }
    guard let stream = fdopendir(second) else {
      let error = Errno.current
      close(second)
      throw error
    }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0  // only errno distinguishes readdir(3)'s error from its end
      guard let entry = readdir(stream) else {
        let error = Errno.current
        if error.rawValue != 0 { throw error }
        return names
      }
      // Reads by address: a dirent is only as long as its name needs, so a copy of the whole struct would read past its
      // end.
      let offset = MemoryLayout<dirent>.offset(of: \.d_name)!  // a stored property of a C struct has one
      let name = String(cString: (UnsafeRawPointer(entry) + offset).assumingMemoryBound(to: CChar.self))
      if name != "." && name != ".." { names.append(name) }
    }
  }

  /// Creates the folder at `path` and its missing parents, and makes the new names durable.
  static func makeAll(_ path: String, mode: mode_t) throws(Errno) {
    if mkdir(path, mode) == 0 { return try syncParent(of: path) }
    let error = Errno.current
    switch error {
    case .exists: return
    case .notFound:
      let parent = parent(of: path)
      guard parent != path else { throw error }
      try makeAll(parent, mode: mode)
      // A second ENOENT is final: the path contains a dangling link, or another program just removed the parent.
      if mkdir(path, mode) == 0 { return try syncParent(of: path) }
      if Errno.current != .exists { throw Errno.current }
    default: throw error
    }
  }

  private static func syncParent(of path: String) throws(Errno) {
    do throws(Errno) {
      try Folder.open(parent(of: path)).sync()
    } catch .accessDenied {
      // The parent can be written but not read, so it cannot be synced. A power loss may cost the new name; mediafs
      // then creates it again.
    }
  }

  /// The path of the parent folder of `path`, from its text alone.
  static func parent(of path: String) -> String {
    let parts = pathComponents(path).filter { !$0.isEmpty }
    let start = isAbsolutePath(path) ? "/" : ""
    if parts.count <= 1 { return start.isEmpty ? "." : "/" }
    return start + parts.dropLast().joined(separator: "/")
  }
}

/// The components between the slashes of a path, empty between two adjacent slashes. It splits bytes: in a String, a
/// slash with a combining accent after it is another character than a slash, but not for the kernel.
func pathComponents(_ path: String) -> [String] {
  path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { String(Substring($0)) }
}

/// Whether the path begins with a slash (by bytes, for the same reason).
func isAbsolutePath(_ path: String) -> Bool { path.utf8.first == UInt8(ascii: "/") }

extension stat {
  /// Whether it is a regular file.
  var isPlainFile: Bool { st_mode & S_IFMT == S_IFREG }
  /// Whether it is a folder.
  var isFolder: Bool { st_mode & S_IFMT == S_IFDIR }
  /// Whether it is a symbolic link.
  var isSymbolicLink: Bool { st_mode & S_IFMT == S_IFLNK }
  /// Whether both are the same file, whatever their names.
  func isSame(as other: stat) -> Bool { st_dev == other.st_dev && st_ino == other.st_ino }

  /// What it is, for a message.
  var kindName: String { FileKind(self).description }
}

extension StoreError {
  /// The error of a failed call on a file; a full disk or quota has its own kind. `what` says what failed, on what.
  package static func file(_ error: Errno, _ what: String) -> StoreError {
    StoreError(kind: error.isFullDisk ? .full : .io(error), message: "\(what): \(error)")
  }
}

/// Calls file functions and turns their errors into the store's error. `what` says what failed, on what.
package func calling<Result: ~Copyable>(
  _ what: @autoclosure () -> String, _ body: () throws(Errno) -> Result
) throws(StoreError) -> Result {
  do throws(Errno) {
    return try body()
  } catch {
    throw .file(error, what())
  }
}
