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
/// The folder has mode 0700 and belongs to the server's user: URLs in the catalog may contain tokens.
package final class StoreFolder: Sendable {
  static let partials = "partial"

  /// Its absolute path without symbolic links.
  package let path: String
  /// The mountpoint it serves.
  package let mountpoint: String
  let directory: Folder
  private let lock: StoreLock

  /// The catalog's path.
  package var catalogPath: String { path + "/catalog.sqlite" }
  /// The folder for completed copies if --library names no other.
  package var defaultLibraryPath: String { path + "/library" }

  private init(path: String, mountpoint: String, directory: consuming Folder, lock: consuming StoreLock) {
    self.path = path
    self.mountpoint = mountpoint
    self.directory = directory
    self.lock = lock
  }

  /// Opens the store at `path` and takes its lock. Creates the folder and its parents if they are missing.
  ///
  /// Throws `.busy` if another server uses it and does not end within `wait` seconds. Throws `.invalid` if it is not a
  /// folder, belongs to another user, or is open to other users and does not look like a store. Throws `.newer` for the
  /// store of a newer program, and changes nothing in it. `goesOn`: as ``Catalog/Access/goingOn``.
  package static func open(
    _ path: String, mountpoint: String, wait: Double, goesOn: Bool = false
  ) throws(StoreError) -> StoreFolder {
    let folder: Folder
    do throws(Errno) {
      try Folder.makeAll(path, mode: 0o700)
      folder = try Folder.open(path)
    } catch {
      if error == .notDirectory {
        throw StoreError(kind: .invalid, message: "the store \(path) is not a folder: choose another one with --store")
      }
      throw .file(error, "cannot open the store \(path)")
    }
    try secure(folder, path: path, goesOn: goesOn)
    let lock = try StoreLock.take(in: folder, path: path, mountpoint: mountpoint, wait: wait)
    do throws(Errno) {
      if try folder.makeFolder(partials, mode: 0o700) { try folder.sync() }
      guard let status = try folder.status(of: partials), status.isFolder else { throw .notDirectory }
    } catch {
      throw .file(error, "cannot create the folder \(path)/\(partials)")
    }
    let resolved = resolvedPath(path) ?? path
    return StoreFolder(path: resolved, mountpoint: mountpoint, directory: folder, lock: lock)
  }

  /// Refuses a folder of another user, and the store of a newer program. Removes other users' access to the user's own
  /// folder, if no other program needs it.
  private static func secure(_ folder: borrowing Folder, path: String, goesOn: Bool) throws(StoreError) {
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
    try CatalogFile.refuseNewer(path + "/catalog.sqlite", goesOn: goesOn)
    if status.st_mode & 0o077 == 0 { return }
    // `--store /tmp` or `--store ~` must not remove the access of other users or programs to that folder.
    guard names.isEmpty || names.contains("catalog.sqlite"), status.st_mode & S_ISVTX == 0 else {
      throw invalid("is open to other users and contains other files: choose a separate folder with --store")
    }
    do throws(Errno) {
      _ = try retrying { fchmod(folder.descriptor.rawValue, 0o700) }
      status = try folder.descriptor.status()
    } catch {
      throw .file(error, "cannot set mode 0700 on the store \(path)")
    }
    guard status.st_mode & 0o077 == 0 else {
      throw invalid(
        "is on a filesystem without permissions, where others could read links and passwords: choose another place "
          + "with --store (the library may be there: --library)")
    }
  }

  /// Refuses a store below a folder in which every user may rename another user's files (open to all, without /tmp's
  /// sticky bit). There, any user could replace the catalog and the control socket at any time.
  private static func secureParents(of path: String) throws(StoreError) {
    var folder = path
    while folder != "/" {
      folder = Folder.parent(of: folder)
      var status = stat()
      guard stat(folder, &status) == 0 else { continue }  // the store itself could be opened, so this is no error
      if status.st_mode & S_IWOTH != 0, status.st_mode & S_ISVTX == 0 {
        throw StoreError(
          kind: .invalid,
          message:
            "the store \(path) is in \(folder), where every user may replace it: remove their write permission "
            + "(chmod o-w '\(folder)'), or choose another folder with --store")
      }
    }
  }

  /// The ids of the partial files, ascending. Ignores names that are not a partial file's.
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

  /// The space that all partial files take on the disk, in bytes.
  package func allocated() throws(StoreError) -> Int64 {
    var sum: Int64 = 0
    for id in try partialIDs() { sum = .clampedSum(sum, try PartialFile.allocated(of: id, in: self) ?? 0) }
    return sum
  }

  /// fsync(2) of the folder of the partial files.
  func syncPartials() throws(Errno) { try directory.folder(StoreFolder.partials).sync() }

  /// The space on the store's filesystem.
  package func space() throws(StoreError) -> StoreSpace {
    do throws(Errno) {
      return try StoreSpace.measure(descriptor: directory.descriptor.rawValue)
    } catch {
      throw .file(error, "cannot find out how much space is free at \(path)")
    }
  }
}

/// The absolute path without symbolic links (realpath(3)); nil if it does not exist.
func resolvedPath(_ path: String) -> String? {
  guard let resolved = realpath(path, nil) else { return nil }
  defer { free(resolved) }
  return String(cString: resolved)
}
