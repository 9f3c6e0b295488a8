import Base
import CXML

/// An XML element whose start was read.
package struct XMLElement {
  /// Its local name.
  package var name: String
  /// Its namespace; empty when it has none.
  package var space: String
  /// The line of its start.
  package var line: Int
  /// The attributes by their local names.
  package var attributes: [String: String]
  /// The name of an attribute that is left out because it is longer than ``XMLLimits/text``; nil if none is.
  package var tooLong: String?
}

/// Takes what an ``XMLStream`` reads.
package protocol XMLStreamClient: AnyObject {
  func begin(_ element: XMLElement)
  func text(_ bytes: UnsafeBufferPointer<UInt8>)
  func end()
}

/// Reads a document that comes in pieces, by libxml2, without network: XML, without any entity but its own five; or
/// HTML, of which only a bound can be a fault.
package final class XMLStream {
  /// The most nested elements of XML.
  static let maximumDepth = 64
  /// The most nested elements of HTML, where a page that does not close some is common.
  static let maximumDepthOfHTML = 1024

  /// Why a document cannot be read on.
  package struct Fault {
    package var line: Int
    package var reason: String
  }

  private let parser: OpaquePointer
  private let calls: Calls
  private let depth: Int
  private let isHTML: Bool
  private var hasBegun = false

  /// The client must outlive the stream.
  package init(client: any XMLStreamClient, isHTML: Bool = false) {
    depth = isHTML ? Self.maximumDepthOfHTML : Self.maximumDepth
    self.isHTML = isHTML
    calls = Calls(client: client)
    let user = Unmanaged.passRetained(calls)
    let made = cxml_make(
      user.toOpaque(), isHTML ? 1 : 0, Int32(depth),
      { user, name, space, attributes, count in
        Calls.of(user).begin(name, space, attributes, Int(count))
      },
      { user, bytes, count in
        guard let bytes else { return }
        // libxml2's characters, as bytes; they are copied before the call ends.
        bytes.withMemoryRebound(to: UInt8.self, capacity: Int(count)) {
          Calls.of(user).client?.text(UnsafeBufferPointer(start: $0, count: Int(count)))
        }
      },
      { user in Calls.of(user).client?.end() })
    guard let made else { preconditionFailure("libxml2 gives no parser: out of memory") }
    parser = made
    calls.parser = made
  }

  deinit {
    let user = cxml_user(parser)
    cxml_free(parser)
    if let user { Unmanaged<Calls>.fromOpaque(user).release() }
  }

  /// The line that is being read.
  var line: Int { calls.line }

  /// Reads the next bytes; the end, if there are none. Returns why the document cannot be read on; nil if it can.
  ///
  /// XML may not begin with white space before its declaration. Many feeds do.
  package func feed(_ whole: UnsafeRawBufferPointer, isEnd: Bool = false) -> Fault? {
    var bytes = whole
    if !isHTML, !hasBegun {
      let begin = whole.firstIndex { ![0x20, 0x09, 0x0A, 0x0D].contains($0) } ?? whole.count
      calls.linesBefore += whole[..<begin].count { $0 == 0x0A }
      bytes = UnsafeRawBufferPointer(rebasing: whole[begin...])
      hasBegun = !bytes.isEmpty
      if !hasBegun, !isEnd { return nil }
    }
    let pointer = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
    if cxml_feed(parser, pointer, Int32(bytes.count), isEnd ? 1 : 0) == 1 { return nil }
    switch Int(cxml_state(parser)) {
    case cxml_has_entities:
      return Fault(line: line, reason: "it declares entities, and mediafs expands none; write what they stand for")
    case cxml_is_too_deep:
      return Fault(line: line, reason: "its elements nest deeper than \(depth)")
    case cxml_has_many_names:
      return Fault(line: line, reason: "it has more different names of elements than any list")
    case cxml_has_many_attributes:
      return Fault(line: line, reason: "an element has more attributes than any list")
    case cxml_has_long_tag:
      return Fault(line: line, reason: "a tag or a comment is longer than 256 KiB")
    default: break
    }
    var text = [CChar](repeating: 0, count: 256)
    let line = Int(cxml_fault(parser, &text, Int32(text.count))) + calls.linesBefore
    let words = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
    let reason = String(decoding: words, as: UTF8.self).filter { !$0.isNewline }
    // libxml2 has the same words for an end that comes too early.
    if isEnd, cxml_depth(parser) > 0 { return Fault(line: max(1, line), reason: "it ends too early") }
    if reason.hasPrefix("Entity '") {
      return Fault(
        line: max(1, line),
        reason: "it uses an entity of HTML, which XML does not have (such as &nbsp;): write the character itself")
    }
    // What libxml2 says of a mistake may repeat a piece of the document, and that a token: only its kind is shown.
    return Fault(line: max(1, line), reason: "it is not well-formed XML (\(Self.kind(reason)))")
  }

  /// The words of libxml2's message before it names a part of the document.
  private static func kind(_ message: String) -> String {
    let words = message.prefix { $0 != ":" && $0 != "'" && $0 != "\"" && $0 != "&" }
    return words.isEmpty ? "it ends too early, or is damaged" : String(words.prefix(80))
  }

  /// What the callbacks need. Only the stream's own thread uses it, during ``feed(_:isEnd:)``.
  private final class Calls {
    weak var client: (any XMLStreamClient)?
    var parser: OpaquePointer?
    /// Lines of white space before the document.
    var linesBefore = 0
    var line: Int { max(1, parser.map { Int(cxml_line($0)) } ?? 1) + linesBefore }
    init(client: any XMLStreamClient) { self.client = client }

    /// The stream retains the object for as long as the parser lives, which hands its pointer back.
    static func of(_ user: UnsafeMutableRawPointer?) -> Calls {
      guard let user else { preconditionFailure("libxml2 lost its user pointer") }
      return Unmanaged<Calls>.fromOpaque(user).takeUnretainedValue()
    }

    func begin(
      _ name: UnsafePointer<CChar>?, _ space: UnsafePointer<CChar>?, _ attributes: UnsafeRawPointer?, _ count: Int
    ) {
      guard let name else { return }
      var values: [String: String] = [:]
      var tooLong: String?
      if let attributes {
        for index in 0..<count {
          let found = cxml_attribute(attributes, Int32(index))
          guard let key = found.name, let start = found.value else { continue }
          if found.count > XMLLimits.text {
            tooLong = String(cString: key)
            continue
          }
          // The value lies in libxml2's buffer until the callback returns; the String copies it.
          let value = UnsafeRawBufferPointer(start: start, count: Int(found.count))
          values[String(cString: key)] = String(decoding: value, as: UTF8.self)
        }
      }
      client?.begin(
        XMLElement(
          name: String(cString: name), space: space.map { String(cString: $0) } ?? "",
          line: line, attributes: values, tooLong: tooLong))
    }
  }
}

/// Bounds of what is kept of a document.
enum XMLLimits {
  /// The most bytes of an element's text or of an attribute, as of a line of a list. Longer ones are left out.
  static let text = LineReader.maximumLength
}
