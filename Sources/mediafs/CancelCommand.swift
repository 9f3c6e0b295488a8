import Control

/// `mediafs cancel`: ends background downloads.
enum CancelCommand {
  static let help = CommandHelp(
    synopsis: ["cancel PATH..."],
    summary: "End background downloads",
    about: [
      """
      Ends what 'mediafs fetch' began, and the background downloads of files that were played. What is stored stays. \
      A file that is played anew is downloaded again, as --continue says. Files that a rule keeps go on: end that with \
      'mediafs auto'.
      """
    ],
    operands: [
      (
        "PATH",
        "A file; a folder, with everything in it; the mountpoint, for the whole mount; or a pattern, as of keep."
      )
    ],
    status: "0 done, 1 failed or a download goes on, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("cancel", arguments, help) { options throws(CommandError) in
      guard !options.operands.isEmpty else { throw .usage("PATH is missing: name files, folders or patterns") }
      let terminal = Terminal()
      var kept: Int64 = 0
      for choice in try MountSelection.remembered().choose(options.operands, asPatterns: true) {
        do throws(ControlFailure) {
          let report = try ControlClient.connect(to: choice.mount, for: "end its downloads").cancel(choice.paths)
          terminal.line(
            "\(TerminalText.plain(choice.mount.mountpoint)): ended \(TerminalText.count(report.files, "download"))")
          terminal.flush()
          kept += ClearCommand.complain(of: report)
        } catch {
          terminal.flush()
          throw error.commandError
        }
      }
      try terminal.finish()
      return kept == 0 ? ExitCode.done : ExitCode.failed
    }
  }
}
