import Base

/// Parses lines into entries and problems. Reads no files.
struct EntryParser: ~Copyable {
  /// Whether the lines are M3U's.
  private(set) var isPlaylist: Bool
  private let base: ManifestBase

  /// The entry whose options may still come.
  private var current: ManifestEntry?
  /// Whether `current` is set: comparing it with nil would copy it for each line.
  private var hasCurrent = false
  /// The options of the current entry so far.
  private var options = EntryOptions()
  /// Whether to skip option lines because their URL line was bad.
  private var skipsOptions = false
  /// The title for the next URL of a playlist.
  private var title: String?
  private var isFirstLine = true

  /// A complete entry for ``takeItem()``.
  private var ready: ManifestEntry?
  /// Whether `ready` is set.
  private var hasReady = false
  /// Problems for ``takeItem()``, from `nextProblem` on.
  private var problems: [ManifestProblem] = []
  private var nextProblem = 0

  private var parser = URLParser()
  private var keys = KeyBuilder()
  private var decoded: [UInt8] = []

  init(isPlaylist: Bool, base: ManifestBase) {
    self.isPlaylist = isPlaylist
    self.base = base
  }

  /// Removes and returns one item that the lines so far gave; nil when there is none left.
  mutating func takeItem() -> ManifestItem? {
    if hasReady, let entry = ready.take() {
      hasReady = false
      return .entry(entry)
    }
    if problems.isEmpty { return nil }
    defer {
      nextProblem += 1
      if nextProblem == problems.count {
        problems.removeAll(keepingCapacity: true)
        nextProblem = 0
      }
    }
    return .problem(problems[nextProblem])
  }

  /// Ends the last entry: no line follows.
  mutating func finish() { completeEntry() }

  /// Reads a line. Call ``takeItem()`` until it returns nil before the next line. Returns true when the line shows that
  /// this is an HLS stream's playlist.
  mutating func read(_ line: Span<UInt8>, number: Int, isTooLong: Bool) -> Bool {
    var range = 0..<line.count
    if number == 1, line.hasPrefix("\u{FEFF}") { range = 3..<line.count }
    let isIndented = !range.isEmpty && (line[range.lowerBound] == 0x20 || line[range.lowerBound] == 0x09)
    range = line.trimmedRange(range)
    if range.isEmpty && !isTooLong { return false }
    let text = line.extracting(range)
    if isFirstLine {
      isFirstLine = false
      if text.hasPrefix("#extm3u") { isPlaylist = true }
    }
    if text.hasPrefix("#") { return isPlaylist && readPlaylistTag(text) }
    if isTooLong {
      let limit = LineReader.maximumLength >> 10
      let isOption = isIndented && !isPlaylist
      if !isOption { refuseLine() }
      report(
        number, .error, "the line is longer than \(limit) KiB and is skipped; give fewer mirrors, or a shorter URL")
    } else if isPlaylist {
      readPlaylistURL(text, number)
    } else if isIndented {
      readOption(text, number)
    } else {
      readURLs(text, number)
    }
    return false
  }

  // MARK: - aria2's format

  private mutating func readURLs(_ text: Span<UInt8>, _ number: Int) {
    completeEntry()
    guard let tab = text.firstIndex(of: 0x09, in: 0..<text.count) else {
      do throws(URLFault) { try parser.parse(text) } catch {
        refuseLine()
        return report(number, .error, Self.hint(text) ?? error.message)
      }
      return begin(number)
    }
    var others: [String] = []
    var isFirst = true
    var start = 0
    var end = tab
    var position = 0
    while true {
      let range = text.trimmedRange(start..<end)
      position += range.isEmpty ? 0 : 1
      if !range.isEmpty {
        do throws(URLFault) {
          try parser.parse(text.extracting(range))
          if isFirst { begin(number) } else { others.append(parser.string) }
          isFirst = false
        } catch {
          report(number, .warning, "mirror \(position) is skipped: \(error.message)")
        }
      }
      if end == text.count { break }
      start = end + 1
      end = text.firstIndex(of: 0x09, in: start..<text.count) ?? text.count
    }
    if isFirst {
      refuseLine()
      return report(number, .error, "the line has no URL that can be fetched")
    }
    var known = Set(current.map(\.urls) ?? [])
    for url in others where known.insert(url).inserted { current?.urls.append(url) }
  }

  /// A better message than "not a URL" for a recognized mistake.
  private static func hint(_ text: Span<UInt8>) -> String? {
    guard let equals = text.firstIndex(of: 0x3D, in: 0..<min(text.count, 32)) else { return nil }
    guard let option = EntryOptions.Option(text.extracting(0..<equals)) else { return nil }
    return "not a URL: an option line (\(option.rawValue)=) must begin with white space"
  }

  private mutating func readOption(_ text: Span<UInt8>, _ number: Int) {
    if skipsOptions { return }  // its URL line is reported; the options are no mistake of their own
    if text.hasPrefix("http://") || text.hasPrefix("https://") {
      let message = "a URL must begin at the start of its line: a line that begins with white space is an option"
      return report(number, .error, message)
    }
    guard hasCurrent else {
      return report(number, .error, "an option before any URL; options follow the URL they are for")
    }
    for finding in options.read(text) { report(number, finding.severity, finding.message) }
  }

