/// Sizes as people write them.
enum ByteSize {
  /// The bytes that `text` names: a number, with a unit of 1024 steps if it has one (`K`, `M`, `G`, `T`, also as `MB`
  /// or `MiB`, in either case); fractions are taken. Nil when it is no such thing, or more than fits.
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
