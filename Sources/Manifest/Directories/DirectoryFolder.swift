/// Judges what a listing links to, against the URL of its folder, and keeps what is directly below it.
struct DirectoryFolder {
  /// Entries that are complete.
  var entries: [DirectoryEntry] = []
  private(set) var problems: [DirectoryProblem] = []
  private(set) var isFull = false

  /// The folder's URL up to its last slash, in the form that is requested.
  private let url: [UInt8]
  private let path: Range<Int>
  private let host: Range<Int>
  /// What relative links are relative to.
  private var base: [UInt8]
  /// The folder's names, decoded.
  private let segments: [[UInt8]]
  private let depth: Int
  private var parser = URLParser()
  /// Hashes of the names so far, by Swift's seed of this run: no server can make two of them meet.
  private var seen: Set<Int> = []

  /// `depth` counts the folders between this one and the one that the user named.
  init(url: String, depth: Int) throws(DirectoryFault) {
    let text = Array(url.utf8)
    do throws(URLFault) { try parser.parse(text.span) } catch { throw .badURL }
    let bytes = parser.bytes
    let end = bytes[parser.path].lastIndex(of: 0x2F) ?? parser.path.lowerBound
    self.url = Array(bytes[...end])
    path = parser.path.lowerBound..<end + 1
    host = parser.host
    base = bytes
    segments = Self.split(bytes[path].dropLast()).map(Self.decoded)
    self.depth = depth
  }

  /// `<base href>`: what the links that follow are relative to. Each of them is joined with it, so it has a bound.
  mutating func rebase(_ reference: String, line: Int) {
    let (text, base) = (Array(reference.utf8), base)
    do throws(URLFault) { try parser.parse(text.span, relativeTo: base.span) } catch { return }
    if parser.bytes.count > DirectoryLimits.url { return report(.tooLong, line) }
    self.base = parser.bytes
  }

  mutating func report(_ kind: DirectoryProblem.Kind, _ line: Int) {
    if let index = problems.firstIndex(where: { $0.kind == kind }) {
      problems[index].count += 1
    } else {
      problems.append(DirectoryProblem(kind: kind, count: 1, line: max(1, line)))
    }
  }

  /// An entry without size and date for `reference`; nil, with a problem, if it is none. `isFolder`: what the server
  /// says of it beside; nil where the slash at the URL's end says it.
  mutating func entry(_ reference: String, isFolder: Bool? = nil, line: Int) -> DirectoryEntry? {
    let (text, base) = (Array(reference.utf8), base)
    if text.count > DirectoryLimits.url { return refuse(.tooLong, line) }
    let trimmed = text.span.trimmedRange(0..<text.count)
    if trimmed.isEmpty || text[trimmed.lowerBound] == 0x23 { return refuse(.itself, line) }
    // The reader put U+FFFD in the place of bytes that are not UTF-8.
    if text.contains([0xEF, 0xBF, 0xBD]) { return refuse(.unknownBytes, line) }
    do throws(URLFault) {
      try parser.parse(text.span.extracting(trimmed), relativeTo: base.span)
    } catch { return refuse(.badURL, line) }
    if parser.bytes.count > 2 * DirectoryLimits.url { return refuse(.tooLong, line) }
    guard isOwnHost else { return refuse(.otherHost, line) }
    return entryOfPath(isFolder, line)
  }

  /// An entry for a name that a server writes without its URL.
  mutating func entry(name: String, isFolder: Bool, line: Int) -> DirectoryEntry? {
    if name.utf8.count > DirectoryLimits.url { return refuse(.tooLong, line) }
    if name.unicodeScalars.contains("\u{FFFD}") { return refuse(.unknownBytes, line) }
    return entry(decoded: Array(name.utf8), raw: Self.escaped(name.utf8), query: [], isFolder, line)
  }

