import Base

/// The formats of lists (docs/LISTS.md). A list is of the first one whose reader recognizes it.
package enum ListFormat: String, CaseIterable, Sendable {
  case m3u, pls, xspf, metalink, feed, rclone
  case ytdlp = "yt-dlp"
  case strm, aria2

  /// Its name in messages.
  package var title: String {
    switch self {
    case .m3u: "M3U playlist"
    case .pls: "PLS playlist"
    case .xspf: "XSPF playlist"
    case .metalink: "Metalink"
    case .feed: "feed"
    case .rclone: "list of rclone lsjson"
    case .ytdlp: "list of yt-dlp"
    case .strm: "folder of .strm files"
    case .aria2: "list of URLs"
    }
  }

  /// What the help says of it.
  package var meaning: String {
    switch self {
    case .m3u: "a playlist: #EXTM3U or #EXTINF, or a name that ends in .m3u or .m3u8"
    case .pls: "a playlist: [playlist] with File1="
    case .xspf: "a playlist in XML: <playlist> with tracks"
    case .metalink: "Metalink 4: mirrors, sizes and digests"
    case .feed: "an RSS or Atom feed with enclosures"
    case .rclone: "what rclone lsjson -R prints, with --base-url"
    case .ytdlp: "what yt-dlp -J or -j prints"
    case .strm: "a folder of .strm files"
    case .aria2: "one URL per line, with options as in aria2's input format"
    }
  }

  /// The reader of files of that format; nil for a folder.
  private var reader: (any FileListReader.Type)? {
    switch self {
    case .m3u: LineListReader<M3UParser>.self
    case .pls: LineListReader<PLSParser>.self
    case .xspf: XMLListReader<XSPFFormat>.self
    case .metalink: XMLListReader<MetalinkFormat>.self
    case .feed: XMLListReader<FeedFormat>.self
    case .rclone: JSONListReader<RcloneFormat>.self
    case .ytdlp: JSONListReader<YtdlpFormat>.self
    case .strm: nil
    case .aria2: LineListReader<Aria2Parser>.self
    }
  }

  /// The format of a list that begins with `head`; nil if nothing shows one.
  static func recognized(_ head: ListHead) -> ListFormat? {
    allCases.first { $0.reader?.recognizes(head) ?? false }
  }

  /// A reader of a file of that format.
  func open(_ input: consuming LineReader, _ setup: ListSetup) throws(ManifestError) -> any ListReader {
    guard let reader else { throw .notAFolder(path: setup.name) }
    return reader.init(input, setup)
  }
}
