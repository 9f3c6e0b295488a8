import Base
import FoundationEssentials

/// What yt-dlp prints: `-J` (one object, whose `entries` are split), `-j` (an object a line), with or without
/// `--flat-playlist`. What a plain request fetches as one file becomes an entry, and so does a page, whose link a
/// resolver gives.
struct YtdlpFormat: JSONListFormat {
  /// The most playlists within each other.
  private static let maximumDepth = JSONSplitter.maximumDepth
  /// The resolver that pages name.
  static let resolver = "ytdlp"

  static func recognizes(_ head: ListHead) -> Bool {
    guard head.begins("{") || head.begins("[") else { return false }
    return ["\"_type\":", "\"extractor\":", "\"webpage_url\":", "\"formats\":", "\"ie_key\":", "\"entries\":"].contains
    {
      head.contains($0)
    }
  }

  /// The objects around the list whose elements are being read, and their titles.
  private var list: (around: [[UInt8]], titles: [String?]) = ([], [])

  init(_ setup: ListSetup) {}

  mutating func read(_ value: JSONValue, _ number: Int, _ files: inout [ListedFile], _ output: inout ListOutput) {
    guard let info: YtdlpInfo = value.decoded(number, &output) else { return }
    enter(value.around)
    add(info, ListedFile(line: value.line, place: "item \(number)"), list.titles.compactMap { $0 }, &files, &output)
  }

  /// Reads the titles of the objects around a list, but for those that were around the last one as well: a large one
  /// may have thousands of lists. Lists in one object share its bytes, so the comparison looks at none of them.
  private mutating func enter(_ around: [[UInt8]]) {
    if list.around == around { return }
    let known = zip(list.around, around).prefix { $0 == $1 }.count
    let infos = around[known...].map { try? JSONDecoder().decode(YtdlpInfo.self, from: Data($0)) }
    list = (around, list.titles.prefix(known) + infos.map { Self.folder(of: $0) })
  }

  /// The folder of a playlist. Made safe once: the title may be long, and each entry shows in it.
  private static func folder(of playlist: YtdlpInfo?) -> String? {
    (playlist?.title ?? playlist?.id).map { SafeName.component($0) ?? "" }
  }

  private func add(
    _ info: YtdlpInfo, _ begun: ListedFile, _ folder: [String], _ files: inout [ListedFile],
    _ output: inout ListOutput
  ) {
    var file = begun
    if info.type == "playlist" || info.type == "multi_video" || info.entries != nil {
      if folder.count == Self.maximumDepth { return output.leaveOut(file.line, "playlists within too many others") }
      let inner = folder + [Self.folder(of: info)].compactMap { $0 }
      for entry in info.entries ?? [] { add(entry, begun, inner, &files, &output) }
      return
    }
    if info.type == "url" || info.type == "url_transparent" {
      guard let url = info.url else { return output.leaveOut(file.line, "items without a URL") }
      file.urls = [url]
      if !Self.isMedium(url) {
        file.resolver = Self.resolver
        file.id = "yt-dlp:\(info.extractor ?? ""):\(info.id ?? url):"
      }
    } else if info.isLive {
      return output.leaveOut(file.line, "live streams, which are no files")
    } else if let best = info.whole {
      file.urls = [best.url]
      file.headers = best.headers ?? info.headers ?? []
      if let cookie = best.cookie ?? info.cookie, !file.headers.contains(where: { $0.name.lowercased() == "cookie" }) {
        file.headers.append(HTTPHeader(name: "Cookie", value: cookie))
      }
      file.facts.size = best.size
      // A link expires; what it leads to stays the same. The generic extractor's ids are names of files.
      if let extractor = info.extractor, let id = info.id, extractor.lowercased() != "generic" {
        file.id = "yt-dlp:\(extractor):\(id):\(best.name ?? "")"
      }
    } else {
      return output.leaveOut(
        file.line,
        "films without a link to a whole file: picture and sound come apart, or in pieces "
          + "(try yt-dlp -f b)")
    }
    file.folder = folder
    file.title = info.title ?? info.id
    let ending = info.whole?.ending ?? info.ending
    if let ending, let title = file.title.flatMap({ SafeName.component($0) }) {
      file.path = SafeName.appendingExtension(title, ending)
    }
    file.facts.title = info.title
    file.facts.duration = info.duration
    file.facts.date = info.date
    files.append(file)
  }

  /// Whether the URL of an entry that was not looked up names a medium by its extension.
  private static func isMedium(_ url: String) -> Bool {
    let path = url.prefix { $0 != "?" && $0 != "#" }
    let type = SafeName.fileExtension(path.split(separator: "/").last.map(String.init) ?? "").flatMap {
      FileType.mediaType(forExtension: $0)
    }
    return type.map { $0.hasPrefix("video/") || $0.hasPrefix("audio/") } ?? false
  }
}
