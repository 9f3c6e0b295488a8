import Base
import Glibc

/// What the server has its launcher do. One packet: the kind, then the fields, each ended by a zero.
enum LauncherOrder: Equatable {
  /// A file has become complete.
  case complete(CompletedFile)
  /// The resolver of that name is asked: a line without its end.
  case ask(String, line: String)
  /// The resolver of that name is of no use: its program ends.
  case end(String)

  /// The longest packet. A line of the list, with the URL in it, has at most 64 KiB.
  static let limit = 96 << 10

  private enum Kind: UInt8 {
    case complete = 1
    case ask, end
  }

  /// nil if it is longer than ``limit``.
  var packet: [UInt8]? {
    var bytes: [UInt8]
    switch self {
    case .complete(let file): bytes = Self.packet(.complete, file.fields)
    case .ask(let name, let line): bytes = Self.packet(.ask, [name, line])
    case .end(let name): bytes = Self.packet(.end, [name])
    }
    return bytes.count <= Self.limit ? bytes : nil
  }

  private static func packet(_ kind: Kind, _ fields: [String]) -> [UInt8] {
    fields.reduce(into: [kind.rawValue]) { bytes, text in bytes += Array(text.utf8) + [0] }
  }

  /// nil if it is no such packet.
  init?(packet: some Collection<UInt8>) {
    guard packet.count <= Self.limit, let kind = packet.first.flatMap(Kind.init(rawValue:)) else { return nil }
    let parts = packet.dropFirst().split(separator: 0, omittingEmptySubsequences: false)
    let fields = parts.dropLast().compactMap { String(validating: $0, as: UTF8.self) }
    guard parts.last?.isEmpty == true, fields.count == parts.count - 1 else { return nil }
    switch kind {
    case .complete:
      guard let file = CompletedFile(fields: fields) else { return nil }
      self = .complete(file)
    case .ask:
      guard fields.count == 2, !fields[1].utf8.contains(UInt8(ascii: "\n")) else { return nil }
      self = .ask(fields[0], line: fields[1])
    case .end:
      guard fields.count == 1 else { return nil }
      self = .end(fields[0])
    }
  }
}

/// A file that has become complete.
struct CompletedFile: Equatable {
  /// In the mount, from its root.
  var path: String
  /// Its copy in the library, an absolute path.
  var file: String
  /// Its URL without secrets.
  var url: String
  /// Its bytes.
  var size: Int64

  fileprivate var fields: [String] { [path, file, url, "\(size)"] }

  init(path: String, file: String, url: String, size: Int64) {
    (self.path, self.file, self.url, self.size) = (path, file, url, size)
  }

  fileprivate init?(fields: [String]) {
    guard fields.count == 4, let size = Int64(fields[3]) else { return nil }
    self.init(path: fields[0], file: fields[1], url: fields[2], size: size)
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
    /// A line of a resolver, behind its name and a zero.
    case answer
    /// A resolver's program has ended: its name, a zero, and why.
    case ended
  }

  var kind: Kind
  var words: String

  /// The longest packet.
  static let limit = 96 << 10
  /// The longest words for the log.
  private static let longest = 4095

  var packet: [UInt8] {
    [kind.rawValue] + Array(words.utf8.prefix(kind == .answer ? Self.limit - 1 : Self.longest))
  }

  init(_ kind: Kind, _ words: String) { (self.kind, self.words) = (kind, words) }

  /// nil if it is no such packet.
  init?(packet: some Collection<UInt8>) {
    guard let first = packet.first, let kind = Kind(rawValue: first) else { return nil }
    self.init(kind, String(decoding: packet.dropFirst(), as: UTF8.self))
  }

  /// The name of a resolver, and what is said of it or by it.
  var ofResolver: (name: String, words: Substring)? {
    guard let zero = words.firstIndex(of: "\0") else { return nil }
    return (String(words[..<zero]), words[words.index(after: zero)...])
  }
}
