/// What a file's name says of its kind.
enum MediaKind {
  /// Types of files whose end players read before they play: MP4's moov, Matroska's cues, ID3v1 and APE tags, Ogg's
  /// last page (the duration), AVI's index, a ZIP's directory.
  private static let withTail: Set<String> = [
    "mp4", "m4v", "m4a", "m4b", "mov", "3gp", "mkv", "mka", "webm", "mp3", "ogg", "oga", "ogv", "opus", "avi", "wmv",
    "wma", "asf", "ape", "wv", "mpc", "ts", "m2ts", "mts", "mpg", "mpeg", "vob", "zip", "cbz", "epub", "parquet",
  ]
  /// Those of them that nobody plays, and types that are played and have no such end.
  private static let archives: Set<String> = ["zip", "cbz", "epub", "parquet"]
  private static let withoutTail: Set<String> = [
    "flac", "wav", "aac", "ac3", "dts", "aif", "aiff", "flv", "f4v", "mp2", "m2v", "spx", "tta", "dsf",
  ]
  /// The longest extension that names a kind, in bytes.
  private static let longest = 8

  /// The kind of `path`: its extension, in lower case. nil when it has none.
  static func name(of path: String) -> String? {
    guard let dot = path.utf8.lastIndex(of: UInt8(ascii: ".")) else { return nil }
    let name = path[path.utf8.index(after: dot)...]
    if name.isEmpty || name.utf8.count > longest || name.utf8.contains(UInt8(ascii: "/")) { return nil }
    return name.lowercased()
  }

  /// Whether players read the end of files of `kind` before they play them.
  static func hasTail(_ kind: String?) -> Bool { kind.map(withTail.contains) ?? false }

  /// Whether files of `kind` are music or films.
  static func plays(_ kind: String?) -> Bool {
    kind.map { withTail.contains($0) && !archives.contains($0) || withoutTail.contains($0) } ?? false
  }
}
