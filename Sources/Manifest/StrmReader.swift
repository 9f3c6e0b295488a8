import Base
import CSystem
import Glibc

/// Reads a folder of .strm files, as media servers have it: each has the URL of one film, and its place in the folder
/// is the film's.
///
/// Files come in the order of their names. It follows no symbolic links, and opens plain files only. A problem's line
/// is the number of the file.
final class StrmReader: ListReader {
  /// The most nested folders, as in other lists.
  private static let maximumDepth = EntryOptions.maximumDepth
  /// The most names of one folder: they are in memory together.
  private static let maximumNames = 1 << 20
  /// The most bytes of a file.
  private static let maximumBytes = LineReader.maximumLength

  private let setup: ListSetup
  private var builder: EntryBuilder
  private var output = ListOutput()
  /// The folders on the way to the present place.
  private var open: [Folder] = []
  private var count = 0
  private let descriptor: FileDescriptor  // kept open; used through `root`
  private let root: Int32

  /// A folder that is being read.
  private struct Folder {
    /// Its path below the top; empty for the top.
    var path: [String]
    /// The names that are left, the next one last.
    var names: [String]
  }

  /// Reads the folder.
  init(folder: consuming FileDescriptor, _ setup: ListSetup) {
    self.setup = setup
    builder = EntryBuilder(setup)
    root = folder.rawValue
    descriptor = consume folder
  }

  func next() throws(ManifestError) -> ManifestItem? {
    if count == 0, open.isEmpty {
      open = [Folder(path: [], names: try setup.disk.call { () throws(ManifestError) in try names(of: []) })]
    }
    while true {
      if let item = output.takeItem() { return item }
      guard var folder = open.popLast() else { return nil }
      guard let name = folder.names.popLast() else {
        if open.isEmpty { output.reportLeftOut() }
        continue
      }
      open.append(folder)
      count += 1
      try setup.disk.call { () throws(ManifestError) in try look(at: name, in: folder.path) }
    }
  }

  private func look(at name: String, in folder: [String]) throws(ManifestError) {
    let path = folder + [name]
    var status = stat()
    guard fstatat(root, Self.text(path), &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      return output.report(count, .error, "\(Self.shown(path)): cannot be looked at: \(Errno(rawValue: errno))")
    }
    switch status.st_mode & S_IFMT {
    case S_IFDIR:
      if path.count > Self.maximumDepth {
        return output.leaveOut(count, "folders that nest deeper than \(Self.maximumDepth)")
      }
      do throws(ManifestError) {
        open.append(Folder(path: path, names: try names(of: path)))
      } catch .unreadable(_, let reason) {
        output.report(count, .error, "\(Self.shown(path)): cannot be read: \(reason); what is in it is left out")
      }
    case S_IFREG where SafeName.fileExtension(name) == "strm": read(path)
    case S_IFREG: output.leaveOut(count, "files that are not .strm")
    default: output.leaveOut(count, "names that are neither files nor folders (links are not followed)")
    }
  }

  /// The names in a folder, in reverse order.
  private func names(of path: [String]) throws(ManifestError) -> [String] {
    let shown = path.isEmpty ? setup.name : setup.name + "/" + Self.text(path)
    let opened = csystem_openat(
      root, path.isEmpty ? "." : Self.text(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)
    guard opened >= 0 else { throw .unreadable(name: shown, reason: Errno(rawValue: errno)) }
    guard let stream = fdopendir(opened) else {
      let reason = Errno(rawValue: errno)
      close(opened)
      throw .unreadable(name: shown, reason: reason)
    }
    defer { closedir(stream) }  // closes `opened` too
    var names: [String] = []
    while let entry = readdir(stream) {
      // d_name ends with a NUL within the record, which stays until the next readdir.
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      if name == "." || name == ".." || name.hasPrefix(".") { continue }
      if names.count == Self.maximumNames {
        throw setup.malformed(count + 1, "a folder has more than \(Self.maximumNames) names")
      }
      names.append(name)
    }
    return names.sorted { $1.utf8.lexicographicallyPrecedes($0.utf8) }
  }

  private func read(_ path: [String]) {
    var bytes = [UInt8](repeating: 0, count: Self.maximumBytes + 1)
    let size: Int
    do throws(Errno) {
      let file = FileDescriptor(
        owning: try retrying {
          csystem_openat(root, Self.text(path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0)
        })
      var failure: Errno?
      size = bytes.withUnsafeMutableBytes { buffer in
        do throws(Errno) { return try file.readFully(at: 0, into: buffer) } catch {
          failure = error
          return 0
        }
      }
      if let failure { throw failure }
    } catch {
      return output.report(count, .error, "\(Self.shown(path)): cannot be read: \(error)")
    }
    guard size <= Self.maximumBytes else {
      return output.report(count, .error, "\(Self.shown(path)): has more than \(Self.maximumBytes >> 10) KiB")
    }
    let text = String(decoding: bytes[..<size], as: UTF8.self)
    let lines = text.split { $0.isNewline }.map { $0.trimmingPrefix { $0.isWhitespace || $0 == "\u{FEFF}" } }
    guard let line = lines.first(where: { !$0.isEmpty && !$0.hasPrefix("#") }) else {
      return output.report(count, .error, "\(Self.shown(path)): has no URL")
    }
    add(path, String(line))
  }

  private func add(_ path: [String], _ line: String) {
    var file = ListedFile(line: count, place: Self.shown(path))
    let name = path.last.map { String($0.dropLast(".strm".count)) } ?? ""
    let parts = PipedHeaders.split(line)
    if let warning = parts.warning { output.report(count, .warning, "\(file.place): \(warning)") }
    file.urls = [parts.url]
    file.headers = parts.headers
    file.folder = Array(path.dropLast())
    file.title = name
    builder.add(file, to: &output)
  }

  private static func text(_ path: [String]) -> String { path.joined(separator: "/") }

  /// A path for messages, in which no control character may be.
  private static func shown(_ path: [String]) -> String {
    path.map { SafeName.component($0) ?? "_" }.joined(separator: "/")
  }
}
