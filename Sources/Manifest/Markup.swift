/// HTML within a feed's text.
enum Markup {
  private static let names = ["amp": "&", "lt": "<", "gt": ">", "quot": "\"", "apos": "'", "nbsp": " "]
  /// The most bytes of a reference, with its `&` and `;`.
  private static let longest = 12

  /// The text without tags, and with the characters that references stand for. One that stands for none stays as it is.
  static func text(of html: String) -> String {
    var result = ""
    var rest = html[...]
    // A tag without an end is looked for once: else many would cost the square of their number.
    var hasEnd = true
    while let start = rest.firstIndex(where: { $0 == "<" || $0 == "&" }) {
      result += rest[..<start]
      rest = rest[start...]
      if rest.first == "<" {
        let end = hasEnd && rest.dropFirst().first.map(beginsTag) == true ? rest.firstIndex(of: ">") : nil
        if let end { rest = rest[end...] } else { result += "<" }
        if end == nil, rest.dropFirst().first.map(beginsTag) == true { hasEnd = false }
        rest.removeFirst()
      } else if let end = rest.prefix(longest).firstIndex(of: ";"),
        let character = character(rest[..<end].dropFirst())
      {
        result += character
        rest = rest[end...].dropFirst()
      } else {
        result.append(rest.removeFirst())
      }
    }
    return result + rest
  }

  private static func beginsTag(_ character: Character) -> Bool { character.isLetter || "/!".contains(character) }

  /// What `&reference;` stands for.
  private static func character(_ reference: Substring) -> String? {
    guard reference.first == "#" else { return names[String(reference)] }
    let digits = reference.dropFirst()
    let isHex = digits.first == "x" || digits.first == "X"
    guard let value = UInt32(isHex ? digits.dropFirst() : digits, radix: isHex ? 16 : 10) else { return nil }
    return Unicode.Scalar(value).map { String($0) }
  }
}
