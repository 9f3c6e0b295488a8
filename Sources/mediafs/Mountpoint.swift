import Base
import CSystem
import Glibc
import Server

/// The folder to mount at: resolved, checked, and created if it does not exist.
struct Mountpoint {
  /// Absolute, without symbolic links.
  let path: String
  /// How many folders at the path's end are missing.
  let missing: Int

  /// Checks `path`, which must be an empty folder or not exist. ``make()`` creates the folder.
  ///
  /// `kept`: a mount of mediafs may be there, and must not be asked: a service manager holds it for the next mount
  /// helper, and nobody answers it until that serves. `isService`: a dead mount there, which an earlier service left,
  /// is taken away.
  init(_ path: String, isService: Bool = false, kept: Bool = false) throws(CommandError) {
    let absolute = try Files.absolute(path)
    self.path = try Self.resolve(absolute)
    // The mount table comes first: it shows a dead mount without a call that the dead mount would have to answer.
    let entry: MountTableEntry?
    do throws(Errno) { entry = try MountTable.entry(at: self.path) } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
    if kept, entry?.isMediafs == true {
      missing = 0
      return
    }
    if isService, let entry, entry.isMediafs, csystem_is_dead_mount(self.path) == 1 { try Self.clear(entry) }
    var status = stat()
    let isThere = stat(self.path, &status) == 0
    let error = Errno.current
    if csystem_is_dead_mount(self.path) == 1 {
      throw .failed(
        "\(self.path) is a dead mount: its server has ended. Unmount it with: mediafs unmount --lazy '\(self.path)'")
    }
    if let entry, !isService || Self.isMounted(self.path) {
      throw .failed(
        entry.isMediafs
          ? "\(self.path) is mounted already (\(entry.source)). Unmount it with: mediafs unmount '\(self.path)'"
          : "\(self.path) is a mount already (\(entry.type) of \(entry.source)): choose another folder")
    }
    if isThere {
      missing = 0
      try Self.checkIsEmptyFolder(self.path, status)
    } else if error == .notFound {
      missing = Self.countMissing(self.path)
    } else {
      throw .failed("cannot mount at \(self.path): \(error)")
    }
  }

  /// The path without symbolic links. The last component is looked up in the mount table first: following it would ask
  /// a filesystem that may be dead.
  private static func resolve(_ absolute: String) throws(CommandError) -> String {
    let (folder, name) = Files.split(absolute)
    let parent = Files.canonicalWhereItExists(folder)
    let joined = parent == "/" ? "/" + name : parent + "/" + name
    if name.isEmpty || name == "." || name == ".." { return Files.canonicalWhereItExists(absolute) }
    do throws(Errno) {
      if try MountTable.entry(at: joined) != nil { return joined }
    } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
    return Files.canonicalWhereItExists(joined)
  }

  private static func clear(_ entry: MountTableEntry) throws(CommandError) {
    do throws(SystemCalls.UnmountFailure) { try SystemCalls.unmount(entry, lazily: true) } catch {
      throw .failed("cannot unmount the dead mount at \(entry.mountpoint): \(error.description)")
    }
  }

  private static func isMounted(_ path: String) -> Bool { (try? MountTable.entry(at: path)) != nil }

  private static func checkIsEmptyFolder(_ path: String, _ status: stat) throws(CommandError) {
    guard status.st_mode & S_IFMT == S_IFDIR else { throw .failed("\(path) is not a folder") }
    guard let folder = opendir(path) else { throw .failed("cannot list the folder \(path): \(Errno.current)") }
    defer { closedir(folder) }
    while let entry = readdir(folder) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        // d_name is an array of 256 that ends with a zero.
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != ".", name != ".." {
        throw .failed("\(path) is not empty: choose an empty folder, so that the mount hides nothing")
      }
    }
  }

  private static func countMissing(_ path: String) -> Int {
    var count = 0
    var part = path
    while part != "/", access(part, F_OK) != 0, Errno.current == .notFound {
      count += 1
      part = Files.split(part).folder
    }
    return count
  }

  /// Creates the missing folders, the outermost first. If one cannot be created, those before it are removed.
  ///
  /// No symbolic link is followed: root may mount into a folder of another user, who could put one there meanwhile.
  func make() throws(CommandError) {
    let parts = Self.parts(path)
    var made = 0
    var reached = ""
    do throws(Errno) {
      var folder = try FileDescriptor.open("/", Self.look)
      for (index, part) in parts.enumerated() {
        reached += "/" + part
        if index >= parts.count - missing {
          _ = try retrying { mkdirat(folder.rawValue, part, 0o777) }
          made += 1
        }
        folder = FileDescriptor(owning: try retrying { csystem_openat(folder.rawValue, part, Self.look, 0) })
      }
    } catch {
      remove(parts, made)
      throw .failed("cannot create the folder \(path): \(reached): \(error)")
    }
  }

  /// Removes the folders that ``make()`` created.
  func removeMade() { remove(Self.parts(path), missing) }

  /// Removes the last `count` of the parts that were made, which are the innermost of those that are there.
  private func remove(_ parts: [String], _ count: Int) {
    let first = parts.count - missing
    for last in (first..<first + count).reversed() {
      do throws(Errno) {
        var folder = try FileDescriptor.open("/", Self.look)
        for part in parts[..<last] {
          folder = FileDescriptor(owning: try retrying { csystem_openat(folder.rawValue, part, Self.look, 0) })
        }
        _ = try retrying { unlinkat(folder.rawValue, parts[last], AT_REMOVEDIR) }
      } catch {
        return  // another program uses the folder by now, so it stays
      }
    }
  }

  /// Opens a folder only as the start of the next lookup.
  private static let look: Int32 = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | FileDescriptor.onlyPath

  private static func parts(_ path: String) -> [String] {
    path.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
  }
}
