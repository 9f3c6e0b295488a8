import Base
import Glibc
import Server
import Storing

/// The live mounts of other users, which only root may ask about: those of `user=NAME` are started by root.
///
/// Root reads nothing of another user's store. It asks the server, so a mount without one is known only by name.
enum OthersMounts {
  /// Those in the mount table, without the mounts that another one hides.
  static func find() -> [MountRecord] {
    guard geteuid() == 0, let table = try? MountTable.read() else { return [] }  // without a table there is no mount
    var found: [MountRecord] = []
    for (index, entry) in table.enumerated() where entry.isMediafs {
      let isHidden = table[(index + 1)...].contains { $0.mountpoint.utf8.elementsEqual(entry.mountpoint.utf8) }
      guard !isHidden, let owner = entry.owner, owner != 0 else { continue }
      let store = store(of: entry.mountpoint, owner).flatMap { isOfUsers($0, table) ? nil : $0 } ?? ""
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

  /// The folder of the catalog that the mount's server has open.
  private static func store(of mountpoint: String, _ owner: uid_t) -> String? {
    guard let helper = MountUsers.helper(of: mountpoint, owner: owner) else { return nil }
    for server in MountUsers.children(of: helper) {
      for name in MountUsers.names(in: "/proc/\(server)/fd") {
        guard let file = MountUsers.target(of: "/proc/\(server)/fd/\(name)") else { continue }
        let (folder, last) = Files.split(file)
        if last == "catalog.sqlite" { return folder }
      }
    }
    return nil
  }
}
