import Base

/// Bytes of one content that could not be stored, kept for who reads them: a full disk stops storing, not playing (P9).
///
/// A ring: what came first goes first, but not what a parked read still waits for. Pure; the content's lock guards it.
struct MemoryWindow: Sendable {
  /// The most that one content keeps.
  static let most: Int64 = 2 << 20
  /// The most over all contents, but for a little: who has some keeps ``least`` of it.
  static let mostInAll: Int64 = 16 << 20
  /// What one content may keep however many there are: two reads, so that one of them is whole in the end.
  static let least: Int64 = 256 << 10

  private struct Piece: Sendable {
    var range: ByteRange
    var bytes: [UInt8]
  }

  /// In the order in which they came; no byte is in two of them.
  private var pieces: [Piece] = []
  /// What is in them.
  private(set) var ranges = ByteRangeSet()

  /// How many bytes.
  var count: Int64 { ranges.count }
  var isEmpty: Bool { pieces.isEmpty }

  /// Makes space for `count` bytes more, so that there are no more than `most`. What is waited for goes only if it lies
  /// behind `end`, where the new bytes end: the first read has to become whole. False when nothing more can be kept.
  mutating func makeSpace(
    for count: Int64, keeping waited: [ByteRange], before end: Int64 = .max, most: Int64 = Self.most
  ) -> Bool {
    while ranges.count + count > most {
      let oldest = pieces.firstIndex { piece in !waited.contains { $0.overlaps(piece.range) } }
      let last = pieces.indices.filter { pieces[$0].range.start >= end }.max {
        pieces[$0].range.start < pieces[$1].range.start
      }
      guard let index = oldest ?? last else { return false }
      ranges.remove(pieces.remove(at: index).range)
    }
    return true
  }

  /// Gives up what nobody waits for, the oldest first, until there are no more than `most` bytes or nothing such is
  /// left.
  mutating func shrink(to most: Int64, keeping waited: [ByteRange]) {
    _ = makeSpace(for: 0, keeping: waited, most: most)
  }

  /// Puts bytes in that are not here yet.
  mutating func insert(_ bytes: UnsafeRawBufferPointer, at offset: Int64) {
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    pieces.append(Piece(range: range, bytes: Array(bytes)))
    ranges.insert(range)
  }

  /// Copies what is here of `buffer`, whose first byte is the one at `offset`.
  func copy(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) {
    let wanted = ByteRange(at: offset, count: Int64(buffer.count))
    for piece in pieces {
      guard let both = piece.range.intersection(wanted) else { continue }
      let from = Int(both.start - piece.range.start)
      piece.bytes.withUnsafeBytes { bytes in
        let part = UnsafeRawBufferPointer(rebasing: bytes[from..<from + Int(both.count)])
        UnsafeMutableRawBufferPointer(rebasing: buffer[Int(both.start - offset)...]).copyMemory(from: part)
      }
    }
  }

  /// Takes everything out.
  mutating func takeAll() -> [(offset: Int64, bytes: [UInt8])] {
    defer { self = MemoryWindow() }
    return pieces.map { ($0.range.start, $0.bytes) }
  }
}
