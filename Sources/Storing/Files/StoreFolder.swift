import Base
import Glibc

/// An open store. No other server can open it while this object lives:
///
///     lock              which server uses the store
///     catalog.sqlite    what is known of names, resources and bytes (docs/STORE-FORMAT.md)
///     control           the running server's Unix socket
///     partial/ID        the bytes of generation ID, a sparse file
///     library/          completed copies, unless --library names another folder
///
/// The folder has mode 0700 and belongs to the server's user: the catalog has links with tokens.
package final class StoreFolder: Sendable {
  static let partials = "partial"

  /// Its absolute path, symbolic links resolved.
  package let path: String
  /// The mountpoint it serves.
  package let mountpoint: String
  let directory: Folder
  private let lock: StoreLock

  /// Where the catalog is.
  package var catalogPath: String { path + "/catalog.sqlite" }
  /// Where completed copies go unless --library says otherwise.
  package var defaultLibraryPath: String { path + "/library" }

  private init(path: String, mountpoint: String, directory: consuming Folder, lock: consuming StoreLock) {
    self.path = path
    self.mountpoint = mountpoint
    self.directory = directory
    self.lock = lock
  }

  /// Opens the store at `path`, made (with the folders it lies in) when it is missing, and takes its lock.
  ///
  /// Throws `.busy` when another server uses it and does not end within `wait` seconds; `.invalid` when it is no
  /// folder, belongs to another user, or is open to others and does not look like a store.
  package static func open(_ path: String, mountpoint: String, wait: Double) throws(StoreError) -> StoreFolder {
    let folder: Folder
    do throws(Errno) {
      try Folder.makeAll(path, mode: 0o700)
      folder = try Folder.open(path)
    } catch {
      if error == .notDirectory {
        throw StoreError(kind: .invalid, message: "the store \(path) is no folder: choose another one with --store")
      }
      throw .file(error, "cannot open the store \(path)")
    }
    try secure(folder, path: path)
    let lock = try StoreLock.take(in: folder, path: path, mountpoint: mountpoint, wait: wait)
    do throws(Errno) {
      if try folder.makeFolder(partials, mode: 0o700) { try folder.sync() }
      guard let status = try folder.status(of: partials), status.isFolder else { throw .notDirectory }
    } catch {
      throw .file(error, "cannot make the folder \(path)/\(partials)")
    }
    let resolved = resolvedPath(path) ?? path
    return StoreFolder(path: resolved, mountpoint: mountpoint, directory: folder, lock: lock)
  }

  /// Refuses a folder of another user. Closes the user's own folder to others, if no other program needs it.
  private static func secure(_ folder: borrowing Folder, path: String) throws(StoreError) {
    func invalid(_ why: String) -> StoreError { StoreError(kind: .invalid, message: "the store \(path) \(why)") }
    var status: stat
    let names: [String]
    do throws(Errno) {
      status = try folder.descriptor.status()
      names = status.st_mode & 0o077 == 0 ? [] : try folder.names()
    } catch {
      throw .file(error, "cannot look at the store \(path)")
    }
    guard status.st_uid == geteuid() else {
      throw invalid("belongs to another user (id \(status.st_uid)): choose another folder with --store")
    }
    try secureParents(of: resolvedPath(path) ?? path)
    if status.st_mode & 0o077 == 0 { return }
    // `--store /tmp` or `--store ~` must not close a folder that others or other programs live in.
    guard names.isEmpty || names.contains("catalog.sqlite"), status.st_mode & S_ISVTX == 0 else {
      throw invalid("is open to other users and holds other things: choose a folder of its own with --store")
    }
    do throws(Errno) {
      _ = try retrying { fchmod(folder.descriptor.rawValue, 0o700) }
      status = try folder.descriptor.status()
    } catch {
      throw .file(error, "cannot close the store \(path) to other users")
    }
    guard status.st_mode & 0o077 == 0 else {
      throw invalid(
        "lies on a filesystem without permissions, where others could read links and passwords: choose another place "
          + "with --store (the library may lie there: --library)")
    }
  }

  /// Refuses a store below a folder in which everyone may rename what is another's (open to all, without the sticky bit
  /// that /tmp has): the catalog and the control socket could be changed for others at any time.
  private static func secureParents(of path: String) throws(StoreError) {
    var folder = path
    while folder != "/" {
      folder = Folder.parent(of: folder)
      var status = stat()
      guard stat(folder, &status) == 0 else { continue }  // the store itself could be opened: nothing to be seen here
      if status.st_mode & S_IWOTH != 0, status.st_mode & S_ISVTX == 0 {
        throw StoreError(
          kind: .invalid,
          message:
            "the store \(path) lies in \(folder), where every user may replace it: forbid others to write there "
            + "(chmod o-w '\(folder)'), or choose another folder with --store")
      }
    }
  }

  /// The ids of the partial files that are there, ascending. What is no partial file's name is left out.
  package func partialIDs() throws(StoreError) -> [Int64] {
    do throws(Errno) {
      return try directory.folder(StoreFolder.partials).names()
        .compactMap { name in Int64(name).flatMap { $0 > 0 && "\($0)" == name ? $0 : nil } }
        .sorted()
    } catch {
      if error == .notFound { return [] }
      throw .file(error, "cannot list \(path)/\(StoreFolder.partials)")
    }
  }

  /// fsync(2) of the folder of the partial files.
  func syncPartials() throws(Errno) { try directory.folder(StoreFolder.partials).sync() }

  /// How much room its filesystem has.
  package func space() throws(StoreError) -> StoreSpace {
    do throws(Errno) {
      return try StoreSpace.measure(descriptor: directory.descriptor.rawValue)
    } catch {
      throw .file(error, "cannot ask how much space is free at \(path)")
    }
  }
}

/// The absolute path without symbolic links (realpath(3)); nil when it leads nowhere.
func resolvedPath(_ path: String) -> String? {
  guard let resolved = realpath(path, nil) else { return nil }
  defer { free(resolved) }
  return String(cString: resolved)
}
