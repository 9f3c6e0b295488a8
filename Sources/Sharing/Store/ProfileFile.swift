/// A file of profiles in the form that the AWS command line has: `[profile]`, `name = value`, and values below a name,
/// indented.
struct ProfileFile {
  /// By section, then by name; a name below another has both, with a dot: `s3.addressing_style`.
  private(set) var sections: [String: [String: String]] = [:]

  /// `isConfiguration`: whether sections other than `default` are named `[profile NAME]`. Lines that are none of these
  /// are passed over, as other programs do.
  init(_ text: String, isConfiguration: Bool) {
    var section: String?
    var parent: String?
    for line in text.split(whereSeparator: \.isNewline) {
      let isIndented = line.first == " " || line.first == "\t"
      let words = Self.trimmed(line)
      if words.isEmpty || words.hasPrefix("#") || words.hasPrefix(";") { continue }
      if !isIndented, words.hasPrefix("["), let end = words.firstIndex(of: "]") {
        section = Self.name(Self.trimmed(words[..<end].dropFirst()), isConfiguration)
        parent = nil
        continue
      }
      guard let section, let equals = words.firstIndex(of: "=") else { continue }
      let name = Self.trimmed(words[..<equals]).lowercased()
      let value = Self.value(words[words.index(after: equals)...])
      if isIndented, let parent {
        sections[section, default: [:]]["\(parent).\(name)"] = value
      } else {
        sections[section, default: [:]][name] = value
        parent = value.isEmpty ? name : nil
      }
    }
  }

  private static func name(_ text: String, _ isConfiguration: Bool) -> String? {
    if !isConfiguration || text == "default" { return text }
    let words = text.split(maxSplits: 1, whereSeparator: { $0 == " " || $0 == "\t" })
    return words.count == 2 && words[0] == "profile" ? trimmed(words[1]) : nil
  }

  /// Without a comment, which a space stands before.
  private static func value(_ text: Substring) -> String {
    var text = text
    for mark in [" #", " ;", "\t#", "\t;"] {
      if let start = text.firstRange(of: mark)?.lowerBound { text = text[..<start] }
    }
    return trimmed(text)
  }

  private static func trimmed(_ text: some StringProtocol) -> String {
    let isSpace = { (character: Character) in character == " " || character == "\t" }
    var rest = Substring(text).drop(while: isSpace)
    while let last = rest.last, isSpace(last) { rest.removeLast() }
    return String(rest)
  }
}
