import Control
import Storing

/// `mediafs keep`, `auto`, `online`, `pause` and `resume`: what a user wants for paths and patterns.
enum RuleCommand {
  /// The commands, in the order of the help.
  static let all: [Program.Command] = RuleWord.allCases.map { word in
    let help = help(word)
    return Program.Command(names: [word.rawValue], help: help) { run(word, help, $0) }
  }

  private static func help(_ word: RuleWord) -> CommandHelp {
    let (summary, about) = text(word)
    return CommandHelp(
      synopsis: ["\(word.rawValue) PATH..."],
      summary: summary,
      about: [
        about,
        """
        The rule holds until you give another one, over restarts and for entries that come later. Where several rules \
        match a file, the most specific one applies: the one whose path or pattern has the most names in it; of those \
        the path without wildcards; of those the one that was given last. 'mediafs status FILE' says which.
        """,
      ],
      operands: [
        (
          "PATH",
          """
          A file; a folder, with everything in it; the mountpoint, for the whole mount; or a pattern. In quotes, so \
          that the shell leaves it to mediafs.
          """
        )
      ],
      sections: [
        CommandHelp.Section(
          title: "Patterns",
          items: [
            ("*, ?", "Any characters of one name; one character.", []),
            ("[a-z], [!a-z]", "One of these characters; one of the others.", []),
            ("**", "As a whole name: any number of folders.", []),
            ("\\", "Before one of these: the character itself.", []),
            ("'*.mkv'", "Without a slash, a pattern is for names in every folder.", []),
            ("'MOUNTPOINT/*.mkv'", "With one, for names in that folder alone.", []),
          ])
      ],
      notes: ["A file or a folder that exists under exactly that name is meant before a pattern."],
      status: "0 done, 1 failed and no rule changed, 2 wrong usage.")
  }

  private static func text(_ word: RuleWord) -> (summary: String, about: String) {
    switch word {
    case .keep:
      (
        "Download files whole and never evict them",
        "Downloads the files in the background to their end, a few at a time, and never evicts any of their data."
      )
    case .auto:
      (
        "Store what programs read (the default)",
        """
        Ends 'keep' and 'online': mediafs stores what programs read, and downloads the rest as --continue says. A more \
        specific rule below the path still applies, and the command names it.
        """
      )
    case .online:
      (
        "Store nothing of files",
        """
        Stores nothing of the files: what programs read of them goes through memory. What is stored already stays until \
        it is evicted or you clear it, and is still read from there.
        """
      )
    case .pause:
      (
        "Pause background downloads",
        """
        Downloads nothing of the files in the background: no rest of a played file, nothing that you fetched or keep. \
        Programs that read them get their bytes as before.
        """
      )
    case .resume:
      (
        "Let paused downloads go on",
        """
        Ends 'pause'. For the mountpoint, nothing of the mount stays paused. For another path, a more specific pause \
        below it still applies, and the command names it.
        """
      )
    }
  }

  private static func run(_ word: RuleWord, _ help: CommandHelp, _ arguments: [String]) -> Int32 {
    OptionParser.run(word.rawValue, arguments, help) { options throws(CommandError) in
      guard !options.operands.isEmpty else { throw .usage("PATH is missing: name files, folders or patterns") }
      let terminal = Terminal()
      for choice in try MountSelection.remembered().choose(options.operands, asPatterns: true) {
        do throws(ControlFailure) {
          let client = try ControlClient.connect(to: choice.mount, for: "change its rules")
          tell(try client.rule(word, choice.paths), word, choice.mount, terminal)
        } catch {
          terminal.flush()
          throw error.commandError
        }
      }
      try terminal.finish()
      return ExitCode.done
    }
  }

  private static func tell(_ report: RuleReport, _ word: RuleWord, _ mount: MountRecord, _ terminal: Terminal) {
    let files = TerminalText.count(report.files - report.exceptions, "file")
    let what =
      switch word {
      case .keep: "mediafs downloads and keeps \(files)"
      case .auto: "mediafs stores what programs read of \(files)"
      case .online: "mediafs stores nothing more of \(files)"
      case .pause: "the background downloads of \(files) are paused"
      case .resume: "the background downloads of \(files) go on"
      }
    terminal.line("\(TerminalText.plain(mount.mountpoint)): \(what)")
    for pattern in report.unmatched {
      terminal.line("  \(shown(pattern)) is for no file yet: the rule holds for what comes later")
    }
    if report.exceptions > 0 {
      let rules = report.stronger.map { "\(TerminalText.plain($0.word)) \(shown($0.pattern))" }
      let others = TerminalText.count(report.exceptions, "file has a rule", "files have rules")
      terminal.line("  \(others) that goes before this one: \(rules.joined(separator: ", "))")
    }
  }

  /// A rule's path or pattern for people.
  static func shown(_ pattern: String) -> String {
    TerminalText.plain(PathPattern.shown(pattern))
  }
}

extension ControlClient {
  /// Connects to the server of a mount, which alone can do `what`.
  static func connect(to mount: MountRecord, for what: String) throws(ControlFailure) -> ControlClient {
    do throws(ControlFailure) {
      return try connect(store: mount.store, owner: mount.owner)
    } catch let failure where failure.kind == .notRunning {
      throw ControlFailure(
        .notRunning,
        "\(mount.mountpoint) is not mounted, and only its server can \(what): mount it first "
          + "(mediafs mount \(mount.mountpoint) --manifest \(mount.manifest))")
    }
  }
}
