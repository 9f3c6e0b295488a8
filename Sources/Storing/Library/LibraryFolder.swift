import Base
import CCrypto
import CSystem
import Glibc

/// What became of a copy in the library.
package enum CopyState: Sendable, Equatable {
  /// It looks as it did when it was placed.
  case intact
  /// Somebody changed or replaced it: theirs now, neither overwritten nor served as the origin's.
  case modified
  /// Nothing is there.
  case missing
}

/// The folder of completed copies: plain files of the user's, readable without mediafs.
///
/// Other programs and the user work in it at the same time. So this type remembers only the path and the device. Each
/// call walks from the library's folder down, one component at a time, and follows no symbolic link: nobody can make
/// the library lead elsewhere. Any thread may call; a call may block on the disk. Reasons: docs/decisions, “The
/// library”.
package struct LibraryFolder: Sendable {
  /// Where a copy from another filesystem grows, hidden, until it is complete.
  static let incoming = ".mediafs-incoming"

  /// Its absolute path, symbolic links resolved.
  package let path: String
  /// The device it was on at the start. When it is on another one later, a disk was mounted or unmounted.
  let device: UInt64
  /// 0644 less the process's umask.
  let fileMode: mode_t

  /// Opens the library at `path`; makes it, mode 0755 less the umask, with the folders it lies in, when it is missing.
  package init(_ path: String) throws(StoreError) {
    do throws(Errno) {
      try Folder.makeAll(path, mode: 0o755)
      device = UInt64(try Folder.open(path).descriptor.status().st_dev)
    } catch {
      if error == .notDirectory {
        throw StoreError(kind: .invalid, message: "the library \(path) is no folder: choose another one with --library")
      }
      throw .file(error, "cannot open the library \(path)")
    }
    self.path = resolvedPath(path) ?? path
    fileMode = 0o644 & ~processUmask()
  }

  /// Whether the copy is still the one that was placed, by size, mtime, ctime and inode.
  ///
  /// Throws `.io` when it cannot look: the disk fails, or the library's filesystem is not mounted any more.
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

  /// How a copy looks now, if it is another file of the same size and mtime; nil when it is untouched, or is another
  /// one.
  func copied(_ copy: LibraryCopy) throws(StoreError) -> LibraryCopy? {
    guard try check(copy) == .modified else { return nil }
    let name = try LibraryPath(copy.path)
    guard let folder = try existing(name.folders) else { return nil }
    return try calling("cannot look at \(path)/\(copy.path)") { () throws(Errno) in
      guard let status = try folder.status(of: name.name), status.isPlainFile, Int64(status.st_size) == copy.size,
        status.modifiedNanoseconds == copy.modified
      else { return nil }
      return status.copy(at: copy.path)
    }
  }

  /// Opens an intact copy for reading. Throws `.invalid` when it is not intact, `.io` when the disk fails.
  package func open(_ copy: LibraryCopy) throws(StoreError) -> FileDescriptor {
    let name = try LibraryPath(copy.path)
    let modified = StoreError(
      kind: .invalid, message: "\(path)/\(copy.path) is not the file that was placed there: it was changed or removed")
    guard let folder = try existing(name.folders) else { throw modified }
    // First by name: opening a device in its place could have effects.
    guard try state(of: copy, in: folder, as: name.name) == .intact else { throw modified }
    do throws(Errno) {
      let file = try folder.file(name.name, O_RDONLY)
      if looksLike(copy, try file.status(), on: file.rawValue) { return file }
    } catch {
      // Replaced or removed between the two looks.
      let isModified = error == .notFound || error.rawValue == ELOOP || error.rawValue == ENXIO
      throw isModified ? modified : .file(error, "cannot open \(path)/\(copy.path)")
    }
    throw modified
  }

  /// Removes an intact copy, and the folders that it leaves empty. False when a user modified the copy, which then
  /// stays, and when there is none.
  ///
  /// The caller first makes the catalog forget the copy, durably.
  @discardableResult
  package func remove(_ copy: LibraryCopy) throws(StoreError) -> Bool {
    guard try check(copy) == .intact else { return false }
    var components = try LibraryPath(copy.path).folders
    let name = try LibraryPath(copy.path).name
    guard let folder = try existing(components) else { return false }
    let removed = try calling("cannot remove \(path)/\(copy.path)") { () throws(Errno) in try folder.remove(name) }
    while let empty = components.popLast() {
      guard let parent = try existing(components) else { break }
      // It is not empty, or another program removed it meanwhile: stop here.
      if unlinkat(parent.descriptor.rawValue, empty, AT_REMOVEDIR) != 0 { break }
    }
    return removed
  }

  /// Whether its filesystem is stacked on another, as an overlay in a container is: what is stacked on it in turn has
  /// to ask for more. False also when it cannot be looked at.
  package var isStacked: Bool {
    do throws(Errno) {
      let folder = try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY)
      return [0x794c_7630, 0xf15f].contains(storing_filesystem_type(folder.rawValue))  // overlayfs, ecryptfs
    } catch {
      return false
    }
  }

  /// Whether `status` is what was seen when the copy was placed. The device is not compared: the kernel numbers devices
  /// anew at each mount (btrfs, NFS, the order of disks). On FAT, exFAT, FUSE and SMB inode and ctime change in the
  /// same way, and size and mtime decide alone.
  private func looksLike(_ copy: LibraryCopy, _ status: stat, on descriptor: Int32) -> Bool {
    guard status.isPlainFile, Int64(status.st_size) == copy.size, status.modifiedNanoseconds == copy.modified else {
      return false
    }
    if UInt64(status.st_ino) == copy.inode && status.changedNanoseconds == copy.changed { return true }
    let type = storing_filesystem_type(descriptor)
    return [0x4d44, 0x2011_bab0, 0x6573_5546, 0x517b, 0xff53_4d42, 0xfe53_4d42].contains(type)  // linux/magic.h
  }

  /// Opens the folder at `components`, for placing in it; what is missing of it is made, durably.
  func reach(_ components: [String]) throws(StoreError) -> Folder {
    do throws(WalkFailure) {
      return try walk(components, create: true)
    } catch {
      throw error.storeError(in: self)
    }
  }

  /// Opens the folder at `components`; nil when it is not there, or something else is.
  func existing(_ components: [String]) throws(StoreError) -> Folder? {
    do throws(WalkFailure) {
      return try walk(components)
    } catch {
      if case .failed = error { throw error.storeError(in: self) }
      return nil
    }
  }

  /// Opens the folder at `components`; makes what is missing of it, durably, if `create` says so.
  func walk(_ components: [String], create: Bool = false) throws(WalkFailure) -> Folder {
    var folder = try root(create: create)
    var path = ""
    for component in components {
      path += path.isEmpty ? component : "/" + component
      let next: Folder
      do throws(Errno) {
        // With the umask applied by the kernel: the usual mode of a folder, less what the user wants less.
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

  /// Opens the library's folder. When the user removed it, it is missing, or made anew if `create` says so. When its
  /// disk is not mounted any more, that is an error: the copies are not gone, and nothing may be placed under the
  /// mountpoint.
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

/// Why a folder in the library was not reached.
enum WalkFailure: Error {
  /// It, or one that it lies in, is not there.
  case missing
  /// Something that is no folder is in the way, at that path.
  case blocked(String, stat)
  /// A call failed, at that path (empty: the library itself).
  case failed(String, Errno)

  /// The error for a person.
  func storeError(in library: LibraryFolder) -> StoreError {
    switch self {
    case .missing: return .file(.notFound, "cannot open a folder of the library \(library.path)")
    case .blocked(let path, let status):
      return StoreError(
        kind: .invalid,
        message:
          "\(library.path)/\(path) is \(status.kindName), and a folder of that name is needed there: move it away")
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
  /// st_mtim in nanoseconds since 1970, modulo 2^64 (filesystems know years beyond what 64 bits of nanoseconds do): to
  /// be compared for equality only.
  var modifiedNanoseconds: Int64 { Int64(st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(st_mtim.tv_nsec) }
  /// st_ctim likewise.
  var changedNanoseconds: Int64 { Int64(st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(st_ctim.tv_nsec) }

  /// What the catalog is to remember of a copy that looks like this.
  func copy(at path: String) -> LibraryCopy {
    LibraryCopy(
      path: path, size: Int64(st_size), modified: modifiedNanoseconds, changed: changedNanoseconds,
      device: UInt64(st_dev), inode: UInt64(st_ino))
  }
}

/// The umask of this process (proc(5), status, “Umask”). Not umask(2), which can only read it by changing it under the
/// feet of other threads. Without /proc the strictest usual one.
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
