import Base
import Control
import Glibc
import Server

/// `mediafs unmount`.
enum UnmountCommand {
  static let help = CommandHelp(
    synopsis: ["unmount MOUNTPOINT [--lazy]"],
    summary: "Unmount",
    about: ["Unmounts MOUNTPOINT, and returns when the server has saved its data and exited."],
    operands: [("MOUNTPOINT", "The mount.")],
    groups: [
      (
        "Options",
        [
          .flag(
            "lazy", "l",
            help: """
              Unmount even if the mount is in use. It disappears at once; the server exits when the last program has \
              closed its files.
              """)
        ]
      )
    ],
    status: "0 unmounted, 1 failed (in use, or not a mediafs mount), 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("unmount", arguments, help) { parsed throws(CommandError) in
      guard let path = parsed.operands.first else { throw .usage("MOUNTPOINT is missing: name the mount") }
      if parsed.operands.count > 1 { throw .usage("unmount takes one MOUNTPOINT, not also \(parsed.operands[1])") }
      let entry = try find(path)
      let lazy = parsed.has("lazy")
      if let why = MountUsers.state(of: entry.mountpoint, owner: entry.owner) {
        OptionParser.complain("no server served \(entry.mountpoint). \(why)")
      }
      // While root's helper ends, a process of the owner's could take its name.
      let isRoots = MountUsers.helper(of: entry.mountpoint, user: 0) != nil
      let helperUser = isRoots ? 0 : entry.owner ?? geteuid()
      let mounts = MountHolders.Mounts(device: entry.device)
      // A mount that is detached while in use is served until its last user closes it; the command does not wait for
      // that. It looks for users first, because a detached mount has no path.
      let isUsed = lazy && !MountHolders(mounts).isEmpty
      try unmount(entry, mounts, lazily: lazy)
      if !isUsed { try waitForServerEnd(entry.mountpoint, mounts, helperUser) }
      return ExitCode.done
    }
  }

  /// The entry of the mount table. Nothing of the mount itself is called: it may be dead.
  private static func find(_ path: String) throws(CommandError) -> MountTableEntry {
    let absolute = try Files.absolute(path)
    let (folder, name) = Files.split(absolute)
    var candidates: [String] = []
    if let parent = Files.canonical(folder), name != ".", name != ".." {
      candidates.append(parent == "/" ? "/" + name : parent + "/" + name)
    }
    let table: [MountTableEntry]
    do throws(Errno) { table = try MountTable.read() } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
    // By bytes: as Strings, names that differ only in their normalization are equal.
    func isMeant(_ entry: MountTableEntry) -> Bool {
      candidates.contains { $0.utf8.elementsEqual(entry.mountpoint.utf8) }
    }
    if !table.contains(where: isMeant), let resolved = Files.canonical(absolute) { candidates.append(resolved) }
    guard let entry = table.last(where: isMeant) else {
      throw .failed("\(path) is not mounted")
    }
    guard entry.isMediafs else {
      throw .failed("\(path) is not a mount of mediafs but \(entry.type) of \(entry.source): use umount(8)")
    }
    return entry
  }

  private static func unmount(
    _ entry: MountTableEntry, _ mounts: MountHolders.Mounts, lazily: Bool
  ) throws(CommandError) {
    do throws(SystemCalls.UnmountFailure) { try SystemCalls.unmount(entry, lazily: lazily) } catch {
      throw error.isBusy
        ? busy(entry, mounts) : .failed("cannot unmount \(entry.mountpoint): \(error.description)")
    }
  }

  private static func busy(_ entry: MountTableEntry, _ mounts: MountHolders.Mounts) -> CommandError {
    let holders = MountHolders(mounts)
    return .failed(
      "\(entry.mountpoint) is busy.\(holders.description) Close the programs that use it, or run: "
        + "mediafs unmount --lazy '\(entry.mountpoint)'")
  }

  /// How often the command looks for who holds the mount while it waits for the server's end, in seconds.
  private static let patience = 2.0
  /// From when on a server that still answers counts as held by somebody unseen: one that ends saves its data first.
  private static let longestEnd = 20.0

  /// Whether the server still serves, and is not about to end: the mount is somewhere that this user may not look.
  private static func isServed(_ mountpoint: String) -> Bool {
    do {
      let mount = try MountSelection.remembered().mount(mountpoint)
      _ = try ControlClient.connect(store: mount.store, owner: mount.owner).hello()
      return true
    } catch {
      return false  // no record of it, or no answer
    }
  }

  /// Waits until the mount helper of the mount, a process of `user`, has exited. It exits after its server, which has
  /// then saved its data. The server goes on as long as another process or namespace holds the mount.
  private static func waitForServerEnd(
    _ mountpoint: String, _ mounts: MountHolders.Mounts, _ user: uid_t
  ) throws(CommandError) {
    let start = Instant.now
    var looks = 0.0
    while let helper = MountUsers.helper(of: mountpoint, user: user) {
      let waited = Instant.now.seconds(since: start)
      if waited > patience * (looks + 1) {
        looks += 1
        let holders = MountHolders(mounts)
        let isHeld = !holders.isEmpty || waited > longestEnd && isServed(mountpoint)
        if isHeld, MountUsers.helper(of: mountpoint, user: user) == helper {
          throw .failed(
            "\(mountpoint) is unmounted here, but its server goes on (below process \(helper)).\(holders.description) "
              + "It ends when they let go of the mount")
        }
      }
      if waited > 120 {
        throw .failed(
          "\(mountpoint) is unmounted, but its server (below process \(helper)) has not exited after 2 minutes")
      }
      usleep(20_000)
    }
  }
}
