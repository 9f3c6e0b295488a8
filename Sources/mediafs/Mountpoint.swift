import Base
import Glibc
import Server

/// The folder to mount at: found, checked, and made if it is missing.
struct Mountpoint {
  /// Absolute, without symbolic links.
  let path: String
  /// How many folders at the path's end are missing.
  let missing: Int

  /// Looks at `path` and changes nothing. It must be an empty folder, or missing.
  init(_ path: String) throws(CommandError) {
    let absolute = try Files.absolute(path)
    self.path = try Self.resolve(absolute)
    // The table first: it tells of a dead mount without touching it.
    let entry: MountTableEntry?
    do throws(Errno) { entry = try MountTable.entry(at: self.path) } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
    var status = stat()
    let isThere = stat(self.path, &status) == 0
    let error = Errno.current
    if !isThere, error == Errno(rawValue: ENOTCONN) {
      throw .failed(
        "\(self.path) is a dead mount: its server is gone. Clear it with: fusermount3 -uz '\(self.path)'")
    }
    if let entry {
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

  /// The path without symbolic links. The last component is looked up in the mount table first: following it would ask a
  /// filesystem that may be dead.
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

  private static func checkIsEmptyFolder(_ path: String, _ status: stat) throws(CommandError) {
    guard status.st_mode & S_IFMT == S_IFDIR else { throw .failed("\(path) is not a folder") }
    guard let folder = opendir(path) else { throw .failed("cannot look into \(path): \(Errno.current)") }
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

  /// Makes the missing folders, the outermost first. When one cannot be made, those that were go again.
  func make() throws(CommandError) {
    var folders: [String] = []
    var part = path
    for _ in 0..<missing {
      folders.insert(part, at: 0)
      part = Files.split(part).folder
    }
    for (index, folder) in folders.enumerated() where mkdir(folder, 0o777) != 0 {
      let error = Errno.current
      for made in folders[..<index].reversed() { rmdir(made) }
      throw .failed("cannot make the folder \(folder): \(error)")
    }
  }

  /// Takes away what ``make()`` made.
  func removeMade() {
    var part = path
    for _ in 0..<missing {
      rmdir(part)
      part = Files.split(part).folder
    }
  }
}
