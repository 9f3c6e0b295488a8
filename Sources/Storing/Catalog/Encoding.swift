import Base
import Manifest

/// A resource's key in the catalog's two columns: its halves as two's complement.
struct ResourceKeyColumns: Equatable, Comparable {
  var high: Int64
  var low: Int64

  /// Folders have no resource.
  static let none = ResourceKeyColumns(high: 0, low: 0)

  init(high: Int64, low: Int64) {
    self.high = high
    self.low = low
  }

  init(_ key: ResourceKey) {
    high = Int64(bitPattern: key.high)
    low = Int64(bitPattern: key.low)
  }

  var key: ResourceKey { ResourceKey(high: UInt64(bitPattern: high), low: UInt64(bitPattern: low)) }

  /// The order of the columns' index.
  static func < (left: ResourceKeyColumns, right: ResourceKeyColumns) -> Bool {
    (left.high, left.low) < (right.high, right.low)
  }
}

extension SQLiteConnection {
  /// The keys that `query` selects behind `key` (its first two parameters), in its order, at most `limit` (its third).
  func keys(
    _ query: SQL, after key: ResourceKeyColumns, limit: Int
  ) throws(StoreError) -> [ResourceKeyColumns] {
    let statement = try statement(query)
    defer { statement.reset() }
    statement.bind(1, key)
    statement.bind(3, limit)
    var keys: [ResourceKeyColumns] = []
    while try statement.step() {
      keys.append(ResourceKeyColumns(high: statement.integer(0), low: statement.integer(1)))
    }
    return keys
  }
}

/// Writes the catalog's blobs: LEB128 numbers, and strings prefixed with their length (docs/STORE-FORMAT.md).
struct BlobWriter {
  private(set) var bytes: [UInt8] = []

  mutating func reserveCapacity(_ count: Int) { bytes.reserveCapacity(count) }
  mutating func append(byte: UInt8) { bytes.append(byte) }

  /// Precondition: not negative.
  mutating func append(_ number: Int64) {
    var rest = UInt64(number)
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    bytes.append(UInt8(rest))
  }

  mutating func append(_ text: String) {
    append(Int64(text.utf8.count))
    bytes.append(contentsOf: text.utf8)
  }

  /// Appends the bytes without a length.
  mutating func append(bytesOf text: String) { bytes.append(contentsOf: text.utf8) }

  /// Appends the bytes without a length.
  mutating func append(rawBytes: ArraySlice<UInt8>) { bytes.append(contentsOf: rawBytes) }

  mutating func append(_ blob: [UInt8]) {
    append(Int64(blob.count))
    bytes.append(contentsOf: blob)
  }
}

/// Reads what ``BlobWriter`` wrote; nil for invalid bytes.
struct BlobReader {
  private let bytes: UnsafeRawBufferPointer
  private var position = 0

  /// Reads `bytes`, which must stay valid while the reader is in use.
  init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

  var isAtEnd: Bool { position == bytes.count }
  /// The bytes that are left.
  var rest: [UInt8] { [UInt8](bytes[position...]) }

  mutating func byte() -> UInt8? {
    guard position < bytes.count else { return nil }
    defer { position += 1 }
    return bytes[position]
  }

  mutating func number() -> Int64? {
    var result: UInt64 = 0
    var shift: UInt64 = 0
    while let next = byte() {
      // Nine groups of seven bits cover all non-negative values of 64 bits.
      guard shift < 63 else { return nil }
      result |= UInt64(next & 0x7f) << shift
      if next < 0x80 { return Int64(result) }
      shift += 7
    }
    return nil
  }

  mutating func blob() -> [UInt8]? {
    guard let count = number(), count <= bytes.count - position else { return nil }
    defer { position += Int(count) }
    return [UInt8](bytes[position..<position + Int(count)])
  }

  mutating func text() -> String? {
    guard let count = number(), count <= bytes.count - position else { return nil }
    defer { position += Int(count) }
    return String(decoding: bytes[position..<position + Int(count)], as: UTF8.self)
  }
}

extension ByteRangeSet {
  /// The catalog's form: the distances between the ranges' boundaries.
  var encoded: [UInt8] {
    var writer = BlobWriter()
    var previous: Int64 = 0
    for range in ranges {
      writer.append(range.start - previous)
      writer.append(range.count)
      previous = range.end
    }
    return writer.bytes
  }

  /// Decodes the result of ``encoded``; nil if it is invalid.
  init?(encoded bytes: UnsafeRawBufferPointer) {
    self.init()
    var reader = BlobReader(bytes)
    var position: Int64 = 0
    while !reader.isAtEnd {
      guard let gap = reader.number(), let count = reader.number(), count > 0 else { return nil }
      let (start, overflows) = position.addingReportingOverflow(gap)
      let (end, overflowsToo) = start.addingReportingOverflow(count)
      guard !overflows, !overflowsToo else { return nil }
      insert(ByteRange(start, end))
      position = end
    }
  }
}
