import Base
import CCrypto
import CSystem
import Glibc

/// The state of a copy in the library.
package enum CopyState: Sendable, Equatable {
  /// It looks as it did when mediafs placed it.
  case intact
  /// A user changed or replaced it. It now belongs to the user: mediafs neither overwrites it nor serves it as the
  /// origin's.
  case modified
  /// Nothing is there.
  case missing
}

/// The folder of completed copies: the user's regular files, readable without mediafs.
///
/// Other programs and the user work in it at the same time, so this type remembers only the path and the device. Each
/// call walks down from the library's folder, one component at a time, and follows no symbolic link: nobody can
/// redirect the library. Several threads may call it at the same time. A call may block on the disk. Reasons:
/// docs/decisions, “The library”.
package struct LibraryFolder: Sendable {
  /// The hidden folder in which a copy from another filesystem grows until it is complete.
  static let incoming = ".mediafs-incoming"

  /// Its absolute path without symbolic links.
  package let path: String
  /// The device at the start. Another device later means that a disk was mounted or unmounted.
  let device: UInt64
  /// 0644 less the process's umask.
  let fileMode: mode_t

  /// Opens the library at `path`. Creates it, mode 0755 less the umask, and its parents if they are missing.
  package init(_ path: String) throws(StoreError) {
    do throws(Errno) {
      try Folder.makeAll(path, mode: 0o755)
      device = UInt64(try Folder.open(path).descriptor.status().st_dev)
    } catch {
      if error == .notDirectory {
        throw StoreError(kind: .invalid, message: "the library \(path) is not a folder: choose another with --library")
      }
      throw .file(error, "cannot open the library \(path)")
    }
    self.path = resolvedPath(path) ?? path
    fileMode = 0o644 & ~processUmask()
  }

  /// Whether the copy is still the one that mediafs placed, by size, mtime, ctime and inode.
  ///
  /// Throws `.io` if it cannot check: the disk fails, or the library's filesystem is no longer mounted.
  package func check(_ copy: LibraryCopy) throws(StoreError) -> CopyState {
    let name = try LibraryPath(copy.path)
    let folder: Folder
    do throws(WalkFailure) {
      folder = try walk(name.folders)
    } catch {
      switch error {
      case .missing: return .missing
      case .blocked(_, let status): return status.isSymbolicLink ? .modified : .missing
      case .failed: throw error.storeError(in: self)
      }
    }
    return try state(of: copy, in: folder, as: name.name)
  }

  private func state(of copy: LibraryCopy, in folder: borrowing Folder, as name: String) throws(StoreError) -> CopyState
  {
    try calling("cannot look at \(path)/\(copy.path)") { () throws(Errno) in
      guard let status = try folder.status(of: name) else { return .missing }
      return looksLike(copy, status, on: folder.descriptor.rawValue) ? .intact : .modified
    }
  }

  /// How a copy looks now, if it is another file of the same size and mtime; nil if it is unchanged, or differs in size
  /// or mtime.
  func copied(_ copy: LibraryCopy) throws(StoreError) -> LibraryCopy? {
    guard try check(copy) == .modified else { return nil }
    let name = try LibraryPath(copy.path)
    guard let folder = try existing(name.folders) else { return nil }
    return try calling("cannot look at \(path)/\(copy.path)") { () throws(Errno) in
      guard let status = try folder.status(of: name.name), status.isPlainFile, Int64(status.st_size) == copy.size,
        status.modifiedNanoseconds == copy.modified
      else { return nil }
      return LibraryCopy(at: copy.path, status)
    }
  }

  /// Opens an intact copy for reading. Throws `.invalid` if it is not intact, `.io` if the disk fails.
  package func open(_ copy: LibraryCopy) throws(StoreError) -> FileDescriptor {
    let name = try LibraryPath(copy.path)
    let modified = StoreError(
      kind: .invalid, message: "\(path)/\(copy.path) is not the file that mediafs placed: it was changed or removed")
    guard let folder = try existing(name.folders) else { throw modified }
    // Checks by name first: the open of a device may have side effects.
    guard try state(of: copy, in: folder, as: name.name) == .intact else { throw modified }
    do throws(Errno) {
      let file = try folder.file(name.name, O_RDONLY)
      if looksLike(copy, try file.status(), on: file.rawValue) { return file }
    } catch {
      // A program replaced or removed it between the two checks.
      let isModified = error == .notFound || error.rawValue == ELOOP || error.rawValue == ENXIO
      throw isModified ? modified : .file(error, "cannot open \(path)/\(copy.path)")
    }
    throw modified
  }

  /// Removes an intact copy, durably, and the folders that it leaves empty. False if a user modified the copy, which
  /// then stays, or if there is none.
  ///
  /// The caller makes the catalog forget the copy afterwards. After a kill in between, the catalog has a claim on a
  /// copy that is missing, which the next open notices. In the other order the copy would stay, and nobody would count
  /// it.
  @discardableResult
  package func remove(_ copy: LibraryCopy) throws(StoreError) -> Bool {
    guard try check(copy) == .intact else { return false }
    var components = try LibraryPath(copy.path).folders
    let name = try LibraryPath(copy.path).name
    guard let folder = try existing(components) else { return false }
    let removed = try calling("cannot remove \(path)/\(copy.path)") { () throws(Errno) in
      let removed = try folder.remove(name)
      try folder.sync()
      return removed
    }
    while let empty = components.popLast() {
      guard let parent = try existing(components) else { break }
      // It is not empty, or another program removed it meanwhile: stop here.
      if unlinkat(parent.descriptor.rawValue, empty, AT_REMOVEDIR) != 0 { break }
    }
    return removed
  }

  /// Whether an intact copy is there, and has no other name: a second one is the user's.
  package func isOnlyCopy(_ copy: LibraryCopy) throws(StoreError) -> Bool {
    guard try check(copy) == .intact else { return false }
    let name = try LibraryPath(copy.path)
    guard let folder = try existing(name.folders) else { return false }
    return try calling("cannot look at \(path)/\(copy.path)") { () throws(Errno) in
      try folder.status(of: name.name)?.st_nlink == 1
    }
  }

  /// Whether it is on the filesystem of a store's folder.
  package func sharesDisk(with folder: StoreFolder) -> Bool {
    do throws(Errno) {
      return UInt64(try folder.directory.descriptor.status().st_dev) == device
    } catch {
      return false
    }
  }

  /// The space of its filesystem.
  package func space() throws(StoreError) -> StoreSpace {
    try calling("cannot measure the disk of the library \(path)") { () throws(Errno) in
      try StoreSpace.measure(descriptor: Folder.open(path).descriptor.rawValue)
    }
  }

  /// Whether its filesystem is stacked on another, like a container's overlay. A filesystem stacked on that in turn
  /// needs an extra request. False also if it cannot be checked.
  package var isStacked: Bool {
    do throws(Errno) {
      let folder = try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY)
      return [0x794c_7630, 0xf15f].contains(storing_filesystem_type(folder.rawValue))  // overlayfs, ecryptfs
    } catch {
      return false
    }
  }

  /// Whether `status` is what the copy had when mediafs placed it. The device is not compared: the kernel numbers
  /// devices anew at each mount (btrfs, NFS, the order of disks). On FAT, exFAT, FUSE and SMB the same happens to inode
  /// and ctime, so only size and mtime count there.
  private func looksLike(_ copy: LibraryCopy, _ status: stat, on descriptor: Int32) -> Bool {
    guard status.isPlainFile, Int64(status.st_size) == copy.size, status.modifiedNanoseconds == copy.modified else {
      return false
    }
    if UInt64(status.st_ino) == copy.inode && status.changedNanoseconds == copy.changed { return true }
    let type = storing_filesystem_type(descriptor)
    return [0x4d44, 0x2011_bab0, 0x6573_5546, 0x517b, 0xff53_4d42, 0xfe53_4d42].contains(type)  // linux/magic.h
  }

  /// Opens the folder at `components`, to place a file in it. Creates the missing part, durably.
  func reach(_ components: [String]) throws(StoreError) -> Folder {
    do throws(WalkFailure) {
      return try walk(components, create: true)
    } catch {
      throw error.storeError(in: self)
    }
  }

  /// Opens the folder at `components`; nil if it does not exist or is something else.
  func existing(_ components: [String]) throws(StoreError) -> Folder? {
    do throws(WalkFailure) {
      return try walk(components)
    } catch {
      if case .failed = error { throw error.storeError(in: self) }
      return nil
    }
  }

  /// Opens the folder at `components`. Creates the missing part, durably, if `create` is true.
  func walk(_ components: [String], create: Bool = false) throws(WalkFailure) -> Folder {
    var folder = try root(create: create)
    var path = ""
    for component in components {
      path += path.isEmpty ? component : "/" + component
      let next: Folder
      do throws(Errno) {
        // The kernel applies the umask: the usual mode of a folder, less what the user removes.
        if create, try folder.makeFolder(component, mode: 0o755) { try folder.sync() }
        next = try folder.folder(component)
      } catch {
        if error == .notFound { throw .missing }
        if error == .notDirectory || error.rawValue == ELOOP,
          let status = try? folder.status(of: component), !status.isFolder
        {
          throw .blocked(path, status)
        }
        throw .failed(path, error)
      }
      folder = next
    }
    return folder
  }

  /// Opens the library's folder. If the user removed it, it counts as missing, or is created again if `create` is true.
  /// If its disk is no longer mounted, that is an error: the copies still exist, and nothing may be placed under the
  /// bare mountpoint.
  private func root(create: Bool) throws(WalkFailure) -> Folder {
    func other() -> WalkFailure { .failed("", Errno(rawValue: ENODEV)) }
    do throws(Errno) {
      let folder = try Folder.open(path)
      guard UInt64(try folder.descriptor.status().st_dev) == device else { throw .stale }
      return folder
    } catch {
      if error == .stale { throw other() }
      guard error == .notFound else { throw .failed("", error) }
    }
    let parentDevice: UInt64
    do throws(Errno) {
      parentDevice = UInt64(try Folder.open(Folder.parent(of: path)).descriptor.status().st_dev)
    } catch {
      throw .failed("", error)
    }
    guard parentDevice == device else { throw other() }
    guard create else { throw .missing }
    do throws(Errno) {
      try Folder.makeAll(path, mode: 0o755)
      return try Folder.open(path)
    } catch {
      throw .failed("", error)
    }
  }
}

