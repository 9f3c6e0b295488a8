import Base

/// Bytes of one content that could not be stored, kept for its readers: a full disk stops storing, not playing (P9).
///
/// A ring: the oldest bytes go first, but not those that a parked read needs. Pure; the content's lock guards it.
struct MemoryWindow: Sendable {
  /// The most bytes for one content.
  static let most: Int64 = 2 << 20
  /// The most bytes for all contents together. They exceed it a little, because a content with some keeps ``least``.
  static let mostInAll: Int64 = 16 << 20
  /// What one content may keep however many there are, in bytes: two reads, so that one of them becomes whole.
  static let least: Int64 = 256 << 10

  private struct Piece: Sendable {
    var range: ByteRange
    var bytes: [UInt8]
  }

  /// In the order of their arrival; no byte is in two of them.
  private var pieces: [Piece] = []
  /// The ranges of all pieces.
  private(set) var ranges = ByteRangeSet()

  /// In bytes.
  var count: Int64 { ranges.count }
  var isEmpty: Bool { pieces.isEmpty }

  /// Makes space for `count` more bytes within `most`. Of the bytes that parked reads need, only those behind `end`,
  /// where the new bytes end, may go: the first read has to become whole. False when there is not enough space.
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

  /// Drops bytes that no parked read needs, the oldest first, until at most `most` are left or none of them remains.
  mutating func shrink(to most: Int64, keeping waited: [ByteRange]) {
    _ = makeSpace(for: 0, keeping: waited, most: most)
  }

  /// Adds bytes that are not here yet.
  mutating func insert(_ bytes: UnsafeRawBufferPointer, at offset: Int64) {
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    pieces.append(Piece(range: range, bytes: Array(bytes)))
    ranges.insert(range)
  }

  /// Copies the bytes that are here into `buffer`, whose first byte belongs at `offset`.
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

  /// Removes and returns all pieces.
  mutating func takeAll() -> [(offset: Int64, bytes: [UInt8])] {
    defer { self = MemoryWindow() }
    return pieces.map { ($0.range.start, $0.bytes) }
  }
}
