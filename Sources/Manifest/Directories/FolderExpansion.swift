import Base
import Glibc

/// Makes entries of what is remembered of a server's folder, and of those in it: depth first, in memory that grows with
/// the pieces that are read.
package final class FolderExpansion: ListReader {
  /// A folder that is being read.
  private final class Level {
    let path: [String]
    let source: ServerFolder
    let answer: FolderAnswer
    let reader: DirectoryReader
    let file: FileDescriptor
    var entries: ArraySlice<DirectoryEntry> = []
    var isAtEnd = false

    init(_ path: [String], _ source: ServerFolder, _ listing: consuming FolderListing) throws(DirectoryFault) {
      (self.path, self.source) = (path, source)
      answer = FolderAnswer(listing.url, in: source.above)
      reader = try DirectoryReader(
        url: source.withUserinfo(listing.url), mediaType: listing.mediaType, depth: source.depth)
      file = listing.file
    }

    /// The next bytes; none at the end.
    func nextPiece() throws(Errno) -> [UInt8] {
      var piece = [UInt8](repeating: 0, count: 64 << 10)
      let count = try retrying { read(file.rawValue, &piece, piece.count) }
      return Array(piece[..<count])
    }

    func take(_ piece: [UInt8]) throws(DirectoryFault) {
      let count = piece.count
      if count > 0 {
        var fault: DirectoryFault?
        piece.withUnsafeBytes { bytes in
          do throws(DirectoryFault) { try reader.read(UnsafeRawBufferPointer(rebasing: bytes[..<count])) } catch {
            fault = error
          }
        }
        if let fault { throw fault }
      } else {
        isAtEnd = true
        try reader.finish()
      }
      entries = reader.takeEntries()[...]
    }
  }

  /// The most bytes of a path, as Linux has it.
  private static let longestPath = 4095

  private let line: Int
  private let list: String?
  private let folders: any ServerFolders
  /// Whether it stays in the folder that it begins with.
  private let isShallow: Bool
  private var open: [Level] = []
  /// The folder to begin with.
  private var first: (path: [String], source: ServerFolder)?
  private let name: String
  private var output = ListOutput()
  private var keys = KeyBuilder()
  private var parser = URLParser()

  /// Gives `folder`, and all that is remembered below it. `isShallow`: only what is directly in it, without itself.
  package init(_ folder: ManifestFolder, _ folders: any ServerFolders, name: String, isShallow: Bool = false) {
    (line, list) = (folder.line, folder.list)
    self.folders = folders
    self.isShallow = isShallow
    self.name = name
    first = (folder.path, folder.source)
  }

  /// Throws where what is remembered cannot be read: no name may seem to be gone for that.
  package func next() throws(ManifestError) -> ManifestItem? {
    do throws(Errno) { return try advance() } catch { throw .unreadable(name: name, reason: error) }
  }

  private func advance() throws(Errno) -> ManifestItem? {
    if let (path, source) = first.take() {
      if !isShallow { show(path, source) }
      try begin(path, source)
    }
    while true {
      if let item = output.takeItem() { return item }
      guard let level = open.last else { return nil }
      if let entry = level.entries.popFirst() {
        try add(entry, in: level)
      } else if level.isAtEnd {
        open.removeLast()
      } else {
        let piece = try level.nextPiece()
        do throws(DirectoryFault) { try level.take(piece) } catch {
          level.isAtEnd = true
          warn("\(shown(level.path)): \(error)")
        }
        if level.isAtEnd { warnOfLeftOut(level) }
      }
    }
  }

  private func warnOfLeftOut(_ level: Level) {
    let count = level.reader.problems.filter { !$0.isUsual }.reduce(0) { $0 + $1.count }
    if count == 0 { return }
    warn("\(shown(level.path)): the server lists \(count) that cannot be names of files there; they are left out")
  }

  private func show(_ path: [String], _ source: ServerFolder) {
    output.append(ManifestFolder(line: line, path: path, source: source, list: list))
  }

  private func begin(_ path: [String], _ source: ServerFolder) throws(Errno) {
    guard let listing = try folders.listing(of: source) else { return }
    if let above = source.above, above.contains(listing.url) {
      return warn("\(shown(path)): the server shows a folder within itself there; it stays empty")
    }
    do throws(DirectoryFault) { open.append(try Level(path, source, listing)) } catch {
      warn("\(shown(path)): \(error)")
    }
  }

  private func add(_ entry: DirectoryEntry, in level: Level) throws(Errno) {
    if entry.isFolder {
      let path = level.path + [entry.name]
      let length = path.reduce(0) { $0 + $1.utf8.count + 1 }
      guard length <= Self.longestPath else {
        return warn("a folder's path has \(length) bytes, more than Linux allows; it is left out")
      }
      var source = level.source
      (source.url, source.depth, source.above) = (entry.url, source.depth + 1, level.answer)
      show(path, source)
      return isShallow ? () : try begin(path, source)
    }
    do throws(URLFault) { try parser.parse(Array(entry.url.utf8).span) } catch { return }
    var facts = EntryFacts()
    facts.size = entry.size
    if entry.isModifiedExact { facts.date = entry.modified }
    var file = ManifestEntry(
      line: line, urls: [entry.url], folder: level.path, name: entry.name, headers: level.source.headers,
      userAgent: level.source.userAgent, referer: level.source.referer, key: keys.key(of: parser),
      facts: facts.isEmpty ? nil : facts)
    file.isServed = true
    output.append(file)
  }

  private func warn(_ message: String) { output.report(line, .warning, message) }

  private func shown(_ path: [String]) -> String {
    // A list of several does not know the folder that it shows in.
    let path = path.dropFirst(list == nil ? 0 : 1)
    return path.isEmpty ? "the folder" : "the folder " + path.joined(separator: "/")
  }
}
