import Base

/// What one XML format makes of elements.
protocol XMLListFormat {
  /// Whether a document whose first element has that local name is of this format.
  static func recognizes(root: String) -> Bool
  /// The local names of the elements whose text it reads.
  static var texts: Set<String> { get }
  init()
  /// An element begins within `parents`.
  mutating func begin(_ element: XMLElement, in parents: [XMLElement], _ list: inout XMLListOutput)
  /// An element ends, with the text since the last tag in it.
  mutating func end(_ element: XMLElement, text: String, in parents: [XMLElement], _ list: inout XMLListOutput)
}

/// What an XML format may say.
struct XMLListOutput {
  /// Files that are complete.
  var files: [ListedFile] = []
  var output = ListOutput()
  /// Why the rest of the document cannot be read; set by a format that finds it is not what it seemed.
  var fault: (line: Int, reason: String)?
}

/// Reads a format that is XML, in memory that does not grow with the document.
final class XMLListReader<Format: XMLListFormat>: FileListReader, XMLStreamClient {
  private var input: LineReader
  private let setup: ListSetup
  private var builder: EntryBuilder
  private var format = Format()
  private var list = XMLListOutput()
  private var elements: [XMLElement] = []
  /// How many elements there are around what is within a text of Atom that has elements itself (RFC 4287, section
  /// 3.1.1.3): all characters within are the text.
  private var markup: Int?
  /// The text since the last tag, of an element whose text the format reads.
  private var buffer: [UInt8] = []
  private var isRead = false
  /// Whether that text is longer than what is kept.
  private var isTooLong = false
  private var stream: XMLStream?
  private var isFinished = false

  static func recognizes(_ head: ListHead) -> Bool { head.rootElement.map { Format.recognizes(root: $0) } ?? false }

  init(_ input: consuming LineReader, _ setup: ListSetup) {
    self.input = input
    self.setup = setup
    builder = EntryBuilder(setup)
    stream = XMLStream(client: self)
  }

  func next() throws(ManifestError) -> ManifestItem? {
    while true {
      if let item = list.output.takeItem() { return item }
      if isFinished { return nil }
      try readPiece()
    }
  }

  private func readPiece() throws(ManifestError) {
    let piece: Range<Int>?
    do { piece = try input.takePiece() } catch { throw .unreadable(name: setup.name, reason: error) }
    var fault: XMLStream.Fault?
    if let piece {
      // The bytes stay in the input's buffer during the call; libxml2 copies what it keeps.
      fault = input.buffer.withUnsafeBytes { stream?.feed(UnsafeRawBufferPointer(rebasing: $0[piece])) }
    } else {
      fault = stream?.feed(UnsafeRawBufferPointer(start: nil, count: 0), isEnd: true)
      isFinished = true
    }
    for file in list.files { builder.add(file, to: &list.output) }
    list.files.removeAll(keepingCapacity: true)
    if let own = list.fault { throw setup.malformed(own.line, own.reason) }
    if let fault { throw setup.malformed(fault.line, fault.reason) }
    if isFinished { list.output.reportLeftOut() }
  }

  func begin(_ element: XMLElement) {
    if let name = element.tooLong {
      list.output.report(
        element.line, .warning, "the attribute \(Self.shown(name)) is \(Self.excess); mediafs passes over it")
    }
    if list.fault == nil, markup == nil { format.begin(element, in: elements, &list) }
    elements.append(element)
    if markup != nil { return }
    beginText()
    if isRead, element.attributes["type"]?.lowercased() == "xhtml" { markup = elements.count }
  }

  private func beginText() {
    buffer.removeAll(keepingCapacity: true)
    isTooLong = false
    isRead = elements.last.map { Format.texts.contains($0.name) } ?? false
  }

  func text(_ bytes: UnsafeBufferPointer<UInt8>) {
    guard isRead, !isTooLong else { return }
    isTooLong = buffer.count + bytes.count > XMLLimits.text
    if !isTooLong { buffer.append(contentsOf: bytes) }
  }

  func end() {
    guard let element = elements.popLast() else { return }
    if let markup, elements.count >= markup { return }
    markup = nil
    if isTooLong {
      // A part of a URL is another URL, and a part of a digest none.
      let warning = "the text of \(Self.shown(element.name)) is \(Self.excess); mediafs passes over it"
      list.output.report(element.line, .warning, warning)
      buffer.removeAll(keepingCapacity: true)
    }
    let range = buffer.span.trimmedLines()
    let text = String(decoding: buffer[range], as: UTF8.self)
    if list.fault == nil { format.end(element, text: text, in: elements, &list) }
    beginText()
  }

  private static var excess: String { "longer than \(XMLLimits.text >> 10) KiB" }

  /// A name of the document, for messages.
  private static func shown(_ name: String) -> String { SafeName.component(String(name.prefix(40))) ?? "_" }
}

extension Span where Element == UInt8 {
  /// The part without white space and line ends at both ends.
  fileprivate func trimmedLines() -> Range<Int> {
    var range = 0..<count
    while !range.isEmpty, self[range.lowerBound].isBlank || self[range.lowerBound] == 0x0A {
      range = range.lowerBound + 1..<range.upperBound
    }
    while !range.isEmpty, self[range.upperBound - 1].isBlank || self[range.upperBound - 1] == 0x0A {
      range = range.lowerBound..<range.upperBound - 1
    }
    return range
  }
}
