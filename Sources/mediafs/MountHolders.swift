import Base
import CSystem
import Glibc

/// Who still holds a mount: processes that use it, and other mount namespaces, which have a mount of their own of it.
///
/// It is found by its device number, because its path is another one in another namespace, and none once it is
/// detached. No filesystem is asked. The search ends after two seconds.
struct MountHolders {
  /// The processes that have their working folder, root, program, an open file or a mapped one in it.
  private(set) var users: [MountUser] = []
  /// One process in each other namespace that has the mount.
  private(set) var namespaces: [MountUser] = []
  /// How many processes this user may not look at, or the search had no time for.
  private(set) var unseen = 0

  private static let patience = 2.0
  /// The most that are named.
  private static let named = 5

  /// Nobody was found.
  var isEmpty: Bool { users.isEmpty && namespaces.isEmpty }

  init(device: UInt32) {
    let deadline = Instant.now.adding(seconds: Self.patience)
    let own = MountUsers.target(of: "/proc/self/ns/mnt")
    var looked: Set<String> = []
    for process in MountUsers.processes() where process != getpid() {
      guard deadline.seconds(since: .now) > 0, let namespace = MountUsers.target(of: "/proc/\(process)/ns/mnt") else {
        // A kernel thread and a process that has ended have none either.
        if Self.hasProgram(process) { unseen += 1 }
        continue
      }
      if Self.uses(process, device) { users.append(MountUser(process: process)) }
      if namespace != own, looked.insert(namespace).inserted, Self.hasMount(process, device) {
        namespaces.append(MountUser(process: process))
      }
    }
  }

  private static func hasProgram(_ process: Int32) -> Bool {
    guard let bytes = try? Files.read("/proc/\(process)/cmdline", limit: 1 << 20) else { return false }
    return !bytes.isEmpty
  }

  private static func uses(_ process: Int32, _ device: UInt32) -> Bool {
    let folder = "/proc/\(process)"
    let links = ["cwd", "root", "exe"] + MountUsers.names(in: folder + "/fd").map { "fd/" + $0 }
    if links.contains(where: { csystem_anonymous_device("\(folder)/\($0)") == Int64(device) }) { return true }
    // address permissions offset major:minor inode path
    return lines(of: folder + "/maps").contains { line in
      let fields = line.split(separator: 0x20, maxSplits: 4)
      guard fields.count > 3 else { return false }
      let numbers = String(decoding: fields[3], as: UTF8.self).split(separator: ":").compactMap {
        UInt32($0, radix: 16)
      }
      return numbers == [0, device]
    }
  }

  private static func hasMount(_ process: Int32, _ device: UInt32) -> Bool {
    lines(of: "/proc/\(process)/mountinfo").contains { line in
      let fields = line.split(separator: 0x20, maxSplits: 3)
      return fields.count > 2 && fields[2].elementsEqual("0:\(device)".utf8)
    }
  }

  private static func lines(of path: String) -> [ArraySlice<UInt8>] {
    ((try? Files.read(path, limit: 16 << 20)) ?? []).split(separator: 0x0A)
  }

  /// For a message, a sentence each; empty if there is nothing to say.
  var description: String {
    var text = ""
    if !users.isEmpty { text += " Used by: \(Self.list(users))." }
    if !namespaces.isEmpty {
      text += " Other mount namespaces (containers, services) have it too, those of: \(Self.list(namespaces))."
    }
    if users.isEmpty && unseen > 0 {
      let count = unseen == 1 ? "A process" : "\(unseen) processes"
      text += " \(count) could not be looked at\(geteuid() == 0 ? "" : ": root can look at all of them")."
    }
    return text
  }

  private static func list(_ found: [MountUser]) -> String {
    let more = found.count - named
    return found.prefix(named).map(\.description).joined(separator: ", ") + (more > 0 ? " and \(more) more" : "")
  }
}
