import Base
import Control
import Glibc
import Server
import Storing

/// `mediafs upgrade`: this program goes on with live mounts.
enum UpgradeCommand {
  static let help = CommandHelp(
    synopsis: ["upgrade [MOUNTPOINT]", "upgrade --all"],
    summary: "Let a newly installed program go on with live mounts",
    about: [
      """
      Install the new program in the place of the old one, then run its upgrade: the running server of the mount saves \
      its data and ends, and the new program serves on. Programs that read notice a pause at most. If the new program \
      does not come up, the old one goes on, and upgrade says why.
      """,
      """
      The mount helper stays the old one until the mount ends, or its service restarts. If the new program needs a newer \
      helper, nothing happens, and upgrade says that this takes an unmount.
      """,
    ],
    operands: [("MOUNTPOINT", "The mount; needed only if there are several.")],
    groups: [("Options", [.flag("all", "a", help: "Upgrade every mount of yours; root also those of other users.")])],
    status: "0 the new program serves, 1 failed (the old one goes on), 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("upgrade", arguments, help) { options throws(CommandError) in
      let mounts = try choose(options)
      let terminal = Terminal()
      var result = ExitCode.done
      for mount in mounts {
        do throws(CommandError) {
          let server = try upgrade(mount)
          terminal.line(
            "\(TerminalText.plain(mount.mountpoint)): served by process \(server.pid) (\(server.program))")
          terminal.flush()
        } catch {
          // A mount that fails does not keep the others from their upgrade.
          guard case .failed(let message) = error else { throw error }
          OptionParser.complain("cannot upgrade \(mount.mountpoint): \(TerminalText.plain(message))")
          result = ExitCode.failed
        }
      }
      try terminal.finish()
      return result
    }
  }

  private static func choose(_ options: ParsedOptions) throws(CommandError) -> [MountRecord] {
    let selection = try MountSelection.remembered()
    if options.has("all") {
      if let first = options.operands.first { throw .usage("--all takes no MOUNTPOINT: \(first)") }
    } else if let first = options.operands.first {
      guard options.operands.count == 1 else {
        throw .usage("upgrade takes one MOUNTPOINT, not also \(options.operands[1])")
      }
      return [try selection.mount(first)]
    }
    let table: [MountTableEntry]
    do throws(Errno) { table = try MountTable.read() } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
    let live = (options.has("all") ? selection.everyones : selection.everything).map(\.mount).filter { mount in
      table.last { $0.mountpoint.utf8.elementsEqual(mount.mountpoint.utf8) }?.isMediafs ?? false
    }
    guard !live.isEmpty else { throw .failed("nothing of yours is mounted ('mediafs status' lists your mounts)") }
    guard live.count == 1 || options.has("all") else {
      let names = live.prefix(5).map(\.mountpoint).joined(separator: ", ")
      throw .usage(
        "there are \(live.count) mounts (\(names)\(live.count > 5 ? ", ..." : "")): name the MOUNTPOINT, or give --all")
    }
    return live
  }

  /// Between two servers no server runs. Root asks the mount's own user's: a link could lead to another one.
  private static func connect(_ mount: MountRecord) throws(ControlFailure) -> ControlClient {
    let client = try ControlClient.connect(store: mount.store)
    if let owner = mount.owner { try client.check(owner: owner) }
    return client
  }

  /// Returns the new server.
  private static func upgrade(_ mount: MountRecord) throws(CommandError) -> ServerIdentity {
    guard let program = ProgramFile.running else {
      throw .failed("cannot find the file of this program: is /proc mounted?")
    }
    let old: ServerIdentity
    do throws(ControlFailure) {
      let client = try connect(mount)
      let (server, facts) = try client.upgradeFacts()
      guard let facts else {
        throw ControlFailure(.failed, "its server is too old for that (\(server.program)): unmount, and mount again")
      }
      if let objection = ServerFormats.current.objection(to: facts.formats) { throw ControlFailure(.failed, objection) }
      try client.upgrade(to: program)
      old = server
    } catch let failure where failure.kind == .notRunning {
      throw .failed(without(mount) ?? "no server runs: \(failure.message)")
    } catch {
      throw error.commandError
    }
    return try wait(mount, after: old, for: program)
  }

  /// Why no server can be asked, as the mount helper says.
  private static func without(_ mount: MountRecord) -> String? {
    MountUsers.state(of: mount.mountpoint, owner: mount.owner).map { "no server runs at the moment. \($0)" }
  }

  /// How long all of it may take, in seconds: the old server's end, the new one's start, and the old one's return.
  private static let patience = 60.0

  /// Waits until the next server serves.
  private static func wait(
    _ mount: MountRecord, after old: ServerIdentity, for program: ProgramFile
  ) throws(CommandError) -> ServerIdentity {
    let end = Instant.now.adding(seconds: patience)
    var last = "no server answers"
    while Instant.now < end {
      usleep(20_000)
      do throws(ControlFailure) {
        let (server, facts) = try connect(mount).upgradeFacts()
        guard server.pid != old.pid, let facts, facts.serves else { continue }
        if let why = facts.failure { throw ControlFailure(.failed, why) }
        if facts.program == program { return server }
        throw ControlFailure(.failed, "the old program was started again before this one: try again")
      } catch let failure where failure.kind == .failed || failure.kind == .refused {
        throw .failed(failure.message)
      } catch {
        last = error.message  // no server has the store just now, or it ends
      }
    }
    throw .failed(
      "no server has served for \(Int(patience)) s: \(last). \(without(mount) ?? "The log of the mount says more")")
  }
}