  private mutating func refuse(_ kind: DirectoryProblem.Kind, _ line: Int) -> DirectoryEntry? {
    report(kind, line)
    return nil
  }

  /// A server behind another one that speaks TLS may write http: and a port of its own. An entry's URL has the
  /// listing's scheme and host in any case.
  private var isOwnHost: Bool {
    let bytes = parser.bytes
    if bytes.span.hasPrefix("https:") != url.span.hasPrefix("https:") {
      return bytes[parser.host].elementsEqual(url[host])
    }
    return bytes[parser.host.lowerBound..<parser.path.lowerBound].elementsEqual(url[host.lowerBound..<path.lowerBound])
  }

  private mutating func entryOfPath(_ isFolder: Bool?, _ line: Int) -> DirectoryEntry? {
    let link = parser.bytes[parser.path]
    var names: [ArraySlice<UInt8>]
    if link.starts(with: url[path]) {
      names = Self.split(link.dropFirst(path.count - 1))
    } else {
      // The server may escape other bytes of the folder's names than the listing's URL does.
      names = Self.split(link)
      let shared = zip(names, segments).prefix { Self.decoded($0) == $1 }.count
      if shared < segments.count {
        let isAbove = names.count == shared || names.count == shared + 1 && names[shared].isEmpty
        return refuse(isAbove ? .above : .elsewhere, line)
      }
      names.removeFirst(shared)
    }
    let endsWithSlash = names.last?.isEmpty ?? true
    if endsWithSlash, !names.isEmpty { names.removeLast() }
    guard let raw = names.first else { return refuse(parser.query == nil ? .itself : .sorting, line) }
    if names.count > 1 { return refuse(.deeper, line) }
    let folder = isFolder ?? endsWithSlash
    if folder, parser.query != nil { return refuse(.sorting, line) }
    let query = parser.query.map { parser.bytes[($0.lowerBound - 1)...] } ?? []
    return entry(decoded: Self.decoded(raw), raw: Array(raw), query: query, folder, line)
  }

  private mutating func entry(
    decoded: [UInt8], raw: [UInt8], query: ArraySlice<UInt8>, _ isFolder: Bool, _ line: Int
  ) -> DirectoryEntry? {
    guard !decoded.contains(0x2F), !decoded.contains(0), !SafeName.isDots(decoded.span),
      let name = SafeName.component(decoded.span)
    else { return refuse(.badName, line) }
    if isFolder, depth >= DirectoryLimits.depth { return refuse(.tooDeep, line) }
    if seen.count >= DirectoryLimits.names {
      isFull = true
      return nil
    }
    if !seen.insert(decoded.hashValue).inserted { return refuse(.duplicate, line) }
    let whole = url + raw + (isFolder ? [0x2F] : []) + query
    return DirectoryEntry(name: name, url: String(decoding: whole, as: UTF8.self), isFolder: isFolder)
  }

  /// The parts between the slashes of a path that begins with one; a last empty part stands for a slash at its end.
  private static func split(_ path: ArraySlice<UInt8>) -> [ArraySlice<UInt8>] {
    if path.isEmpty { return [] }
    return path.dropFirst().split(separator: 0x2F, omittingEmptySubsequences: false)
  }

  private static func decoded(_ raw: ArraySlice<UInt8>) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(raw.count)
    var index = raw.startIndex
    while index < raw.endIndex {
      if raw[index] == 0x25, index + 2 < raw.endIndex, let high = raw[index + 1].hexValue,
        let low = raw[index + 2].hexValue
      {
        bytes.append(high << 4 | low)
        index += 3
      } else {
        bytes.append(raw[index])
        index += 1
      }
    }
    return bytes
  }

  private static func escaped(_ name: String.UTF8View) -> [UInt8] {
    var bytes: [UInt8] = []
    for byte in name { if ByteSet.unreserved.contains(byte) { bytes.append(byte) } else { bytes.appendEscaped(byte) } }
    return bytes
  }
}
