/// The format of the small text files: a first line `mediafs KIND VERSION`, then `key=value` lines. In a value, `\\`
/// stands for a backslash and `\n` for a line feed, because paths may contain them.
enum KeyValueText {
  /// The result of decoding a text.
  enum Content: Equatable {
    /// The values by key.
    case fields([String: String])
    /// A version that this program does not know.
    case unknownVersion(String)
    /// Not of this format: cut short, or from another program.
    case damaged
  }

  /// The text of `fields`.
  static func encode(kind: String, version: Int, fields: [(key: String, value: String)]) -> String {
    var text = "mediafs \(kind) \(version)\n"
    for (key, value) in fields { text += key + "=" + escaped(value) + "\n" }
    return text
  }

  /// Decodes `text` if it has that kind and version. Ignores an unfinished last line.
  static func decode(_ text: String, kind: String, version: Int) -> Content {
    // Splits scalars: in a String, CR and LF are one character, and a path may end in CR.
    var lines = text.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false).map { Substring($0) }
    guard lines.count > 1, lines[0].hasPrefix("mediafs \(kind) ") else { return .damaged }
    let found = lines[0].dropFirst("mediafs \(kind) ".count)
    guard found == "\(version)" else { return .unknownVersion(String(found)) }
    lines.removeFirst()
    lines.removeLast()  // after the last line feed: nothing, or a line that was cut short
    var fields: [String: String] = [:]
    for line in lines {
      let scalars = line.unicodeScalars
      guard let equals = scalars.firstIndex(of: "=") else { return .damaged }
      fields[String(scalars[..<equals])] = unescaped(scalars[scalars.index(after: equals)...])
    }
    return .fields(fields)
  }

  private static func escaped(_ value: String) -> String {
    var result = ""
    for scalar in value.unicodeScalars {
      switch scalar {
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func unescaped(_ value: Substring.UnicodeScalarView) -> String {
    var result = ""
    var escaped = false
    for scalar in value {
      if escaped {
        result.unicodeScalars.append(scalar == "n" ? "\n" : scalar)
        escaped = false
      } else if scalar == "\\" {
        escaped = true
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }
}
