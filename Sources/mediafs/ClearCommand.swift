import Control
import Storing

/// `mediafs clear`: deletes stored data.
enum ClearCommand {
  static let help = CommandHelp(
    synopsis: ["clear PATH...", "clear --all [MOUNTPOINT]"],
    summary: "Delete stored data of files",
    about: [
      """
      Deletes the stored data of files, also completed copies in the library. The files stay in the mount, and are \
      downloaded again when a program reads them. A copy that you changed is never deleted.
      """
    ],
    operands: [
      ("PATH", "A file, or a folder with everything in it."),
      ("MOUNTPOINT", "The mount; needed only if there are several."),
    ],
    groups: [("Options", [.flag("all", "a", help: "Delete the stored data of all files of the mount.")])],
    status: "0 done, 1 failed or a file was kept, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("clear", arguments, help) { options throws(CommandError) in
      let choices = try choose(options)
      let terminal = Terminal()
      var kept: Int64 = 0
      for choice in choices {
        let report: ClearReport
        do throws(ControlFailure) {
          report = try clear(choice, all: options.has("all"))
        } catch {
          terminal.flush()
          throw error.commandError
        }
        terminal.line(
          "\(choice.mount.mountpoint): deleted \(TerminalText.size(report.bytes)) of "
            + TerminalText.count(report.files, "file"))
        terminal.flush()
        for file in report.kept { OptionParser.complain("kept \(TerminalText.plain(file.path)): \(file.reason)") }
        let unnamed = report.keptFiles - Int64(report.kept.count)
        if unnamed > 0 { OptionParser.complain("kept \(TerminalText.count(unnamed, "more file"))") }
        kept += report.keptFiles
      }
      try terminal.finish()
      return kept == 0 ? ExitCode.done : ExitCode.failed
    }
  }

  private static func choose(_ options: ParsedOptions) throws(CommandError) -> [MountSelection.Choice] {
    let selection = try MountSelection.remembered()
    guard options.has("all") else {
      guard !options.operands.isEmpty else { throw .usage("PATH is missing: name files, or give --all") }
      let choices = try selection.choose(options.operands)
      // A mountpoint among the paths is more likely a mistake, and a deletion cannot be undone.
      if let whole = choices.first(where: { $0.paths.contains("") }) {
        throw .usage(
          "\(whole.mount.mountpoint) is the whole mount: give --all to delete everything that is stored of it")
      }
      return choices
    }
    guard options.operands.count <= 1 else { throw .usage("--all takes at most one MOUNTPOINT, and no PATH") }
    if let mountpoint = options.operands.first {
      return [MountSelection.Choice(mount: try selection.mount(mountpoint), paths: [])]
    }
    let all = selection.everything
    guard all.count <= 1 else { throw .usage("there are \(all.count) mounts: name the MOUNTPOINT") }
    guard !all.isEmpty else { throw .failed("there is no mount") }
    return all
  }

  private static func clear(
    _ choice: MountSelection.Choice, all: Bool
  ) throws(ControlFailure) -> ClearReport {
    let client: ControlClient
    do throws(ControlFailure) {
      client = try ControlClient.connect(store: choice.mount.store, owner: choice.mount.owner)
    } catch let failure where failure.kind == .notRunning {
      throw ControlFailure(
        .notRunning,
        "\(choice.mount.mountpoint) is not mounted, and only its server can clear its store: mount it first "
          + "(mediafs mount \(choice.mount.mountpoint) --manifest \(choice.mount.manifest))")
    }
    return try client.clear(all ? nil : choice.paths)
  }
}
