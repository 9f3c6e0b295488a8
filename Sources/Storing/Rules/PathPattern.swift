import Base

/// A path in the mount, or a pattern for paths, of a rule. Pure.
///
/// A path stands for its entry and for all below it; the empty one for the whole mount. In a pattern, `*` stands for
/// any characters of a name, `?` for one, `[a-z]` for one of these and `[!a-z]` for one of the others; none of them
/// stands for a slash. `**` as a whole name stands for any number of folders. A backslash takes its meaning from the
/// character behind it. A pattern without a slash is for names in every folder, and `/*.mkv` for those in the root.
/// What a pattern matches stands for all below it too.
package struct PathPattern: Sendable {
  /// Why a text is no pattern.
  package enum Problem: Error, Equatable {
    /// `[:class:]` and its like.
    case classes
    /// More than 4095 bytes, which no path has.
    case tooLong
  }

  /// One character of a name.
  private enum Element: Sendable {
    case character(Unicode.Scalar)
    case any
    case anyRun
    case oneOf([ClosedRange<Unicode.Scalar>], isNegated: Bool)

    var isWild: Bool { if case .character = self { false } else { true } }
  }

  /// The text, as the catalog has it.
  package let text: String
  private let names: [[Element]]
  /// The path, if no character stands for others.
  package let path: String?

  /// The pattern that a text is.
  package init(_ text: String) throws(Problem) {
    if text.utf8.count > 4095 { throw .tooLong }
    self.text = text
    var names: [[Element]] = []
    for name in text.utf8.split(separator: UInt8(ascii: "/")) { names.append(try Self.elements(Substring(name))) }
    self.names = names
    path = names.contains { $0.contains(where: \.isWild) } ? nil : names.map(Self.plain).joined(separator: "/")
  }

  /// The pattern for exactly that path, whatever characters it has.
  package init(path: String) {
    var text = ""
    for scalar in path.unicodeScalars {
      if "*?[\\".unicodeScalars.contains(scalar) { text.unicodeScalars.append("\\") }
      text.unicodeScalars.append(scalar)
    }
    self.text = text
    names = path.utf8.split(separator: UInt8(ascii: "/")).map { name in
      Substring(name).unicodeScalars.map { .character($0) }
    }
    self.path = path
  }

  /// How many names it gives: the more, the more specific it is. `**` gives none.
  package var depth: Int { names.count { !Self.isAnyFolders($0) } }

  /// The text for messages.
  package var shown: String { Self.shown(text) }

  /// A text for messages. A pattern for the root is told in a form that commands take, as they do that of any other.
  package static func shown(_ text: String) -> String {
    if text.isEmpty { return "the whole mount" }
    return text.utf8.first == UInt8(ascii: "/") ? "." + text : text
  }

  /// The folder below which all that it matches lies.
  package var folder: String {
    if let path { return path }
    if isForEveryFolder { return "" }
    return names.prefix { !$0.contains(where: \.isWild) }.map(Self.plain).joined(separator: "/")
  }

  private var isForEveryFolder: Bool { path == nil && names.count == 1 && !text.utf8.contains(UInt8(ascii: "/")) }

  /// Whether it is for the entry at `path`.
  package func isFor(_ path: String) -> Bool {
    if let own = self.path {
      return own.isEmpty || own.utf8.elementsEqual(path.utf8) || path.utf8.starts(with: (own + "/").utf8)
    }
    return matches(path.utf8.split(separator: UInt8(ascii: "/")).map { Substring($0) })
  }

  /// Whether it matches the entry at `names`, or a folder that contains it.
  package func matches(_ names: [Substring]) -> Bool {
    if isForEveryFolder { return names.contains { Self.matches(self.names[0], $0) } }
    // The place in the pattern to which each `**` may come back, with the names that it has taken by then.
    var (position, taken) = (0, 0)
    var back: (position: Int, taken: Int)?
    while true {
      if position == self.names.count { return true }  // all below it too
      if Self.isAnyFolders(self.names[position]) {
        back = (position, taken)
        position += 1
        // At its end it stands for what is in the folder, not for the folder itself.
        if position == self.names.count { return taken < names.count }
      } else if taken < names.count, Self.matches(self.names[position], names[taken]) {
        position += 1
        taken += 1
      } else if let last = back, last.taken < names.count {
        back = (last.position, last.taken + 1)
        position = last.position + 1
        taken = last.taken + 1
      } else {
        return false
      }
    }
  }

  private static func isAnyFolders(_ name: [Element]) -> Bool {
    name.count == 2 && name.allSatisfy { if case .anyRun = $0 { true } else { false } }
  }

  /// Takes time in proportion to both lengths: a later `*` never gives an earlier one another try.
  private static func matches(_ pattern: [Element], _ name: Substring) -> Bool {
    let scalars = Array(name.unicodeScalars)
    var (position, taken) = (0, 0)
    var back: (position: Int, taken: Int)?
    while taken < scalars.count || position < pattern.count {
      if position < pattern.count {
        if case .anyRun = pattern[position] {
          back = (position, taken)
          position += 1
          continue
        }
        if taken < scalars.count, matches(pattern[position], scalars[taken]) {
          position += 1
          taken += 1
          continue
        }
      }
      guard let last = back, last.taken < scalars.count else { return false }
      back = (last.position, last.taken + 1)
      position = last.position + 1
      taken = last.taken + 1
    }
    return true
  }

  private static func matches(_ element: Element, _ scalar: Unicode.Scalar) -> Bool {
    switch element {
    case .character(let wanted): wanted == scalar
    case .any: true
    case .oneOf(let ranges, let isNegated): ranges.contains { $0.contains(scalar) } != isNegated
    case .anyRun: false
    }
  }

  private static func plain(_ name: [Element]) -> String {
    var text = ""
    for case .character(let scalar) in name { text.unicodeScalars.append(scalar) }
    return text
  }

  private static func elements(_ name: Substring) throws(Problem) -> [Element] {
    let scalars = Array(name.unicodeScalars)
    var elements: [Element] = []
    var index = 0
    while index < scalars.count {
      let scalar = scalars[index]
      index += 1
      switch scalar {
      case "*": elements.append(.anyRun)
      case "?": elements.append(.any)
      case "\\" where index < scalars.count:
        elements.append(.character(scalars[index]))
        index += 1
      case "[":
        // Without its end it is a bracket, as for the shell.
        if let (set, next) = try bracket(scalars, from: index) {
          elements.append(set)
          index = next
        } else {
          elements.append(.character(scalar))
        }
      default: elements.append(.character(scalar))
      }
    }
    return elements
  }

  /// The set that begins behind the bracket at `start`, and where it ends; nil if it has no end.
  private static func bracket(
    _ scalars: [Unicode.Scalar], from start: Int
  ) throws(Problem) -> (set: Element, next: Int)? {
    var index = start
    let isNegated = index < scalars.count && (scalars[index] == "!" || scalars[index] == "^")
    if isNegated { index += 1 }
    let first = index
    var ranges: [ClosedRange<Unicode.Scalar>] = []
    while index < scalars.count {
      var scalar = scalars[index]
      index += 1
      if scalar == "]", index - 1 > first { return (.oneOf(ranges, isNegated: isNegated), index) }
      if scalar == "[", index < scalars.count, ":.=".unicodeScalars.contains(scalars[index]),
        scalars[index...].contains("]")
      {
        throw .classes
      }
      if scalar == "\\", index < scalars.count {
        scalar = scalars[index]
        index += 1
      }
      if index + 1 < scalars.count, scalars[index] == "-", scalars[index + 1] != "]" {
        let last = scalars[index + 1]
        index += 2
        if scalar <= last { ranges.append(scalar...last) }
      } else {
        ranges.append(scalar...scalar)
      }
    }
    return nil
  }
}
