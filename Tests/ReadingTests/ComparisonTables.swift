import Base
import Testing

@testable import Reading

/// The ranges that are compared.
@Suite struct ComparisonTables {
  private static let size: Int64 = 4 << 20

  private func due(_ stored: ByteRangeSet, size: Int64 = size) -> Comparison {
    var comparison = Comparison()
    comparison.look(stored: stored, size: size, now: Instant(nanoseconds: 0))
    return comparison
  }

  @Test("A request begins 4 KiB before its hole, or compares the nearest bytes before it, or those behind it")
  func ranges() {
    let hole = ByteRange(1 << 20, 2 << 20)
    let rows: [(stored: ByteRange, range: ByteRange)] = [
      (ByteRange(0, 1 << 20), ByteRange((1 << 20) - 4096, 2 << 20)),
      (ByteRange((1 << 20) - 100, 1 << 20), ByteRange((1 << 20) - 100, 2 << 20)),
      (ByteRange(0, 512 << 10), ByteRange((512 << 10) - 4096, 512 << 10)),
      (ByteRange(2 << 20, 3 << 20), ByteRange((3 << 20) - 4096, 3 << 20)),
    ]
    for row in rows {
      let stored = ByteRangeSet(row.stored)
      let comparison = due(stored)
      #expect(comparison.isDue)
      #expect(comparison.range(before: hole, stored: stored, size: Self.size) == row.range)
    }
  }

  @Test("What is compared grows smaller with each time, and stays within half a percent")
  func allowance() {
    let stored = ByteRangeSet(ByteRange(0, 1 << 20))
    let hole = ByteRange(1 << 20, 2 << 20)
    var comparison = due(stored)
    var sum: Int64 = 0
    for second in 0..<100 as Range<Int64> {
      let now = Instant(nanoseconds: second * 10_000_000_000)
      comparison.look(stored: stored, size: Self.size, now: now)
      guard comparison.isDue else { break }
      let repeated = hole.start - comparison.range(before: hole, stored: stored, size: Self.size).start
      #expect(repeated > 0 && repeated <= 4096)
      sum += repeated
      comparison.agreed(repeating: repeated, now: now)
      comparison.ended()
    }
    #expect(sum <= Self.size / 200)
    #expect(sum > 4 * 4096)
  }

  @Test("Once half a percent has come again, the hole itself is requested, wherever it is")
  func allowanceUsedUp() {
    let stored = ByteRangeSet(ByteRange(0, 1 << 20))
    var comparison = due(stored)
    comparison.agreed(repeating: Self.size / 200 + 100, now: Instant(nanoseconds: 0))
    for start: Int64 in [1 << 20, 2 << 20] {
      let hole = ByteRange(start, start + 1000)
      #expect(comparison.isDue && comparison.range(before: hole, stored: stored, size: Self.size) == hole)
    }
  }

  @Test("Nothing is compared within a second of the last byte, with nothing stored, and in a file too small for it")
  func notDue() {
    let stored = ByteRangeSet(ByteRange(0, 1 << 20))
    #expect(!due(ByteRangeSet()).isDue)
    #expect(!due(ByteRangeSet(ByteRange(0, 50)), size: 100).isDue)
    var comparison = Comparison()
    comparison.agreed(repeating: 0, now: Instant(nanoseconds: 5_000_000_000))
    comparison.look(stored: stored, size: Self.size, now: Instant(nanoseconds: 5_900_000_000))
    #expect(!comparison.isDue)
    comparison.look(stored: stored, size: Self.size, now: Instant(nanoseconds: 6_100_000_000))
    #expect(comparison.isDue)
  }

  @Test("A second answer counts only if it has the same other bytes from the same place on")
  func verdicts() {
    var comparison = Comparison()
    #expect(comparison.differed(at: 100, [1, 2, 3]) == .odd)
    #expect(comparison.differed(at: 99, [1, 2, 3]) == .fickle)
    #expect(comparison.differed(at: 99, [1, 9, 3]) == .fickle)
    #expect(comparison.differed(at: 99, [1, 9, 3]) == .another)
    comparison.ended()
    #expect(comparison.differed(at: 99, [1, 9, 3]) == .odd)
  }

  @Test("A few equal bytes are no second opinion, whichever answer is shorter; the longer one is compared from then on")
  func shortPieces() {
    let bytes = (0..<100).map { UInt8($0) }
    var comparison = Comparison()
    #expect(comparison.differed(at: 99, bytes) == .odd)
    #expect(comparison.differed(at: 99, bytes.prefix(1)) == .fickle)
    #expect(comparison.differed(at: 99, bytes.prefix(63)) == .fickle)
    #expect(comparison.differed(at: 99, bytes.prefix(64)) == .another)
    comparison.ended()
    #expect(comparison.differed(at: 99, bytes.prefix(1)) == .odd)
    #expect(comparison.differed(at: 99, bytes) == .fickle)
    #expect(comparison.differed(at: 99, bytes.prefix(80)) == .another)
    // The file may end there.
    comparison.ended()
    for verdict in [Comparison.Verdict.odd, .another] {
      #expect(comparison.differed(at: 99, bytes.prefix(10)) == verdict)
    }
  }
}
