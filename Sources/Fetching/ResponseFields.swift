/// Parses a response's head line by line; keeps only the fields that mediafs uses.
///
/// Pass lines to `add(line:)` until it returns true (at the blank line). After an interim head (1xx), the next line
/// begins a new head. After a final head only trailers follow: pass them to `skip(line:)`.
struct ResponseFields: Sendable {
  /// The most bytes of a head, including its interim responses. Real heads have 1 to 8 KiB.
  static let limit = 256 << 10

  /// The fields to keep.
  enum Name: String, CaseIterable, Sendable {
    case contentRange = "content-range"
    case contentLength = "content-length"
    case contentEncoding = "content-encoding"
    case contentType = "content-type"
    case contentDisposition = "content-disposition"
    case transferEncoding = "transfer-encoding"
    case etag
    case lastModified = "last-modified"
    case location
    case retryAfter = "retry-after"
    case cacheControl = "cache-control"
    case dav, allow, date, age
  }

  /// The status code; 0 before the status line.
  private(set) var status = 0
  /// The bytes of all heads so far.
  private(set) var bytes = 0
  /// The fields that begin with `x-amz-`, by their names in lower case; empty unless they are kept.
  private(set) var amazon: [String: String] = [:]
  private let keepsAmazon: Bool
  private var values: [Name: [String]] = [:]
  private var last: Name?
  /// Whether a status line arrived whose head has not ended.
  private var isOpen = false

  /// `keepsAmazon`: whether the answer is an object store's, of which fields count that have no ``Name``.
  init(keepsAmazon: Bool = false) { self.keepsAmazon = keepsAmazon }

  /// The first value of a field.
  subscript(name: Name) -> String? { values[name]?.first }
  /// All values of a field, in order.
  func all(_ name: Name) -> [String] { values[name] ?? [] }
  /// Whether the head exceeds the limit.
  var isTooLong: Bool { bytes > Self.limit }
  /// Whether this is an interim response: the final one follows.
  var isInterim: Bool { (100..<200).contains(status) }

  /// Parses one line with its line end. Returns whether it is the blank line that ends the head.
  mutating func add(line: UnsafeRawBufferPointer) -> Bool {
    bytes += line.count
    var line = line[...]
    while let end = line.last, end == 0x0A || end == 0x0D { line.removeLast() }
    if line.isEmpty {
      isOpen = false
      return true
    }
    if !isOpen {
      begin(statusLine: line)
      return false
    }
    if line.first == 0x20 || line.first == 0x09 {  // obsolete line folding: the line continues the field before
      if let last, let index = values[last]?.indices.last {
        let more = text(of: line, for: last)
        values[last]?[index] += " " + more  // in place: there may be a hundred thousand
      }
      return false
    }
    guard let colon = line.firstIndex(of: 0x3A) else { return false }
    let name = String(decoding: line[..<colon].map { $0 | 0x20 }, as: UTF8.self)  // lower case; "-" keeps its bits
    last = Name(rawValue: name)
    if let last { values[last, default: []].append(text(of: line[(colon + 1)...], for: last)) }
    if keepsAmazon, name.hasPrefix("x-amz-") {
      let value = text(of: line[(colon + 1)...], for: nil)
      amazon[name] = amazon[name].map { "\($0),\(value)" } ?? value  // as one list (RFC 9110, section 5.3)
    }
    return false
  }

  /// Counts a line after the body (a trailer), which mediafs does not use.
  mutating func skip(line: UnsafeRawBufferPointer) { bytes += line.count }

  private mutating func begin(statusLine: Slice<UnsafeRawBufferPointer>) {
    let kept = bytes
    self = ResponseFields(keepsAmazon: keepsAmazon)
    bytes = kept
    isOpen = true
    let digits = statusLine.drop { $0 != 0x20 }.drop { $0 == 0x20 }.prefix(3)
    status = Int(decimal(String(decoding: digits, as: UTF8.self)) ?? 0)
  }

  private func text(of bytes: Slice<UnsafeRawBufferPointer>, for name: Name?) -> String {
    var bytes = bytes.drop { $0 == 0x20 || $0 == 0x09 }
    while let end = bytes.last, end == 0x20 || end == 0x09 { bytes.removeLast() }
    if name == .location {
      // As bytes, whatever their charset: percent-encoded, they are the URL that the origin meant.
      var text = ""
      for byte in bytes { text += byte > 0x20 && byte < 0x7F ? String(Unicode.Scalar(byte)) : percentEncoded(byte) }
      return text
    }
    // UTF-8 by convention; ISO-8859-1, the old standard's rule, if the bytes are not UTF-8.
    return String(validating: bytes, as: UTF8.self)
      ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
  }

  private func percentEncoded(_ byte: UInt8) -> String {
    let digits = String(byte, radix: 16, uppercase: true)
    return byte < 16 ? "%0" + digits : "%" + digits
  }
}
