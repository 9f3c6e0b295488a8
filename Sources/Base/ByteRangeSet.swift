/// A set of bytes, kept as sorted ranges that neither touch nor overlap.
///
/// A lookup is O(log n) in the number of ranges; an insertion moves the ranges behind it. Files are read in runs, so n
/// is small: one range for a file that was played from its start.
package struct ByteRangeSet: Hashable, Sendable {
  /// The ranges, ascending; none is empty, no two touch.
  package private(set) var ranges: [ByteRange] = []
  /// How many bytes are in the set.
  package private(set) var count: Int64 = 0

  /// The end of the last range; 0 if the set is empty.
  package var end: Int64 { ranges.last?.end ?? 0 }

  /// The empty set.
  package init() {}

  /// The set of one range's bytes.
  package init(_ range: ByteRange) { insert(range) }

  /// Whether no byte is in the set.
  package var isEmpty: Bool { ranges.isEmpty }

  /// The index of the first range that ends behind `offset`; `ranges.count` when there is none.
  @inlinable
  func firstIndex(endingBehind offset: Int64) -> Int {
    var low = 0
    var high = ranges.count
    while low < high {
      let middle = (low + high) / 2
      if ranges[middle].end > offset { high = middle } else { low = middle + 1 }
    }
    return low
  }

  /// Whether every byte of `range` is in the set.
  @inlinable
  package func contains(_ range: ByteRange) -> Bool {
    if range.isEmpty { return true }
    let index = firstIndex(endingBehind: range.start)
    return index < ranges.count && ranges[index].contains(range)
  }

  /// The end of the run that contains `offset`; `offset` itself when that byte is not in the set.
  package func runEnd(from offset: Int64) -> Int64 {
    let index = firstIndex(endingBehind: offset)
    guard index < ranges.count, ranges[index].start <= offset else { return offset }
    return ranges[index].end
  }

  /// The first maximal range within `bounds` that has no byte in the set; nil when the set has all of `bounds`.
  package func firstGap(in bounds: ByteRange) -> ByteRange? {
    var position = bounds.start
    var index = firstIndex(endingBehind: position)
    while position < bounds.end {
      guard index < ranges.count else { return ByteRange(position, bounds.end) }
      let next = ranges[index]
      if next.start > position { return ByteRange(position, min(next.start, bounds.end)) }
      position = next.end
      index += 1
    }
    return nil
  }

  /// How many bytes of `range` are in the set.
  package func count(in range: ByteRange) -> Int64 {
    var total: Int64 = 0
    var index = firstIndex(endingBehind: range.start)
    while index < ranges.count, let part = ranges[index].intersection(range) {
      total += part.count
      index += 1
    }
    return total
  }

  /// Adds every byte of `range`.
  package mutating func insert(_ range: ByteRange) {
    if range.isEmpty { return }
    // Merges it with the ranges that touch or overlap it.
    let first = range.start == 0 ? 0 : firstIndex(endingBehind: range.start - 1)
    var merged = range
    var last = first
    while last < ranges.count, ranges[last].start <= range.end {
      merged = ByteRange(min(merged.start, ranges[last].start), max(merged.end, ranges[last].end))
      count -= ranges[last].count
      last += 1
    }
    count += merged.count
    if last == first + 1 {
      ranges[first] = merged  // the common case: a transfer extends the range before it, nothing moves
    } else {
      ranges.replaceSubrange(first..<last, with: CollectionOfOne(merged))
    }
  }

  /// Removes every byte of `range`.
  package mutating func remove(_ range: ByteRange) {
    if range.isEmpty { return }
    let first = firstIndex(endingBehind: range.start)
    var last = first
    var kept: [ByteRange] = []
    while last < ranges.count, ranges[last].start < range.end {
      let old = ranges[last]
      count -= old.count
      if old.start < range.start { kept.append(ByteRange(old.start, range.start)) }
      if old.end > range.end { kept.append(ByteRange(range.end, old.end)) }
      last += 1
    }
    for part in kept { count += part.count }
    if first < last { ranges.replaceSubrange(first..<last, with: kept) }
  }

  /// The bytes that are in both.
  package func intersection(_ other: ByteRangeSet) -> ByteRangeSet {
    var both = ByteRangeSet()
    var (mine, theirs) = (0, 0)
    while mine < ranges.count, theirs < other.ranges.count {
      if let part = ranges[mine].intersection(other.ranges[theirs]) { both.insert(part) }
      if ranges[mine].end < other.ranges[theirs].end { mine += 1 } else { theirs += 1 }
    }
    return both
  }

  /// The bytes that are not in `other`.
  package func without(_ other: ByteRangeSet) -> ByteRangeSet {
    var rest = self
    for range in other.ranges { rest.remove(range) }
    return rest
  }

  /// Adds every byte of `other`.
  package mutating func formUnion(_ other: ByteRangeSet) {
    for range in other.ranges { insert(range) }
  }
}

extension ByteRangeSet: CustomStringConvertible {
  /// The ranges, one behind the other.
  package var description: String { "{" + ranges.map(\.description).joined(separator: " ") + "}" }
}
