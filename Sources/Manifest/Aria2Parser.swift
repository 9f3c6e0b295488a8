import Base

/// Parses aria2's input format, of which a plain list of URLs is the simple case.
struct Aria2Parser: LineParser, ~Copyable {
  /// The entry whose options may still come.
  private var current: ManifestEntry?
  /// Whether `current` is set: comparing it with nil would copy it for each line.
  private var hasCurrent = false
  /// The options of the current entry so far.
  private var options = EntryOptions()
  /// Whether to skip option lines because their URL line was bad.
  private var skipsOptions = false

  /// A complete entry for ``takeItem()``.
  private var ready: ManifestEntry?
  /// Whether `ready` is set.
  private var hasReady = false
  /// Problems for ``takeItem()``, from `nextProblem` on.
  private var problems: [ManifestProblem] = []
  private var nextProblem = 0

  private let cookies: CookieFiles
  /// The line of the last `load-cookies=`.
  private var cookieLine = 0

  /// What is wrong with the current entry's URL, unless a resolver is to look it up.
  private var pageWarning: String?
  private let isResolved: Bool

  /// Whether tags of a playlist were told.
  private var hasTags = false

  private var parser = URLParser()
  private var keys = KeyBuilder()
  private var decoded: [UInt8] = []

  static func recognizes(_ head: ListHead) -> Bool { false }  // what nothing else recognizes

  init(_ setup: ListSetup) {
    cookies = CookieFiles(setup)
    isResolved = setup.isResolved
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

  mutating func finish() { completeEntry() }

  mutating func read(_ line: Span<UInt8>, number: Int, isTooLong: Bool) {
    var range = 0..<line.count
    if number == 1, line.hasPrefix("\u{FEFF}") { range = 3..<line.count }
    let isIndented = !range.isEmpty && (line[range.lowerBound] == 0x20 || line[range.lowerBound] == 0x09)
    range = line.trimmedRange(range)
    let text = line.extracting(range)
    if text.hasPrefix("#") { return readComment(text, number) }
    if range.isEmpty && !isTooLong { return }
    if isTooLong {
      let limit = LineReader.maximumLength >> 10
      if !isIndented { refuseLine() }
      report(
        number, .error, "the line is longer than \(limit) KiB and is skipped; give fewer mirrors, or a shorter URL")
    } else if isIndented {
      readOption(text, number)
    } else {
      readURLs(text, number)
    }
  }

  /// Comments that are tags of a playlist are hardly meant as comments.
  private mutating func readComment(_ text: Span<UInt8>, _ number: Int) {
    guard !hasTags, text.hasPrefix("#extinf:") || text.hasPrefix("#extm3u") else { return }
    hasTags = true
    report(
      number, .warning,
      "a tag of a playlist is read as a comment here; a playlist begins with #EXTM3U (or say --format m3u)")
  }

  private mutating func readURLs(_ text: Span<UInt8>, _ number: Int) {
    completeEntry()
    guard let tab = text.firstIndex(of: 0x09, in: 0..<text.count) else {
      do throws(URLFault) { try parser.parse(text) } catch {
        refuseLine()
        return report(number, .error, Self.hint(text) ?? LineMistakes.tableHint(text) ?? error.message)
      }
      if let warning = LineMistakes.warning(text) { report(number, .warning, warning) }
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
    let former = options.cookieFile
    for finding in options.read(text) { report(number, finding.severity, finding.message) }
    if options.cookieFile != former { cookieLine = number }
  }

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
    let (name, mayGainExtension) = EntryBuilder.name(of: parser, &decoded)
    pageWarning = mayGainExtension && !isResolved ? WatchPage.warning(parser) : nil
    current = ManifestEntry(
      line: line, urls: [parser.string], folder: [], name: name, mayGainExtension: mayGainExtension, headers: [],
      userAgent: nil, referer: nil, checksum: nil, key: keys.key(of: parser))
  }

  private mutating func completeEntry() {
    guard hasCurrent, var entry = current.take() else { return }
    hasCurrent = false
    if options.isRefused { return options = EntryOptions() }
    if let warning = pageWarning, options.resolver == nil { report(entry.line, .warning, warning) }
    if options.isUsed {
      options.apply(to: &entry)
      if options.hasPasswordAlone { report(entry.line, .warning, "http-passwd= without http-user= is ignored") }
      if let file = options.cookieFile { addCookies(of: file, to: &entry) }
      if let id = options.id { entry.key = keys.key(id: id) }
      options = EntryOptions()
    }
    ready = consume entry
    hasReady = true
  }

  /// Adds the cookies that the file at `path` has for the entry's first URL.
  private mutating func addCookies(of path: String, to entry: inout ManifestEntry) {
    do throws(CookieFiles.Fault) {
      var url = URLParser()
      do throws(URLFault) { try url.parse(entry.urls[0].utf8.span) } catch {
        throw CookieFiles.Fault(message: error.message)
      }
      guard let value = try cookies.value(of: path, for: url) else {
        return report(cookieLine, .warning, "load-cookies=: the file has no cookie for this URL")
      }
      let own = entry.headers.filter { $0.name.lowercased() == "cookie" }.map(\.value)
      entry.setHeader("Cookie", (own + [value]).joined(separator: "; "))
    } catch {
      report(cookieLine, .error, "load-cookies=: \(error.message); the URL is asked for without its cookies")
    }
  }
}
