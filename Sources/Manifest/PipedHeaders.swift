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

    /// Says so, without anything of them; nil if there are none.
    var warning: String? {
      unreadable == 0
        ? nil : "\(unreadable) of its parts behind the bar (|) cannot be read as Name=value and are left out"
    }
  }

  /// Parts `text`. The fields follow the first bar behind which there is nothing else, or a known field: those of its
  /// pairs that cannot be read must not make the others, such as cookies, a part of the URL. Any other bar belongs to
  /// the URL.
  static func split(_ text: String) -> Parts {
    let query = text.firstIndex(of: "?") ?? text.endIndex
    var rest = text[...]
    for _ in 0..<most {
      guard let bar = rest.firstIndex(of: "|") else { break }
      rest = text[text.index(after: bar)...]
      let pairs = rest.split(separator: "&")
      guard beginsFields(pairs, isInQuery: bar > query) else { continue }
      let headers = pairs.compactMap(field)
      return Parts(url: String(text[..<bar]), headers: headers, unreadable: pairs.count - headers.count)
    }
    return Parts(url: text)
  }

  /// Whether fields begin with `pairs`. A query may have bars and pairs of its own (`?a=1|b=2&c=3`): there, the first
  /// name must be that of a field.
  private static func beginsFields(_ pairs: [Substring], isInQuery: Bool) -> Bool {
    for pair in pairs.prefix(isInQuery ? 1 : pairs.count) {
      if let equals = pair.firstIndex(of: "="), isKnown(name(pair[..<equals]).lowercased()) { return true }
      if pair.contains("|") { break }
    }
    return !isInQuery && !pairs.isEmpty && pairs.allSatisfy { field($0) != nil }
  }

  /// nil for what is no field.
  private static func field(_ pair: Substring) -> HTTPHeader? {
    guard let equals = pair.firstIndex(of: "=") else { return nil }
    let name = name(pair[..<equals])
    guard !name.isEmpty, name.utf8.allSatisfy({ ByteSet.token.contains($0) && $0 != 0x7C }) else { return nil }
    var value: [UInt8] = []
    value.appendDecoded(String(pair[pair.index(after: equals)...]).utf8.span)
    return HTTPHeader(name: name, value: String(decoding: value, as: UTF8.self))
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
