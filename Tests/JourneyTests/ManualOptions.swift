import Server

/// The parts of mediafs(1) that list the options of `mount`, written from their table.
enum ManualOptions {
  /// The text between two markers of the page.
  static func part(of page: String, _ title: String) -> (text: String, range: Range<String.Index>)? {
    guard let start = page.firstRange(of: begin(title)), let end = page[start.upperBound...].firstRange(of: end(title))
    else { return nil }
    return (String(page[start.upperBound..<end.lowerBound]), start.upperBound..<end.lowerBound)
  }

  private static func begin(_ title: String) -> String { ".\\\" Generated (OptionTableTests.theManual): \(title)\n" }
  private static func end(_ title: String) -> String { ".\\\" End of what is generated: \(title)\n" }

  /// What stands behind each title.
  static var parts: [(title: String, text: String)] {
    [
      ("command line", text(MountOption.all.filter(\.isOnCommandLine))),
      ("mount options", text(MountOption.all.filter { !$0.isOnCommandLine })),
    ]
  }

  private static func text(_ options: [MountOption]) -> String {
    options.flatMap(item).map { $0 + "\n" }.joined()
  }

  private static func item(_ option: MountOption) -> [String] {
    var lines = [heading(option)] + sentences(option.helpText)
    if !option.choices.isEmpty {
      lines.append(".Bl -tag -width playing -compact")
      for (word, meaning) in option.choices { lines += [".It Cm \(word)"] + sentences(meaning) }
      lines.append(".El")
    }
    return lines + sentences(option.details)
  }

  private static func heading(_ option: MountOption) -> String {
    guard option.isOnCommandLine else {
      return ".It Cm \(option.name)" + (option.argument.map { "= Ns Ar \($0)" } ?? "")
    }
    return ".It Fl " + (option.letter.map { "\($0) , " } ?? "") + "\\-\(option.name)"
      + (option.argument.map { " Ar \($0)" } ?? "")
  }

  /// A sentence a line, as mdoc(7) asks for, and none beyond column 120.
  private static func sentences(_ text: String) -> [String] {
    var lines: [String] = []
    var isNew = true
    for word in text.split(separator: " ").map({ String($0).replacing("\\", with: "\\e") }) {
      if !isNew, let last = lines.last, last.count + 1 + word.count <= 120 {
        lines[lines.count - 1] += " " + word
      } else {
        // At a line's start these two are mdoc's own.
        lines.append(word.hasPrefix(".") || word.hasPrefix("'") ? "\\&" + word : word)
      }
      isNew = word.hasSuffix(".")
    }
    return lines
  }
}
