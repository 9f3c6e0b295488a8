import Base

/// Reads one list.
protocol ListReader: AnyObject {
  /// The next entry or problem; nil at the end. After an error there is no further call.
  func next() throws(ManifestError) -> ManifestItem?
}

/// Reads one format of lists that are files or pipes. A new format is a file with a type of this protocol (or of
/// ``LineParser``, ``XMLListFormat`` or ``JSONListFormat``), and a case of ``ListFormat``.
protocol FileListReader: ListReader {
  /// Whether a list that begins so is of this format.
  static func recognizes(_ head: ListHead) -> Bool
  /// Begins to read `input` from its start.
  init(_ input: consuming LineReader, _ setup: ListSetup)
}

/// What a reader needs beside the list.
struct ListSetup {
  /// The list's name, for messages.
  var name: String
  var base: ManifestBase
  var format: ListFormat
  /// Which files of cookies the list may name.
  var cookies = CookieAccess.none(.server)
  var disk: ListDisk?
  /// Whether each entry has a resolver, which makes of a page what it shows.
  var isResolved = false

  /// The error of a list that breaks the rules of its format on `line`.
  func malformed(_ line: Int, _ reason: String) -> ManifestError {
    .malformed(name: name, format: format.title, line: line, reason: reason)
  }
}

/// The disk of a list, and how messages call the list.
struct ListDisk {
  var calls: DiskCalls
  var list: String
}

extension ListDisk? {
  /// Calls the system for the list.
  func call<Result: ~Copyable, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
    if let self { return try self.calls.make(self.list, body) }
    return try body()
  }
}

/// The first bytes of a list, from which its format is recognized, and its name.
struct ListHead {
  /// How many bytes are enough: those of a few lines, or, where JSON or XML begins, all that may stand before what
  /// shows its format: a channel's description and pictures, or a licence in a comment.
  static let counts = [4096, 64 << 10]

  private let bytes: [UInt8]
  /// The extension of the list's name, in lower case.
  let fileExtension: String?

  init(_ bytes: UnsafeRawBufferPointer, name: String) {
    var head = bytes[...]
    if head.starts(with: [0xEF, 0xBB, 0xBF]) { head = head.dropFirst(3) }
    self.bytes = Array(head.drop { $0.isBlank || $0 == 0x0A })
    fileExtension = SafeName.fileExtension(name.split(separator: "/").last.map(String.init) ?? "")
  }

  /// Whether it begins with `text` (in lower case), after blank lines and in any case.
  func begins(_ text: StaticString) -> Bool { bytes.span.hasPrefix(text) }

  /// Whether `text` is in it.
  func contains(_ text: String) -> Bool { bytes.firstRange(of: Array(text.utf8)) != nil }

  /// Whether it begins as JSON or XML does, as far as it is there.
  var isOfBrackets: Bool { bytes.isEmpty || begins("<") || begins("{") || begins("[") }

  /// Whether it is a JSON list that has nothing in it.
  var isEmptyList: Bool { bytes.filter { !$0.isBlank && $0 != 0x0A } == [0x5B, 0x5D] }

  /// The kind of a text that is no list of lines; nil for one that may be. A `<` or `[` alone shows nothing: a line of
  /// a plain list may begin so, and gets a message of its own.
  var otherKind: String? {
    if hasLineWithURL { return nil }
    if begins("<") { return begins("<?xml") || begins("<!") || rootElement != nil ? "xml" : nil }
    guard begins("{") || begins("[") else { return nil }
    // What may follow the bracket in JSON.
    guard let next = bytes.dropFirst().first(where: { !$0.isBlank && $0 != 0x0A }) else { return "json" }
    let isValue = next.isDigit || ByteSet("{}[]\"-").contains(next)
    return isValue && (begins("[") || next == 0x22 || next == 0x7D) ? "json" : nil
  }

  /// Whether a line begins with a URL, as no line of an XML or JSON document does that mediafs does not know.
  private var hasLineWithURL: Bool {
    bytes.split(separator: 0x0A).contains { line in
      let span = Array(line.prefix(16)).span
      return span.hasPrefix("http://") || span.hasPrefix("https://")
    }
  }

  /// The local name of an XML document's first element; nil if this is no XML.
  var rootElement: String? {
    guard begins("<") else { return nil }
    var rest = bytes[...]
    while let start = rest.firstIndex(of: 0x3C) {
      rest = rest[start...].dropFirst()
      if rest.starts(with: "!--".utf8) {
        guard let end = rest.firstRange(of: Array("-->".utf8)) else { return nil }
        rest = rest[end.upperBound...]
      } else if rest.first == 0x3F || rest.first == 0x21 {
        rest = rest.drop { $0 != 0x3E }
      } else {
        let name = rest.prefix { $0.isLetter || $0.isDigit || $0 == 0x2D || $0 == 0x5F || $0 == 0x2E || $0 == 0x3A }
        // A `<https://h/x>` is no element.
        let after = rest.dropFirst(name.count).first ?? 0x3E
        guard after.isBlank || after == 0x0A || after == 0x3E || after == 0x2F && name.last != 0x3A else { return nil }
        return name.split(separator: 0x3A).last.map { String(decoding: $0, as: UTF8.self) }
      }
    }
    return nil
  }
}

/// What a reader found and has not handed over yet.
struct ListOutput {
  private var items: [ManifestItem] = []
  private var position = 0
  /// What is left out without being a mistake: why, how often, and the first line.
  private var leftOut: [(reason: String, count: Int, line: Int)] = []

  mutating func append(_ entry: consuming ManifestEntry) { items.append(.entry(entry)) }

  mutating func append(_ folder: ManifestFolder) { items.append(.folder(folder)) }

  mutating func report(_ line: Int, _ severity: ManifestProblem.Severity, _ message: String) {
    items.append(.problem(ManifestProblem(line: max(1, line), severity: severity, message: message)))
  }

  /// Counts an item that is left out for `reason`, such as "items without an enclosure".
  mutating func leaveOut(_ line: Int, _ reason: String) {
    guard let index = leftOut.firstIndex(where: { $0.reason == reason }) else {
      return leftOut.append((reason, 1, line))
    }
    leftOut[index].count += 1
  }

  /// Reports, at the end, how many items were left out.
  mutating func reportLeftOut() {
    for (reason, count, line) in leftOut {
      report(line, .warning, "left out: \(reason) (\(count)\(count > 1 ? ", the first here" : ""))")
    }
    leftOut = []
  }

  mutating func takeItem() -> ManifestItem? {
    if position == items.count {
      items.removeAll(keepingCapacity: true)
      position = 0
      return nil
    }
    defer { position += 1 }
    return items[position]
  }
}
