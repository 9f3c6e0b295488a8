import Glibc
import Server

/// The program: finds the command and runs it.
enum Program {
  /// What `mediafs --version` prints in its first line, behind the name.
  static let version = mediafsVersion

  /// One command.
  struct Command: Sendable {
    /// Its names; the first is the one that is shown.
    let names: [String]
    /// What `mediafs help` and its `--help` print.
    let help: CommandHelp
    /// Runs it with the arguments behind its name; returns the exit code.
    let run: @Sendable ([String]) -> Int32
  }

  /// Every command, in the order of the help.
  static let commands: [Command] =
    [
      Command(names: ["mount"], help: MountCommand.help, run: MountCommand.run),
      Command(names: ["unmount", "umount"], help: UnmountCommand.help, run: UnmountCommand.run),
      Command(names: ["status"], help: StatusCommand.help, run: StatusCommand.run),
      Command(names: ["top"], help: TopCommand.help, run: TopCommand.run),
      Command(names: ["ready"], help: ReadyCommand.help, run: ReadyCommand.run),
      Command(names: ["fetch"], help: FetchCommand.help, run: FetchCommand.run),
      Command(names: ["reload"], help: ReloadCommand.help, run: ReloadCommand.run),
      Command(names: ["cancel"], help: CancelCommand.help, run: CancelCommand.run),
      Command(names: ["clear"], help: ClearCommand.help, run: ClearCommand.run),
    ] + RuleCommand.all + [
      Command(names: ["set"], help: SetCommand.help, run: SetCommand.run),
      Command(names: ["forget"], help: ForgetCommand.help, run: ForgetCommand.run),
      Command(names: ["events"], help: EventsCommand.help, run: EventsCommand.run),
      Command(names: ["metrics"], help: MetricsCommand.help, run: MetricsCommand.run),
      Command(names: ["verify"], help: VerifyCommand.help, run: VerifyCommand.run),
      Command(names: ["share"], help: ShareCommand.help, run: ShareCommand.run),
      Command(names: ["upgrade"], help: UpgradeCommand.help, run: UpgradeCommand.run),
      Command(names: ["doctor"], help: DoctorCommand.help, run: DoctorCommand.run),
      Command(names: ["check"], help: CheckCommand.help, run: CheckCommand.run),
      Command(names: ["completion"], help: CompletionCommand.help, run: CompletionCommand.run),
      Command(names: ["serve"], help: ServeCommand.help, run: ServeCommand.run),
      Command(names: ["launch"], help: LaunchCommand.help, run: LaunchCommand.run),
      Command(names: ["open-lists"], help: OpenListsCommand.help, run: OpenListsCommand.run),
    ]

  static var usage: String {
    let lines = commands.compactMap { command in
      command.help.summary.map { "  \(TerminalText.padded(command.names.joined(separator: ", "), 18))\($0)" }
    }
    return """
      Usage: mediafs COMMAND [ARGUMENT...]

      Mounts a list of media URLs as a folder of ordinary files. Programs can read a
      file while it downloads; complete files are kept as local copies.

      Commands:
      \(lines.joined(separator: "\n"))
        help [COMMAND]    Explain a command

      Options:
        -h, --help        Print this help
        -V, --version     Print the version, and those of libraries and kernel

      Example:
        mediafs mount ~/media --manifest urls.txt
        mpv ~/media/talk.mp4
        mediafs unmount ~/media

      Exit status: 0 done, 1 failed (standard error says why), 2 wrong usage.
      """
  }

  /// Runs the program; `arguments` begins with its name.
  static func run(_ arguments: [String]) -> Int32 {
    do throws(CommandError) {
      let parsed = try OptionParser.parse(
        Array(arguments.dropFirst()), [.flag("help", "h"), .flag("version", "V")], mixed: false)
      if parsed.has("version") {
        print(VersionText.lines.joined(separator: "\n"))
        return ExitCode.done
      }
      if parsed.has("help") {
        print(usage)
        return ExitCode.done
      }
      guard let name = parsed.operands.first else { throw .usage("a command is missing") }
      let rest = Array(parsed.operands.dropFirst())
      if name == "help" { return try help(rest) }
      return try command(name).run(rest)
    } catch {
      switch error {
      case .usage(let message):
        OptionParser.complain("\(message)\nTry 'mediafs --help'.")
        return ExitCode.usage
      case .failed(let message):
        OptionParser.complain(message)
        return ExitCode.failed
      }
    }
  }

  private static func help(_ topics: [String]) throws(CommandError) -> Int32 {
    if topics.count > 1 { throw .usage("help takes one command") }
    if topics.first == "help" {
      print(usage)
      return ExitCode.done
    }
    print(try topics.first.map { name throws(CommandError) in try command(name).help.text } ?? usage)
    return ExitCode.done
  }

  private static func command(_ name: String) throws(CommandError) -> Command {
    guard let command = commands.first(where: { $0.names.contains(name) }) else {
      throw .usage("there is no command \(name)")
    }
    return command
  }
}
