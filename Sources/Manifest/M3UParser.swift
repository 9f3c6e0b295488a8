import Base

/// Parses M3U playlists: `#EXTINF` with its attributes, `#EXTGRP`, `#EXTVLCOPT`, and `URL|Header=value`.
struct M3UParser: LineParser, ~Copyable {
  private let setup: ListSetup
  private var builder: EntryBuilder
  private var output = ListOutput()
  /// What the tags so far say of the next URL.
  private var tags = Tags()

  /// What stands above a URL.
  private struct Tags {
    var title: String?
    var group: String?
    var duration: Double?
    var headers: [HTTPHeader] = []
  }

  static func recognizes(_ head: ListHead) -> Bool {
    head.begins("#extm3u") || head.begins("#extinf:") || head.fileExtension == "m3u" || head.fileExtension == "m3u8"
  }

  init(_ setup: ListSetup) {
    self.setup = setup
    builder = EntryBuilder(setup)
  }

  mutating func takeItem() -> ManifestItem? { output.takeItem() }

  mutating func finish() {}

  mutating func read(_ line: Span<UInt8>, number: Int, isTooLong: Bool) throws(ManifestError) {
    let start = number == 1 && line.hasPrefix("\u{FEFF}") ? 3 : 0
    let range = line.trimmedRange(start..<line.count)
    let text = line.extracting(range)
    if text.hasPrefix("#") { return try readTag(text, number) }
    if isTooLong {
      tags = Tags()
      let limit = LineReader.maximumLength >> 10
      output.report(number, .error, "the line is longer than \(limit) KiB and is skipped; give a shorter URL")
    } else if !range.isEmpty {
      readURL(text, number)
    }
  }

  private mutating func readTag(_ text: Span<UInt8>, _ number: Int) throws(ManifestError) {
    if text.hasPrefix("#ext-x-targetduration") || text.hasPrefix("#ext-x-stream-inf") {
      throw .streamPlaylist(name: setup.name, line: number)
    }
    if text.hasPrefix("#extinf:") {
      readInformation(text.extracting(8..<text.count))
    } else if text.hasPrefix("#extgrp:") {
      tags.group = tags.group ?? SafeName.component(text.extracting(8..<text.count))
    } else if text.hasPrefix("#extvlcopt:") {
      readPlayerOption(text.extracting(11..<text.count))
    }
  }

  /// Reads `duration attribute="a, b",Title`: the title follows the first comma that is not in quotes.
  private mutating func readInformation(_ text: Span<UInt8>) {
    var isQuoted = false
    var comma = text.count
    for index in text.indices {
      if text[index] == 0x22 { isQuoted.toggle() }
      if text[index] == 0x2C, !isQuoted {
        comma = index
        break
      }
    }
    let attributes = text.extracting(0..<comma)
    tags.title = comma < text.count ? SafeName.component(text.extracting(comma + 1..<text.count)) : nil
    if tags.title == nil { tags.title = Self.attribute("tvg-name=", attributes) }
    tags.group = Self.attribute("group-title=", attributes) ?? tags.group
    let seconds = Double(attributes.text(0..<min(24, comma)).prefix { $0.isNumber || $0 == "." || $0 == "-" })
    tags.duration = seconds.flatMap { $0 > 0 ? $0 : nil }
  }

  /// The value of an attribute, which `start` begins: in quotes, or up to the next blank.
  private static func attribute(_ start: StaticString, _ text: Span<UInt8>) -> String? {
    for index in text.indices where text.hasPrefix(start, at: index) && (index == 0 || text[index - 1] == 0x20) {
      let first = index + start.utf8CodeUnitCount
      let isQuoted = first < text.count && text[first] == 0x22
      let rest = first + (isQuoted ? 1 : 0)..<text.count
      guard let end = text.firstIndex(of: isQuoted ? 0x22 : 0x20, in: rest) ?? (isQuoted ? nil : text.count) else {
        return nil
      }
      return SafeName.component(text.extracting(rest.lowerBound..<end))
    }
    return nil
  }

  /// Reads `http-user-agent=…` and the like, which VLC takes for the next URL.
  private mutating func readPlayerOption(_ text: Span<UInt8>) {
    for (name, field) in Self.playerOptions where text.hasPrefix(name) {
      let value = text.extracting(text.trimmedRange(name.utf8CodeUnitCount..<text.count))
      if !value.isEmpty, tags.headers.count < EntryOptions.maximumHeaders {
        tags.headers.append(HTTPHeader(name: field, value: value.text(0..<value.count)))
      }
    }
  }

  private static let playerOptions: [(StaticString, String)] = [
    ("http-user-agent=", "User-Agent"), ("http-referrer=", "Referer"), ("http-cookie=", "Cookie"),
  ]

  private mutating func readURL(_ text: Span<UInt8>, _ number: Int) {
    var file = ListedFile(line: number)
    let parts = PipedHeaders.split(text.text(0..<text.count))
    if let warning = parts.warning { output.report(number, .warning, warning) }
    file.urls = [parts.url]
    file.headers = tags.headers + parts.headers
    file.title = tags.title
    file.folder = tags.group.map { [$0] } ?? []
    file.facts.title = tags.title
    file.facts.duration = tags.duration
    tags = Tags()
    builder.add(file, to: &output)
  }
}
