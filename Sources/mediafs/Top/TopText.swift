import Screen

/// Measures and cuts text for a screen, and names the characters that it draws with. Without UTF-8 all is ASCII.
///
/// Widths are those of the calling thread's locale (``Characters``).
struct TopText: Equatable {
  /// Whether the terminal shows more than ASCII.
  var isUnicode: Bool

  /// What a bar is drawn with: its stored cells, those stored in part, those that are missing, and a reader's place.
  var bar: (stored: String, part: String, missing: String, reader: String) {
    isUnicode ? ("━", "╍", "─", "●") : ("#", "+", ".", "@")
  }
  var ellipsis: String { isUnicode ? "…" : "~" }
  var dot: String { isUnicode ? " · " : ", " }
  var rule: String { isUnicode ? "─" : "-" }
  var pointer: String { isUnicode ? "▸" : ">" }
  var arrival: String { isUnicode ? "↓" : "in" }
  /// From nothing to the most of late.
  var levels: [String] {
    isUnicode ? [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"] : [" ", ".", ":", "-", "=", "+", "*", "#", "@"]
  }

  /// What is drawn of a text at most, in code points: no screen is wider, and a hostile server's may have a million.
  private static let longest = 2000

  /// The same text without what a terminal would obey or cannot show.
  func safe(_ text: String) -> String {
    let isShort = text.utf8.count <= Self.longest
    let plain = TerminalText.plain(
      isShort ? text : String(String.UnicodeScalarView(text.unicodeScalars.prefix(Self.longest))))
    if plain.utf8.allSatisfy({ 0x20..<0x7F ~= $0 }) { return plain }
    guard isUnicode else { return String(plain.map { $0.isASCII ? $0 : "?" }) }
    var result = ""
    for scalar in plain.unicodeScalars {
      if Characters.width(scalar) != nil { result.unicodeScalars.append(scalar) } else { result += "?" }
    }
    return result
  }

  /// An error without the URL that it begins with: a narrow column has no room for what the line's host tells too.
  func reason(_ error: String) -> String {
    guard error.hasPrefix("http"), let end = error.firstRange(of: ": ") else { return error }
    let rest = error[end.upperBound...]
    return rest.isEmpty ? error : String(rest)
  }

  /// How many columns a safe text takes.
  func width(_ text: String) -> Int { text.unicodeScalars.reduce(0) { $0 + (Characters.width($1) ?? 0) } }
  private func width(_ character: Character) -> Int {
    character.unicodeScalars.reduce(0) { $0 + (Characters.width($1) ?? 0) }
  }

  /// The start of a safe text, of at most `columns`; what is cut ends with an ellipsis.
  func cut(_ text: String, _ columns: Int) -> String {
    guard width(text) > columns else { return text }
    guard columns > 0 else { return "" }
    var result = ""
    var left = columns - 1
    for character in text {
      left -= width(character)
      if left < 0 { break }
      result.append(character)
    }
    return result + ellipsis
  }

  /// A safe path of at most `columns`. The name at its end tells most: folders go first.
  func path(_ path: String, _ columns: Int) -> String {
    guard width(path) > columns else { return path }
    let parts = path.split(separator: "/")
    var shown = ""
    for part in parts.reversed() {
      let longer = "/" + part + shown
      guard width(longer) + 1 <= columns else { break }
      shown = longer
    }
    return shown.isEmpty ? fit(parts.last.map(String.init) ?? path, columns) : ellipsis + shown
  }

  /// Start and end of a safe text, of at most `columns`.
  func fit(_ text: String, _ columns: Int) -> String {
    guard width(text) > columns else { return text }
    guard columns > 4 else { return cut(text, columns) }
    var (head, tail) = ("", "")
    var left = columns - 1
    var rest = text[...]
    var isHead = false
    while let next = isHead ? rest.first : rest.last, width(next) <= left {
      left -= width(next)
      if isHead { head.append(rest.removeFirst()) } else { tail = String(rest.removeLast()) + tail }
      isHead.toggle()
    }
    return head + ellipsis + tail
  }

  /// A safe text of exactly `columns`.
  func column(_ text: String, _ columns: Int, right: Bool = false) -> String {
    let cut = cut(text, columns)
    let fill = String(repeating: " ", count: max(0, columns - width(cut)))
    return right ? fill + cut : cut + fill
  }

  static func == (left: TopText, right: TopText) -> Bool { left.isUnicode == right.isUnicode }
}

/// A line that is made from left to right, and never gets wider than the screen.
struct TopLine {
  private let text: TopText
  private(set) var left: Int
  private(set) var spans: [Span] = []

  init(_ columns: Int, _ text: TopText) {
    left = max(0, columns)
    self.text = text
  }

  /// Adds safe text; what does not fit is cut.
  mutating func add(_ words: String, _ style: Style = .plain) {
    let fitting = text.cut(words, left)
    if fitting.isEmpty { return }
    left -= text.width(fitting)
    spans.append(Span(fitting, style))
  }

  /// Adds safe text in a column of that width.
  mutating func add(_ words: String, columns: Int, right: Bool = false, _ style: Style = .plain) {
    let width = min(columns, left)
    if width > 0 { add(text.column(words, width, right: right), style) }
  }

  /// Adds all of them, or what fits.
  mutating func add(_ others: [Span]) {
    for span in others { add(span.text, span.style) }
  }

  /// The line as wide as the screen, with a style for what is left.
  func filled(_ style: Style = .plain) -> [Span] {
    left > 0 ? spans + [Span(String(repeating: " ", count: left), style)] : spans
  }
}
