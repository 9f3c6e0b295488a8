import Base

/// Header fields behind a URL, as Kodi has them: `URL|Name=value&Name=value`, percent-encoded.
enum PipedHeaders {
  /// The most bars that are looked at.
  private static let most = 16

  /// A URL, its fields, and what is wrong behind its bar.
  struct Parts {
    var url: String
    var headers: [HTTPHeader] = []
    /// How many parts behind the bar are no field.
    var unreadable = 0

    /// Whether anything is behind its bar.
    var hasFields: Bool { !headers.isEmpty || unreadable > 0 }

    /// Says so, without anything of them; nil if there are none.
    var warning: String? {
      unreadable == 0
        ? nil : "\(unreadable) of its parts behind the bar (|) cannot be read as Name=value and are left out"
    }
  }

  /// Parts `text`. Where fields follow a bar, nothing of them becomes a part of the URL, even if it cannot be read: it
  /// may be a cookie. Any other bar belongs to the URL.
  static func split(_ text: String) -> Parts {
    let query = text.firstIndex(of: "?") ?? text.endIndex
    var rest = text[...]
    for _ in 0..<most {
      guard let bar = rest.firstIndex(of: "|") else { break }
      rest = text[text.index(after: bar)...]
      let tail = rest.drop { $0 == "|" || $0.isWhitespace }
      guard bar > query ? beginsKnownField(tail) : endsFile(text[..<bar]) || beginsFields(tail) else { continue }
      let pairs = tail.split(separator: "&")
      let headers = pairs.compactMap(field)
      return Parts(url: String(text[..<bar]), headers: headers, unreadable: pairs.count - headers.count)
    }
    return Parts(url: text)
  }

  /// A query may have bars and pairs of its own (`?a=1|b=2&c=3`): there, the first name must be that of a field.
  private static func beginsKnownField(_ tail: Substring) -> Bool {
    guard let end = tail.firstIndex(where: { "=:&".contains($0) }), tail[end] != "&" else { return false }
    return isKnown(name(tail[..<end]).lowercased())
  }

  /// Whether a path is that of a whole file: hardly more of its name follows.
  private static func endsFile(_ url: Substring) -> Bool {
    SafeName.fileExtension(String(url.suffix(16))).flatMap { FileType.mediaType(forExtension: $0) } != nil
  }

  /// Whether a name and its value come first, as opposed to more of a path, or its query.
  private static func beginsFields(_ tail: Substring) -> Bool {
    for pair in tail.split(separator: "&") {
      guard let end = pair.firstIndex(where: { "=:".contains($0) }) else { continue }
      let name = name(pair[..<end])
      if name.isEmpty || name.contains(where: { "/?|".contains($0) }) { return false }
      return pair[end] == "=" || isKnown(name.lowercased()) || pair[pair.index(after: end)...].first == " "
    }
    return false
  }

  /// nil for what is no field.
  private static func field(_ pair: Substring) -> HTTPHeader? {
    guard let equals = pair.firstIndex(of: "=") else { return nil }
    let name = name(pair[..<equals])
    guard !name.isEmpty, name.utf8.allSatisfy({ ByteSet.token.contains($0) && $0 != 0x7C }) else { return nil }
    var value: [UInt8] = []
    value.appendDecoded(String(pair[pair.index(after: equals)...]).utf8.span)
    guard let text = String(validating: value, as: UTF8.self) else { return nil }
    return HTTPHeader(name: name, value: text)
  }

  /// A name without the blanks around it.
  private static func name(_ text: Substring) -> String {
    let start = text.drop { $0.isWhitespace }
    return String(start.reversed().drop { $0.isWhitespace }.reversed())
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
