import Base

/// Reads XML: WebDAV's answer to PROPFIND (RFC 4918, section 9.1), or nginx's listing.
final class DirectoryDocument: DirectoryFormat, XMLStreamClient {
  var folder: DirectoryFolder
  private(set) var kind = DirectoryKind.multistatus
  private var stream: XMLStream?
  private var open: [XMLElement] = []
  /// The text since the last tag.
  private var text: [UInt8] = []
  private var isTooLong = false
  private var fault: DirectoryFault?
  private var response = Response()
  private var found = Properties()

  /// What a response says of one resource.
  private struct Response {
    var reference: String?
    var line = 1
    var isRefused = false
    var properties = Properties()
  }

  /// The properties of a `propstat`, which count if its status is good.
  private struct Properties {
    var isFolder = false
    var size: Int64?
    var modified: Int64?
    var isRefused = false
  }

  init(_ folder: DirectoryFolder) {
    self.folder = folder
    stream = XMLStream(client: self)
  }

  func read(_ bytes: UnsafeRawBufferPointer) throws(DirectoryFault) { try feed(bytes, isEnd: false) }

  func finish() throws(DirectoryFault) { try feed(UnsafeRawBufferPointer(start: nil, count: 0), isEnd: true) }

  private func feed(_ bytes: UnsafeRawBufferPointer, isEnd: Bool) throws(DirectoryFault) {
    let found = stream?.feed(bytes, isEnd: isEnd)
    if let fault { throw fault }
    guard let found else { return }
    if isEnd, !open.isEmpty { throw .cut }
    throw .malformed(line: found.line, reason: found.reason)
  }

  func begin(_ element: XMLElement) {
    if open.isEmpty {
      switch (element.name, element.space) {
      case ("multistatus", "DAV:"): kind = .multistatus
      case ("list", ""): kind = .elements
      default: fault = .notAListing(reason: "it is XML of another kind")
      }
    } else if element.space == "DAV:" {
      switch element.name {
      case "response": response = Response(line: element.line)
      case "propstat": found = Properties()
      case "collection": if open.last?.name == "resourcetype" { found.isFolder = true }
      default: break
      }
    }
    open.append(element)
    text.removeAll(keepingCapacity: true)
    isTooLong = false
  }

  func text(_ bytes: UnsafeBufferPointer<UInt8>) {
    if text.count + bytes.count > DirectoryLimits.url { isTooLong = true } else { text.append(contentsOf: bytes) }
  }

  func end() {
    guard let element = open.popLast() else { return }
    defer { text.removeAll(keepingCapacity: true) }
    if fault != nil { return }
    if kind == .elements {
      if open.count == 1 { endItem(element) }
    } else if element.space == "DAV:" {
      let words = String(decoding: text, as: UTF8.self).split(whereSeparator: \.isWhitespace)
      endOfMultistatus(element.name, words.joined(separator: " "))
    }
  }

  private func endOfMultistatus(_ name: String, _ text: String) {
    let parent = open.last?.name
    switch name {
    case "href":
      guard parent == "response", response.reference == nil else { return }
      if isTooLong { folder.report(.tooLong, response.line) } else { response.reference = text }
    case "getcontentlength": if parent == "prop" { found.size = Int64(text).flatMap { $0 >= 0 ? $0 : nil } }
    case "getlastmodified": if parent == "prop" { found.modified = ListDate(text)?.seconds }
    case "status":
      // `HTTP/1.1 200 OK`
      let isRefused = text.split(separator: " ").dropFirst().first?.first != "2"
      if parent == "propstat" { found.isRefused = isRefused }
      if parent == "response" { response.isRefused = isRefused }
    case "propstat":
      if parent != "response" || found.isRefused { return }
      if found.isFolder { response.properties.isFolder = true }
      response.properties.size = found.size ?? response.properties.size
      response.properties.modified = found.modified ?? response.properties.modified
    case "response": if parent == "multistatus" { endResponse() }
    default: break
    }
  }

  private func endResponse() {
    defer { response = Response() }
    guard let reference = response.reference else { return folder.report(.badItem, response.line) }
    if response.isRefused { return folder.report(.refused, response.line) }
    let properties = response.properties
    guard var entry = folder.entry(reference, isFolder: properties.isFolder, line: response.line) else {
      return
    }
    if !entry.isFolder { entry.size = properties.size }
    (entry.modified, entry.isModifiedExact) = (properties.modified, properties.modified != nil)
    folder.entries.append(entry)
  }

  private func endItem(_ element: XMLElement) {
    let isFolder = element.name == "directory"
    guard isFolder || element.name == "file" else { return folder.report(.badItem, element.line) }
    if isTooLong { return folder.report(.tooLong, element.line) }
    let name = String(decoding: text, as: UTF8.self)
    guard var entry = folder.entry(name: name, isFolder: isFolder, line: element.line) else { return }
    if !isFolder { entry.size = element.attributes["size"].flatMap { Int64($0) }.flatMap { $0 >= 0 ? $0 : nil } }
    entry.modified = element.attributes["mtime"].flatMap { ListDate($0)?.seconds }
    entry.isModifiedExact = entry.modified != nil
    folder.entries.append(entry)
  }
}
