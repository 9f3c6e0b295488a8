import Base
import CCurl

// Parsers of single header field values. Pure: each takes text and returns a value, or nil.

/// A Content-Range (RFC 9110, section 14.4).
enum ContentRange: Equatable {
  /// `bytes a-b/N` as the half-open range; `total` nil for `*`.
  case satisfied(ByteRange, total: Int64?)
  /// `bytes */N`.
  case unsatisfied(total: Int64)

  /// nil when the text does not parse, the range runs backwards, or it ends after its own total.
  init?(_ text: String) {
    let words = text.split(maxSplits: 1, whereSeparator: { $0 == " " || $0 == "\t" })
    guard words.count == 2, words[0].lowercased() == "bytes" else { return nil }
    let sides = words[1].split(separator: "/", omittingEmptySubsequences: false).map { trimmed($0) }
    guard sides.count == 2 else { return nil }
    let total = decimal(sides[1])
    if sides[0] == "*" {
      guard let total else { return nil }
      self = .unsatisfied(total: total)
      return
    }
    guard total != nil || sides[1] == "*", total ?? 0 <= longestResource else { return nil }
    let bounds = sides[0].split(separator: "-", omittingEmptySubsequences: false)
    guard bounds.count == 2, let first = decimal(trimmed(bounds[0])), let last = decimal(trimmed(bounds[1])),
      first <= last, last < Int64.max, last < total ?? .max
    else { return nil }
    self = .satisfied(ByteRange(first, last + 1), total: total)
  }
}

/// An exbibyte, in bytes: more than any filesystem stores. mediafs rejects a greater length, which would overflow sums
/// of offsets.
package let longestResource: Int64 = 1 << 60

/// A number of ASCII digits alone; nil for any other text, such as a sign, and on overflow.
func decimal(_ text: some StringProtocol) -> Int64? {
  guard !text.isEmpty, text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) else { return nil }
  return Int64(text)
}

/// The text without leading and trailing spaces and tabs.
func trimmed(_ text: some StringProtocol) -> String {
  let isSpace = { (character: Character) in character == " " || character == "\t" }
  guard let first = text.firstIndex(where: { !isSpace($0) }), let last = text.lastIndex(where: { !isSpace($0) })
  else { return "" }
  return String(text[first...last])
}

/// ETag and Last-Modified as validators.
///
/// A tag without quotes violates the grammar. It still tells versions apart but counts as weak, since an origin could
/// take it for a date in If-Range. A tag that mediafs could not send back unchanged counts as weak too: one with a
/// control character, a space or a non-ASCII byte (its charset is unknown), or one too long for a request.
func validators(etag: String?, lastModified: String?) -> Validators {
  var result = Validators()
  if var tag = etag, !tag.isEmpty {
    if tag.hasPrefix("W/") || tag.hasPrefix("w/") {
      tag.removeFirst(2)
      result.etagIsWeak = true
    }
    let bytes = tag.utf8
    let isQuoted = bytes.count >= 2 && bytes.first == UInt8(ascii: "\"") && bytes.last == UInt8(ascii: "\"")
    if !isQuoted || bytes.count > 1024 || !bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) { result.etagIsWeak = true }
    if tag.isEmpty { result.etagIsWeak = false } else { result.etag = tag }
  }
  if let lastModified { result.lastModified = httpDate(lastModified) }
  return result
}

/// An HTTP date in seconds since 1970, nil when it does not parse or its year has more than four digits: sums of such
/// times overflow.
func httpDate(_ text: String) -> Int64? {
  let seconds = Int64(curl_getdate(text, nil))
  return 0...253_402_300_799 ~= seconds ? seconds : nil
}

/// The seconds to wait by a Retry-After, from `now` (seconds since 1970); at most a day, so that no origin can delay a
/// file for ever.
func retryAfter(_ text: String, now: Int64) -> Double? {
  let day: Int64 = 86_400
  if !text.isEmpty, text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) { return Double(min(decimal(text) ?? day, day)) }
  guard let date = httpDate(text) else { return nil }
  return Double(min(max(date - now, 0), day))
}

/// The type and subtype of a Content-Type in lower case; nil when there is none, or the text cannot be one (RFC 6838,
/// section 4.2: at most 127 ASCII characters each).
func mediaType(_ text: String) -> String? {
  let type = trimmed(text.prefix { $0 != ";" && $0 != "," }).lowercased()
  return (1...255).contains(type.utf8.count) && type.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } ? type : nil
}
