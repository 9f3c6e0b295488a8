import Base

/// What a format says of one file, before mediafs checked it.
struct ListedFile {
  /// The line where it begins.
  var line: Int
  /// What messages call it beside the line, such as "track 3"; empty for formats of lines.
  var place = ""
  /// The URLs in the order in which they are tried.
  var urls: [String] = []
  /// The folders that contain it, each to be made safe.
  var folder: [String] = []
  /// Its path below `folder`, with its extension; nil when the format names no file.
  var path: String?
  /// What else names it: it gets the URL's extension, or the type's.
  var title: String?
  var headers: [HTTPHeader] = []
  var checksum: (type: String, hex: String)?
  /// What identifies it whatever its URL.
  var id: String?
  /// The name of the resolver that gives its link.
  var resolver: String?
  var facts = EntryFacts()

  init(line: Int, place: String = "") {
    self.line = line
    self.place = place
  }

  /// The strongest of some digests, which have the names of their functions in any spelling; nil if mediafs knows none.
  static func strongest(_ digests: [String: String]) -> (type: String, hex: String)? {
    for type in ["sha512", "sha256", "sha1", "md5"] {
      for (name, hex) in digests where name.lowercased().filter({ $0 != "-" }) == type { return (type, hex) }
    }
    return nil
  }
}

/// Makes entries of what formats say. One builder makes many, so that a URL and a key cost no allocation.
struct EntryBuilder: ~Copyable {
  private var parser = URLParser()
  private var keys = KeyBuilder()
  private var decoded: [UInt8] = []
  private let base: ManifestBase
  private let isResolved: Bool

  init(_ setup: ListSetup) { (base, isResolved) = (setup.base, setup.isResolved) }

  /// Appends the entry of `file` to `output`, and what is wrong with it.
  mutating func add(_ file: ListedFile, to output: inout ListOutput) {
    guard var entry = begin(file, &output) else { return }
    name(&entry, file)
    var options = EntryOptions()
    let folder = file.folder.compactMap { SafeName.component($0) }
    if !folder.isEmpty { apply(&options, .dir, folder.joined(separator: "/"), file, &output) }
    if let path = file.path { apply(&options, .out, path, file, &output) }
    for header in file.headers { apply(&options, .header, "\(header.name): \(header.value)", file, &output) }
    if let (type, hex) = file.checksum { apply(&options, .checksum, "\(type)=\(hex)", file, &output) }
    if let id = file.id { entry.key = keys.key(id: id) }
    if options.isUsed { options.apply(to: &entry) }
    entry.resolver = file.resolver
    if !file.facts.isEmpty { entry.facts = file.facts }
    output.append(entry)
  }

  /// The entry of the first URL that can be fetched, with the others as mirrors.
  private mutating func begin(_ file: ListedFile, _ output: inout ListOutput) -> ManifestEntry? {
    var entry: ManifestEntry?
    for (position, url) in file.urls.enumerated() {
      do throws(URLFault) {
        guard try parse(url) else {
          report(
            file, .error,
            "a relative URL (or a local file's path) without a base; give --base-url "
              + "or absolute http or https URLs", &output)
          continue
        }
      } catch {
        if file.urls.count == 1 {
          report(file, .error, error.message, &output)
        } else {
          report(file, .warning, "mirror \(position + 1) is skipped: \(error.message)", &output)
        }
        continue
      }
      if entry != nil {
        if entry?.urls.contains(parser.string) == false { entry?.urls.append(parser.string) }
        continue
      }
      let (name, mayGainExtension) = Self.name(of: parser, &decoded)
      if mayGainExtension, file.resolver == nil, !isResolved, let warning = WatchPage.warning(parser) {
        report(file, .warning, warning, &output)
      }
      entry = ManifestEntry(
        line: file.line, urls: [parser.string], folder: [], name: name, mayGainExtension: mayGainExtension,
        key: keys.key(of: parser))
    }
    if entry == nil, file.urls.count > 1 { report(file, .error, "it has no URL that can be fetched", &output) }
    return entry
  }

  /// False when the URL is relative and there is no base.
  private mutating func parse(_ url: String) throws(URLFault) -> Bool {
    let span = url.utf8.span
    let range = span.trimmedRange(0..<span.count)
    let text = span.extracting(range)
    if URLParser.schemeEnd(text) != nil {
      try parser.parse(text)
    } else if let base = base.url {
      try parser.parse(text, relativeTo: base.span)
    } else {
      return false
    }
    return true
  }

  /// Extensions of URLs that name a page, or the program that sends the file, and never the file's type.
  private static let pages: Set<String> = [
    "html", "htm", "xhtml", "shtml", "php", "php3", "php5", "phtml", "asp", "aspx", "jsp", "jspx", "cgi", "pl", "do",
  ]

  /// Names the entry by its title, and by its type where neither the title nor the URL has a known extension: a title
  /// may well end in `.something`. A resolver's entry has the URL of a page, which says nothing of the file.
  private func name(_ entry: inout ManifestEntry, _ file: ListedFile) {
    let fromType = file.facts.mediaType.flatMap { FileType.fileExtension(forMediaType: $0) }
    var fromURL = entry.mayGainExtension ? nil : SafeName.fileExtension(entry.name)
    if let found = fromURL {
      let isUnknown = FileType.mediaType(forExtension: found) == nil
      if file.resolver != nil || Self.pages.contains(found.lowercased()) || isUnknown && fromType != nil {
        fromURL = nil
      }
    }
    if let title = file.title.flatMap({ SafeName.component($0) }) {
      entry.name = title
      entry.mayGainExtension = false
      if let own = SafeName.fileExtension(title), FileType.mediaType(forExtension: own) != nil { return }
      guard let ending = fromURL ?? fromType else { return entry.mayGainExtension = true }
      entry.name = SafeName.appendingExtension(title, ending)
    } else if entry.mayGainExtension, let fromType {
      entry.name = SafeName.appendingExtension(entry.name, fromType)
      entry.mayGainExtension = false
    }
  }

  private func apply(
    _ options: inout EntryOptions, _ option: EntryOptions.Option, _ value: String, _ file: ListedFile,
    _ output: inout ListOutput
  ) {
    for finding in options.read("\(option.rawValue)=\(value)".utf8.span) {
      report(file, finding.severity, finding.message.replacing("\(option.rawValue)=", with: option.noun), &output)
    }
  }

  private func report(
    _ file: ListedFile, _ severity: ManifestProblem.Severity, _ message: String, _ output: inout ListOutput
  ) {
    output.report(file.line, severity, file.place.isEmpty ? message : "\(file.place): \(message)")
  }

  /// The last component of the path that is not empty, percent-decoded; else the host. `decoded` is a reused buffer.
  static func name(
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

extension EntryOptions.Option {
  /// What messages call it in formats that do not write it as an option.
  fileprivate var noun: String {
    switch self {
    case .out: "the name"
    case .dir: "the folder"
    case .checksum: "the digest"
    case .header: "a header"
    case .referer, .userAgent, .id, .httpUser, .httpPassword, .cookies, .resolver: rawValue
    }
  }
}

extension [UInt8] {
  /// Appends `source` with its escapes (`%XX`) decoded.
  mutating func appendDecoded(_ source: Span<UInt8>) {
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