  // MARK: - Playlists

  /// Reads `#EXTINF` and skips other tags and comments; true for a tag that only HLS has.
  private mutating func readPlaylistTag(_ text: Span<UInt8>) -> Bool {
    if text.hasPrefix("#ext-x-targetduration") || text.hasPrefix("#ext-x-stream-inf") { return true }
    guard text.hasPrefix("#extinf:") else { return false }
    // `#EXTINF:duration attribute="a, b",Title`: the title follows the first comma that is not in quotes.
    var isQuoted = false
    for index in 8..<text.count {
      if text[index] == 0x22 { isQuoted.toggle() }
      if text[index] == 0x2C, !isQuoted {
        title = SafeName.component(text.extracting(index + 1..<text.count))
        return false
      }
    }
    title = nil
    return false
  }

  private mutating func readPlaylistURL(_ text: Span<UInt8>, _ number: Int) {
    completeEntry()
    let title = self.title
    self.title = nil
    do throws(URLFault) {
      if URLParser.schemeEnd(text) != nil {
        try parser.parse(text)
      } else if let base = base.url {
        try parser.parse(text, relativeTo: base.span)
      } else {
        skipsOptions = true
        let message = "a relative URL (or a local file's path) without a base; give --base-url "
        return report(number, .error, message + "or absolute http or https URLs")
      }
    } catch {
      return report(number, .error, error.message)
    }
    begin(number)
    if let title { rename(title) }
  }

  /// Names the current entry by a playlist's title. Appends the URL's extension unless the title ends in a known one: a
  /// title may well end in `.something`.
  private mutating func rename(_ title: String) {
    guard let entry = current else { return }
    let ownExtension = SafeName.fileExtension(title)
    let isOwn = ownExtension.map { FileType.mediaType(forExtension: $0) != nil } ?? false
    let fromURL = entry.mayGainExtension ? nil : SafeName.fileExtension(entry.name)
    if !isOwn, let fromURL {
      current?.name = SafeName.appendingExtension(title, fromURL)
    } else {
      current?.name = title
      current?.mayGainExtension = !isOwn
    }
  }

  // MARK: - Both

  private mutating func report(_ line: Int, _ severity: ManifestProblem.Severity, _ message: String) {
    problems.append(ManifestProblem(line: line, severity: severity, message: message))
  }

  private mutating func refuseLine() {
    completeEntry()
    skipsOptions = true
  }

  /// Begins the entry of the URL that was just parsed.
  private mutating func begin(_ line: Int) {
    skipsOptions = false
    hasCurrent = true
    let (name, mayGainExtension) = Self.name(of: parser, &decoded)
    current = ManifestEntry(
      line: line, urls: [parser.string], folder: [], name: name, mayGainExtension: mayGainExtension, headers: [],
      userAgent: nil, referer: nil, checksum: nil, key: keys.key(of: parser))
  }

  private mutating func completeEntry() {
    guard hasCurrent, var entry = current.take() else { return }
    hasCurrent = false
    if options.isUsed {
      options.apply(to: &entry)
      if let id = options.id { entry.key = keys.key(id: id) }
      options = EntryOptions()
    }
    ready = consume entry
    hasReady = true
  }

  /// The last component of the path that is not empty, percent-decoded; else the host. `decoded` is a reused buffer.
  private static func name(
    of url: borrowing URLParser, _ decoded: inout [UInt8]
  ) -> (name: String, mayGainExtension: Bool) {
    let bytes = url.bytes.span
    var end = url.path.upperBound
    while end > url.path.lowerBound, bytes[end - 1] == 0x2F { end -= 1 }
    var start = end
    while start > url.path.lowerBound, bytes[start - 1] != 0x2F { start -= 1 }
    let component = bytes.extracting(start..<end)
    var name: String?
    if url.hasEscapes {
      decoded.removeAll(keepingCapacity: true)
      decoded.appendDecoded(component)
      name = SafeName.component(decoded.span)
    } else {
      name = SafeName.component(component)
    }
    if let name { return (name, !SafeName.hasExtension(name)) }
    // A host's name always leaves something to show. Its last label is not an extension.
    return (SafeName.component(bytes.extracting(url.host)) ?? "_", true)
  }
}

extension [UInt8] {
  /// Appends `source` with its escapes (`%XX`) decoded.
  fileprivate mutating func appendDecoded(_ source: Span<UInt8>) {
    var index = 0
    while let percent = source.firstIndex(of: 0x25, in: index..<source.count) {
      append(source, index..<percent)
      index = percent + 1
      guard percent + 2 < source.count, let high = source[percent + 1].hexValue, let low = source[percent + 2].hexValue
      else {
        append(0x25)
        continue
      }
      append(high << 4 | low)
      index = percent + 3
    }
    append(source, index..<source.count)
  }
}
