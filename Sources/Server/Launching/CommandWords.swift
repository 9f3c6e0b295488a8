/// Splits a command into words, by quotes and backslashes as a shell does, and by nothing else: no variable, wildcard,
/// `~` or operator means anything.
///
/// Blanks (spaces, tabs, newlines) separate words. Between single quotes, everything is itself. Between double quotes,
/// a backslash makes a double quote or a backslash after it part of the word, and is itself before anything else.
/// Outside of quotes, a backslash makes the next character part of the word.
enum CommandWords {
  private static let (single, double) = (UInt8(ascii: "'"), UInt8(ascii: "\""))
  private static let backslash = UInt8(ascii: "\\")

  static func split(_ text: String) throws(MountOptionError) -> [String] {
    var words: [[UInt8]] = []
    var word: [UInt8]?
    var quote: UInt8?
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
      if let open = quote {
        if byte == open {
          quote = nil
        } else if open == double, byte == backslash, let next = rest.first, next == double || next == backslash {
          word?.append(rest.removeFirst())
        } else {
          word?.append(byte)
        }
      } else if byte == single || byte == double {
        quote = byte
        word = word ?? []
      } else if byte == backslash {
        guard let next = rest.popFirst() else { throw .usage("the command \(text) ends with a backslash") }
        word = (word ?? []) + [next]
      } else if [UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\n")].contains(byte) {
        if let ended = word { words.append(ended) }
        word = nil
      } else {
        word = (word ?? []) + [byte]
      }
    }
    if let quote { throw .usage("the command \(text) has a \(Unicode.Scalar(quote)) without its end") }
    if let word { words.append(word) }
    return words.map { String(decoding: $0, as: UTF8.self) }
  }

  /// The text that ``split(_:)`` splits into these words.
  static func joined(_ words: [String]) -> String {
    // By scalars: in a String, a quote with a combining accent is another character.
    words.map { word -> String in
      let quoted = word.unicodeScalars.map { $0 == "'" ? #"'\''"# : String(Character($0)) }
      return "'\(quoted.joined())'"
    }.joined(separator: " ")
  }
}
