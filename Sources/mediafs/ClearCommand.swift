import Control
import Server
import Storing

/// `mediafs clear`: deletes stored data.
enum ClearCommand {
  static let help = CommandHelp(
    synopsis: ["clear PATH...", "clear --all [MOUNTPOINT]", "clear --unlisted [MOUNTPOINT]"],
    summary: "Delete stored data of files",
    about: [
      """
      Deletes the stored data of files, also completed copies in the library. The files stay in the mount, and are \
      downloaded again when a program reads them. Of a completed copy, mediafs first asks the origin whether it still \
      has this very version, and keeps the copy if not. A copy that you changed, and what a rule keeps, is never \
      deleted.
      """
    ],
    operands: [
      ("PATH", "A file, or a folder with everything in it."),
      ("MOUNTPOINT", "The mount; needed only if there are several."),
    ],
    groups: [
      (
        "Options",
        [
          .flag("all", "a", help: "Delete the stored data of all files of the mount."),
          .flag(
            "unlisted",
            help: """
              Delete the partial data of files that the list does not name any more. Their completed copies are yours, \
              and stay in the library.
              """),
          .flag("force", "f", help: "Delete completed copies without asking their origins."),
          .flag("dry-run", "n", help: "Delete nothing; say what would be deleted, and what would be kept."),
          storeOption,
        ]
      )
    ],
    notes: ["Without a running server, clear works on the store itself; completed copies then take --force."],
    status: "0 done, 1 failed or a file was kept, 2 wrong usage.")

  /// The store, where no mount is remembered.
  static let storeOption = Option.value(
    "store", of: "DIR",
    help: "Work on the store DIR, whether or not its mount is remembered. A PATH is one in the mount.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("clear", arguments, help) { options throws(CommandError) in
      let choices = try choose(options)
      let terminal = Terminal()
      var kept: Int64 = 0
      for choice in choices {
        var order = ClearOrder(options.has("all") ? .all : options.has("unlisted") ? .unlisted : .at(choice.paths))
        order.isForced = options.has("force")
        order.isDryRun = options.has("dry-run")
        let report: ClearReport
        do throws(ControlFailure) {
          report = try clear(choice.mount, order)
        } catch {
          terminal.flush()
          throw error.commandError
        }
        terminal.line(
          "\(TerminalText.plain(choice.mount.mountpoint)): \(order.isDryRun ? "would delete" : "deleted") "
            + "\(TerminalText.size(report.bytes)) of \(TerminalText.count(report.files, "file"))")
        terminal.flush()
        kept += complain(of: report)
      }
      try terminal.finish()
      return kept == 0 ? ExitCode.done : ExitCode.failed
    }
  }

  /// Says which files were left as they are; returns how many.
  static func complain(of report: ClearReport) -> Int64 {
    for file in report.kept { OptionParser.complain("kept \(TerminalText.plain(file.path)): \(file.reason)") }
    let unnamed = report.keptFiles - Int64(report.kept.count)
    if unnamed > 0 { OptionParser.complain("kept \(TerminalText.count(unnamed, "more file"))") }
    return report.keptFiles
  }

  private static func choose(_ options: ParsedOptions) throws(CommandError) -> [MountSelection.Choice] {
    let isWhole = options.has("all") || options.has("unlisted")
    if options.has("all"), options.has("unlisted") { throw .usage("give either --all or --unlisted") }
    let selection = try MountSelection.remembered()
    let given = try options.value("store").map { (folder) throws(CommandError) in try selection.store(folder) }
    guard isWhole else {
      guard !options.operands.isEmpty else { throw .usage("PATH is missing: name files, or give --all") }
      let choices = try selection.choose(options.operands, in: given)
      // A mountpoint among the paths is more likely a mistake, and a deletion cannot be undone.
      if let whole = choices.first(where: { $0.paths.contains("") }) {
        throw .usage(
          "\(whole.mount.mountpoint) is the whole mount: give --all to delete everything that is stored of it")
      }
      return choices
    }
    guard options.operands.count <= 1 else {
      throw .usage("--all and --unlisted take at most one MOUNTPOINT, and no PATH")
    }
    if let given {
      if let mountpoint = options.operands.first {
        throw .usage("--store names the mount already: give no MOUNTPOINT beside it, not \(mountpoint)")
      }
      return [MountSelection.Choice(mount: given, paths: [])]
    }
    if let mountpoint = options.operands.first {
      return [MountSelection.Choice(mount: try selection.mount(mountpoint), paths: [])]
    }
    let all = selection.everything
    guard all.count <= 1 else {
      throw .usage("there are \(all.count) mounts: name the MOUNTPOINT (mediafs status lists them)")
    }
    guard !all.isEmpty else { throw .failed(MountSelection.none) }
    return all
  }

  private static func clear(_ mount: MountRecord, _ order: ClearOrder) throws(ControlFailure) -> ClearReport {
    do throws(ControlFailure) {
      return try ControlClient.connect(store: mount.store, owner: mount.owner).clear(order)
    } catch {
      guard error.kind == .notRunning else { throw error }
    }
    // The helper is about to start the next server.
    if let entry = try? MountTable.entry(at: mount.mountpoint), entry.isMediafs {  // without a table there is no mount
      throw ControlFailure(
        .notRunning, "\(mount.mountpoint) is mounted, but no server runs at the moment: try again, or unmount it first")
    }
    return try UnmountedStore(mount).clear(order)
  }
}
