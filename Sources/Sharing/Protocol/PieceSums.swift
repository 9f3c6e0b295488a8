/// The checksums of a block's pieces: the value of `x-amz-meta-mfs-pieces`. A reader gets each piece once it is known
/// to be right, and a part of a block can be checked by itself.
package struct PieceSums: Hashable, Sendable {
  /// How many pieces a whole block has.
  package static let count = 64

  /// The CRC-32C of each piece.
  package var sums: [UInt32]

  /// The checksums of a block whose pieces have `piece` bytes; the last one may have less.
  package init(_ bytes: UnsafeRawBufferPointer, piece: Int) {
    sums = stride(from: 0, to: bytes.count, by: piece).map { start in
      CRC32C(UnsafeRawBufferPointer(rebasing: bytes[start..<min(start + piece, bytes.count)])).value
    }
  }

  /// Reads the value for a block of `length` bytes; nil: it is not one.
  package init?(_ text: String, length: Int, piece: Int) {
    let digits = Array(text.utf8)
    guard digits.count == (length + piece - 1) / piece * 8, digits.allSatisfy(\.isHexDigit) else { return nil }
    sums = stride(from: 0, to: digits.count, by: 8).map { start in
      digits[start..<start + 8].reduce(UInt32(0)) { $0 << 4 | UInt32($1 < 0x3A ? $1 - 0x30 : $1 - 0x57) }
    }
  }

  /// The value.
  package var text: String { sums.map { UInt64($0).hex(digits: 8) }.joined() }
}

/// Gives on the bytes of a block as they come, each piece once it is known to be right. Pure but for the bytes it keeps
/// of one piece.
struct PieceCheck {
  enum Fault: Error { case wrong, refused }

  private let sums: PieceSums
  private let piece: Int
  private let length: Int
  private var index: Int
  private var kept: [UInt8] = []

  /// Begins at the first byte of piece `index` of a block of `length` bytes.
  init(_ sums: PieceSums, piece: Int, length: Int, from index: Int) {
    (self.sums, self.piece, self.length, self.index) = (sums, piece, length, index)
  }

  /// Where the next piece that is given on begins in the block.
  var position: Int { min(index * piece, length) }

  /// Takes bytes, and calls `give` with each whole piece that is right.
  mutating func take(
    _ bytes: UnsafeRawBufferPointer, give: (UnsafeRawBufferPointer) -> Bool
  ) throws(Fault) {
    var rest = bytes
    while !rest.isEmpty {
      guard index < sums.sums.count else { throw .wrong }
      let size = min(piece, length - index * piece)
      if kept.isEmpty, rest.count >= size {
        try check(UnsafeRawBufferPointer(rebasing: rest[..<size]), give)
        rest = UnsafeRawBufferPointer(rebasing: rest[size...])
        continue
      }
      let more = min(size - kept.count, rest.count)
      kept.append(contentsOf: rest[..<more])
      rest = UnsafeRawBufferPointer(rebasing: rest[more...])
      guard kept.count == size else { continue }
      let whole = kept
      kept.removeAll(keepingCapacity: true)
      var fault: Fault?
      whole.withUnsafeBytes { bytes in
        do throws(Fault) { try check(bytes, give) } catch { fault = error }
      }
      if let fault { throw fault }
    }
  }

  private mutating func check(
    _ bytes: UnsafeRawBufferPointer, _ give: (UnsafeRawBufferPointer) -> Bool
  ) throws(Fault) {
    guard CRC32C(bytes).value == sums.sums[index] else { throw .wrong }
    index += 1
    if !give(bytes) { throw .refused }
  }
}
