/// The name of a resolver: what a list says, and what the user defines.
package enum ResolverName {
  /// Whether it is 1 to 32 ASCII letters, digits, `-` and `_`.
  package static func isValid(_ text: String) -> Bool {
    (1...32).contains(text.utf8.count)
      && text.utf8.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_") }
  }
}
