import Control

/// `mediafs reload`: the list is read again.
enum ReloadCommand {
  static let help = CommandHelp(
    synopsis: ["reload [MOUNTPOINT]"],
    summary: "Read the list of a live mount again",
    about: [
      """
      A mount follows its list by itself, a moment after the last change. reload does it at once, also if more than \
      half of the names would go, which the mount does not do by itself. Files that are open go on; what did not change \
      stays as it is. A list that cannot be read, or has no usable line, changes nothing. It waits up to ten seconds for \
      the servers' folders that the list names, and says how many are still to answer.
      """
    ],
    operands: [("MOUNTPOINT", "The mount; needed only if there are several.")],
    status: "0 the tree is as the list says, 1 failed (the tree is as it was), 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("reload", arguments, help) { options throws(CommandError) in
      let mount = try MountSelection.remembered().one(options.operands)
      let terminal = Terminal()
      do throws(ControlFailure) {
        let report = try ControlClient.connect(to: mount, for: "read its list again").reload()
        terminal.line("\(TerminalText.plain(mount.mountpoint)): \(words(report))")
      } catch {
        throw error.commandError
      }
      try terminal.finish()
      return ExitCode.done
    }
  }

  private static func words(_ report: ReloadReport) -> String {
    var parts: [String] = []
    if report.added > 0 { parts.append("\(TerminalText.count(Int64(report.added), "name")) more") }
    if report.removed > 0 { parts.append("\(TerminalText.count(Int64(report.removed), "name")) less") }
    if report.changed > 0 { parts.append("\(TerminalText.count(Int64(report.changed), "file")) with new links") }
    var text = parts.isEmpty ? "the list is as before" : parts.joined(separator: ", ")
    if report.problems > 0 {
      text += "; \(TerminalText.count(Int64(report.problems), "problem")) in the list: 'mediafs check' tells them"
    }
    func folders(_ count: Int) -> String { TerminalText.count(Int64(count), "folder") + " of servers" }
    if let asking = report.asking { text += "; \(folders(asking)) still to answer" }
    if let failed = report.failed { text += "; \(folders(failed)) cannot be listed now: 'mediafs status' says why" }
    return text
  }
}
