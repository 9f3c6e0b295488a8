import Base
import TestSupport
import Testing

@Suite struct ByteRangeSetTests {
  private func set(_ ranges: (Int64, Int64)...) -> ByteRangeSet {
    var set = ByteRangeSet()
    for range in ranges { set.insert(ByteRange(range.0, range.1)) }
    return set
  }

  @Test func touchingRangesBecomeOne() {
    #expect(set((0, 5), (5, 9)).ranges == [ByteRange(0, 9)])
    #expect(set((5, 9), (0, 5)).ranges == [ByteRange(0, 9)])
    #expect(set((0, 2), (4, 6), (1, 5)).ranges == [ByteRange(0, 6)])
    #expect(set((0, 2), (4, 6), (2, 4)).ranges == [ByteRange(0, 6)])
    #expect(set((0, 2), (3, 5)).ranges.count == 2)
    #expect(set((1, 1)).isEmpty)
  }

  @Test func removalSplits() {
    var ranges = set((0, 10))
    ranges.remove(ByteRange(3, 5))
    #expect(ranges.ranges == [ByteRange(0, 3), ByteRange(5, 10)])
    #expect(ranges.count == 8)
    ranges.remove(ByteRange(0, 3))
    #expect(ranges.ranges == [ByteRange(5, 10)])
    ranges.remove(ByteRange(0, .max))
    #expect(ranges.isEmpty && ranges.count == 0)
  }

  @Test func whatIsInBoth() {
    var random = SeededRandom.fromEnvironment()
    #expect(set((0, 10)).intersection(set((10, 20))).isEmpty)
    #expect(set((0, 5), (8, 12)).intersection(set((3, 9))) == set((3, 5), (8, 9)))
    for _ in 0..<500 {
      var (first, second) = (ByteRangeSet(), ByteRangeSet())
      for _ in 0..<4 {
        first.insert(randomRange(within: 40, using: &random))
        second.insert(randomRange(within: 40, using: &random))
      }
      let both = first.intersection(second)
      let isRight = (0..<40).map { ByteRange(at: $0, count: 1) }.allSatisfy {
        both.contains($0) == (first.contains($0) && second.contains($0))
      }
      #expect(isRight, "\(first) and \(second), seed \(random.seed)")
    }
  }

  @Test func workAtTheEndOfTheNumbers() {
    var ranges = ByteRangeSet(ByteRange(0, .max))
    #expect(ranges.contains(ByteRange(.max - 1, .max)))
    #expect(ranges.firstGap(in: ByteRange(0, .max)) == nil)
    ranges.remove(ByteRange(1 << 53, 1 << 53 + 1))
    #expect(ranges.firstGap(in: ByteRange(0, .max)) == ByteRange(1 << 53, 1 << 53 + 1))
    #expect(ranges.runEnd(from: 5) == 1 << 53)
  }

  @Test func unionTakesEveryRange() {
    var left = set((0, 2), (8, 10))
    left.formUnion(set((2, 4), (9, 12), (20, 21)))
    #expect(left.ranges == [ByteRange(0, 4), ByteRange(8, 12), ByteRange(20, 21)])
    #expect(left.end == 21 && ByteRangeSet().end == 0)
    #expect("\(left)" == "{[0, 4) [8, 12) [20, 21)}")
  }

  /// Thousands of operations beside a plain bitmap, every question asked of both after each.
  @Test func agreesWithABitmap() {
    var random = SeededRandom.fromEnvironment()
    let size = 96
    for round in 0..<60 {
      var tested = ByteRangeSet()
      var bits = [Bool](repeating: false, count: size)
      for step in 0..<80 {
        let range = randomRange(within: size, using: &random)
        switch Int.random(in: 0..<5, using: &random) {
        case 0, 1, 2:
          tested.insert(range)
          for index in range.start..<range.end { bits[Int(index)] = true }
        case 3:
          tested.remove(range)
          for index in range.start..<range.end { bits[Int(index)] = false }
        default:
          let other = randomRange(within: size, using: &random)
          tested.formUnion(ByteRangeSet(other))
          for index in other.start..<other.end { bits[Int(index)] = true }
        }
        guard agree(tested, bits, probe: randomRange(within: size, using: &random)) else {
          Issue.record("round \(round), step \(step), seed \(random.seed): \(tested)")
          return
        }
      }
    }
  }

  private func randomRange(within size: Int, using random: inout SeededRandom) -> ByteRange {
    let ends = [Int64.random(in: 0...Int64(size), using: &random), Int64.random(in: 0...Int64(size), using: &random)]
    return ByteRange(ends.min() ?? 0, ends.max() ?? 0)
  }

  private func agree(_ tested: ByteRangeSet, _ bits: [Bool], probe: ByteRange) -> Bool {
    let indices = Int(probe.start)..<Int(probe.end)
    var expected: [ByteRange] = []
    for (index, isSet) in bits.enumerated() where isSet {
      if let last = expected.last, last.end == Int64(index) {
        expected[expected.count - 1].end += 1
      } else {
        expected.append(ByteRange(Int64(index), Int64(index) + 1))
      }
    }
    var gap: ByteRange?
    if let start = indices.first(where: { !bits[$0] }) {
      gap = ByteRange(Int64(start), Int64(indices[start...].first { bits[$0] } ?? indices.endIndex))
    }
    let start = Int(probe.start)
    let runEnd = bits[start...].firstIndex(of: false) ?? bits.endIndex
    return tested.ranges == expected && tested.count == expected.reduce(0) { $0 + $1.count }
      && tested.count(in: probe) == Int64(indices.filter { bits[$0] }.count)
      && tested.contains(probe) == indices.allSatisfy { bits[$0] } && tested.firstGap(in: probe) == gap
      && tested.runEnd(from: probe.start) == Int64(runEnd)
  }
}
