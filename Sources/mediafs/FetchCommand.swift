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
              Stop waiting, with status 1, when no data of these files has arrived for SECONDS, whatever they wait \
              for; while all of it is there and is being verified, for ten times as long. The downloads go on. \
              Default: \(Int(FetchPatience.usual)).
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
        // The downloads of every mount start before the command waits for the first.
        if !options.has("wait") || choices.count > 1 {
          let clients = try choices.map { choice throws(ControlFailure) in try connect(choice) }
          for (client, choice) in zip(clients, choices) {
            let report = try client.fetch(choice.paths, wait: false)
            if !options.has("wait") { terminal.line(TerminalText.plain(accepted(report, choice.mount))) }
          }
        }
        if options.has("wait") {
          for choice in choices {
            // A server closes a connection on which nothing is asked for a while.
            let client = try connect(choice)
            let progress = TerminalProgress(terminal)
            let patience = FetchPatience(seconds: seconds)
            let report = try wait(client, choice, patience) { progress.show($0) }
            if report.complete == report.files {
              terminal.line(
                TerminalText.plain("\(choice.mount.mountpoint): \(files(report.files)) complete and verified, ")
                  + TerminalText.size(report.stored))
              continue
            }
            isComplete = false
            terminal.flush()
            OptionParser.complain(shortfall(report, choice.mount))
            if let reason = patience.reason {
              OptionParser.complain(
                "no data arrived for \(Int(patience.waited)) s: \(reason). The downloads go on in the background.")
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

  private static func connect(_ choice: MountSelection.Choice) throws(ControlFailure) -> ControlClient {
    try ControlClient.connect(to: choice.mount, for: "download files")
  }

  /// Waits for the files, also while one server follows another.
  private static func wait(
    _ first: ControlClient, _ choice: MountSelection.Choice, _ patience: FetchPatience, _ show: (FetchReport) -> Void
  ) throws(ControlFailure) -> FetchReport {
    var client = first
    while true {
      do throws(ControlFailure) {
        return try client.fetch(choice.paths, wait: true, silence: patience.silence) { report in
          show(report)
          return patience.isWorthWaiting(report)
        }
      } catch let failure where failure.kind == .gone {
        client = try NextServer.connect(choice.mount, until: .now.adding(seconds: patience.silence))
      }
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
