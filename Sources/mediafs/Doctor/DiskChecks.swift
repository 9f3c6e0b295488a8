import Base
import CSystem
import Glibc
import Server
import Storing

/// What kind of filesystem a folder is on, what is free there, and whether it can be written.
enum DiskChecks {
  private struct Kind {
    var name: String
    /// What that means for a store.
    var means: String
    var advice = "keep the store on a local disk (mount --store DIR)"
  }

  /// Filesystems that work less well for a store, by their type in the table of mounts.
  private static func kind(of type: String) -> Kind? {
    let remote = "locks, syncs and what is stored depend on its server, and a mount waits with it"
    switch type {
    case "nfs", "nfs4": return Kind(name: "NFS", means: remote)
    case "cifs", "smb3", "smbfs": return Kind(name: "SMB", means: remote)
    case "9p", "ceph", "afs": return Kind(name: type, means: remote)
    case "overlay":
      return Kind(
        name: "overlay", means: "in a container, what is stored goes with the container",
        advice: "give the container a volume for the store")
    case "tmpfs", "ramfs":
      return Kind(name: type, means: "what is stored takes memory, and is gone after a restart")
    case "vfat", "msdos":
      return Kind(name: "FAT", means: "a file has less than 4 GiB, and takes all of its space at once")
    case "exfat": return Kind(name: "exFAT", means: "a file takes all of its space at once")
    default:
      if !type.hasPrefix("fuse") { return nil }
      return Kind(
        name: "FUSE (\(type))",
        means: "the program that serves it may end or hang, and the kernel does not read complete files by itself")
    }
  }

  /// What the type of a folder's filesystem means for it; nil for those of local disks.
  static func filesystem(_ type: String, of path: String, _ what: String) -> Finding? {
    kind(of: type).map {
      .note("The folder of \(what), \(path), is on \($0.name): \($0.means).", toDo: $0.advice)
    }
  }

  /// Below that, a mount that is told nothing else stores nothing more: the default of --min-free.
  private static let scarce: UInt64 = 1 << 30

  /// Findings about a folder, or, if it does not exist yet, about the nearest one above it.
  static func folder(_ path: String, of what: String) -> [Finding] {
    var place = path
    var space = statvfs()
    while statvfs(place, &space) != 0 {
      let error = Errno.current
      let parent = Files.split(place).folder
      guard error == .notFound, parent != place else {
        return [
          .problem(
            "The folder of \(what), \(path), cannot be reached (\(error)).",
            toDo: "mount its disk, or change its rights")
        ]
      }
      place = parent
    }
    var findings: [Finding] = []
    if access(place, W_OK | X_OK) != 0 {
      findings.append(
        .problem(
          "The folder of \(what), \(path), cannot be written (\(Errno.current)).",
          toDo: "change its rights, mount its disk writable, or name another folder (mount --store DIR)"))
    }
    let free = Self.free(space)
    let amount = TerminalText.size(Int64(clamping: free))
    if free < scarce {
      findings.append(
        .problem(
          "The disk of \(what) (\(path)) has \(amount) free: mediafs stores nothing more once less than --min-free "
            + "(1 GiB) is free, and reads go through memory.",
          toDo: "make room, or name another folder (mount --store DIR)"))
    }
    if space.f_files > 0, space.f_favail == 0 {
      findings.append(.problem("The disk of \(what) (\(path)) has no free inode.", toDo: "delete files there"))
    }
    if let note = type(of: place).flatMap({ filesystem($0, of: path, what) }) { findings.append(note) }
    if findings.isEmpty { findings.append(.ok("The folder of \(what), \(path), has \(amount) free.")) }
    return findings
  }

  /// What is free there for a user, in bytes. A filesystem may say any number.
  static func free(_ space: statvfs) -> UInt64 { StoreSpace(space).available }

  /// The type of the filesystem that a folder is on; nil where the kernel (before 5.8) does not tell which mount it is.
  private static func type(of folder: String) -> String? {
    guard let place = try? FileDescriptor.open(folder, FileDescriptor.onlyPath) else { return nil }
    let mount = csystem_mount_id(place.rawValue)
    return (try? MountTable.read())?.first { $0.id == mount }?.type
  }
}
