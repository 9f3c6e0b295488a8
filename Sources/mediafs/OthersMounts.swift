import Base
import Glibc
import Server
import Storing

/// The live mounts of other users, which only root may ask about: those of `user=NAME` are started by root.
///
/// Root reads nothing of another user's store. It asks the server, so a mount without one is known only by name. It
/// follows no path of that user's either, who could lead it to a filesystem that never answers: it takes the folder
/// that the server has open.
enum OthersMounts {
  /// Those folders, by mountpoint: they stay open as long as the command may ask.
  private static let held = Lock<[String: Hold]>([:])

  private final class Hold: Sendable {
    let folder: FileDescriptor

    init(_ folder: consuming FileDescriptor) { self.folder = folder }
  }

  /// Those in the mount table, without the mounts that another one hides.
  static func find() -> [MountRecord] {
    guard geteuid() == 0, let table = try? MountTable.read() else { return [] }  // without a table there is no mount
    var found: [MountRecord] = []
    for (index, entry) in table.enumerated() where entry.isMediafs {
      let isHidden = table[(index + 1)...].contains { $0.mountpoint.utf8.elementsEqual(entry.mountpoint.utf8) }
      guard !isHidden, let owner = entry.owner, owner != 0 else { continue }
      let store = store(of: entry.mountpoint, owner, table) ?? ""
      found.append(
        MountRecord(
          mountpoint: entry.mountpoint, store: store, library: store + "/library", manifest: entry.source, owner: owner)
      )
    }
    return found
  }

  /// Refuses a store of another user's, whose links may lead anywhere and whose programs may answer as its server.
  static func check(ownStore path: String) throws(CommandError) {
    let table: [MountTableEntry]
    do throws(Errno) { table = try MountTable.read() } catch {
      throw .failed("the table of mounts cannot be read: \(error)")
    }
    var status = stat()
    // A store that is not there is told by whoever opens it.
    if isOfUsers(path, table) || (stat(path, &status) == 0 && status.st_uid != 0) {
      throw .failed("the store \(path) is another user's: run the command as that user")
    }
  }

  /// Whether a program of a user's serves the filesystem of `path`: whoever opens a folder there may wait for it.
  static func isOfUsers(_ path: String, _ table: [MountTableEntry]) -> Bool {
    var mount: MountTableEntry?
    for entry in table where entry.mountpoint == "/" || (path + "/").utf8.starts(with: (entry.mountpoint + "/").utf8) {
      if entry.mountpoint.utf8.count >= mount?.mountpoint.utf8.count ?? 0 { mount = entry }
    }
    return (mount?.owner ?? 0) != 0
  }

  /// The folder of the catalog that the mount's server has open, as this process has it open too.
  private static func store(of mountpoint: String, _ owner: uid_t, _ table: [MountTableEntry]) -> String? {
    guard let helper = MountUsers.helper(of: mountpoint, owner: owner) else { return nil }
    for server in MountUsers.children(of: helper) {
      let open = MountUsers.names(in: "/proc/\(server)/fd").compactMap { name in
        MountUsers.target(of: "/proc/\(server)/fd/\(name)").map { (name: name, target: $0) }
      }
      guard let catalog = open.first(where: { Files.split($0.target).name == "catalog.sqlite" }) else { continue }
      let folder = Files.split(catalog.target).folder
      for link in open where link.target == folder {
        // The kernel goes from such a link to the folder itself. With O_PATH it asks no filesystem for it.
        let path = "/proc/\(server)/fd/\(link.name)"
        guard let store = try? FileDescriptor.open(path, FileDescriptor.onlyPath | O_DIRECTORY),
          !isOfUsers(store, table)
        else { continue }  // it closed it meanwhile, or it is not to be asked
        let hold = Hold(store)
        held.withLock { $0[mountpoint] = hold }
        return "/proc/self/fd/\(hold.folder.rawValue)"
      }
    }
    return nil
  }

  /// Whether a program of a user's serves the filesystem of an open folder; true if that cannot be told.
  static func isOfUsers(_ folder: borrowing FileDescriptor, _ table: [MountTableEntry]) -> Bool {
    guard let facts = try? Files.read("/proc/self/fdinfo/\(folder.rawValue)", limit: 1 << 16),
      let line = facts.split(separator: 0x0A).first(where: { $0.starts(with: "mnt_id:".utf8) }),
      let id = UInt64(String(decoding: line.dropFirst(7).drop { $0 == 9 || $0 == 32 }, as: UTF8.self)),
      let mount = table.first(where: { $0.id == id })
    else { return true }
    return (mount.owner ?? 0) != 0
  }
}
