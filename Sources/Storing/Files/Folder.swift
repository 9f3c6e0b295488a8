import Base
import CSystem
import Glibc

/// An open folder. What is done below it goes by its descriptor, so that renaming or replacing a folder further up
/// cannot lead a call astray, and no call follows a symbolic link at the name it is given.
struct Folder: ~Copyable, Sendable {
  let descriptor: FileDescriptor

  /// Opens the folder at `path`, following symbolic links (the path is the user's own choice).
  static func open(_ path: String) throws(Errno) -> Folder {
    Folder(descriptor: try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY))
  }

  /// Opens the folder `name` in this one: ENOTDIR when it is something else, a symbolic link included.
  func folder(_ name: String) throws(Errno) -> Folder {
    Folder(descriptor: try file(name, O_RDONLY | O_DIRECTORY))
  }

  /// openat(2) with O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK: a FIFO in the way fails or opens, but never waits.
  func file(_ name: String, _ flags: Int32, mode: mode_t = 0o600) throws(Errno) -> FileDescriptor {
    let all = flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK
    return FileDescriptor(owning: try retrying { csystem_openat(descriptor.rawValue, name, all, mode) })
  }

  /// What `name` is (lstat), nil when there is nothing of that name.
  func status(of name: String) throws(Errno) -> stat? {
    var result = stat()
    do throws(Errno) {
      _ = try retrying { fstatat(descriptor.rawValue, name, &result, AT_SYMLINK_NOFOLLOW) }
    } catch .notFound {
      return nil
    }
    return result
  }

  /// mkdirat(2); false when something of that name is there already.
  func makeFolder(_ name: String, mode: mode_t) throws(Errno) -> Bool {
    do throws(Errno) {
      _ = try retrying { mkdirat(descriptor.rawValue, name, mode) }
      return true
    } catch .exists {
      return false
    }
  }

  /// unlinkat(2); false when there was nothing of that name.
  @discardableResult
  func remove(_ name: String) throws(Errno) -> Bool {
    do throws(Errno) {
      _ = try retrying { unlinkat(descriptor.rawValue, name, 0) }
      return true
    } catch .notFound {
      return false
    }
  }

  /// fsync(2), so that names made, renamed or removed here stay so. Filesystems that have no such call on folders (some
  /// network ones) say EINVAL or ENOSYS: they order their names themselves, as databases assume too.
  func sync() throws(Errno) {
    do throws(Errno) {
      try descriptor.sync()
    } catch {
      guard [EINVAL, ENOSYS, EOPNOTSUPP].contains(error.rawValue) else { throw error }
    }
  }

  /// The names in it, without `.` and `..`, in no order. Names that are not UTF-8 are repaired, so they do not open.
  func names() throws(Errno) -> [String] {
    // A second description: reading one moves its offset, and closedir(3) closes it.
    let second = try retrying { csystem_openat(descriptor.rawValue, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) }
    guard let stream = fdopendir(second) else {
      let error = Errno.current
      close(second)
      throw error
    }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0  // readdir(3) tells an error from the end by errno alone
      guard let entry = readdir(stream) else {
        let error = Errno.current
        if error.rawValue != 0 { throw error }
        return names
      }
      // By address: a dirent is only as long as its name needs, so copying the whole struct would read behind it.
      let offset = MemoryLayout<dirent>.offset(of: \.d_name)!  // a stored property of a C struct has one
      let name = String(cString: (UnsafeRawPointer(entry) + offset).assumingMemoryBound(to: CChar.self))
      if name != "." && name != ".." { names.append(name) }
    }
  }

  /// Makes the folder at `path` and those it lies in, as far as they are missing, and makes the new names durable.
  static func makeAll(_ path: String, mode: mode_t) throws(Errno) {
    if mkdir(path, mode) == 0 { return try syncParent(of: path) }
    let error = Errno.current
    switch error {
    case .exists: return
    case .notFound:
      let parent = parent(of: path)
      guard parent != path else { throw error }
      try makeAll(parent, mode: mode)
      // A second ENOENT is final: the path leads through a dangling link, or its parent was just removed.
      if mkdir(path, mode) == 0 { return try syncParent(of: path) }
      if Errno.current != .exists { throw Errno.current }
    default: throw error
    }
  }

  private static func syncParent(of path: String) throws(Errno) {
    do throws(Errno) {
      try Folder.open(parent(of: path)).sync()
    } catch .accessDenied {
      // It may be written and not read, so it cannot be synced: a power loss may cost the new name, which is made
      // again.
    }
  }

  /// The path of the folder that `path` lies in, by its text alone.
  static func parent(of path: String) -> String {
    let parts = pathComponents(path).filter { !$0.isEmpty }
    let start = isAbsolutePath(path) ? "/" : ""
    if parts.count <= 1 { return start.isEmpty ? "." : "/" }
    return start + parts.dropLast().joined(separator: "/")
  }
}

/// What stands between the slashes of a path, empty where two meet. By bytes: to a String, a slash with a combining
/// accent behind it is another character than a slash; to the kernel it is not.
func pathComponents(_ path: String) -> [String] {
  path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { String(Substring($0)) }
}

/// Whether it begins with a slash (by bytes, likewise).
func isAbsolutePath(_ path: String) -> Bool { path.utf8.first == UInt8(ascii: "/") }

extension stat {
  /// Whether it is a plain file.
  var isPlainFile: Bool { st_mode & S_IFMT == S_IFREG }
  /// Whether it is a folder.
  var isFolder: Bool { st_mode & S_IFMT == S_IFDIR }
  /// Whether it is a symbolic link.
  var isSymbolicLink: Bool { st_mode & S_IFMT == S_IFLNK }
  /// Whether both are the same file, by whatever names.
  func isSame(as other: stat) -> Bool { st_dev == other.st_dev && st_ino == other.st_ino }

  /// What it is, for a message.
  var kindName: String { FileKind(self).description }
}

extension StoreError {
  /// The failure of a call on a file: a full disk or quota is told from the rest. `what` says what failed, on what.
  package static func file(_ error: Errno, _ what: String) -> StoreError {
    StoreError(kind: error.isFullDisk ? .full : .io(error), message: "\(what): \(error)")
  }
}

/// Runs calls on files; what they throw becomes the store's error. `what` says what failed, on what.
package func calling<Result: ~Copyable>(
  _ what: @autoclosure () -> String, _ body: () throws(Errno) -> Result
) throws(StoreError) -> Result {
  do throws(Errno) {
    return try body()
  } catch {
    throw .file(error, what())
  }
}
