/// Parses sizes as users write them.
enum ByteSize {
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
