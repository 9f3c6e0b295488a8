/// The completions for fish (3.4 or later).
enum FishCompletion {
  static var script: String {
    var lines = [
      "# Completions of mediafs for fish; written by 'mediafs completion fish'.",
      "",
      "# Whether the command is one of these; without any, whether none is there yet.",
      "function __mediafs_command_is",
      "    set -l words (commandline -opc)",
      "    if test (count $argv) -eq 0",
      "        test (count $words) -lt 2",
      "        return",
      "    end",
      "    test (count $words) -ge 2; and contains -- $words[2] $argv",
      "end",
      "",
      "complete -c mediafs -f",
    ]
    for command in CompletionTable.commands {
      lines.append(line("", "-a \(command.names[0])", command.summary))
    }
    for choice in CompletionTable.ownOptions { lines.append(line("", option(choice), choice.text)) }
    for command in CompletionTable.commands {
      let names = " " + command.names.joined(separator: " ")
      for choice in command.options { lines.append(line(names, option(choice), choice.text)) }
      for kind in command.operands { lines += operand(kind).map { line(names, $0, nil) } }
    }
    return lines.map { $0 + "\n" }.joined()
  }

  private static func line(_ command: String, _ what: String, _ text: String?) -> String {
    let description = text.map { " -d \(quoted($0))" } ?? ""
    return "complete -c mediafs -n '__mediafs_command_is\(command)' \(what)\(description)"
  }

  private static func option(_ choice: CompletionTable.Choice) -> String {
    var words = choice.option.letter.map { ["-s \($0)"] } ?? []
    words.append("-l \(choice.option.name)")
    switch choice.value {
    case nil: break
    case .words(let choices): words.append("-x -a \(quoted(choices.joined(separator: " ")))")
    case .file: words.append("-r -F")
    case .folder: words.append("-x -a '(__fish_complete_directories)'")
    case .mountpoint: words.append("-x -a '(mediafs completion mountpoints)'")
    case .path: words.append("-r -F -a '(mediafs completion mountpoints)'")
    case .mountOptions: words.append("-x -a \(quoted(CompletionTable.mountOptions.joined(separator: " ")))")
    case .other: words.append("-x")
    }
    return words.joined(separator: " ")
  }

  private static func operand(_ kind: CompletionTable.Kind) -> [String] {
    switch kind {
    case .words(let words): ["-a \(quoted(words.joined(separator: " ")))"]
    case .file, .folder: ["-F"]
    case .mountpoint: ["-a '(mediafs completion mountpoints)'"]
    case .path: ["-F", "-a '(mediafs completion mountpoints)'"]
    case .mountOptions, .other: []
    }
  }

  /// As one word of the shell.
  private static func quoted(_ text: String) -> String {
    "'\(text.replacing("\\", with: "\\\\").replacing("'", with: "\\'"))'"
  }
}
