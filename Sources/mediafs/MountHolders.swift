import Base
import Glibc
import Server

/// Who still holds a mount: processes that use it, and other mount namespaces, which have a mount of their own of it.
///
/// No path of another process is followed: what it leads to may be a filesystem that does not answer. The kernel says
/// which mount an open file is of (fdinfo), and how the path of a folder reads. The search ends after two seconds.
struct MountHolders {
  /// The processes that have their working folder, root, program, an open file or a mapped one in it.
  private(set) var users: [MountUser] = []
  /// Each other namespace that has the mount, by its number (`mnt:[…]`, as lsns(8) lists it), and a process in it.
  private(set) var namespaces: [(number: String, process: MountUser)] = []
  /// How many processes this user may not look at, or the search had no time for.
  private(set) var unseen = 0

  private static let patience = 2.0
  /// The most that are named.
  private static let named = 5

  /// Nobody was found.
  var isEmpty: Bool { users.isEmpty && namespaces.isEmpty }

  /// The mounts of one filesystem, in every namespace that this user may see.
  struct Mounts {
    let device: UInt32
    /// The kernel's numbers of them.
    fileprivate let ids: Set<UInt64>

    /// Call it while the filesystem is mounted: the kernel soon gives its device number to another one.
    init(device: UInt32) {
      self.device = device
      var views = Views(until: Instant.now.adding(seconds: MountHolders.patience))
      let tables = [views.own] + MountUsers.processes().compactMap { views.view(of: $0)?.table }
      ids = Set(tables.joined().filter { $0.isMediafs && $0.device == device }.map(\.id))
    }
  }

  init(_ mounts: Mounts) {
    var views = Views(until: Instant.now.adding(seconds: Self.patience))
    var seen: [(process: Int32, view: Views.View)] = []
    for process in MountUsers.processes() where process != getpid() {
      if let view = views.view(of: process) {
        seen.append((process, view))
      } else if Self.hasProgram(process) {
        unseen += 1  // a kernel thread and a process that has ended have no namespace either
      }
    }
    // The kernel gives the numbers of mounts that are gone anew.
    let others = seen.lazy.flatMap(\.view.table).filter { !$0.isMediafs || $0.device != mounts.device }.map(\.id)
    let ids = mounts.ids.subtracting(others)
    var named: Set<String> = []
    for (process, view) in seen {
      if !views.hasTime {
        unseen += 1
        continue
      }
      let hasMount = view.table.contains { ids.contains($0.id) }
      // In this namespace the kernel writes paths as this process would.
      let table = view.isOwn ? views.own : view.table
      if Self.hasOpen(process, ids) || hasMount && Self.isIn(process, ids, table, mounts.device) {
        users.append(MountUser(process: process))
      }
      if !view.isOwn, hasMount, named.insert(view.namespace).inserted {
        namespaces.append((view.namespace, MountUser(process: process)))
      }
    }
  }

  private static func hasProgram(_ process: Int32) -> Bool {
    guard let bytes = try? Files.read("/proc/\(process)/cmdline", limit: 1 << 20) else { return false }
    return !bytes.isEmpty
  }

  /// Whether it has a file of one of these mounts open.
  private static func hasOpen(_ process: Int32, _ ids: Set<UInt64>) -> Bool {
    let folder = "/proc/\(process)/fdinfo"
    return MountUsers.names(in: folder).contains { name in
      lines(of: "\(folder)/\(name)").contains { line in
        let words = line.split(whereSeparator: { $0 == 0x09 || $0 == 0x20 })
        guard words.count == 2, words[0].elementsEqual("mnt_id:".utf8) else { return false }
        return UInt64(String(decoding: words[1], as: UTF8.self)).map { ids.contains($0) } ?? false
      }
    }
  }

  /// Whether its working folder, root or program is in one of these mounts, or a file that it has mapped.
  private static func isIn(
    _ process: Int32, _ ids: Set<UInt64>, _ table: [MountTableEntry], _ device: UInt32
  ) -> Bool {
    let isThere = ["cwd", "root", "exe"].contains { name in
      guard let path = MountUsers.target(of: "/proc/\(process)/\(name)") else { return false }
      // The longest mountpoint that the path is below, and of several mounts there the last, which is on top.
      let around = table.filter { Files.isInside(path, $0.mountpoint) }
      let longest = around.map(\.mountpoint.utf8.count).max()
      return around.last { $0.mountpoint.utf8.count == longest }.map { ids.contains($0.id) } ?? false
    }
    if isThere { return true }
    // address permissions offset major:minor inode path
    return lines(of: "/proc/\(process)/maps").contains { line in
      let fields = line.split(separator: 0x20, maxSplits: 4)
      guard fields.count > 3 else { return false }
      let numbers = String(decoding: fields[3], as: UTF8.self).split(separator: ":").compactMap {
        UInt32($0, radix: 16)
      }
      return numbers == [0, device]
    }
  }

  private static func lines(of path: String) -> [ArraySlice<UInt8>] {
    ((try? Files.read(path, limit: 16 << 20)) ?? []).split(separator: 0x0A)
  }

  /// For a message, a sentence each; empty if there is nothing to say.
  var description: String {
    var text = ""
    if !users.isEmpty { text += " Used by: \(Self.list(users.map(\.description)))." }
    if !namespaces.isEmpty {
      let named = Self.list(namespaces.map { "\($0.number), with \($0.process)" })
      text += " Other mount namespaces (containers, services) have it too: \(named)."
    }
    if users.isEmpty && unseen > 0 {
      let count = unseen == 1 ? "A process" : "\(unseen) processes"
      text += " \(count) could not be looked at\(geteuid() == 0 ? "" : ": root can look at all of them")."
    }
    return text
  }

  private static func list(_ found: [String]) -> String {
    let more = found.count - named
    return found.prefix(named).joined(separator: ", ") + (more > 0 ? " and \(more) more" : "")
  }
}

/// The tables of mounts that processes see. Those of one namespace and one root see the same.
private struct Views {
  struct View {
    let namespace: String
    let isOwn: Bool
    let table: [MountTableEntry]
  }

  /// This process's own.
  let own: [MountTableEntry]
  private let ownNamespace = MountUsers.target(of: "/proc/self/ns/mnt")
  private let deadline: Instant
  private var known: [String: [MountTableEntry]] = [:]

  init(until deadline: Instant) {
    self.deadline = deadline
    own = (try? MountTable.read()) ?? []  // without /proc nobody is found
  }

  var hasTime: Bool { deadline.seconds(since: .now) > 0 }

  /// Nil if this user may not look at the process, or there is no time left.
  mutating func view(of process: Int32) -> View? {
    guard hasTime, let namespace = MountUsers.target(of: "/proc/\(process)/ns/mnt") else { return nil }
    let key = "\(namespace) \(MountUsers.target(of: "/proc/\(process)/root") ?? "")"
    let table = known[key] ?? ((try? MountTable.read(of: "\(process)")) ?? [])
    known[key] = table
    return View(namespace: namespace, isOwn: namespace == ownNamespace, table: table)
  }
}
