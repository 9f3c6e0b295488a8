/// A response's head as it comes in, line by line; only the fields that are used are kept.
///
/// `add(line:)` takes lines until it returns true (the blank line was there). If the head that ended was interim (1xx),
/// the next line begins a new one; behind a final head come trailers only, which go to `skip(line:)`.
struct ResponseFields: Sendable {
  /// The most bytes a head may have, its interim responses included. Real ones have 1 to 8 KiB.
  static let limit = 256 << 10

  /// Fields that may be sent once and are kept.
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
  }

  /// The status code; 0 before the status line.
  private(set) var status = 0
  /// Bytes of heads so far.
  private(set) var bytes = 0
  private var values: [Name: [String]] = [:]
  private var last: Name?
  /// Whether a status line was there whose head has not ended.
  private var isOpen = false

  /// The first value of a field.
  subscript(name: Name) -> String? { values[name]?.first }
  /// All of its values, in order.
  func all(_ name: Name) -> [String] { values[name] ?? [] }
  /// Whether the head is over the limit.
  var isTooLong: Bool { bytes > Self.limit }
  /// Whether this was an interim response, behind which the true one comes.
  var isInterim: Bool { (100..<200).contains(status) }

  /// Takes one line with its line end. Returns whether it was the blank line that ends the head.
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
    if line.first == 0x20 || line.first == 0x09 {  // obsolete line folding: goes on with the field before
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
    return false
  }

  /// Counts a line behind the body (a trailer), which is not used.
  mutating func skip(line: UnsafeRawBufferPointer) { bytes += line.count }

  private mutating func begin(statusLine: Slice<UnsafeRawBufferPointer>) {
    let kept = bytes
    self = ResponseFields()
    bytes = kept
    isOpen = true
    let digits = statusLine.drop { $0 != 0x20 }.drop { $0 == 0x20 }.prefix(3)
    status = Int(decimal(String(decoding: digits, as: UTF8.self)) ?? 0)
  }

  private func text(of bytes: Slice<UnsafeRawBufferPointer>, for name: Name) -> String {
    var bytes = bytes.drop { $0 == 0x20 || $0 == 0x09 }
    while let end = bytes.last, end == 0x20 || end == 0x09 { bytes.removeLast() }
    if name == .location {
      // As bytes, whatever their charset: percent-encoded they are the URL that the origin meant.
      var text = ""
      for byte in bytes { text += byte > 0x20 && byte < 0x7F ? String(Unicode.Scalar(byte)) : percentEncoded(byte) }
      return text
    }
    // UTF-8 by custom; ISO-8859-1, the standard's old rule, if it is not that.
    return String(validating: bytes, as: UTF8.self)
      ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
  }

  private func percentEncoded(_ byte: UInt8) -> String {
    let digits = String(byte, radix: 16, uppercase: true)
    return byte < 16 ? "%0" + digits : "%" + digits
  }
}
