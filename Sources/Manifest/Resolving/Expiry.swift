import Base
import FoundationEssentials

/// When a link says itself that it ends. Pure.
///
/// A link may be signed by several schemes at once: the earliest end counts. A text that is no time of this century
/// says nothing: `expires=3600` is a duration whose beginning the link does not tell.
package enum Expiry {
  /// The end in seconds since 1970; nil when the link tells none.
  package static func end(of url: String) -> Int64? {
    let whole = url.prefix { $0 != "#" }
    let (path, query) = split(whole, at: "?")
    var values: [String: String] = [:]
    for pair in query.split(separator: "&").prefix(256) {
      let (name, value) = split(pair, at: "=")
      values[name.lowercased()] = decoded(value)
    }
    // Some hosts write the parameters as folders: `/expire/1767225600/`.
    let folders = path.split(separator: "/").prefix(256)
    for (name, value) in zip(folders, folders.dropFirst()) where ["expire", "expires", "exp"].contains(name) {
      values[String(name)] = values[String(name)] ?? String(value)
    }
    var ends: [Int64] = []
    for name in ["expire", "expires", "exp"] { ends += [values[name].flatMap(time)].compactMap { $0 } }
    for scheme in ["amz", "goog", "oss"] {
      guard let begin = values["x-\(scheme)-date"].flatMap(ListDate.compact),
        let seconds = values["x-\(scheme)-expires"].flatMap({ Int64($0) }), (0...longest).contains(seconds)
      else { continue }
      ends.append(begin + seconds)
    }
    // Azure: `se` is a common name, and an end only beside the signature.
    if values["sig"] != nil, let end = values["se"].flatMap({ ListDate($0)?.seconds }) { ends.append(end) }
    // Discord: hexadecimal, beside its signature.
    if values["hm"] != nil, values["is"] != nil, let end = values["ex"].flatMap({ Int64($0, radix: 16) }) {
      ends.append(end)
    }
    // Akamai: `exp=…~acl=…~hmac=…`.
    for name in ["hdnts", "hdnea", "hdntl", "__token__"] {
      for part in values[name]?.split(separator: "~") ?? [] where part.hasPrefix("exp=") {
        ends += [time(String(part.dropFirst(4)))].compactMap { $0 }
      }
    }
    // A token may be a parameter, a folder, or the value of one: `/token=eyJ…/`.
    let parts = path.split { "/;=".contains($0) }.prefix(256).map(decoded)
    for value in Array(values.values) + parts { ends += [ofToken(value)].compactMap { $0 } }
    return ends.filter { plausible.contains($0) }.min()
  }

  /// The end of the first token to end in a field that authorizes: Cookie, or Authorization with a bearer's token. nil
  /// for other fields, and where none has an end.
  static func end(of header: HTTPHeader) -> Int64? {
    guard ["cookie", "authorization"].contains(header.name.lowercased()) else { return nil }
    let words = header.value.split { " ;,=\"".contains($0) }.prefix(256)
    return words.compactMap { ofToken(decoded($0)) }.filter { plausible.contains($0) }.min()
  }

  /// The years 2001 to 2286: numbers of ten digits.
  private static let plausible: ClosedRange<Int64> = 1_000_000_000...9_999_999_999
  /// The longest life of a signature that is believed, in seconds.
  private static let longest: Int64 = 1_000_000_000

  /// A time in seconds or milliseconds since 1970, or a date.
  static func time(_ text: String) -> Int64? {
    guard text.utf8.allSatisfy(\.isDigit) else { return ListDate.compact(text) ?? ListDate(text)?.seconds }
    guard let number = Int64(text) else { return nil }
    return text.utf8.count == 13 ? number / 1000 : number
  }

  /// The `exp` of a JSON Web Token (RFC 7519): three parts in base64url, of which the second is a JSON object.
  private static func ofToken(_ text: String) -> Int64? {
    let parts = text.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 3, text.hasPrefix("eyJ"), text.utf8.count <= 16 << 10 else { return nil }
    var claims = String(parts[1]).replacing("-", with: "+").replacing("_", with: "/")
    claims += String(repeating: "=", count: (4 - claims.utf8.count % 4) % 4)
    struct Claims: Decodable { var exp: Double }
    guard let bytes = Data(base64Encoded: claims), let found = try? JSONDecoder().decode(Claims.self, from: bytes)
    else { return nil }
    return Int64(exactly: found.exp.rounded(.down))
  }

  private static func split(_ text: Substring, at mark: Character) -> (Substring, Substring) {
    guard let index = text.firstIndex(of: mark) else { return (text, "") }
    return (text[..<index], text[text.index(after: index)...])
  }

  private static func decoded(_ text: Substring) -> String {
    var bytes: [UInt8] = []
    bytes.appendDecoded(Array(text.utf8).span)
    return String(decoding: bytes, as: UTF8.self)
  }
}

extension ListDate {
  /// The seconds since 1970 of a time in ISO 8601's short form, as signatures have it: `20260102T030405Z`.
  static func compact(_ text: String) -> Int64? {
    let bytes = Array(text.utf8)
    guard bytes.count == 16, bytes[8] == UInt8(ascii: "T"), bytes[15] == UInt8(ascii: "Z"),
      bytes[..<8].allSatisfy(\.isDigit), bytes[9..<15].allSatisfy(\.isDigit)
    else { return nil }
    func part(_ range: Range<Int>) -> String { String(decoding: bytes[range], as: UTF8.self) }
    let date = "\(part(0..<4))-\(part(4..<6))-\(part(6..<8))"
    return ListDate("\(date)T\(part(9..<11)):\(part(11..<13)):\(part(13..<15))Z")?.seconds
  }
}
