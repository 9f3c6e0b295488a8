import Base

/// Reads a page of links, as nginx, Apache, Caddy, lighttpd, Python's http.server and WsgiDAV write it.
///
/// Any page has links; what tells a listing is its heading (`Index of /`, `Directory listing for /`) or the links that
/// sort it, all of which come before the names. Only links in a list, a table or preformatted text are names.
final class DirectoryPage: DirectoryFormat, XMLStreamClient {
  var folder: DirectoryFolder
  let kind = DirectoryKind.page
  private var stream: XMLStream?
  private var isListing = false
  /// The names of the elements that are open.
  private var open: [String] = []
  /// How many of them are lists, tables or preformatted.
  private var lists = 0
  /// The text of a heading; nil outside of one.
  private var heading: [UInt8]?
  /// The link that was read last, and what stands beside it.
  private var link: (reference: String, entry: DirectoryEntry, columns: DirectoryColumns)?
  private var isInLink = false
  private var signs = Signs()
  /// The end of what was read, where the ends of the last elements must be.
  private var ending: [UInt8] = []

  /// What a page has that is no listing.
  private struct Signs {
    var links = 0
    var hasPassword = false
    var leadsElsewhere = false
    var hasScript = false

    var reason: String {
      if hasPassword { return "it is a page that asks for a password" }
      if leadsElsewhere { return "it is a page that leads elsewhere" }
      if links == 0 { return hasScript ? "it is a page that a script fills" : "it is a page without links" }
      return "it is a page, but not one that a server writes for a folder; there may be an index.html in its place"
    }
  }

  /// The most bytes of a heading, or of what stands beside a link.
  private static let textLimit = 1024
  /// lighttpd has a script of this length behind the table.
  private static let endingLimit = 8 << 10

  init(_ folder: DirectoryFolder) {
    self.folder = folder
    stream = XMLStream(client: self, isHTML: true)
  }

  func read(_ bytes: UnsafeRawBufferPointer) throws(DirectoryFault) {
    ending.append(contentsOf: bytes.suffix(Self.endingLimit))
    if ending.count > 2 * Self.endingLimit { ending.removeFirst(ending.count - Self.endingLimit) }
    if let fault = stream?.feed(bytes) { throw .malformed(line: fault.line, reason: fault.reason) }
  }

  func finish() throws(DirectoryFault) {
    let fault = stream?.feed(UnsafeRawBufferPointer(start: nil, count: 0), isEnd: true)
    finishLink()
    if !isListing || signs.hasPassword { throw .notAListing(reason: signs.reason) }
    if let fault { throw .malformed(line: fault.line, reason: fault.reason) }
    // libxml2 closes by itself what is open at the end.
    let lowered = ending.map(\.lowercased)
    let ends = ["</html", "</body", "</pre", "</table", "</ul"]
    if !ends.contains(where: { lowered.contains(Array($0.utf8)) }) { throw .cut }
  }

  func begin(_ element: XMLElement) {
    open.append(element.name)
    switch element.name {
    case "title", "h1", "h2": heading = []
    case "base": if let reference = element.attributes["href"] { folder.rebase(reference, line: element.line) }
    case "pre", "table", "ul": lists += 1
    case "a": beginLink(element)
    case "tr", "li": finishLink()
    case "td":
      if !isInLink { link?.columns.beginCell(element.attributes["data-size"] ?? element.attributes["data-order"]) }
    case "time": if let date = element.attributes["datetime"] { link?.columns.note(date: date) }
    case "input": if element.attributes["type"]?.lowercased() == "password" { signs.hasPassword = true }
    case "script": signs.hasScript = true
    case "meta": if element.attributes["http-equiv"]?.lowercased() == "refresh" { signs.leadsElsewhere = true }
    default: break
    }
  }

  func text(_ bytes: UnsafeBufferPointer<UInt8>) {
    if let count = heading?.count {
      heading?.append(contentsOf: bytes.prefix(Self.textLimit - count))
    } else if !isInLink {
      link?.columns.append(bytes, limit: Self.textLimit)
    }
  }

  func end() {
    switch open.popLast() {
    case "title", "h1", "h2":
      if let heading, Self.isHeading(String(decoding: heading, as: UTF8.self)) { isListing = true }
      heading = nil
    case "a": isInLink = false
    case "tr", "li": finishLink()
    case "pre", "table", "ul":
      finishLink()
      lists -= 1
    default: break
    }
  }

  private func beginLink(_ element: XMLElement) {
    if element.tooLong == "href" { folder.report(.tooLong, element.line) }
    guard let reference = element.attributes["href"] else { return }
    isInLink = true
    signs.links += 1
    if Self.isSorting(reference) { isListing = true }
    guard isListing, lists > 0 else { return }
    // An icon may link to the same place as the name behind it. By bytes: as Strings, names that differ only in their
    // normalization are equal.
    if let known = link?.reference, known.utf8.elementsEqual(reference.utf8) { return }
    finishLink()
    if let entry = folder.entry(reference, line: element.line) { link = (reference, entry, DirectoryColumns()) }
  }

  private func finishLink() {
    guard var found = link else { return }
    link = nil
    found.columns.complete(&found.entry)
    folder.entries.append(found.entry)
  }

  private static func isHeading(_ text: String) -> Bool {
    let words = text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    return words.hasPrefix("Index of /") || words.hasPrefix("Directory listing for /")
      || words.contains(" - Index of /")
  }

  /// Whether a link sorts a listing of Apache (`?C=N;O=D`) or Caddy (`?sort=name&order=asc`).
  private static func isSorting(_ reference: String) -> Bool {
    guard reference.utf8.count < 200, let mark = reference.firstIndex(of: "?") else { return false }
    let query = reference[mark...].dropFirst()
    let fields = query.split { $0 == "&" || $0 == ";" }
    let apache = ["C=N", "C=M", "C=S", "C=D"].contains { fields.contains($0[...]) }
    if apache { return fields.contains("O=A") || fields.contains("O=D") }
    let caddy = ["sort=name", "sort=namedirfirst", "sort=size", "sort=time"].contains { fields.contains($0[...]) }
    return caddy && fields.contains { $0.hasPrefix("order=") }
  }
}
