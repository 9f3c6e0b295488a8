import CSystem
import Glibc

/// The dates of feeds: RFC 822 in RSS, RFC 3339 in Atom.
struct ListDate {
  /// Seconds since 1970.
  var seconds: Int64
  /// The day as the feed's author wrote it, in their own time zone: `2026-11-23`.
  var day: String

  /// Reads either form; nil for anything else.
  init?(_ text: String) {
    if text.utf8.count > 64 { return nil }
    var fields = tm()
    let found = Self.forms.lazy.compactMap { form in Self.parse(text, form, &fields).map { (form, $0) } }.first
    guard let (form, rest) = found else { return nil }
    let zone = rest.drop { $0 == "." || $0.isNumber || $0 == " " }
    // RFC 5322, section 4.3: a year of two digits is of this century up to 49, one of three counts from 1900.
    if form.contains("%b"), (-1900 ..< -900).contains(fields.tm_year) {
      let year = fields.tm_year + 1900
      fields.tm_year = year < 50 ? year + 100 : year
    }
    // timegm reads the fields as UTC, and changes those that are out of range.
    let (year, month, dayOfMonth) = (Int(fields.tm_year) + 1900, Int(fields.tm_mon) + 1, Int(fields.tm_mday))
    guard (1900...9999).contains(year) else { return nil }
    seconds = Int64(timegm(&fields)) - Self.offset(zone)
    day = "\(year)-\(month < 10 ? "0" : "")\(month)-\(dayOfMonth < 10 ? "0" : "")\(dayOfMonth)"
  }

  /// As strptime(3) writes them. The program stays in the C locale, so the months are English.
  private static let forms = [
    "%a, %d %b %Y %H:%M:%S", "%d %b %Y %H:%M:%S", "%a, %d %b %Y %H:%M", "%d %b %Y %H:%M",
    "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d", "%Y%m%d",
  ]

  /// What follows a text of that form; nil if it has another one.
  static func parse(_ text: String, _ form: String, _ fields: inout tm) -> Substring? {
    fields = tm()
    return text.withCString { start in
      // strptime returns a pointer into the text, which lives until the closure ends.
      guard let end = csystem_parse_date(start, form, &fields) else { return nil }
      return Substring(String(cString: end))
    }
  }

  /// The seconds by which a zone such as `+0200`, `+02:00`, `Z` or `EST` is ahead of UTC; 0 for an unknown one.
  private static func offset(_ zone: Substring) -> Int64 {
    guard let sign = zone.first, sign == "+" || sign == "-" else { return (zones[String(zone)] ?? 0) * 3600 }
    let digits = zone.dropFirst().prefix(5).filter { $0.isASCII && $0.isNumber }
    guard digits.count == 4, let number = Int64(digits) else { return 0 }
    return (sign == "-" ? -1 : 1) * (number / 100 * 3600 + number % 100 * 60)
  }

  /// RFC 822, section 5.
  private static let zones: [String: Int64] = [
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
  ]
}
