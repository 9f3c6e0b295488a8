extension FileStatus {
  /// Closes the smallest gaps until at most `most` ranges are left. Each closed gap is less than one `most`-th of the
  /// file: a bar of so many cells shows them no different.
  package mutating func coarsen(to most: Int) {
    guard ranges.count > most, most > 0, ranges.allSatisfy({ $0.count == 2 }) else { return }
    // A hostile server's numbers are any.
    let gaps = ranges.indices.dropFirst().map {
      ranges[$0][0].subtractingReportingOverflow(ranges[$0 - 1][1]).partialValue
    }
    let kept = Set(gaps.indices.sorted { (gaps[$1], $0) < (gaps[$0], $1) }.prefix(most - 1))
    var coarse = [ranges[0]]
    for index in gaps.indices {
      let next = ranges[index + 1]
      if kept.contains(index) { coarse.append(next) } else { coarse[coarse.count - 1][1] = next[1] }
    }
    ranges = coarse
  }
}
