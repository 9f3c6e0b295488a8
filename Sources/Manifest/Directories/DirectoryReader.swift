/// What one form of listings makes of bytes. The bytes are UTF-8.
protocol DirectoryFormat: AnyObject {
  /// Takes what was found.
  var folder: DirectoryFolder { get set }
  var kind: DirectoryKind { get }
  func read(_ bytes: UnsafeRawBufferPointer) throws(DirectoryFault)
  /// The end.
  func finish() throws(DirectoryFault)
}

/// Reads a server's listing of a folder that comes in pieces: pure, without network, and in memory that grows with the
/// number of names alone, by a hash for each.
///
/// Hand it each piece, take the entries, and call ``finish()``. The entries are all that the folder has once that
/// returns; a page that begins as a listing and turns out to be none throws only then.
package final class DirectoryReader {
  /// The most white space before the first letter of a listing whose media type says nothing.
  private static let mostBlank = 64 << 10

  private let folder: DirectoryFolder
  private var format: (any DirectoryFormat)?
  /// Bytes that wait: for more of the head, if the media type says nothing, or for the rest of a character.
  private var held: [UInt8] = []
  private var count = 0

  /// `url`: that of the answer, after redirects. A folder's URL ends with a slash; without one, links of a page are
  /// relative to the folder above it, as in a browser. `mediaType`: the answer's Content-Type; nil for none. `depth`:
  /// how many folders lie between this one and the one that the user named.
  package init(url: String, mediaType: String?, depth: Int = 0) throws(DirectoryFault) {
    let type = Self.essence(mediaType ?? "")
    if Self.isPage(type) {
      folder = try DirectoryFolder(url: url, depth: depth)
      format = DirectoryPage(folder)
      return
    }
    let isObjects = type.hasSuffix("/json") || type.hasSuffix("+json")
    let isDocument = type.hasSuffix("/xml") || type.hasSuffix("+xml")
    folder = try DirectoryFolder(url: isObjects || isDocument ? Self.withSlash(url) : url, depth: depth)
    if isObjects {
      format = DirectoryObjects(folder)
    } else if isDocument {
      format = DirectoryDocument(folder)
    } else if !["", "text/plain", "application/octet-stream"].contains(type) {
      throw .file(mediaType: type)
    }
  }

  /// What the listing is written in, once that is known.
  package var kind: DirectoryKind? { format?.kind }
  /// What was left out so far.
  package var problems: [DirectoryProblem] { format?.folder.problems ?? [] }

  /// Removes and returns the entries that are complete.
  package func takeEntries() -> [DirectoryEntry] {
    guard let format else { return [] }
    let entries = format.folder.entries
    format.folder.entries = []
    return entries
  }

  /// Reads the next bytes. After an error there is no further call but ``takeEntries()``.
  package func read(_ bytes: UnsafeRawBufferPointer) throws(DirectoryFault) {
    count += bytes.count
    if count > DirectoryLimits.bytes { throw .tooMany }
    held.append(contentsOf: bytes)
    if format == nil {
      // Enough for `<?xml `.
      let head = held.drop { $0.isBlank || $0 == 0x0A || [0xEF, 0xBB, 0xBF].contains($0) }
      if head.count < 6 {
        // All of it is looked at again with the next piece.
        if held.count > Self.mostBlank { throw .notAListing(reason: "it begins with too much white space") }
        return
      }
      format = try Self.recognized(head, folder)
    }
    try handOver(dropping: Self.unfinished(held))
  }

  /// The end. Returns if the listing is whole.
  package func finish() throws(DirectoryFault) {
    if format == nil { format = try Self.recognized(held.drop { $0.isBlank || $0 == 0x0A }, folder) }
    try handOver(dropping: 0)
    try format?.finish()
    if format?.folder.isFull ?? false { throw .tooMany }
  }

  /// Hands over what is held as UTF-8, but for its last bytes: no byte that libxml2 or the JSON decoder refuses ends a
  /// listing of good names.
  private func handOver(dropping rest: Int) throws(DirectoryFault) {
    var text = String(decoding: held.dropLast(rest), as: UTF8.self)
    held.removeFirst(held.count - rest)
    guard let format, !text.isEmpty else { return }
    var fault: DirectoryFault?
    // The pointer is good until the closure returns; the formats copy what they keep.
    text.withUTF8 { bytes in
      do throws(DirectoryFault) { try format.read(UnsafeRawBufferPointer(bytes)) } catch { fault = error }
    }
    if let fault { throw fault }
    if format.folder.isFull { throw .tooMany }
  }

  /// How many bytes at the end begin a character that has more.
  private static func unfinished(_ bytes: [UInt8]) -> Int {
    for back in 1...3 where back <= bytes.count {
      let byte = bytes[bytes.count - back]
      if byte & 0xC0 == 0x80 { continue }
      let length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1
      return length > back ? back : 0
    }
    return 0
  }

  private static func recognized(
    _ head: ArraySlice<UInt8>, _ folder: DirectoryFolder
  ) throws(DirectoryFault) -> any DirectoryFormat {
    if head.starts(with: "<?xml".utf8) { return DirectoryDocument(folder) }
    if head.first == 0x3C { return DirectoryPage(folder) }
    if head.first == 0x5B { return DirectoryObjects(folder) }
    throw .notAListing(reason: head.isEmpty ? "it is empty" : "it is neither a page, nor XML, nor JSON")
  }

  /// A media type without its parameters, in lower case.
  private static func essence(_ mediaType: String) -> String {
    let type = mediaType.prefix { $0 != ";" }.lowercased()
    return String(type.drop { $0 == " " || $0 == "\t" }.prefix { $0 != " " && $0 != "\t" })
  }

  /// Whether a page has the type, in lower case.
  static func isPage(_ type: String) -> Bool { type == "text/html" || type == "application/xhtml+xml" }

  /// `url` with a slash at its path's end.
  private static func withSlash(_ url: String) -> String {
    let path = url.prefix { $0 != "?" && $0 != "#" }
    return path.hasSuffix("/") ? url : path + "/" + url.dropFirst(path.count)
  }
}
