/// Makes names that Linux allows and that do not deceive their readers (docs/MANIFEST.md, "Names").
///
/// A safe name is 1 to 255 bytes of UTF-8. It is not `.` or `..`. It has no `/`, no control character, no line or
/// paragraph separator, no character that reorders the text around it, and no white space at its ends. A safe name
/// stays unchanged, byte for byte: names that differ only in their Unicode normalization are different names.
package enum SafeName {
  /// The most bytes of a name (NAME_MAX of Linux).
  package static let maximumBytes = 255

  /// The safe form of `text`; nil when nothing of it remains (it is empty or white space).
  package static func component(_ text: String) -> String? {
    if isPlain(text.utf8.span) { return text }
    return replaced(text)
  }

  /// The safe form of `bytes`, with U+FFFD for invalid UTF-8; nil when nothing remains.
  static func component(_ bytes: Span<UInt8>) -> String? {
    let text = bytes.text(0..<bytes.count)
    return isPlain(bytes) ? text : replaced(text)
  }

  /// The folders of `path`, each made safe. This drops `.` and empty parts; `..` removes the folder before it, but
  /// never leads above the root, as in a chroot. So an absolute path starts at the root of the mount. Bytes that are
  /// not UTF-8 become U+FFFD.
  static func folders(_ path: Span<UInt8>) -> [String] {
    var folders: [String] = []
    var start = 0
    while start < path.count {
      let end = path.firstIndex(of: 0x2F, in: start..<path.count) ?? path.count
      let part = path.extracting(start..<end)
      if isDots(part) {
        if part.count == 2 { _ = folders.popLast() }
      } else if let name = component(part) {
        folders.append(name)
      }
      start = end + 1
    }
    return folders
  }

  /// Whether the bytes are `.` or `..`.
  static func isDots(_ name: Span<UInt8>) -> Bool {
    name.count == 1 && name[0] == 0x2E || name.count == 2 && name[0] == 0x2E && name[1] == 0x2E
  }

  /// The names at the library's top that are mediafs's own (docs/STORE-FORMAT.md, "Folder"). All others there are those
  /// of the mount.
  private static let reserved = [".mediafs-incoming", ".mediafs-library"]

  /// Whether no entry at the top may have this name. Some filesystems take upper and lower case for the same.
  package static func isReserved(_ name: String) -> Bool {
    guard name.utf8.first == 0x2E else { return false }
    let name = name.lowercased()
    return reserved.contains { $0.utf8.elementsEqual(name.utf8) }
  }

  /// The form in which `name` may be at the top.
  package static func unreserved(_ name: String) -> String { isReserved(name) ? "_" + name.dropFirst() : name }

  /// The name of the `number`th entry with one name: `song (2).mp3`, `film (3).tar.gz`, `README (2)`. Cut to
  /// ``maximumBytes``.
  package static func numbered(_ name: String, _ number: Int) -> String {
    let (stem, ending) = split(name)
    return fitted(stem, before: " (\(number))" + ending)
  }

  /// What ``numbered(_:_:)`` leaves of `name` beside its number: names that it cuts to one have that in common.
  package static func common(_ name: String, _ number: Int) -> String {
    let (stem, ending) = split(name)
    let room = maximumBytes - " (\(number))".utf8.count - ending.utf8.count
    return stem.utf8.count <= room ? name : cut(stem, to: room) + ending
  }

  /// Whether `name` has an extension: 1 to 8 ASCII letters and digits, with at least one letter, after the last dot,
  /// which is not the name's first character.
  package static func hasExtension(_ name: String) -> Bool { dotOfExtension(name.utf8.span) != nil }

  /// The extension of `name` in lower case, without its dot; nil when it has none.
  package static func fileExtension(_ name: String) -> String? {
    let bytes = name.utf8.span
    guard let dot = dotOfExtension(bytes) else { return nil }
    return bytes.text(dot + 1..<bytes.count).lowercased()
  }

  /// `name` with `.` and `fileExtension` appended, cut to ``maximumBytes``; `name` itself when it already ends in that
  /// extension.
  package static func appendingExtension(_ name: String, _ fileExtension: String) -> String {
    guard let ending = component(fileExtension), self.fileExtension(name) != ending.lowercased() else { return name }
    return fitted(name, before: "." + ending)
  }

  // MARK: - Inside

  /// Whether the bytes are printable ASCII and safe. Most names are, and this check needs no characters.
  private static func isPlain(_ bytes: Span<UInt8>) -> Bool {
    let count = bytes.count
    guard count > 0, count <= maximumBytes, bytes[0] != 0x20, bytes[count - 1] != 0x20 else { return false }
    for index in bytes.indices {
      let byte = bytes[index]
      if byte < 0x20 || byte >= 0x7F || byte == 0x2F { return false }
    }
    return !isDots(bytes)
  }

  private static func replaced(_ text: String) -> String? {
    var scalars = String.UnicodeScalarView()
    for scalar in text.unicodeScalars { scalars.append(isForbidden(scalar) ? "_" : scalar) }
    var name = trimmed(String(scalars))
    if name.isEmpty { return nil }
    if name.utf8.count > maximumBytes {
      let (stem, ending) = split(name)
      name = fitted(stem, before: ending)
    }
    // A cut may leave dots alone, too.
    return isDots(name.utf8.span) ? String(repeating: "_", count: name.utf8.count) : name
  }

  private static func isForbidden(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F..<0xA0: true  // C0, DEL, C1
    case 0x2F: true  // /
    case 0x2028, 0x2029: true  // line and paragraph separator
    // Embeddings, overrides, isolates: with one, `gpj.exe` is shown as `exe.jpg`.
    case 0x202A...0x202E, 0x2066...0x2069: true
    default: false
    }
  }

  private static func trimmed(_ text: String) -> String {
    let scalars = text.unicodeScalars
    guard let first = scalars.firstIndex(where: { !$0.properties.isWhitespace }),
      let last = scalars.lastIndex(where: { !$0.properties.isWhitespace })
    else { return "" }
    return String(scalars[first...last])
  }

  /// `stem` and `ending` in ``maximumBytes``. The stem is cut between characters, so that no letter loses its accent.
  /// `ending` is short; a longer one is cut too.
  private static func fitted(_ stem: String, before ending: String) -> String {
    let room = maximumBytes - ending.utf8.count
    if stem.utf8.count <= room { return stem + ending }
    if room < 1 { return cut(stem + ending, to: maximumBytes) }
    return cut(stem, to: room) + ending
  }

  /// The longest prefix of `text` of at most `limit` bytes that ends between characters. A character longer than the
  /// limit (a letter with a hundred accents) is cut between Unicode scalars.
  private static func cut(_ text: String, to limit: Int) -> String {
    var end = text.startIndex
    var count = 0
    while end < text.endIndex {
      let next = text.index(after: end)
      count += text.utf8.distance(from: end, to: next)
      if count > limit { break }
      end = next
    }
    if end == text.startIndex {
      count = 0
      for scalar in text.unicodeScalars {
        count += UTF8.width(scalar)
        if count > limit { break }
        end = text.unicodeScalars.index(after: end)
      }
    }
    let kept = trimmed(String(text[..<end]))
    return kept.isEmpty ? "_" : kept
  }

  /// The index of the extension's dot.
  private static func dotOfExtension(_ name: Span<UInt8>) -> Int? {
    var hasLetter = false
    var index = name.count - 1
    while index > 0, name.count - index <= 9 {
      let byte = name[index]
      if byte == 0x2E { return hasLetter ? index : nil }
      guard byte.isLetter || byte.isDigit else { return nil }
      if byte.isLetter { hasLetter = true }
      index -= 1
    }
    return nil
  }

  /// `name` split before its extension (before both extensions of a compressed archive).
  private static func split(_ name: String) -> (stem: String, ending: String) {
    let bytes = name.utf8.span
    guard var dot = dotOfExtension(bytes) else { return (name, "") }
    if compressions.contains(bytes.text(dot + 1..<bytes.count).lowercased()), dot > 4,
      bytes.hasPrefix(".tar", at: dot - 4)
    {
      dot -= 4
    }
    return (bytes.text(0..<dot), bytes.text(dot..<bytes.count))
  }

  private static let compressions: Set<String> = ["gz", "bz2", "xz", "zst", "lz", "lz4", "lzma", "br", "z"]
}
