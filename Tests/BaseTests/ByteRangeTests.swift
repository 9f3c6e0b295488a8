import Base
import Testing

@Suite struct ByteRangeTests {
  @Test func countAndEmptiness() {
    #expect(ByteRange(3, 7).count == 4)
    #expect(ByteRange(at: 3, count: 4) == ByteRange(3, 7))
    #expect(ByteRange(5, 5).isEmpty)
    #expect(!ByteRange(0, 1).isEmpty)
    #expect(ByteRange(0, .max).count == .max)
  }

  @Test func containsIsHalfOpen() {
    let range = ByteRange(3, 7)
    #expect(range.contains(3) && range.contains(6))
    #expect(!range.contains(2) && !range.contains(7))
    #expect(range.contains(ByteRange(3, 7)) && range.contains(ByteRange(4, 5)))
    #expect(!range.contains(ByteRange(2, 4)) && !range.contains(ByteRange(6, 8)))
    #expect(range.contains(ByteRange(100, 100)), "every set contains the empty one")
  }

  @Test(arguments: [
    (ByteRange(0, 3), ByteRange(3, 5), nil as ByteRange?),
    (ByteRange(0, 4), ByteRange(3, 5), ByteRange(3, 4)),
    (ByteRange(0, 9), ByteRange(3, 5), ByteRange(3, 5)),
    (ByteRange(3, 5), ByteRange(3, 5), ByteRange(3, 5)),
    (ByteRange(4, 4), ByteRange(3, 5), nil),
    (ByteRange(7, 9), ByteRange(3, 5), nil),
  ])
  func intersection(left: ByteRange, right: ByteRange, common: ByteRange?) {
    #expect(left.intersection(right) == common)
    #expect(right.intersection(left) == common)
    #expect(left.overlaps(right) == (common != nil))
    #expect(right.overlaps(left) == (common != nil))
  }

  @Test func blocksAreWhole() {
    #expect(ByteRange(5, 5).blocks(of: 4) == ByteRange(5, 5))
    #expect(ByteRange(3, 5).blocks(of: 4) == ByteRange(0, 8) && ByteRange(4, 8).blocks(of: 4) == ByteRange(4, 8))
    // A damaged catalog may name such bytes.
    #expect(ByteRange(.max - 1, .max).blocks(of: 4096) == ByteRange(.max - 4095, .max))
  }

  @Test func describesItselfHalfOpen() { #expect("\(ByteRange(0, 10))" == "[0, 10)") }
}
