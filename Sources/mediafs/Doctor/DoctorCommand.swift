import Base
import Glibc
import Server

/// `mediafs doctor`: what a machine or a mount lacks or does badly, and what to do about it.
enum DoctorCommand {
  static let help = CommandHelp(
    synopsis: ["doctor [MOUNTPOINT] [--timeout SECONDS]"],
    summary: "Say what this machine or a mount lacks",
    about: [
      """
      Checks what mediafs needs of this machine, and how MOUNTPOINT does; without MOUNTPOINT, how every live mount of \
      yours does (for root, also those of other users). Prints a line for each finding: ok; note, for what works less \
      well; problem, for what does not work. A note or a problem says what it means, and what you can do. doctor sends \
      nothing over the network, and ends also when a disk or a mount hangs.
      """
    ],
    operands: [("MOUNTPOINT", "The mount to check.")],
    groups: [
      (
        "Options",
        [
          .value(
            "timeout", of: "SECONDS",
            help: "How long a check may take before doctor calls it hung: 1 to 3600. Default: 20.")
        ]
      )
    ],
    status: "0 no problem (there may be notes), 1 a problem was found, or doctor failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("doctor", arguments, help) { options throws(CommandError) in
      if options.operands.count > 1 {
        throw .usage("doctor takes one MOUNTPOINT, not also \(options.operands[1])")
      }
      var timeout = 20.0
      if let text = options.value("timeout") {
        guard let seconds = Double(text), 1...3600 ~= seconds else {
          throw .usage("--timeout takes a number of seconds from 1 to 3600, not \(text)")
        }
        timeout = seconds
      }
      let terminal = Terminal()
      var counts: [Finding.Grade: Int64] = [:]
      func show(_ title: String, _ checks: [Check]) throws(CommandError) {
        terminal.line("\(title):")
        try CheckRun.run(checks, timeout: timeout) { findings in
          for finding in findings {
            counts[finding.grade, default: 0] += 1
            print(finding, terminal)
          }
          terminal.flush()  // what follows may take its time
        }
      }
      try show("This machine", MachineChecks.all)
      for mountpoint in options.operands.isEmpty ? try liveMounts() : options.operands {
        terminal.line()
        try show(TerminalText.plain(mountpoint), MountChecks.all(mountpoint))
      }
      terminal.line()
      terminal.line(summary(counts))
      try terminal.finish()
      return counts[.problem] == nil ? ExitCode.done : ExitCode.failed
    }
  }

  /// The live mounts of this user; for root, everyone's. The kernel's table of mounts has them.
  private static func liveMounts() throws(CommandError) -> [String] {
    do throws(Errno) {
      var seen: Set<String> = []
      return try MountTable.read().filter { entry in
        entry.isMediafs && (geteuid() == 0 || entry.owner == geteuid()) && seen.insert(entry.mountpoint).inserted
      }.map(\.mountpoint)
    } catch {
      throw .failed("cannot read the table of mounts: \(error)")
    }
  }

  /// Grade, text, and advice below it, for the columns of the terminal.
  private static func print(_ finding: Finding, _ terminal: Terminal) {
    let margin = 11
    for (label, text) in [(finding.grade.rawValue, finding.text)]
      + (finding.advice.map { [("", "To do: \($0)")] } ?? [])
    {
      let lines = CommandHelp.wrapped(TerminalText.plain(text), indent: margin)
      for (index, line) in lines.enumerated() {
        terminal.line("  " + TerminalText.padded(index == 0 ? label : "", margin - 2) + line)
      }
    }
  }

  private static func summary(_ counts: [Finding.Grade: Int64]) -> String {
    let problems = counts[.problem].map { TerminalText.count($0, "problem") } ?? "No problem"
    let notes = counts[.note].map { TerminalText.count($0, "note") } ?? "no note"
    return "\(problems), \(notes)."
  }
}
