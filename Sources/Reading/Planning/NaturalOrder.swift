/// The order in which people number things: digits count as numbers, and case does not count. Pure.
///
/// glibc's strverscmp takes numbers with leading zeros for fractions and puts `B` before `a`. localizedStandardCompare
/// follows the locale and needs all of Foundation.
enum NaturalOrder {
  /// Whether `left` comes before `right`. Names that differ only in case or leading zeros are in the order of their
  /// bytes.
  static func isAscending(_ left: String, _ right: String) -> Bool {
    var (mine, theirs) = (left.utf8[...], right.utf8[...])
    while let first = mine.first, let other = theirs.first {
      if isDigit(first), isDigit(other) {
        let (number, against) = (takeNumber(&mine), takeNumber(&theirs))
        // Of two numbers without leading zeros the one with more digits is larger.
        if number.count != against.count { return number.count < against.count }
        if !number.elementsEqual(against) { return number.lexicographicallyPrecedes(against) }
      } else {
        let (letter, against) = (lowered(first), lowered(other))
        if letter != against { return letter < against }
        mine.removeFirst()
        theirs.removeFirst()
      }
    }
    if mine.isEmpty != theirs.isEmpty { return mine.isEmpty }
    return left.utf8.lexicographicallyPrecedes(right.utf8)
  }

  /// Whether `names` are in the order of their bytes, with case or without it: a program sorted them.
  static func isSortedByBytes(_ names: [String]) -> Bool {
    let pairs = zip(names, names.dropFirst())
    return pairs.allSatisfy { !$1.utf8.lexicographicallyPrecedes($0.utf8) }
      || pairs.allSatisfy { !$1.utf8.lazy.map(lowered).lexicographicallyPrecedes($0.utf8.lazy.map(lowered)) }
  }

  /// Removes the number at the start of `text`, and returns its digits without leading zeros.
  private static func takeNumber(_ text: inout Substring.UTF8View) -> Substring.UTF8View {
    let number = text.prefix(while: isDigit)
    text = text[number.endIndex...]
    return number.drop { $0 == UInt8(ascii: "0") }
  }

  private static func isDigit(_ byte: UInt8) -> Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte }
  private static func lowered(_ byte: UInt8) -> UInt8 {
    UInt8(ascii: "A")...UInt8(ascii: "Z") ~= byte ? byte | 0x20 : byte
  }
}
