import Base

/// The stored bytes of a file, for a reader of its index. Such a reader asks no origin for anything.
package struct StoredBytes {
  /// The size of the file in bytes.
  package let size: Int64
  /// Which of its bytes are stored.
  package let stored: ByteRangeSet
  private let fill: (UnsafeMutableRawBufferPointer, Int64) -> Bool

  /// `fill` copies stored bytes from an offset; false when it cannot.
  package init(
    size: Int64, stored: ByteRangeSet, fill: @escaping (UnsafeMutableRawBufferPointer, Int64) -> Bool
  ) {
    self.size = size
    self.stored = stored
    self.fill = fill
  }

  /// The same bytes; `note` is told which of them are read.
  package func noting(_ note: @escaping (ByteRange) -> Void) -> StoredBytes {
    StoredBytes(size: size, stored: stored) { buffer, offset in
      note(ByteRange(at: offset, count: Int64(buffer.count)))
      return fill(buffer, offset)
    }
  }

  fileprivate func copy(_ range: ByteRange, into buffer: inout [UInt8]) -> Bool {
    buffer.withUnsafeMutableBytes { bytes in
      fill(UnsafeMutableRawBufferPointer(rebasing: bytes[..<Int(range.count)]), range.start)
    }
  }
}

/// Why an index cannot be read.
enum IndexGap: Error, Equatable {
  /// These bytes are not stored.
  case missing(ByteRange)
  /// The bytes do not make sense.
  case malformed
}

/// Numbers from stored bytes, in any place, through one small buffer.
struct ByteCursor {
  let bytes: StoredBytes
  private var buffer: [UInt8]
  private var held = ByteRange(0, 0)

  /// `piece`: how many bytes it reads at once.
  init(_ bytes: StoredBytes, piece: Int = 4096) {
    self.bytes = bytes
    buffer = [UInt8](repeating: 0, count: piece)
  }

  /// The `count` bytes at `offset`, at most 8, as a big-endian number.
  mutating func number(_ count: Int, at offset: Int64) throws(IndexGap) -> UInt64 {
    let first = try load(count, at: offset)
    var value: UInt64 = 0
    for index in first..<first + count { value = value << 8 | UInt64(buffer[index]) }
    return value
  }

  /// The same, little-endian.
  mutating func littleEndian(_ count: Int, at offset: Int64) throws(IndexGap) -> UInt64 {
    try number(count, at: offset).byteSwapped >> UInt64(64 - 8 * count)
  }

  /// Makes sure that the buffer has the bytes; returns the index of the first.
  private mutating func load(_ count: Int, at offset: Int64) throws(IndexGap) -> Int {
    guard offset >= 0, offset <= bytes.size - Int64(count) else { throw .malformed }
    let wanted = ByteRange(at: offset, count: Int64(count))
    if held.contains(wanted) { return Int(offset - held.start) }
    let run = bytes.stored.runEnd(from: offset)
    guard run >= wanted.end else { throw .missing(wanted) }
    let piece = ByteRange(offset, min(run, bytes.size, .clampedSum(offset, Int64(buffer.count))))
    held = ByteRange(0, 0)
    guard bytes.copy(piece, into: &buffer) else { throw .missing(wanted) }
    held = piece
    return 0
  }

  /// A longer part of an index, in bytes, is not read: a day of film has less, and who asks waits for the reading.
  private static let longest: Int64 = 64 << 20

  /// Throws `missing` unless all of `range` is stored.
  func require(_ range: ByteRange) throws(IndexGap) {
    if range.count > Self.longest { throw .malformed }
    if !bytes.stored.contains(range) { throw .missing(range) }
  }
}
