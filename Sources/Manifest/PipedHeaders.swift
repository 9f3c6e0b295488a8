import Base

/// Header fields behind a URL, as Kodi has them: `URL|Name=value&Name=value`, percent-encoded.
enum PipedHeaders {
  /// The URL and its fields. A bar with anything else behind it belongs to the URL.
  static func split(_ text: String) -> (url: String, headers: [HTTPHeader]) {
    guard let bar = text.firstIndex(of: "|") else { return (text, []) }
    var headers: [HTTPHeader] = []
    for pair in text[text.index(after: bar)...].split(separator: "&") {
      guard let equals = pair.firstIndex(of: "="), equals > pair.startIndex else { return (text, []) }
      let name = pair[..<equals]
      guard name.utf8.allSatisfy({ ByteSet.token.contains($0) }) else { return (text, []) }
      var value: [UInt8] = []
      value.appendDecoded(String(pair[pair.index(after: equals)...]).utf8.span)
      headers.append(HTTPHeader(name: String(name), value: String(decoding: value, as: UTF8.self)))
    }
    return headers.isEmpty ? (text, []) : (String(text[..<bar]), headers)
  }
}
