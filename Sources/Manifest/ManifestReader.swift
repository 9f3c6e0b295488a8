import Base
import Glibc

/// The base against which a playlist's relative URLs are resolved.
package struct ManifestBase: Sendable {
  /// The normalized URL; nil when there is none: relative URLs are problems then.
  let url: [UInt8]?

  /// No base.
  package static let none = ManifestBase(url: nil)

  private init(url: [UInt8]?) { self.url = url }

  /// The base `url`, absolute, http or https. A relative URL replaces what follows its last `/` (RFC 3986, section
  /// 5.2).
  package init(url: String) throws(ManifestError) {
    var parser = URLParser()
    do { try parser.parse(Array(url.utf8).span) } catch { throw .badBase(reason: error.message) }
    self.url = parser.bytes
  }
}

/// Reads a manifest (docs/MANIFEST.md) entry by entry, in memory that does not grow with it.
///
/// There are two formats, distinguished by the first line and the name: aria2's input format, and M3U. Entries come in
/// their order, each right after the problems with its options. Not to be used by several threads at once.
package struct ManifestReader: ~Copyable {
  private var lines: LineReader
  private var parser: EntryParser
  private var isFinished = false
  private let name: String

  /// Opens the file at `path` (or a pipe, as a shell's `<(…)`).
  package init(path: String, base: ManifestBase = .none) throws(ManifestError) {
    let descriptor: FileDescriptor
    do { descriptor = try FileDescriptor.open(path, O_RDONLY) } catch {
      switch error.rawValue {
      case ENOENT, ENOTDIR: throw .notFound(path: path)
      case EACCES, EPERM: throw .permissionDenied(path: path)
      default: throw .unreadable(name: path, reason: error)
      }
    }
    try self.init(descriptor: descriptor, name: path, base: base)
  }

  /// Reads from `descriptor`, which may be a pipe, and closes it at the end (pass a duplicate of standard input).
  /// `name` is for messages; `.m3u` or `.m3u8` at its end means an M3U playlist.
  package init(
    descriptor: consuming FileDescriptor, name: String, base: ManifestBase = .none
  ) throws(ManifestError) {
    let mode: mode_t
    do { mode = try descriptor.status().st_mode } catch { throw .unreadable(name: name, reason: error) }
    if mode & S_IFMT == S_IFDIR { throw .isFolder(path: name) }
    lines = LineReader(descriptor)
    parser = EntryParser(isPlaylist: Self.namesPlaylist(name), base: base)
    self.name = name
  }

  /// The next entry or problem; nil at the end, and after an error.
  package mutating func next() throws(ManifestError) -> ManifestItem? {
    while true {
      if let item = parser.takeItem() { return item }
      if isFinished { return nil }
      do throws(ManifestError) {
        if lines.number == 0 { try checkHead() }
        guard try advance() else {
          isFinished = true
          parser.finish()
          continue
        }
        if Self.readLine(lines, &parser) { throw .streamPlaylist(name: name, line: lines.number) }
      } catch {
        isFinished = true
        throw error
      }
    }
  }

  // Takes two arguments, because a span of one property would keep the other from being changed.
  private static func readLine(_ lines: borrowing LineReader, _ parser: inout EntryParser) -> Bool {
    parser.read(lines.buffer.span.extracting(lines.range), number: lines.number, isTooLong: lines.isTooLong)
  }

  private mutating func advance() throws(ManifestError) -> Bool {
    do { return try lines.advance() } catch { throw .unreadable(name: name, reason: error) }
  }

  /// Throws when the file is of another type altogether, so that not each of its "lines" is reported.
  private mutating func checkHead() throws(ManifestError) {
    let isPlaylist = parser.isPlaylist
    let found: (isUTF16: Bool, kind: String?)
    do {
      found = try lines.withHead(4096) { head in
        let isUTF16 = head.starts(with: [0xFF, 0xFE]) || head.starts(with: [0xFE, 0xFF])
        // A playlist may begin with any relative URL, and so with the first bytes of any type.
        return (isUTF16, isPlaylist ? nil : FileType.detect(head)?.fileExtension)
      }
    } catch { throw .unreadable(name: name, reason: error) }
    if found.isUTF16 { throw .notUTF8(name: name) }
    if let kind = found.kind, kind != "m3u8" { throw .notAList(name: name, what: kind) }
  }

  private static func namesPlaylist(_ name: String) -> Bool {
    let ending = SafeName.fileExtension(name.split(separator: "/").last.map(String.init) ?? "")
    return ending == "m3u" || ending == "m3u8"
  }
}
