extension Int64 {
  /// Adds up sizes that origins or a damaged store claim: at its bound the sum stays there, instead of ending the
  /// program.
  package static func clampedSum(_ first: Int64, _ second: Int64) -> Int64 {
    let (sum, isOver) = first.addingReportingOverflow(second)
    return isOver ? (second < 0 ? .min : .max) : sum
  }
}
