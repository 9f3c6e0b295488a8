import Glibc

/// Dates as HTTP writes them (RFC 9110, section 5.6.7).
package enum HTTPDate {
  /// `seconds` since 1970 as an IMF-fixdate; nil when its year does not have the four digits of that format.
  ///
  /// The names are English because no part of the program sets a locale: `Scripts/lint` looks for that.
  package static func format(_ seconds: Int64) -> String? {
    var time = time_t(seconds)
    var parts = tm()
    guard gmtime_r(&time, &parts) != nil, (1000...9999).contains(Int(parts.tm_year) + 1900) else { return nil }
    var text = [CChar](repeating: 0, count: 32)
    let count = strftime(&text, text.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
    return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
