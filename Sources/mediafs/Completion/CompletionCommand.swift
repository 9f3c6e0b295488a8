import Base
import Glibc
import Server
import Storing

/// `mediafs completion`: prints what a shell needs to complete the commands, options and arguments of this program.
enum CompletionCommand {
  /// What it prints.
  enum Topic: String, CaseIterable {
    case bash, zsh, fish
    /// Not a script, but what the scripts ask for: the mountpoints of this user, one per line.
    case mountpoints
  }

  static let help = CommandHelp(
    synopsis: ["completion bash|zsh|fish"],
    summary: "Print completions for a shell",
    about: [
      """
      Prints a script with which the shell completes the commands and options of mediafs, the mountpoints of live \
      mounts, and paths. A package of mediafs has it installed already. Without one, bash reads it by \
      'source <(mediafs completion bash)', fish by 'mediafs completion fish | source', and zsh, after compinit, by \
      'source <(mediafs completion zsh)'.
      """
    ],
    operands: [("SHELL", "The shell: bash, zsh or fish.")],
    status: "0 done, 1 failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("completion", arguments, help) { options throws(CommandError) in
      guard let name = options.operands.first else { throw .usage("SHELL is missing: bash, zsh or fish") }
      guard options.operands.count == 1 else { throw .usage("completion takes one SHELL") }
      guard let topic = Topic(rawValue: name) else { throw .usage("\(name) is not one of bash, zsh and fish") }
      let terminal = Terminal()
      switch topic {
      case .bash: terminal.raw(BashCompletion.script)
      case .zsh: terminal.raw(ZshCompletion.script)
      case .fish: terminal.raw(FishCompletion.script)
      case .mountpoints: for mountpoint in mountpoints() { terminal.line(mountpoint) }
      }
      try terminal.finish()
      return ExitCode.done
    }
  }

  /// The live mounts and the remembered ones, sorted. Asks no filesystem, so a dead mount does not hold up a shell. A
  /// name with a newline in it is left out: the scripts read lines.
  private static func mountpoints() -> [String] {
    // Where something cannot be read there is nothing to complete, and no place to say so.
    let live = ((try? MountTable.read()) ?? []).filter { entry in
      entry.isMediafs && (geteuid() == 0 || entry.owner == geteuid())
    }.map(\.mountpoint)
    let remembered = ((try? MountSelection.registry())?.all).flatMap { all in try? all() } ?? []
    return Set(live + remembered.map(\.mountpoint)).filter { !$0.utf8.contains(UInt8(ascii: "\n")) }.sorted()
  }
}
