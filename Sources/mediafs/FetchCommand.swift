import Control
import Storing

/// `mediafs fetch`: downloads whole files now.
enum FetchCommand {
  static let help = CommandHelp(
    synopsis: ["fetch [--wait] PATH..."],
    summary: "Download whole files now",
    about: [
      """
      Downloads files to their end in the background, whatever --continue says. An unmount interrupts the downloads; \
      the next mount resumes them. Files that failed are tried again at once.
      """
    ],
    operands: [("PATH", "A file, or a folder with everything in it, in a running mount.")],
    groups: [
      (
        "Options",
        [
          .flag(
            "wait", "w",
            help: """
              Show progress, and return when every file is complete and verified. Interrupting the wait does not stop \
              the downloads.
              """),
          .value(
            "timeout", of: "SECONDS",
            help: """
              Stop waiting, with status 1, when no data has arrived for SECONDS and every file that is left has an \
              error, or waits for disk space or for its origin. The downloads go on. Default: \
              \(Int(FetchPatience.usual)).
              """),
        ]
      )
    ],
    status: """
      0 done (with --wait: every file is complete and verified), 1 failed (standard error says why), 2 wrong usage.
      """)

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("fetch", arguments, help) {
      options throws(CommandError) in
      guard !options.operands.isEmpty else { throw .usage("PATH is missing: name the files to download") }
      let choices = try MountSelection.remembered().choose(options.operands)
      var seconds = FetchPatience.usual
      if let text = options.value("timeout") {
        guard let number = Double(text), number >= 1, number <= 1e6 else {
          throw .usage("--timeout takes a number of seconds from 1 to 1000000, not \(text)")
        }
        seconds = number
      }
      let terminal = Terminal()
      var isComplete = true
      do throws(ControlFailure) {
        var connections: [(client: ControlClient, choice: MountSelection.Choice)] = []
        for choice in choices { connections.append((try connect(choice.mount), choice)) }
        // The downloads of every mount start before the command waits for the first.
        if !options.has("wait") || connections.count > 1 {
          for (client, choice) in connections {
            let report = try client.fetch(choice.paths, wait: false)
            if !options.has("wait") { terminal.line(accepted(report, choice.mount)) }
          }
        }
        if options.has("wait") {
          for (client, choice) in connections {
            let progress = TerminalProgress(terminal)
            let patience = FetchPatience(seconds: seconds)
            let report = try client.fetch(choice.paths, wait: true) { report in
              progress.show(report)
              return patience.isWorthWaiting(report)
            }
            if report.complete == report.files {
              terminal.line(
                "\(choice.mount.mountpoint): \(files(report.files)) complete and verified, "
                  + TerminalText.size(report.stored))
              continue
            }
            isComplete = false
            terminal.flush()
            OptionParser.complain(shortfall(report, choice.mount))
            if let reason = patience.reason {
              OptionParser.complain(
                "no data arrived for \(Int(seconds)) s: \(reason). The downloads go on in the background.")
            }
          }
        }
      } catch {
        terminal.flush()
        throw error.commandError
      }
      try terminal.finish()
      return isComplete ? ExitCode.done : ExitCode.failed
    }
  }

  private static func connect(_ mount: MountRecord) throws(ControlFailure) -> ControlClient {
    do throws(ControlFailure) {
      return try ControlClient.connect(store: mount.store, owner: mount.owner)
    } catch let failure where failure.kind == .notRunning {
      throw ControlFailure(
        .notRunning,
        "\(mount.mountpoint) is not mounted, and only its server can download files: mount it first "
          + "(mediafs mount \(mount.mountpoint) --manifest \(mount.manifest))")
    }
  }

  private static func accepted(_ report: FetchReport, _ mount: MountRecord) -> String {
    let open = report.files - report.complete
    if open == 0 { return "\(mount.mountpoint): \(files(report.files)), all complete already" }
    return "\(mount.mountpoint): \(files(open)) will be downloaded"
      + (report.complete > 0 ? ", \(report.complete) complete already" : "")
  }

  /// A summary of a fetch that is not complete.
  private static func shortfall(_ report: FetchReport, _ mount: MountRecord) -> String {
    let left = report.files - report.complete - report.failed
    var text = "\(mount.mountpoint): \(report.complete) of \(files(report.files)) complete"
    if report.failed > 0 { text += ", \(report.failed) failed" }
    if left > 0 { text += ", \(left) not yet" }
    return text
  }

  private static func files(_ count: Int) -> String { TerminalText.count(Int64(count), "file") }
}
