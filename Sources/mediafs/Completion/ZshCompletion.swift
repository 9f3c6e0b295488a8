/// The completions for zsh: a file `_mediafs` in a folder of `fpath`, or a script that is sourced after compinit.
enum ZshCompletion {
  static var script: String {
    """
    #compdef mediafs
    # Completions of mediafs for zsh; written by 'mediafs completion zsh'.

    _mediafs_mountpoints() {
      local -a mountpoints
      mountpoints=(${(f)"$(_call_program mountpoints mediafs completion mountpoints 2>/dev/null)"})
      _wanted mountpoints expl 'mountpoint' compadd -f -a mountpoints
    }
    _mediafs_paths() { _alternative 'mountpoints:mountpoint:_mediafs_mountpoints' 'files:path:_files' }
    \(functions)

    _mediafs() {
      local curcontext=$curcontext state line
      typeset -A opt_args
      _arguments -C \\
        \(CompletionTable.ownOptions.map(option).joined(separator: " \\\n    ")) \\
        '1:command:->command' '*::argument:->argument'
      case $state in
        command)
          local -a commands=(
    \(CompletionTable.commands.map { "        \(quoted("\($0.names[0]):\($0.summary)"))" }.joined(separator: "\n"))
          )
          _describe -t commands command commands
          ;;
        argument)
          case $words[1] in
    \(CompletionTable.commands.map(command).joined(separator: "\n"))
          esac
          ;;
      esac
    }

    # As a file of fpath, this is the function's first call; a script that is sourced says what it is for.
    if [[ ${funcstack[1]} == _mediafs ]]; then _mediafs "$@"; else compdef _mediafs mediafs; fi

    """
  }

  private static func command(_ command: CompletionTable.Command) -> String {
    let specifications = command.options.map(option) + operands(command)
    let lines = specifications.map { "            \($0)" }.joined(separator: " \\\n")
    return "        \(command.names.joined(separator: "|")))\n          _arguments -s -S \\\n\(lines)\n          ;;"
  }

  private static func option(_ choice: CompletionTable.Choice) -> String {
    let text = "[\(escaped(choice.text))]"
    let value = choice.value.map { ":\(escaped(choice.option.placeholder ?? "value")):\(action($0))" } ?? ""
    guard let letter = choice.option.letter else {
      return quoted("*--\(choice.option.name)\(choice.value == nil ? "" : "=")\(text)\(value)")
    }
    let long = "--\(choice.option.name)\(choice.value == nil ? "" : "=")"
    return "\\*{-\(letter)\(choice.value == nil ? "" : "+"),\(long)}\(quoted(text + value))"
  }

  private static func operands(_ command: CompletionTable.Command) -> [String] {
    guard let first = command.operands.first else { return [] }
    return [quoted("*:argument:\(command.operands.count > 1 ? function(command) : action(first))")]
  }

  private static func function(_ command: CompletionTable.Command) -> String {
    "_mediafs_\(command.names[0])_arguments"
  }

  /// The functions of commands whose operands are of several kinds.
  private static var functions: String {
    CompletionTable.commands.filter { $0.operands.count > 1 }.map { command in
      let kinds = command.operands.map { kind in
        guard case .words(let words) = kind else { return "  _alternative 'arguments:argument:\(action(kind))'" }
        return "  compadd -S '' -- \(words.joined(separator: " "))"
      }
      return "\(function(command))() {\n\(kinds.joined(separator: "\n"))\n}"
    }.joined(separator: "\n")
  }

  private static func action(_ kind: CompletionTable.Kind) -> String {
    switch kind {
    case .words(let words): "(\(words.joined(separator: " ")))"
    case .file: "_files"
    case .folder: "_files -/"
    case .mountpoint: "_mediafs_mountpoints"
    case .path: "_mediafs_paths"
    case .mountOptions:
      "_values -s , option \(CompletionTable.mountOptions.map { $0.replacing("=", with: "") }.joined(separator: " "))"
    case .other: " "
    }
  }

  /// For a text within the specification of an option.
  private static func escaped(_ text: String) -> String {
    var result = ""
    for character in text {
      if "[]:\\".contains(character) { result.append("\\") }
      result.append(character)
    }
    return result
  }

  /// As one word of the shell.
  private static func quoted(_ text: String) -> String { "'\(text.replacing("'", with: "'\\''"))'" }
}
