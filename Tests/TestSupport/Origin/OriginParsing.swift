import Base

/// The head of a request, taken apart (RFC 9112, section 2).
struct OriginHead {
  var method: String
  var target: String
  var version: String
  var headers: [HTTPHeader] = []

  /// nil when it is no request.
  init?(_ bytes: [UInt8]) {
    let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\r\n", omittingEmptySubsequences: true)
    guard let first = lines.first else { return nil }
    let words = first.split(separator: " ")
    guard words.count == 3, words[2].hasPrefix("HTTP/1.") else { return nil }
    method = String(words[0])
    target = String(words[1])
    version = String(words[2])
    for line in lines.dropFirst() {
      guard let colon = line.firstIndex(of: ":") else { return nil }
      let value = line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
      headers.append(HTTPHeader(name: String(line[..<colon]), value: String(value)))
    }
  }

  /// The path, percent-decoded, and the parameters of the query.
  var location: (path: String, query: [String: String]) { OriginHead.split(target) }

  static func split(_ target: String) -> (path: String, query: [String: String]) {
    // A proxy's request names the whole URL.
    var rest = Substring(target)
    if let scheme = rest.firstRange(of: "://") {
      rest = rest[scheme.upperBound...]
      rest = rest[(rest.firstIndex(of: "/") ?? rest.endIndex)...]
    }
    let mark = rest.firstIndex(of: "?") ?? rest.endIndex
    var query: [String: String] = [:]
    for pair in rest[mark...].dropFirst().split(separator: "&") {
      let equals = pair.firstIndex(of: "=") ?? pair.endIndex
      query[decoded(pair[..<equals])] = decoded(pair[equals...].dropFirst())
    }
    return (decoded(rest[..<mark]), query)
  }

  /// Undoes `%20` and its like.
  static func decoded(_ text: Substring) -> String {
    var result: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "%"), rest.count >= 2,
        let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
      {
        result.append(value)
        rest = rest.dropFirst(2)
      } else {
        result.append(byte)
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}

/// What a Range field asks of a resource (RFC 9110, section 14.1.2).
enum OriginRange: Equatable {
  /// Nothing that we answer with a part: no field, several ranges, or no valid one.
  case none
  /// These bytes, at least one.
  case part(ByteRange)
  /// None of them is there.
  case unsatisfiable

  init(_ field: String?, size: Int64) {
    self = .none
    guard let field, field.lowercased().hasPrefix("bytes=") else { return }
    let ends = field.dropFirst(6).split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
    guard ends.count == 2, !field.contains(",") else { return }
    if ends[0].isEmpty {
      guard let count = Int64(ends[1]), count >= 0 else { return }
      self = count == 0 || size == 0 ? .unsatisfiable : .part(ByteRange(max(0, size - count), size))
    } else {
      guard let first = Int64(ends[0]), first >= 0 else { return }
      guard let last = ends[1].isEmpty ? Int64.max : Int64(ends[1]), last >= first else { return }
      self = first >= size ? .unsatisfiable : .part(ByteRange(first, min(last, size - 1) + 1))
    }
  }
}
