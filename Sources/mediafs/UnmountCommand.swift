import Base
import Glibc
import Server

/// `mediafs unmount`.
enum UnmountCommand {
  static let usage = """
    Usage: mediafs unmount MOUNTPOINT [--lazy]

    Takes the mount at MOUNTPOINT away, and returns when its server has saved what it must and ended.

      -l, --lazy    also if it is busy: it vanishes at once, and its server ends with the last program that uses it
      -h, --help    print this help

    Exit codes: 0 unmounted, 1 failed (busy, or not a mount of mediafs), 2 wrong usage.
    """

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("unmount", arguments, usage: usage, [.flag("lazy", "l")]) { parsed throws(CommandError) in
      guard let path = parsed.operands.first else { throw .usage("the folder to unmount is missing") }
      if parsed.operands.count > 1 { throw .usage("one folder, please: \(parsed.operands[1]) is too much") }
      let (entry, owner) = try find(path)
      let mountpoint = entry.mountpoint
      let lazy = parsed.has("lazy")
      // Detached while in use, it is served until the last user is gone: not ours to wait for. Asked before: what is
      // detached has no path any more.
      let isUsed = lazy && !MountUsers.find(mountpoint).isEmpty
      try unmount(entry, lazily: lazy)
      if !isUsed { try waitForServerEnd(mountpoint, owner) }
      return ExitCode.done
    }
  }

  /// The mount as the mount table has it, and who owns the mount. Found in the table before it is touched: it may
  /// be dead.
  private static func find(_ path: String) throws(CommandError) -> (entry: MountTableEntry, owner: uid_t?) {
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
    if !table.contains(where: { candidates.contains($0.mountpoint) }), let resolved = Files.canonical(absolute) {
      candidates.append(resolved)
    }
    guard let entry = table.last(where: { candidates.contains($0.mountpoint) }) else {
      throw .failed("\(path) is not mounted")
    }
    guard entry.isMediafs else {
      throw .failed("\(path) is not a mount of mediafs but \(entry.type) of \(entry.source): use umount")
    }
    let owner = entry.options.split(separator: ",").first { $0.hasPrefix("user_id=") }
    return (entry, owner.flatMap { uid_t($0.dropFirst("user_id=".count)) })
  }

  private static func unmount(_ entry: MountTableEntry, lazily: Bool) throws(CommandError) {
    do throws(SystemCalls.UnmountFailure) { try SystemCalls.unmount(entry, lazily: lazily) } catch {
      throw error.isBusy
        ? busy(entry.mountpoint) : .failed("cannot unmount \(entry.mountpoint): \(error.description)")
    }
  }

  private static func busy(_ mountpoint: String) -> CommandError {
    let users = MountUsers.find(mountpoint)
    let named = users.isEmpty ? "" : " Used by: \(users.map(\.description).joined(separator: ", "))."
    return .failed("\(mountpoint) is busy.\(named) Close what uses it, or: mediafs unmount --lazy '\(mountpoint)'")
  }

  /// Waits until the mount helper of `mountpoint` is gone: it ends after its server, which has then saved everything.
  private static func waitForServerEnd(_ mountpoint: String, _ owner: uid_t?) throws(CommandError) {
    let start = Instant.now
    while let helper = MountUsers.helper(of: mountpoint, owner: owner) {
      if Instant.now.seconds(since: start) > 120 {
        throw .failed("\(mountpoint) is unmounted, but its server (of process \(helper)) has not ended for 2 minutes")
      }
      usleep(20_000)
    }
  }
}
