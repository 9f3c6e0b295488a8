/// What `mediafs help COMMAND` prints, for a terminal of 80 columns.
struct CommandHelp: Sendable {
  /// A heading with a list of items below it.
  struct Section: Sendable {
    /// The heading, without its colon.
    var title: String
    /// What the user types, what that does, and further lines below the description.
    var items: [(typed: String, does: String, lines: [String])]
  }

  /// How the command is called, without `mediafs`.
  var synopsis: [String]
  /// What it does, in a few words, for the list of commands; nil for a command that users do not call.
  var summary: String?
  /// The description, one paragraph per element.
  var about: [String]
  /// The operands and what each one names.
  var operands: [(name: String, does: String)] = []
  /// The options except `--help`, in titled groups.
  var groups: [(title: String, options: [Option])] = []
  /// Lists that follow the options.
  var sections: [Section] = []
  /// Paragraphs at the end.
  var notes: [String] = []
  /// What its exit status means.
  var status: String

  /// Every option that the command takes.
  var options: [Option] { groups.flatMap(\.options) + [.help] }

  /// The help as the command prints it.
  var text: String {
    var parts: [[String]] = []
    parts.append(synopsis.enumerated().map { ($0.offset == 0 ? "Usage: mediafs " : "       mediafs ") + $0.element })
    parts += about.map { Self.wrapped($0, indent: 0) }
    if !operands.isEmpty {
      parts.append(["Arguments:"] + operands.flatMap { Self.item("  " + $0.name, $0.does) })
    }
    for (index, group) in groups.enumerated() {
      let isLast = index == groups.count - 1
      parts.append(["\(group.title):"] + (group.options + (isLast ? [.help] : [])).flatMap(Self.item))
    }
    if groups.isEmpty { parts.append(["Options:"] + Self.item(.help)) }
    for section in sections {
      parts.append(["\(section.title):"] + section.items.flatMap { Self.item("  " + $0.typed, $0.does, $0.lines) })
    }
    parts += notes.map { Self.wrapped($0, indent: 0) }
    parts.append(Self.wrapped("Exit status: \(status)", indent: 0))
    return parts.map { $0.joined(separator: "\n") }.joined(separator: "\n\n")
  }

  private static let width = 80
  /// The column at which descriptions begin.
  private static let column = 27

  private static func item(_ option: Option) -> [String] {
    let letter = option.letter.map { "  -\($0), " } ?? "      "
    let value = option.placeholder.map { " \($0)" } ?? ""
    return item("\(letter)--\(option.name)\(value)", option.help ?? "", option.choices)
  }

  private static func item(_ typed: String, _ does: String, _ lines: [String] = []) -> [String] {
    let text = (wrapped(does, indent: column) + lines.flatMap { wrapped($0, indent: column) })
      .map { String(repeating: " ", count: column) + $0 }
    guard typed.count + 2 <= column, let first = text.first else { return [typed] + text }
    return [typed + first.dropFirst(typed.count)] + text.dropFirst()
  }

  /// Wraps `text` into lines that leave `indent` columns free.
  static func wrapped(_ text: String, indent: Int) -> [String] {
    var lines: [String] = []
    for word in text.split(separator: " ") {
      if let last = lines.last, last.count + 1 + word.count + indent <= width {
        lines[lines.count - 1] += " " + word
      } else {
        lines.append(String(word))
      }
    }
    return lines
  }
}
