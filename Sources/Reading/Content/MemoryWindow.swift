import Base

/// Bytes of one content that could not be stored, kept for who reads them: a full disk stops storing, not playing (P9).
///
/// A ring: what came first goes first, but not what a parked read still waits for. Pure; the content's lock guards it.
struct MemoryWindow: Sendable {
  /// The most that one content keeps.
  static let most: Int64 = 2 << 20
  /// The most over all contents.
  static let mostInAll: Int64 = 16 << 20

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

  /// Makes room for `count` bytes more. False when what is here is all waited for: nothing more can be kept.
  mutating func makeRoom(for count: Int64, keeping waited: [ByteRange]) -> Bool {
    while ranges.count + count > Self.most {
      let oldest = pieces.firstIndex { piece in !waited.contains { $0.overlaps(piece.range) } }
      guard let oldest else { return false }
      ranges.remove(pieces.remove(at: oldest).range)
    }
    return true
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
