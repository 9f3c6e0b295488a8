extension Int64 {
  /// Adds sizes that origins or a damaged store claim. An overflow gives the bound instead of ending the program.
  package static func clampedSum(_ first: Int64, _ second: Int64) -> Int64 {
    let (sum, isOver) = first.addingReportingOverflow(second)
    return isOver ? (second < 0 ? .min : .max) : sum
  }
}
