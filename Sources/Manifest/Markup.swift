/// HTML within a feed's text.
enum Markup {
  /// How many characters of a text count. libxml2 compares each attribute of a tag with all before it: the time for a
  /// longer text could grow with the square of its length.
  static let longest = 2048

  /// The text without tags, and with the characters that references stand for, as libxml2 reads HTML.
  static func text(of html: String) -> String {
    let text = Text()
    let stream = XMLStream(client: text, isHTML: true)
    var html = String(html.unicodeScalars.prefix(longest))
    // A bound that is met ends the text there.
    _ = html.withUTF8 { stream.feed(UnsafeRawBufferPointer($0)) }
    _ = stream.feed(UnsafeRawBufferPointer(start: nil, count: 0), isEnd: true)
    return String(decoding: text.bytes, as: UTF8.self)
  }

  private final class Text: XMLStreamClient {
    var bytes: [UInt8] = []
    func begin(_ element: XMLElement) {}
    func text(_ bytes: UnsafeBufferPointer<UInt8>) { self.bytes += bytes }
    func end() {}
  }
}
