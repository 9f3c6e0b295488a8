import Base
import Glibc

/// The base against which a list's relative URLs are resolved.
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

/// Reads a manifest (docs/MANIFEST.md, docs/LISTS.md) entry by entry, in memory that does not grow with it.
///
/// It recognizes the format by the first bytes (``ListFormat``) and leaves the rest to that format's ``ListReader``.
/// Entries come in their order. Not to be used by several threads at once.
package struct ManifestReader: ~Copyable {
  private var input: LineReader?
  private var reader: (any ListReader)?
  private let base: ManifestBase
  private let name: String
  private let cookies: CookieAccess
  /// The list's format: the one that was asked for; else, from the first item on, the one that was recognized.
  package private(set) var format: ListFormat?

  /// Opens the file at `path` (or a pipe, as a shell's `<(…)`).
  package init(
    path: String, base: ManifestBase = .none, format: ListFormat? = nil, cookies: CookieAccess = .none
  ) throws(ManifestError) {
    let descriptor: FileDescriptor
    do { descriptor = try FileDescriptor.open(path, O_RDONLY) } catch {
      switch error.rawValue {
      case ENOENT, ENOTDIR: throw .notFound(path: path)
      case EACCES, EPERM: throw .permissionDenied(path: path)
      default: throw .unreadable(name: path, reason: error)
      }
    }
    try self.init(descriptor: descriptor, name: path, base: base, format: format, cookies: cookies)
  }

  /// Reads from `descriptor`, which may be a pipe, and closes it at the end (pass a duplicate of standard input).
  /// `name` is for messages; `.m3u` or `.m3u8` at its end means an M3U playlist. `format` forces a format.
  package init(
    descriptor: consuming FileDescriptor, name: String, base: ManifestBase = .none, format: ListFormat? = nil,
    cookies: CookieAccess = .none
  ) throws(ManifestError) {
    let mode: mode_t
    do { mode = try descriptor.status().st_mode } catch { throw .unreadable(name: name, reason: error) }
    let isFolder = mode & S_IFMT == S_IFDIR
    if isFolder, let format, format != .strm { throw .isFolder(path: name) }
    self.base = base
    self.name = name
    self.cookies = cookies
    self.format = isFolder ? .strm : format
    if isFolder {
      input = nil
      reader = StrmReader(folder: descriptor, ListSetup(name: name, base: base, format: .strm))
    } else {
      input = LineReader(descriptor)
      reader = nil
    }
  }

  /// The next entry or problem; nil at the end, and after an error.
  package mutating func next() throws(ManifestError) -> ManifestItem? {
    do throws(ManifestError) {
      if var input = input.take() {
        let found: ListFormat
        if let format { found = format } else { found = try recognize(&input) }
        format = found
        reader = try found.open(input, ListSetup(name: name, base: base, format: found, cookies: cookies))
      }
      if let item = try reader?.next() { return item }
      reader = nil
      return nil
    } catch {
      reader = nil
      throw error
    }
  }

  /// The format of `input`. Throws when it is a file of another type altogether, so that not each of its "lines" is
  /// reported.
  private func recognize(_ input: inout LineReader) throws(ManifestError) -> ListFormat {
    let found: (isUTF16: Bool, format: ListFormat?, kind: String?)
    do {
      found = try input.withHead(ListHead.count) { head in
        let isUTF16 = head.starts(with: [0xFF, 0xFE]) || head.starts(with: [0xFE, 0xFF])
        let start = ListHead(head, name: name)
        return (isUTF16, ListFormat.recognized(start), FileType.detect(head)?.fileExtension ?? start.otherKind)
      }
    } catch { throw .unreadable(name: name, reason: error) }
    if found.isUTF16 { throw .notUTF8(name: name) }
    if let format = found.format { return format }
    if let kind = found.kind { throw .notAList(name: name, what: kind) }
    return .aria2
  }
}
