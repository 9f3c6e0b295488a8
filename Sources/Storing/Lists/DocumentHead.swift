/// What is known of a document that a server gave: a list, or the listing of a folder (docs/STORE-FORMAT.md, "Lists").
package struct DocumentHead: Sendable, Equatable {
  package enum Kind: String, Sendable {
    /// A list, of any format.
    case list = "list"
    /// What a server lists of its folder.
    case folder = "tree"
  }

  /// The URL that was asked for.
  package var url: String
  /// The URL that answered, after redirects.
  package var finalURL: String
  package var kind: Kind
  /// The validators of the answer.
  package var etag: String?
  package var lastModified: Int64?
  package var mediaType: String?
  /// The request that it answered: GET or PROPFIND.
  package var method = "GET"
  /// When it came, in seconds since 1970.
  package var fetched: Int64
  /// How many names it has.
  package var names = 0

  package init(url: String, finalURL: String, kind: Kind, fetched: Int64) {
    (self.url, self.finalURL, self.kind, self.fetched) = (url, finalURL, kind, fetched)
  }

  static let textKind = "document"
  static let version = 1
  /// The most bytes of a head, with its empty line.
  static let limit = 64 << 10
  /// The digits of a body's length, which is known when the head is written already.
  private static let digits = 16

  /// What a decoded text says of its body.
  struct Decoded {
    var head: DocumentHead
    var bodyAt: Int
    var length: Int64
    /// The digest of the body and of the first `digested` bytes of the text, in hexadecimal.
    var digest: String
    var digested: Int
  }

  /// The text at the start of the file, up to its last field, which is the digest.
  func encoded(length: Int64) -> String {
    let count = String(length)
    var fields: [(key: String, value: String)] = [
      ("length", String(repeating: "0", count: max(0, Self.digits - count.count)) + count), ("url", url),
      ("final", finalURL), ("kind", kind.rawValue), ("method", method), ("fetched", String(fetched)),
      ("names", String(repeating: "0", count: max(0, Self.digits - String(names).count)) + String(names)),
    ]
    if let etag { fields.append(("etag", etag)) }
    if let lastModified { fields.append(("modified", String(lastModified))) }
    if let mediaType { fields.append(("type", mediaType)) }
    return KeyValueText.encode(kind: Self.textKind, version: Self.version, fields: fields)
  }

  private static let digestKey = "\nsha256="
  /// The text's last field, and the empty line; nil: of a digest that is not known yet.
  static func end(digest: [UInt8]?) -> String {
    digestKey.dropFirst() + (digest.map(hexadecimal) ?? String(repeating: "0", count: 64)) + "\n\n"
  }

  /// Reads the start of a file; nil if it is none that this program knows.
  static func decode(_ bytes: [UInt8]) -> Decoded? {
    guard let end = bytes.firstRange(of: [0x0A, 0x0A]),
      let text = String(validating: bytes[...end.lowerBound], as: UTF8.self),
      case .fields(let fields) = KeyValueText.decode(text, kind: textKind, version: version),
      let url = fields["url"], let finalURL = fields["final"],
      let kind = fields["kind"].flatMap({ Kind(rawValue: $0) }),
      let fetched = fields["fetched"].flatMap({ Int64($0) }), let length = fields["length"].flatMap({ Int64($0) }),
      let names = fields["names"].flatMap({ Int($0) }), (0...(1 << 40)).contains(length),
      let digest = fields["sha256"], let last = bytes[..<end.lowerBound].ranges(of: Array(digestKey.utf8)).last
    else { return nil }
    var head = DocumentHead(url: url, finalURL: finalURL, kind: kind, fetched: fetched)
    head.etag = fields["etag"]
    head.lastModified = fields["modified"].flatMap { Int64($0) }
    head.mediaType = fields["type"]
    head.method = fields["method"] ?? "GET"
    head.names = names
    return Decoded(
      head: head, bodyAt: end.upperBound, length: length, digest: digest, digested: last.lowerBound + 1)
  }
}
