/// Types of files whose end players read before they play.
enum MediaKind {
  /// MP4's moov, Matroska's cues, ID3v1 and APE tags, Ogg's last page (the duration), AVI's index, a ZIP's directory.
  private static let extensions: Set<String> = [
    "mp4", "m4v", "m4a", "m4b", "mov", "3gp", "mkv", "mka", "webm", "mp3", "ogg", "oga", "ogv", "opus", "avi", "wmv",
    "wma", "asf", "ape", "wv", "mpc", "ts", "m2ts", "mts", "mpg", "mpeg", "vob", "zip", "cbz", "epub", "parquet",
  ]

  /// Whether the extension of `path` is one of them.
  static func hasTail(_ path: String) -> Bool {
    guard let dot = path.utf8.lastIndex(of: UInt8(ascii: ".")) else { return false }
    return extensions.contains(path[path.utf8.index(after: dot)...].lowercased())
  }
}
