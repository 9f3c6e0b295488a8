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
  /// The list, if it is a folder of .strm files, until it is read.
  private var strmFolder: FileDescriptor?
  private var reader: (any ListReader)?
  private let base: ManifestBase
  /// For messages.
  let name: String
  private let cookies: CookieAccess
  private let disk: ListDisk?
  /// What is remembered of the servers' folders that it names; nil: they are files.
  private let folders: (any ServerFolders)?
  /// The lists that follow.
  private var parts: [ListPart] = []
  /// What is said before the next item.
  private var warnings: [ManifestProblem] = []
  /// Where servers' folders show, and the lines that say so.
  private var places: [[UInt8]: Int] = [:]
  /// The folder whose entries come next.
  private var expansion: FolderExpansion?
  /// The list's format: the one that was asked for; else, from the first item on, the one that was recognized.
  package private(set) var format: ListFormat?

  /// Whether a list without an entry is an error: the tree would be empty.
  package var needsEntries = false
  /// Whether anything of it shows, beside the lists that follow it.
  private var isUsable = false
  /// Who gives the links.
  private var links = ListResolvers()

  /// Opens the file at `path` (or a pipe, as a shell's `<(…)`).
  package init(
    path: String, base: ManifestBase = .none, format: ListFormat? = nil, cookies: CookieAccess = .none(.server),
    folders: (any ServerFolders)? = nil
  ) throws(ManifestError) {
    let descriptor: FileDescriptor
    do { descriptor = try FileDescriptor.open(path, O_RDONLY) } catch {
      switch error.rawValue {
      case ENOENT, ENOTDIR: throw .notFound(path: path)
      case EACCES, EPERM: throw .permissionDenied(path: path)
      default: throw .unreadable(name: path, reason: error)
      }
    }
    try self.init(descriptor: descriptor, name: path, base: base, format: format, cookies: cookies, folders: folders)
  }

  /// A list that is a server's folder.
  package init(folder: ServerFolder, name: String, folders: any ServerFolders) {
    input = nil
    strmFolder = nil
    (reader, base, format, self.name, self.folders) = (nil, .none, nil, name, folders)
    (cookies, disk) = (.none(.server), nil)
    expansion = FolderExpansion(ManifestFolder(line: 1, path: [], source: folder), folders, name: name)
  }

  /// Reads from `descriptor`, which may be a pipe, and closes it at the end (pass a duplicate of standard input).
  /// `name` is for messages; `.m3u` or `.m3u8` at its end means an M3U playlist. `format` forces a format. `calls`: who
  /// is told of each call for the list's disk.
  package init(
    descriptor: consuming FileDescriptor, name: String, base: ManifestBase = .none, format: ListFormat? = nil,
    cookies: CookieAccess = .none(.server), folders: (any ServerFolders)? = nil, calls: DiskCalls? = nil
  ) throws(ManifestError) {
    let disk = calls.map { ListDisk(calls: $0, list: name) }
    let mode: mode_t
    do { mode = try descriptor.status().st_mode } catch { throw .unreadable(name: name, reason: error) }
    let isFolder = mode & S_IFMT == S_IFDIR
    if isFolder, let format, format != .strm { throw .isFolder(path: name) }
    self.base = base
    self.name = name
    self.cookies = cookies
    self.disk = disk
    self.folders = folders
    self.format = isFolder ? .strm : format
    if isFolder {
      input = nil
      strmFolder = consume descriptor
    } else {
      input = LineReader(descriptor, disk: disk)
      strmFolder = nil
    }
    reader = nil
  }

  /// Whether a folder at the top can have that name as it is.
  package static func isFolderName(_ name: String) -> Bool {
    SafeName.component(name).map { $0.utf8.elementsEqual(name.utf8) && !SafeName.isReserved($0) } ?? false
  }

  /// Several lists: `parts` follow this one.
  package mutating func append(_ parts: [ListPart]) { self.parts += parts }

  /// No list: what follows it is all there is.
  package init(name: String) {
    input = nil
    strmFolder = nil
    (reader, base, format, self.name, folders) = (nil, .none, nil, name, nil)
    (cookies, disk, isUsable) = (.none(.server), nil, true)
  }

  /// `links`: who gives the links of its entries, and of those of the lists that follow.
  package mutating func take(_ links: ListResolvers) {
    self.links = links
    for part in parts { part.take(links) }
  }

  /// The next entry or problem; nil at the end, and after an error.
  package mutating func next() throws(ManifestError) -> ManifestItem? {
    if !warnings.isEmpty { return .problem(warnings.removeFirst()) }
    if var item = try nextOfOwn() {
      if case .problem(var problem) = item {
        problem.format = format
        item = .problem(problem)
      }
      if links.isForAll || item.hasResolver, case .entry(var entry) = item {
        if let warning = links.apply(to: &entry) { warnings.append(warning) }
        item = .entry(entry)
      }
      if !parts.isEmpty { noteShared(item) }
      if case .problem = item {} else { isUsable = true }
      return item
    }
    if needsEntries || !parts.isEmpty, !isUsable {
      parts = []
      throw .empty(name: name, format: format)
    }
    while let part = parts.first {
      do throws(ManifestError) { if let item = try part.next() { return item } } catch {
        parts = []
        throw error
      }
      parts.removeFirst()
    }
    return nil
  }

  /// Two lists may want one name: a folder has the names of both.
  private mutating func noteShared(_ item: ManifestItem) {
    let top: (name: String?, line: Int)
    switch item {
    case .entry(let entry): top = (entry.folder.first ?? entry.name, entry.line)
    case .folder(let folder): top = (folder.path.first, folder.line)
    case .problem: return
    }
    guard let part = parts.first(where: { !$0.isShared && $0.folder == top.name }) else { return }
    part.isShared = true
    warnings.append(
      ManifestProblem(
        line: top.line, severity: .warning,
        message: "\(part.folder) is also the folder of the list \(part.name): folders of both show together, and of "
          + "two names that are equal one gets a number"))
  }

  private mutating func nextOfOwn() throws(ManifestError) -> ManifestItem? {
    do throws(ManifestError) {
      if reader == nil { try open() }
      if let item = try expansion?.next() { return item }
      expansion = nil
      if let item = try reader?.next() {
        // Looks before it takes anything out of the item: a list may have millions, and hardly one is a folder.
        guard item.hasFolderURL, let folders, case .entry(let entry) = item, let folder = ServerFolder(entry) else {
          return item
        }
        let path = entry.folder + [entry.name]
        let shown = path.joined(separator: "/")
        if let first = places.updateValue(entry.line, forKey: Array(shown.utf8)) {
          places[Array(shown.utf8)] = first
          return .problem(
            ManifestProblem(
              line: entry.line, severity: .error,
              message: "the folder \(shown) shows a server's folder already, that of line \(first): name this one "
                + "otherwise (out=)"))
        }
        expansion = FolderExpansion(
          ManifestFolder(line: entry.line, path: path, source: folder), folders, name: name)
        return try expansion?.next()
      }
      reader = nil
      return nil
    } catch {
      (reader, parts) = (nil, [])
      throw error
    }
  }

  /// Makes the reader of the list's format; none for a list without a file, and once it has been made.
  private mutating func open() throws(ManifestError) {
    var setup = ListSetup(name: name, base: base, format: .strm, cookies: cookies, disk: disk)
    setup.isResolved = links.isForAll
    if let folder = strmFolder.take() { return reader = StrmReader(folder: folder, setup) }
    guard var input = input.take() else { return }
    let found: ListFormat
    if let format { found = format } else { found = try recognize(&input) }
    (format, setup.format) = (found, found)
    reader = try found.open(input, setup)
  }

  /// The format of `input`. Throws when it is a file of another type altogether, so that not each of its "lines" is
  /// reported.
  private func recognize(_ input: inout LineReader) throws(ManifestError) -> ListFormat {
    var found: (isUTF16: Bool, format: ListFormat?, kind: String?, isOpen: Bool) = (false, nil, nil, true)
    // A pipe may give no more than a few lines, so the reader asks for more only where that can show a format.
    for count in ListHead.counts where found.format == nil && found.isOpen {
      do {
        found = try input.withHead(count) { head in
          let isUTF16 = head.starts(with: [0xFF, 0xFE]) || head.starts(with: [0xFE, 0xFF])
          let start = ListHead(head, name: name)
          let kind = FileType.detect(head)?.fileExtension ?? start.otherKind
          return (isUTF16, ListFormat.recognized(start), kind, start.isOfBrackets)
        }
      } catch { throw .unreadable(name: name, reason: error) }
    }
    if found.isUTF16 { throw .notUTF8(name: name) }
    if let format = found.format { return format }
    if let kind = found.kind { throw .notAList(name: name, what: kind) }
    return .aria2
  }
}
