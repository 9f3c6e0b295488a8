import Base
import TestSupport
import Testing

@testable import Sharing

/// The pieces of a block: their checksums as metadata, and which bytes are given on.
@Suite("Pieces of blocks") struct PieceTests {
  private static let piece = 1024
  private static let block = (0..<(10 * 1024 + 7)).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 7) }

  private func sums(_ bytes: [UInt8]) -> PieceSums {
    bytes.withUnsafeBytes { PieceSums($0, piece: Self.piece) }
  }

  /// What is given on of `bytes`, which begin with piece `first`, cut into parts of such lengths.
  private func given(
    _ bytes: [UInt8], of whole: [UInt8], from first: Int = 0, parts: () -> Int
  ) -> (bytes: [UInt8], fault: PieceCheck.Fault?) {
    var check = PieceCheck(sums(whole), piece: Self.piece, length: whole.count, from: first)
    var given: [UInt8] = []
    var rest = bytes[...]
    while !rest.isEmpty {
      let part = Array(rest.prefix(max(1, parts())))
      rest = rest.dropFirst(part.count)
      var fault: PieceCheck.Fault?
      part.withUnsafeBytes { bytes in
        do throws(PieceCheck.Fault) {
          try check.take(bytes) {
            given.append(contentsOf: $0)
            return true
          }
        } catch { fault = error }
      }
      if let fault { return (given, fault) }
    }
    return (given, nil)
  }

  @Test("Metadata have them as digits, and refuse what is of another block")
  func text() throws {
    let all = sums(Self.block)
    #expect(all.sums.count == 11 && all.text.utf8.count == 88)
    #expect(PieceSums(all.text, length: Self.block.count, piece: Self.piece) == all)
    let rest = all.text.dropFirst()
    for text in ["", String(all.text.dropLast()), all.text + "00000000", "G" + rest, "A" + rest] {
      #expect(PieceSums(text, length: Self.block.count, piece: Self.piece) == nil, "\(text)")
    }
    // The pieces of a whole block fit into what S3 takes as metadata, with the label.
    #expect(PieceSums.count * 8 + 128 + 64 < 2048)
  }

  @Test("Right pieces are given on, however they come")
  func right() {
    var random = SeededRandom(seed: 7)
    for _ in 0..<200 {
      let first = Int.random(in: 0...10, using: &random)
      let longest = [1, 100, 1024, 5000].randomElement(using: &random) ?? 1
      let bytes = Array(Self.block[(first * Self.piece)...])
      let (given, fault) = given(bytes, of: Self.block, from: first) { Int.random(in: 1...longest, using: &random) }
      #expect(given == bytes && fault == nil)
    }
  }

  @Test("No byte of a wrong piece is given on, nor of one behind it")
  func wrong() {
    var random = SeededRandom(seed: 8)
    for _ in 0..<200 {
      var bytes = Self.block
      let place = Int.random(in: 0..<bytes.count, using: &random)
      bytes[place] ^= UInt8(1 << Int.random(in: 0..<8, using: &random))
      let (given, fault) = given(bytes, of: Self.block) { Int.random(in: 1...3000, using: &random) }
      #expect(fault == .wrong && given == Array(Self.block.prefix(place / Self.piece * Self.piece)))
    }
    // More bytes than the block has.
    #expect(given(Self.block + [0], of: Self.block) { 4000 }.fault == .wrong)
  }
}

/// Which parts of a file its probe set has.
@Suite("The parts of a probe set")
struct ProbePartTests {
  private static let size: Int64 = 100 << 20

  private func parts(_ stored: ByteRange..., size: Int64 = size) -> [ByteRange]? {
    var set = ByteRangeSet()
    for range in stored { set.insert(range) }
    return FleetMember.probeParts(of: set, size: size)
  }

  @Test("All of a look, in order")
  func look() {
    let (head, index, tail) = (
      ByteRange(0, 65536), ByteRange(5 << 20, (5 << 20) + 9), ByteRange(Self.size - 9, Self.size)
    )
    #expect(parts(tail, head, index) == [head, index, tail])
    #expect(parts(ByteRange(0, 700), size: 700) == [ByteRange(0, 700)])
  }

  @Test("Of more than an object has room for, the beginning and the end")
  func long() throws {
    let found = try #require(parts(ByteRange(0, 3 << 20), ByteRange(Self.size - (2 << 20), Self.size)))
    #expect(found.count == 2 && found[0].start == 0 && found[1].end == Self.size)
    let total = found.reduce(0) { $0 + $1.count }
    #expect(total > 1_000_000 && total < (1 << 20) - 2048)
  }

  @Test("Nobody looked at the beginning, or at anything")
  func none() {
    #expect(parts() == nil)
    #expect(parts(ByteRange(4096, 8192)) == nil)
  }

  @Test("Of many pieces, as many as an object may have")
  func many() {
    var set = ByteRangeSet()
    for number in 0..<40 { set.insert(ByteRange(Int64(number) * 8192, Int64(number) * 8192 + 4096)) }
    #expect(FleetMember.probeParts(of: set, size: Self.size)?.count == ProbeSet.most)
  }
}
