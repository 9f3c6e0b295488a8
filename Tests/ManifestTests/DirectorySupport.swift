import Base
import Glibc
import Manifest
import TestSupport
import Testing

/// What a server's directory gave.
struct Directory {
  var entries: [DirectoryEntry] = []
  var problems: [DirectoryProblem] = []
  var kind: DirectoryKind?
  var fault: DirectoryFault?
  var names: [String] { entries.map { $0.isFolder ? $0.name + "/" : $0.name } }

  subscript(_ name: String) -> DirectoryEntry? { entries.first { $0.name == name } }
  func count(_ kind: DirectoryProblem.Kind) -> Int { problems.first { $0.kind == kind }?.count ?? 0 }
}

/// Reads a listing in pieces of `piece` bytes.
func readDirectory(
  _ bytes: [UInt8], url: String = "http://h/films/", mediaType: String? = "text/html", depth: Int = 0,
  piece: Int = 16 << 10
) -> Directory {
  var directory = Directory()
  do throws(DirectoryFault) {
    let reader = try DirectoryReader(url: url, mediaType: mediaType, depth: depth)
    do throws(DirectoryFault) {
      var start = 0
      while start < bytes.count {
        let part = Array(bytes[start..<min(start + piece, bytes.count)])
        try part.withUnsafeBytesThrowing { bytes throws(DirectoryFault) in try reader.read(bytes) }
        directory.entries += reader.takeEntries()
        start += piece
      }
      try reader.finish()
    } catch { directory.fault = error }
    directory.entries += reader.takeEntries()
    (directory.problems, directory.kind) = (reader.problems, reader.kind)
  } catch { directory.fault = error }
  return directory
}

func readDirectory(_ text: String, url: String = "http://h/films/", mediaType: String? = "text/html") -> Directory {
  readDirectory(Array(text.utf8), url: url, mediaType: mediaType)
}

/// A page as nginx writes it, with those links.
func directoryPage(_ links: [String]) -> String {
  let lines = links.map { "<a href=\"\($0)\">x</a>   14-Nov-2023 22:13   7\n" }.joined()
  return "<html><head><title>Index of /films/</title></head><body><h1>Index of /films/</h1><hr><pre>"
    + "<a href=\"../\">../</a>\n\(lines)</pre><hr></body></html>\n"
}

extension [UInt8] {
  fileprivate func withUnsafeBytesThrowing(
    _ body: (UnsafeRawBufferPointer) throws(DirectoryFault) -> Void
  ) throws(DirectoryFault) {
    var fault: DirectoryFault?
    // The pointer is good until the closure returns.
    withUnsafeBytes { do throws(DirectoryFault) { try body($0) } catch { fault = error } }
    if let fault { throw fault }
  }
}

/// What a real server wrote of one folder. The files in Tests/Fixtures/directories are what nginx 1.22.1 (dav-ext
/// 3.0.0), Apache 2.4.71, lighttpd 1.4.69, Caddy 2.6.2, Python 3.11.7 and WsgiDAV 4.4.0 answered for the same folder.
struct DirectorySample: CustomTestStringConvertible, Sendable {
  /// What the server says of sizes, or of dates.
  enum Detail: Sendable { case all, below1000, minutes, none }

  var file: String
  var mediaType: String
  var kind: DirectoryKind
  var sizes = Detail.all
  var dates = Detail.all
  /// How the server leaves names out: hidden ones, and those that are not UTF-8.
  var hasHidden = true
  var hasBadBytes = true
  var testDescription: String { file }

  static let all = [
    DirectorySample(file: "nginx.html", mediaType: "text/html", kind: .page, dates: .minutes, hasHidden: false),
    DirectorySample(
      file: "nginx-rounded.html", mediaType: "text/html", kind: .page, sizes: .below1000, dates: .minutes,
      hasHidden: false),
    DirectorySample(
      file: "nginx.json", mediaType: "application/json", kind: .objects, hasHidden: false, hasBadBytes: false),
    DirectorySample(
      file: "nginx.xml", mediaType: "text/xml; charset=utf-8", kind: .elements, hasHidden: false, hasBadBytes: false),
    DirectorySample(
      file: "apache-fancy.html", mediaType: "text/html;charset=ISO-8859-1", kind: .page, sizes: .below1000,
      dates: .minutes),
    DirectorySample(
      file: "apache-table.html", mediaType: "text/html;charset=UTF-8", kind: .page, sizes: .below1000, dates: .minutes),
    DirectorySample(
      file: "apache-bare.html", mediaType: "text/html", kind: .page, sizes: .below1000, dates: .minutes),
    DirectorySample(
      file: "apache-plain.html", mediaType: "text/html", kind: .page, sizes: .none, dates: .none),
    DirectorySample(
      file: "lighttpd.html", mediaType: "text/html;charset=utf-8", kind: .page, sizes: .none, hasHidden: false),
    DirectorySample(file: "caddy.html", mediaType: "text/html; charset=utf-8", kind: .page),
    DirectorySample(file: "caddy.json", mediaType: "application/json; charset=utf-8", kind: .objects),
    DirectorySample(
      file: "python.html", mediaType: "text/html; charset=utf-8", kind: .page, sizes: .none, dates: .none),
    DirectorySample(
      file: "wsgidav.html", mediaType: "text/html; charset=utf-8", kind: .page, hasBadBytes: false),
    DirectorySample(
      file: "nginx-dav.xml", mediaType: "text/xml; charset=utf-8", kind: .multistatus, hasHidden: false),
    DirectorySample(file: "apache-dav.xml", mediaType: "text/xml; charset=\"utf-8\"", kind: .multistatus),
    DirectorySample(file: "lighttpd-dav.xml", mediaType: "application/xml;charset=utf-8", kind: .multistatus),
    DirectorySample(
      file: "wsgidav-dav.xml", mediaType: "application/xml; charset=utf-8", kind: .multistatus, hasBadBytes: false),
  ]

  /// The files of the folder, and their sizes, from which their dates follow.
  static let files: [(name: String, size: Int64)] = [
    ("plain.mkv", 1_234_567), ("a b.mp4", 10), ("ümläut é.mp3", 2048), ("100%25 done.txt", 3), ("what? #1.mp3", 5),
    ("<b>&amp; co.mkv", 7), ("quote\"'.flac", 9), ("semi;x=1&y=2.ts", 11), ("c:colon.mp4", 13), ("http:oops.mkv", 14),
    ("plus+sign.mkv", 15), ("empty.bin", 0),
    ("A very long name of a film that no column of a listing holds (2026) [1080p].mkv", 5_368_709_120),
    ("日本語の長い名前のとても長い映画のファイル名.mp4", 1_500_000), ("back\\slash.mp4", 6), ("=C=N;O=D.txt", 2),
    ("1.5K", 1536),
  ]
  static func date(size: Int64) -> Int64 { 1_700_000_000 + size % 1000 * 60 }
  static let folderDate: Int64 = 1_710_000_000

  private static let folder = #filePath.split(separator: "/").dropLast(2).reduce("") { "\($0)/\($1)" }

  func bytes() throws -> [UInt8] {
    let file = try FileDescriptor.open("\(Self.folder)/Fixtures/directories/\(file)", O_RDONLY)
    var bytes = [UInt8](repeating: 0, count: Int(try file.status().st_size))
    let count = try bytes.withUnsafeMutableBytes { try file.readFully(at: 0, into: $0) }
    return Array(bytes[..<count])
  }
}
