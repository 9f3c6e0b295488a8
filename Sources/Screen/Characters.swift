import Base
import CCurses
import Glibc

/// What characters the terminal of a thread shows, by its locale (LC_ALL, LC_CTYPE, LANG).
///
/// The locale is the calling thread's alone, and only its characters: dates of HTTP stay English.
package enum Characters {
  /// Uses the locale of the environment, or of that name; whether it has UTF-8. Where the environment names a UTF-8
  /// locale that is not installed, C.UTF-8 stands in.
  package static func use(_ name: String? = nil) -> Bool {
    let found = ccurses_use_characters(name ?? "")
    if found >= 0 { return found == 1 }
    var wanted = name ?? ""
    for variable in ["LC_ALL", "LC_CTYPE", "LANG"] where wanted.isEmpty {
      if let value = getenv(variable) { wanted = String(cString: value) }
    }
    guard wanted.lowercased().hasSuffix("utf-8") || wanted.lowercased().hasSuffix("utf8") else { return false }
    return ccurses_use_characters("C.UTF-8") == 1
  }

  /// How many columns a character takes, by wcwidth(3); nil when the terminal cannot show it.
  package static func width(_ scalar: Unicode.Scalar) -> Int? {
    if 0x20..<0x7F ~= scalar.value { return 1 }
    let width = Int(ccurses_width(scalar.value))
    return width < 0 ? nil : width
  }
}
