/// A path relative to the library's folder, split and checked to be safe.
struct LibraryPath: Equatable {
  /// The folders of the path, from the library's down.
  var folders: [String]
  /// The file's name.
  var name: String

  /// Throws `.invalid` for a path that is absolute or empty, or has a component that is empty, `.`, `..` or contains
  /// NUL.
  init(_ path: String) throws(StoreError) {
    folders = pathComponents(path)
    let isSafe = folders.allSatisfy { component in
      !component.isEmpty && component != "." && component != ".." && !component.utf8.contains(0)
    }
    guard isSafe, let last = folders.popLast() else {
      throw StoreError(kind: .invalid, message: "“\(path)” is not a path below the library's folder")
    }
    name = last
  }

  /// The whole path.
  var path: String { sibling(name) }

  /// The path of another name in the same folder.
  func sibling(_ name: String) -> String { (folders + [name]).joined(separator: "/") }
}

/// The longest name that Linux filesystems take, in bytes (NAME_MAX).
private let longestName = 255

/// `name` with ` (2)` before its extension, for `number` 2, and so on; `name` itself for 1.
///
/// An extension is what follows the last dot, if it is at most ten ASCII letters and digits and something precedes the
/// dot. A name that would be too long loses characters before the number.
func numbered(_ name: String, _ number: Int) -> String {
  if number == 1 { return name }
  var stem = Substring(name)
  var ending = ""
  if let dot = name.lastIndex(of: "."), dot > name.startIndex {
    let suffix = name[dot...].dropFirst()
    if (1...10).contains(suffix.utf8.count), suffix.utf8.allSatisfy({ isLetterOrDigit($0) }) {
      stem = name[..<dot]
      ending = "." + suffix
    }
  }
  ending = " (\(number))" + ending
  // Cuts whole characters, so that no letter is cut in two.
  while stem.utf8.count + ending.utf8.count > longestName { stem.removeLast() }
  return stem + ending
}

private func isLetterOrDigit(_ byte: UInt8) -> Bool {
  switch byte {
  case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
    UInt8(ascii: "A")...UInt8(ascii: "Z"):
    true
  default: false
  }
}
