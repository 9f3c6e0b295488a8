/// The completions for bash (4.4 or later); they need no package of completions.
enum BashCompletion {
  static var script: String {
    let commands = CompletionTable.commands
    return """
      # Completions of mediafs for bash; written by 'mediafs completion bash'.

      # What begins as the word: of some words; of the mountpoints. Without any, readline completes files, as is asked for
      # by a return with nothing.
      _mediafs_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
      _mediafs_nothing() { compopt +o default +o bashdefault; }
      _mediafs_mountpoints() {
        local mountpoint start=${cur/#\\~\\//$HOME/}
        compopt -o filenames
        while IFS= read -r mountpoint; do
          [[ $mountpoint != "$start"* ]] || COMPREPLY+=("$mountpoint")
        done < <("${COMP_WORDS[0]/#\\~\\//$HOME/}" completion mountpoints 2>/dev/null)
      }
      # Paths, and mountpoints beside those, each once.
      _mediafs_paths() {
        _mediafs_mountpoints
        [ ${#COMPREPLY[@]} -eq 0 ] \\
          || mapfile -t COMPREPLY < <({ printf '%s\\n' "${COMPREPLY[@]}"; compgen -f -- "$cur"; } | sort -u)
      }

      _mediafs() {
        local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} options operands=()
        COMPREPLY=()
        # bash splits --option=value at the sign.
        if [ "$cur" = = ]; then
          cur=
        elif [ "$previous" = = ]; then
          previous=${COMP_WORDS[COMP_CWORD - 2]}
        fi
        if [ "$COMP_CWORD" -eq 1 ]; then
          _mediafs_words '\(CompletionTable.names.joined(separator: " ")) \(typed(CompletionTable.ownOptions))'
          return
        fi
        case ${COMP_WORDS[1]} in
      \(commands.map(command).joined(separator: "\n"))
          *) return ;;
        esac
        if [[ $cur == -* ]]; then
          _mediafs_words "$options"
          return
        fi
        local kind
        for kind in "${operands[@]}"; do
          case $kind in
            mountpoint) _mediafs_mountpoints ;;
            path) _mediafs_paths ;;
            file) ;;
            other) _mediafs_nothing ;;
            *) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$kind" -- "$cur"); [[ $kind != *=* ]] || compopt -o nospace ;;
          esac
        done
      }
      complete -o bashdefault -o default -F _mediafs mediafs

      """
  }

  private static func typed(_ options: [CompletionTable.Choice]) -> String {
    options.flatMap(\.typed).joined(separator: " ")
  }

  private static func command(_ command: CompletionTable.Command) -> String {
    var lines = ["    \(command.names.joined(separator: " | ")))", "      options='\(typed(command.options))'"]
    let operands = command.operands.map { kind in
      switch kind {
      case .words(let words): "'\(words.joined(separator: " "))'"
      case .mountpoint: "mountpoint"
      case .path: "path"
      case .file, .folder: "file"
      case .mountOptions, .other: "other"
      }
    }
    lines.append("      operands=(\(operands.joined(separator: " ")))")
    let valued = command.options.filter { $0.value != nil }
    if !valued.isEmpty {
      lines.append("      case $previous in")
      for choice in valued {
        let does: String? =
          switch choice.value {
          case .words(let words): "_mediafs_words '\(words.joined(separator: " "))'"
          case .file, nil: nil
          case .folder: "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")"
          case .mountpoint: "_mediafs_mountpoints"
          case .path: "_mediafs_paths"
          case .mountOptions:
            "_mediafs_words '\(CompletionTable.mountOptions.joined(separator: " "))'; compopt -o nospace"
          case .other: "_mediafs_nothing"
          }
        lines.append("        \(choice.typed.joined(separator: " | "))) \(does.map { $0 + "; " } ?? "")return ;;")
      }
      lines.append("      esac")
    }
    return (lines + ["      ;;"]).joined(separator: "\n")
  }
}
