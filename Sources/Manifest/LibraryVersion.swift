import CXML

/// The libxml2 that this process runs with.
package enum Libxml2 {
  /// Its version, as it tells it itself.
  package static var version: String {
    let number = cxml_version()
    return "\(number / 10_000).\(number / 100 % 100).\(number % 100)"
  }
}
