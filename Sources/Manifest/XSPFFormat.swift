/// XSPF playlists (https://xspf.org/spec): a track is a file, its locations are mirrors.
struct XSPFFormat: XMLListFormat {
  private var track: ListedFile?
  private var count = 0
  private var creator: String?

  static let texts: Set<String> = ["location", "title", "creator", "duration"]

  static func recognizes(root: String) -> Bool { root == "playlist" }

  mutating func begin(_ element: XMLElement, in parents: [XMLElement], _ list: inout XMLListOutput) {
    guard element.name == "track", parents.last?.name == "trackList" else { return }
    count += 1
    track = ListedFile(line: element.line, place: "track \(count)")
    creator = nil
  }

  mutating func end(_ element: XMLElement, text: String, in parents: [XMLElement], _ list: inout XMLListOutput) {
    if element.name == "track", parents.last?.name == "trackList", var file = track.take() {
      if file.urls.isEmpty { return list.output.leaveOut(file.line, "tracks without a location") }
      if let title = file.facts.title { file.title = creator.map { "\($0) - \(title)" } ?? title }
      return list.files.append(file)
    }
    guard parents.last?.name == "track", !text.isEmpty else { return }
    switch element.name {
    case "location": if (track?.urls.count ?? 0) < ListLimits.mirrors { track?.urls.append(text) }
    case "title": track?.facts.title = text
    case "creator": creator = text
    case "duration": track?.facts.duration = Double(text).map { $0 / 1000 }
    default: break
    }
  }
}

/// Bounds of what one item of a list may have.
enum ListLimits {
  /// The most URLs of a file; others are passed over.
  static let mirrors = 64
}