/// Why a folder in the library could not be reached.
enum WalkFailure: Error {
  /// The folder, or one of its parents, does not exist.
  case missing
  /// Something that is not a folder is at that path.
  case blocked(String, stat)
  /// A call failed at that path (empty: the library itself).
  case failed(String, Errno)

  /// The error for the user.
  func storeError(in library: LibraryFolder) -> StoreError {
    switch self {
    case .missing: return .file(.notFound, "cannot open a folder of the library \(library.path)")
    case .blocked(let path, let status):
      return StoreError(
        kind: .invalid,
        message:
          "\(library.path)/\(path) is \(status.kindName), and mediafs needs a folder of that name: move it away")
    case .failed(let path, let error):
      if path.isEmpty, error.rawValue == ENODEV {
        return StoreError(
          kind: .io(error),
          message: "the library \(library.path) is on another filesystem than before: is its disk mounted?")
      }
      return .file(
        error, path.isEmpty ? "cannot open the library \(library.path)" : "cannot open \(library.path)/\(path)")
    }
  }
}

extension stat {
  /// st_mtim in nanoseconds since 1970, modulo 2^64 (filesystems have years beyond 64 bits of nanoseconds). Only for
  /// comparing equality.
  var modifiedNanoseconds: Int64 { Int64(st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(st_mtim.tv_nsec) }
  /// st_ctim in the same form.
  var changedNanoseconds: Int64 { Int64(st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(st_ctim.tv_nsec) }
}

extension LibraryCopy {
  /// What the catalog must remember of a copy at `path` that looks like `status`. No function of `stat`: a build that
  /// compiles only what changed does not find those in other modules.
  package init(at path: String, _ status: stat) {
    self.init(
      path: path, size: Int64(status.st_size), modified: status.modifiedNanoseconds,
      changed: status.changedNanoseconds, device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
  }
}

/// The umask of this process (proc(5), status, “Umask”). umask(2) can read it only by changing it, also for other
/// threads. Without /proc, the strictest usual one.
func processUmask() -> mode_t {
  let strict: mode_t = 0o077
  do throws(Errno) {
    let text = try smallText(of: FileDescriptor.open("/proc/self/status", O_RDONLY), limit: 4 << 10)
    for line in text.split(separator: "\n") where line.hasPrefix("Umask:") {
      return mode_t(line.dropFirst(6).drop { $0 == "\t" || $0 == " " }, radix: 8) ?? strict
    }
  } catch {
    Log.debug("cannot read the umask from /proc/self/status: \(error)")
  }
  return strict
}
