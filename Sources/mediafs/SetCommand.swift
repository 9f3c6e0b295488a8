import Control
import Storing

/// `mediafs set`: changes limits of a live mount.
enum SetCommand {
  static let help = CommandHelp(
    synopsis: ["set [--host HOST] [MOUNTPOINT] [NAME=VALUE...]"],
    summary: "Change limits of a live mount",
    about: [
      """
      Changes limits of a mount at once, without an unmount. mediafs remembers them in the store, over the options of \
      later mounts, until you set NAME=default. Without NAME=VALUE, shows all of them with where each value comes from.
      """
    ],
    operands: [("MOUNTPOINT", "The mount; needed only if there are several.")],
    groups: [
      (
        "Options",
        [
          .value(
            "host", of: "HOST",
            help: """
              Set limit-rate or max-connections for this host alone, such as https://example.com:8080. Both limits \
              hold, that of the host and that of the mount; for connections, that of the host.
              """)
        ]
      )
    ],
    sections: [
      CommandHelp.Section(
        title: "Names",
        items: [
          ("limit-rate=SIZE", "Download at most SIZE per second; none for no limit.", []),
          ("max-connections=N", "Open at most N HTTP/1.1 connections to one host.", []),
          ("max-size=SIZE", "As the option --max-size of mount.", []),
          ("evict=WHAT", "As the option --evict of mount: partial or complete.", []),
          ("max-age=DURATION", "As the option --max-age of mount; none for no limit.", []),
          ("NAME=default", "Forget what was set.", []),
        ])
    ],
    status: "0 done, 1 failed and nothing changed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("set", arguments, help) { options throws(CommandError) in
      let selection = try MountSelection.remembered()
      var operands = options.operands[...]
      let mount: MountRecord
      if let first = operands.first, !first.contains("=") || selection.isMountpoint(first) {
        mount = try selection.mount(first)
        operands.removeFirst()
      } else {
        let all = selection.everything
        guard all.count <= 1 else {
          throw .usage("there are \(all.count) mounts: name the MOUNTPOINT first (mediafs status lists them)")
        }
        guard let only = all.first else { throw .failed(MountSelection.none) }
        mount = only.mount
      }
      var values: [String: String] = [:]
      for operand in operands {
        let parts = operand.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, !parts[0].isEmpty, !parts[1].isEmpty else {
          throw .usage("\(operand) is not NAME=VALUE")
        }
        guard values.updateValue(String(parts[1]), forKey: String(parts[0])) == nil else {
          throw .usage("\(parts[0]) is there twice")
        }
      }
      if options.has("host"), values.isEmpty { throw .usage("--host takes NAME=VALUE: name what to set for the host") }
      let terminal = Terminal()
      do throws(ControlFailure) {
        let client = try ControlClient.connect(to: mount, for: "change its limits")
        let settings = try client.set(values, host: options.value("host"))
        terminal.line("\(TerminalText.plain(mount.mountpoint)):")
        for setting in settings { terminal.line("  " + line(setting)) }
      } catch {
        throw error.commandError
      }
      try terminal.finish()
      return ExitCode.done
    }
  }

  private static func line(_ setting: SettingStatus) -> String {
    let value = TerminalText.setting(setting.name, setting.value)
    let source =
      switch (setting.from, setting.host) {
      case (.set, let host?): "set for \(TerminalText.plain(host))"
      case (.set, nil): "set"
      case (.option, _): "option"
      case (.standard, _): "default"
      }
    return "\(TerminalText.padded(TerminalText.plain(setting.name), 16))  "
      + "\(TerminalText.padded(TerminalText.plain(value), 12))  \(source)"
  }
}
