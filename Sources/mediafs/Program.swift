import Glibc
import Server

/// The program: finds the command and runs it.
enum Program {
  /// What `mediafs --version` prints behind the name.
  static let version = mediafsVersion

  /// One command.
  struct Command: Sendable {
    /// Its names; the first is the one that is shown.
    let names: [String]
    /// What it does, in a few words; nil for a command that users do not call.
    let summary: String?
    /// What its `--help` prints.
    let usage: String
    /// Runs it with the arguments behind its name; returns the exit code.
    let run: @Sendable ([String]) -> Int32
  }

  /// Every command, in the order of the help.
  static let commands: [Command] = [
    Command(
      names: ["mount"], summary: "show the files of a manifest in a folder", usage: MountCommand.usage,
      run: MountCommand.run),
    Command(
      names: ["unmount", "umount"], summary: "take a mount away", usage: UnmountCommand.usage,
      run: UnmountCommand.run),
    Command(
      names: ["status"], summary: "show what is stored, and what is being fetched", usage: StatusCommand.usage,
      run: StatusCommand.run),
    Command(names: ["fetch"], summary: "complete files now", usage: FetchCommand.usage, run: FetchCommand.run),
    Command(
      names: ["clear"], summary: "drop what is stored of files", usage: ClearCommand.usage, run: ClearCommand.run),
    Command(
      names: ["verify"], summary: "read back what is stored, and repair it", usage: VerifyCommand.usage,
      run: VerifyCommand.run),
    Command(
      names: ["check"], summary: "look for mistakes in a manifest", usage: CheckCommand.usage, run: CheckCommand.run),
    Command(names: ["serve"], summary: nil, usage: ServeCommand.usage, run: ServeCommand.run),
  ]

  static var usage: String {
    let shown = commands.filter { $0.summary != nil }
    let lines = shown.map { command in
      let name = command.names.joined(separator: ", ")
      return "  \(name)\(String(repeating: " ", count: max(1, 18 - name.count)))\(command.summary ?? "")"
    }
    return """
      Usage: mediafs COMMAND [ARGUMENT...]

      A list of media URLs as a folder of ordinary files: played while they download, kept once they are complete.

      \(lines.joined(separator: "\n"))
        help [COMMAND]    explain a command

      Options:
        -h, --help        print this help
            --version     print the version

      Exit codes: 0 done, 1 failed (stderr says why), 2 wrong usage.
      """
  }

  /// Runs the program; `arguments` begins with its name.
  static func run(_ arguments: [String]) -> Int32 {
    do throws(CommandError) {
      let parsed = try OptionParser.parse(
        Array(arguments.dropFirst()), [.flag("help", "h"), .flag("version", "V")], mixed: false)
      if parsed.has("version") {
        print("mediafs \(version)")
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
    if topics.count > 1 { throw .usage("help explains one command at a time") }
    if topics.first == "help" {
      print(usage)
      return ExitCode.done
    }
    print(try topics.first.map { name throws(CommandError) in try command(name).usage } ?? usage)
    return ExitCode.done
  }

  private static func command(_ name: String) throws(CommandError) -> Command {
    guard let command = commands.first(where: { $0.names.contains(name) }) else {
      throw .usage("there is no command \(name)")
    }
    return command
  }
}
