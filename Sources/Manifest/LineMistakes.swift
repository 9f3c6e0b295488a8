/// What people write into a list of URLs that is something else there.
enum LineMistakes {
  /// The warning for a line whose URL can be fetched and hardly is what was meant; nil for none. It repeats nothing of
  /// the line.
  static func warning(_ text: Span<UInt8>) -> String? {
    var start = 0
    var isFollowed = false
    while let blank = text.firstIndex(of: 0x20, in: start..<text.count) {
      start = blank + 1
      if text.hasPrefix("http://", at: start) || text.hasPrefix("https://", at: start) {
        return "two URLs with a blank between them are read as one; give each file's URL a line of its own, "
          + "or write a TAB between mirrors of one file"
      }
      let end = text.firstIndex(of: 0x3D, in: start..<min(text.count, start + 16))
      if let end, let option = EntryOptions.Option(text.extracting(start..<end)) {
        return "\(option.rawValue)= after the URL is read as a part of the URL; "
          + "an option is a line of its own that begins with white space"
      }
      isFollowed = isFollowed || isFile(text, start - 1)
    }
    if isFollowed {
      return "what stands behind the URL and a blank is read as a part of the URL; "
        + "write a name as an option (out=) on a line of its own that begins with white space"
    }
    if text.firstIndex(of: 0x7C, in: 0..<text.count) != nil, PipedHeaders.split(text.text(0..<text.count)).hasFields {
      return "header fields behind a bar (|) are read as a part of the URL; write each as an option (header=) on a "
        + "line of its own, or say --format m3u if this is a playlist"
    }
    return separators.first { isTable(text, $0.byte) }.map { table(with: $0.name) }
  }

  /// The message for a line that is no URL and looks like a row of a table.
  static func tableHint(_ text: Span<UInt8>) -> String? {
    let isQuoted = text.hasPrefix("\"http://") || text.hasPrefix("\"https://")
    for (separator, name) in separators {
      var start = 0
      while let place = text.firstIndex(of: separator, in: start..<text.count) {
        start = place + 1
        if isQuoted || isURL(text, start) { return "not a URL: \(table(with: name))" }
      }
    }
    return nil
  }

  private static let separators: [(byte: UInt8, name: String)] = [(0x2C, "commas"), (0x3B, "semicolons")]

  private static func table(with separators: String) -> String {
    "this looks like a table with \(separators), which is read as one URL; "
      + "write the URL alone, and the name as an option (out=) on the next line"
  }

  /// A separator belongs to a table if the text before it is a whole file's URL, or if a quote or a URL follows.
  private static func isTable(_ text: Span<UInt8>, _ separator: UInt8) -> Bool {
    guard let first = text.firstIndex(of: separator, in: 0..<text.count) else { return false }
    if isFile(text, first), !isParameter(text, first, separator) { return true }
    var start = first
    while let place = text.firstIndex(of: separator, in: start..<text.count) {
      start = place + 1
      if isURL(text, start) || start < text.count && text[start] == 0x22 { return true }
    }
    return false
  }

  /// Whether the text before `end` ends as a file's URL does.
  private static func isFile(_ text: Span<UInt8>, _ end: Int) -> Bool {
    let known = SafeName.fileExtension(text.text(max(0, end - 16)..<end))
    return known.flatMap { FileType.mediaType(forExtension: $0) } != nil
  }

  /// Whether a URL's own parameter follows (RFC 3986, section 3.3), such as `;v=1.2`.
  private static func isParameter(_ text: Span<UInt8>, _ first: Int, _ separator: UInt8) -> Bool {
    guard separator == 0x3B else { return false }
    for index in first + 1..<text.count {
      if text[index] == 0x3D { return true }
      if !ByteSet.token.contains(text[index]) { return false }
    }
    return false
  }

  private static func isURL(_ text: Span<UInt8>, _ start: Int) -> Bool {
    let quote = start < text.count && (text[start] == 0x22 || text[start] == 0x20) ? 1 : 0
    return text.hasPrefix("http://", at: start + quote) || text.hasPrefix("https://", at: start + quote)
  }
}
