import Base

/// Header fields behind a URL, as Kodi has them: `URL|Name=value&Name=value`, percent-encoded.
enum PipedHeaders {
  /// The most bars that are looked at.
  private static let most = 16

  /// The URL and its fields, which follow the first bar behind which there is nothing else. Any other bar belongs to
  /// the URL.
  static func split(_ text: String) -> (url: String, headers: [HTTPHeader]) {
    let query = text.firstIndex(of: "?") ?? text.endIndex
    var rest = text[...]
    for _ in 0..<most {
      guard let bar = rest.firstIndex(of: "|") else { break }
      rest = text[text.index(after: bar)...]
      // A query may have bars and pairs of its own (`?a=1|b=2&c=3`): behind one, the names must be those of fields.
      if let headers = fields(rest, areKnown: bar > query) { return (String(text[..<bar]), headers) }
    }
    return (text, [])
  }

  /// The fields that `text` consists of; nil if it is anything else.
  private static func fields(_ text: Substring, areKnown: Bool) -> [HTTPHeader]? {
    var headers: [HTTPHeader] = []
    for pair in text.split(separator: "&") {
      guard let equals = pair.firstIndex(of: "="), equals > pair.startIndex else { return nil }
      let name = pair[..<equals]
      guard name.utf8.allSatisfy({ ByteSet.token.contains($0) && $0 != 0x7C }) else { return nil }
      if areKnown, !isKnown(name.lowercased()) { return nil }
      var value: [UInt8] = []
      value.appendDecoded(String(pair[pair.index(after: equals)...]).utf8.span)
      headers.append(HTTPHeader(name: String(name), value: String(decoding: value, as: UTF8.self)))
    }
    return headers.isEmpty ? nil : headers
  }

  private static func isKnown(_ name: String) -> Bool {
    known.contains(name) || name.hasPrefix("x-") || name.hasPrefix("sec-") || name.hasPrefix("accept")
  }

  /// The fields that lists have.
  private static let known: Set<String> = [
    "user-agent", "referer", "cookie", "origin", "authorization", "range", "host", "connection", "dnt",
    "icy-metadata", "cache-control", "pragma", "te", "upgrade-insecure-requests", "content-type", "api-key",
  ]
}
