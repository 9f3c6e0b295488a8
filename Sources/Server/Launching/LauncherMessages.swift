import Base
import Glibc

/// What the server tells its launcher: a file that has become complete. One packet: the fields, each ended by a zero.
struct CompletedFile: Equatable {
  /// In the mount, from its root.
  var path: String
  /// Its copy in the library, an absolute path.
  var file: String
  /// Its URL without secrets.
  var url: String
  /// Its bytes.
  var size: Int64

  /// The longest packet. A line of the list, with the URL in it, has at most 64 KiB.
  static let limit = 96 << 10

  /// nil if it is longer than ``limit``.
  var packet: [UInt8]? {
    var bytes: [UInt8] = []
    for text in [path, file, url, "\(size)"] { bytes += Array(text.utf8) + [0] }
    return bytes.count <= Self.limit ? bytes : nil
  }

  init(path: String, file: String, url: String, size: Int64) {
    (self.path, self.file, self.url, self.size) = (path, file, url, size)
  }

  /// nil if it is no such packet.
  init?(packet: some Collection<UInt8>) {
    let fields = packet.split(separator: 0, omittingEmptySubsequences: false)
    guard fields.count == 5, fields[4].isEmpty else { return nil }
    let texts = fields[..<4].compactMap { String(validating: $0, as: UTF8.self) }
    guard texts.count == 4, let size = Int64(texts[3]) else { return nil }
    self.init(path: texts[0], file: texts[1], url: texts[2], size: size)
  }
}

/// What a launcher tells its server. One packet: the kind, and words.
struct LauncherWords {
  enum Kind: UInt8 {
    /// It waits for files; the words are its process id.
    case ready = 1
    /// The program cannot be run at the moment; the words say why.
    case refused
    /// Lines for the log.
    case debug, info, warning
  }

  var kind: Kind
  var words: String

  /// The longest packet.
  static let limit = 4096

  var packet: [UInt8] { [kind.rawValue] + Array(words.utf8.prefix(Self.limit - 1)) }

  init(_ kind: Kind, _ words: String) { (self.kind, self.words) = (kind, words) }

  /// nil if it is no such packet.
  init?(packet: some Collection<UInt8>) {
    guard let first = packet.first, let kind = Kind(rawValue: first) else { return nil }
    self.init(kind, String(decoding: packet.dropFirst(), as: UTF8.self))
  }
}
