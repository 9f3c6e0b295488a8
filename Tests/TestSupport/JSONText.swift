/// A JSON value to be written (RFC 8259): the tests need no more than that.
package indirect enum JSONText: Sendable {
  /// A string.
  case string(String)
  /// A whole number.
  case integer(Int64)
  /// A number; null when it is not finite.
  case number(Double)
  /// True or false.
  case bool(Bool)
  /// Null.
  case null
  /// An array.
  case array([JSONText])
  /// An object; its members in that order.
  case object([(String, JSONText)])

  /// A string, or null.
  package static func optional(_ text: String?) -> JSONText { text.map { .string($0) } ?? .null }

  /// The text.
  package var text: String {
    var output = ""
    write(to: &output)
    return output
  }

  private func write(to output: inout String) {
    switch self {
    case .string(let text): Self.quote(text, to: &output)
    case .integer(let value): output += String(value)
    case .number(let value): output += value.isFinite ? String(value) : "null"
    case .bool(let value): output += value ? "true" : "false"
    case .null: output += "null"
    case .array(let items):
      output += "["
      for (index, item) in items.enumerated() {
        if index > 0 { output += "," }
        item.write(to: &output)
      }
      output += "]"
    case .object(let members):
      output += "{"
      for (index, member) in members.enumerated() {
        if index > 0 { output += "," }
        Self.quote(member.0, to: &output)
        output += ":"
        member.1.write(to: &output)
      }
      output += "}"
    }
  }

  private static func quote(_ text: String, to output: inout String) {
    output += "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": output += "\\\""
      case "\\": output += "\\\\"
      case "\n": output += "\\n"
      case "\r": output += "\\r"
      case "\t": output += "\\t"
      case let other where other.value < 0x20:
        let digits = String(other.value, radix: 16)
        output += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      default: output.unicodeScalars.append(scalar)
      }
    }
    output += "\""
  }
}
