/// Sizes as users read and write them.
package enum ByteSize {
  /// Bytes with three digits in binary units: `0 B`, `999 B`, `1.50 KiB`, `48.0 MiB`.
  package static func shown(_ bytes: Int64) -> String {
    if bytes < 1000 { return "\(bytes) B" }
    var value = Double(bytes)
    var unit = 0
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    // From 999.5 on, three digits would be rounded up to four.
    while value >= 999.5, unit < units.count - 1 {
      value /= 1024
      unit += 1
    }
    let digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0
    return "\(decimal(value, digits)) \(units[unit])"
  }

  private static func decimal(_ value: Double, _ digits: Int) -> String {
    let scale = digits == 2 ? 100.0 : digits == 1 ? 10.0 : 1.0
    let scaled = Int((value * scale).rounded())
    if digits == 0 { return "\(scaled)" }
    let fraction = String(scaled % Int(scale) + Int(scale)).dropFirst()
    return "\(scaled / Int(scale)).\(fraction)"
  }

  /// The number of bytes in `text`: a number, which may have a fraction, with an optional unit in steps of 1024 (`K`,
  /// `M`, `G`, `T`, also as `MB` or `MiB`, in either case). Nil if `text` is not a size or is too large.
  static func parse(_ text: String) -> Int64? {
    let digits = text.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
    guard let number = Double(digits), number.isFinite else { return nil }
    let shift: Int
    switch text[digits.endIndex...].lowercased() {
    case "", "b": shift = 0
    case "k", "kb", "kib": shift = 10
    case "m", "mb", "mib": shift = 20
    case "g", "gb", "gib": shift = 30
    case "t", "tb", "tib": shift = 40
    default: return nil
    }
    // A whole number stays exact, also beyond 2^53.
    if let whole = Int64(digits) {
      let (bytes, overflow) = whole.multipliedReportingOverflow(by: 1 << shift)
      return overflow ? nil : bytes
    }
    return Int64(exactly: (number * Double(1 << shift)).rounded(.down))
  }
}
