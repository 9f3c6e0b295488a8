import Server

/// What the shells complete, made from the tables of commands and options: ``Program/commands`` and what each command's
/// help lists. The script of each shell is written from it.
struct CompletionTable {
  /// What may stand at a place.
  enum Kind: Equatable {
    /// One of these words.
    case words([String])
    case file
    case folder
    /// A mountpoint of this user.
    case mountpoint
    /// A path below a mountpoint, or the mountpoint itself.
    case path
    /// The names of `-o`.
    case mountOptions
    /// Nothing that could be known: a number, a URL.
    case other
  }

  struct Choice {
    let option: Option
    let value: Kind?

    /// As it is typed.
    var typed: [String] { [option.letter.map { "-\($0)" }, "--\(option.name)"].compactMap(\.self) }
    /// One sentence of what it does.
    var text: String { CompletionTable.sentence(option.help ?? "") }
  }

  struct Command {
    let names: [String]
    let summary: String
    let options: [Choice]
    /// Its operands may be any of these.
    let operands: [Kind]
  }

  /// The commands that users call, and `help`.
  static let commands: [Command] =
    Program.commands.compactMap { command in
      command.help.summary.map { summary in
        Command(
          names: command.names, summary: summary,
          options: command.help.options.map { Choice(option: $0, value: value(of: $0)) },
          operands: operands(of: command))
      }
    } + [Command(names: ["help"], summary: "Explain a command", options: [], operands: [.words(names)])]

  /// The options before any command.
  static let ownOptions = [
    Choice(option: .help, value: nil), Choice(option: .flag("version", "V", help: "Print the version."), value: nil),
  ]

  /// The first names of the commands that users call.
  static var names: [String] {
    Program.commands.compactMap { $0.help.summary == nil ? nil : $0.names[0] } + ["help"]
  }

  /// The names that `-o` takes.
  static var mountOptions: [String] {
    MountOption.all.filter(\.isMountOption).map { $0.name + ($0.argument == nil ? "" : "=") }
  }

  private static func value(of option: Option) -> Kind? {
    guard let placeholder = option.placeholder else { return nil }
    if !option.choices.isEmpty { return .words(option.choices.map { String($0.prefix { $0 != ":" }) }) }
    switch placeholder {
    case "FILE", "FILE|URL": return .file
    case "DIR": return .folder
    case "OPTIONS": return .mountOptions
    case "complete CMD": return .words(["complete"])
    default: return .other
    }
  }

  private static func operands(of command: Program.Command) -> [Kind] {
    // `mount FILE MOUNTPOINT`: the one is there, and the other mostly is.
    if command.names[0] == "mount" { return [.file] }
    if command.names[0] == "ready" { return [.path] }
    if command.names[0] == "share" { return [.words(["stat", "check", "collect"])] }
    if command.names[0] == "completion" { return [.words(["bash", "zsh", "fish"])] }
    let kinds: [Kind] = command.help.operands.map { operand in
      switch operand.name {
      case "MOUNTPOINT": .mountpoint
      case "PATH": .path
      case "FILE": .file
      default: .other
      }
    }
    // The names of `set`.
    let names = command.help.sections.filter { $0.title == "Names" }.flatMap(\.items).compactMap { item in
      item.typed.hasPrefix("NAME") ? nil : item.typed.prefix { $0 != "=" } + "="
    }
    // A path may be a mountpoint, too.
    let known = kinds.contains(.path) ? kinds.filter { $0 != .mountpoint } : kinds
    return known + (names.isEmpty ? [] : [.words(names.map(String.init))])
  }

  /// The first sentence of a text, without its full stop.
  static func sentence(_ text: String) -> String {
    guard let end = text.firstRange(of: ". ") else { return text.hasSuffix(".") ? String(text.dropLast()) : text }
    return String(text[..<end.lowerBound])
  }
}
