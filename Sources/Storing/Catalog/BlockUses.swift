import Base

/// When the blocks of a partial file were last used, in seconds since 1970; 0: never (docs/STORE-FORMAT.md, "Uses").
package struct BlockUses: Sendable, Equatable {
  /// The most blocks of one file.
  package static let mostBlocks = 4096
  /// The binary logarithm of the smallest block.
  package static let smallest = 20
  private static let largest = 50
  private static let version: UInt8 = 1

  /// The binary logarithm of a block's size.
  package let shift: Int
  /// One for each whole block of the file's size, and one.
  package var times: [UInt32]

  /// Of a file of `size` bytes that was never used.
  package init(size: Int64) {
    shift = Self.shift(of: size)
    times = [UInt32](repeating: 0, count: Int(size >> Int64(shift)) + 1)
  }

  /// With these times.
  package init(shift: Int, times: [UInt32]) {
    (self.shift, self.times) = (shift, times)
  }

  /// The block size of a file: 1 MiB, or the least power of two with which its blocks are few enough.
  package static func shift(of size: Int64) -> Int {
    var shift = smallest
    while size >> Int64(shift) >= Int64(mostBlocks) { shift += 1 }
    return shift
  }

  /// Takes over each later time of `other`, which must be of the same file.
  package mutating func merge(_ other: BlockUses) {
    guard shift == other.shift, times.count == other.times.count else { return }
    for index in times.indices where other.times[index] > times[index] { times[index] = other.times[index] }
  }

  /// The catalog's form.
  var encoded: [UInt8] {
    let least = times.filter { $0 > 0 }.min() ?? 0
    var writer = BlobWriter()
    writer.append(byte: Self.version)
    writer.append(Int64(shift))
    writer.append(Int64(least))
    var index = 0
    while index < times.count {
      var end = index + 1
      while end < times.count, times[end] == times[index] { end += 1 }
      writer.append(Int64(end - index))
      writer.append(times[index] == 0 ? 0 : Int64(times[index] - least) + 1)
      index = end
    }
    return writer.bytes
  }

  /// Decodes the result of ``encoded``; nil if it is no such row.
  init?(encoded bytes: UnsafeRawBufferPointer) {
    var reader = BlobReader(bytes)
    guard reader.byte() == Self.version, let shift = reader.number(), let least = reader.number(),
      Int64(Self.smallest)...Int64(Self.largest) ~= shift, least <= Int64(UInt32.max)
    else { return nil }
    var times: [UInt32] = []
    while !reader.isAtEnd {
      guard let count = reader.number(), let used = reader.number(), count >= 1,
        count <= Int64(Self.mostBlocks - times.count), used == 0 || used - 1 <= Int64(UInt32.max) - least
      else { return nil }
      times.append(contentsOf: repeatElement(used == 0 ? 0 : UInt32(least + used - 1), count: Int(count)))
    }
    self.shift = Int(shift)
    self.times = times
  }
}
