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
