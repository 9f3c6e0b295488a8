import Base
import Glibc
import Server
import Storing

/// `mediafs forget`: drops what mediafs remembers of a mount that is over.
enum ForgetCommand {
  static let help = CommandHelp(
    synopsis: ["forget MOUNTPOINT..."],
    summary: "Drop a mount that is over from the status",
    about: [
      """
      Drops mounts that are over, so that 'mediafs status' lists them no more. Their stores and libraries stay as they \
      are, and the next mount finds them. A mount whose store and mountpoint no longer exist is dropped without this \
      command.
      """
    ],
    operands: [("MOUNTPOINT", "Where it was mounted.")],
    status: "0 done, 1 failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("forget", arguments, help) { options throws(CommandError) in
      guard !options.operands.isEmpty else { throw .usage("MOUNTPOINT is missing: name the mount") }
      let selection = try MountSelection.remembered()
      var mounts: [MountRecord] = []
      for operand in options.operands { mounts.append(try selection.mount(operand)) }
      let terminal = Terminal()
      for mount in mounts {
        let name = TerminalText.plain(mount.mountpoint)
        let isMounted = mount.owner == nil ? try isMounted(mount) : true
        if isMounted {
          terminal.flush()
          throw .failed("\(name) is mounted: unmount it first (mediafs unmount \(name))")
        }
        do throws(StoreError) {
          try MountSelection.registry().forget(mountpoint: mount.mountpoint)
        } catch {
          terminal.flush()
          throw .failed(error.message)
        }
        terminal.line("\(name): forgotten; its store \(TerminalText.plain(mount.store)) stays as it is")
      }
      try terminal.finish()
      return ExitCode.done
    }
  }

  private static func isMounted(_ mount: MountRecord) throws(CommandError) -> Bool {
    do throws(Errno) {
      return try MountTable.entry(at: mount.mountpoint)?.isMediafs ?? false
    } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
  }
}
