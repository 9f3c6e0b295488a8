/// The bytes of a file that programs look at before they read it: its head, its index, its tail. A new node looks at
/// thousands of files without the origin.
package struct ProbeSet: Hashable, Sendable {
  /// The most pieces of one.
  package static let most = 16
  private static let limit = 1 << 20

  /// Some bytes of the file.
  package struct Piece: Hashable, Sendable {
    /// Where they are.
    package var offset: Int64
    /// They.
    package var bytes: [UInt8]

    /// The bytes at that offset.
    package init(offset: Int64, bytes: [UInt8]) { (self.offset, self.bytes) = (offset, bytes) }
  }

  /// The size of the file.
  package var size: Int64
  /// The pieces, ascending; none overlaps another.
  package var pieces: [Piece]

  /// The pieces of a file. Not more than 16, and less than 1 MiB in all.
  package init(size: Int64, pieces: [Piece]) { (self.size, self.pieces) = (size, pieces) }

  /// Reads the object of that generation.
  package init(_ bytes: [UInt8], of generation: FleetID, key: FleetKey) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "probe", limit: Self.limit, hasBody: true)
    self.init(size: try text.number("size", 0...Int64.max), pieces: [])
    var rest = text.body
    var end: Int64 = 0
    for number in 0..<Self.most {
      guard let value = text["piece.\(number)"] else { break }
      let words = value.split(separator: " ", omittingEmptySubsequences: false)
      guard words.count == 2, let offset = Int64(words[0]), let length = Int(words[1]), offset >= end, length > 0,
        length <= rest.count, offset <= size - Int64(length)
      else { throw .damaged("piece.\(number)") }
      pieces.append(Piece(offset: offset, bytes: Array(rest.prefix(length))))
      rest = rest.dropFirst(length)
      end = offset + Int64(length)
    }
    guard rest.isEmpty else { throw .damaged("length") }
    guard try text.digest("mac") == mac(generation, key) else { throw .damaged("mac") }
  }

  /// The object; nil when it would be larger than may be.
  package func bytes(of generation: FleetID, key: FleetKey) -> [UInt8]? {
    guard pieces.count <= Self.most else { return nil }
    var text = FieldText(kind: "probe")
    text.add("size", size)
    for (number, piece) in pieces.enumerated() { text.add("piece.\(number)", "\(piece.offset) \(piece.bytes.count)") }
    text.add("mac", mac(generation, key))
    let bytes = text.bytes + [UInt8(ascii: "\n")] + pieces.flatMap(\.bytes)
    return bytes.count <= Self.limit ? bytes : nil
  }

  private func mac(_ generation: FleetID, _ key: FleetKey) -> String {
    var bytes = generation.bytes + UInt64(bitPattern: size).bigEndianBytes
    for piece in pieces {
      bytes += UInt64(bitPattern: piece.offset).bigEndianBytes + UInt64(piece.bytes.count).bigEndianBytes
    }
    return key.mac(of: "probe", bytes + pieces.flatMap(\.bytes))
  }
}

/// The digests of a generation of which every block is in the store.
package struct DoneObject: Hashable, Sendable {
  private static let limit = 8 << 20

  /// The size of the file.
  package var size: Int64
  /// The checksum of each block.
  package var crc32c: [UInt32]
  /// The SHA-256 of the file in hexadecimal digits, if it is known.
  package var sha256: String?

  /// The digests of a file.
  package init(size: Int64, crc32c: [UInt32], sha256: String? = nil) {
    (self.size, self.crc32c, self.sha256) = (size, crc32c, sha256)
  }

  /// Reads the object of that generation.
  package init(_ bytes: [UInt8], of generation: FleetID, key: FleetKey) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "done", limit: Self.limit)
    let digits = Array(try text.text("crc32c", atMost: Self.limit).utf8)
    guard digits.count % 8 == 0, digits.allSatisfy(\.isHexDigit) else { throw .damaged("crc32c") }
    let sums = stride(from: 0, to: digits.count, by: 8).map { start in
      digits[start..<start + 8].reduce(UInt32(0)) { $0 << 4 | UInt32($1 < 0x3A ? $1 - 0x30 : $1 - 0x57) }
    }
    self.init(size: try text.number("size", 0...Int64.max), crc32c: sums, sha256: try text.digest("sha256"))
    guard try text.digest("mac") == mac(generation, key) else { throw .damaged("mac") }
  }

  /// The object; nil when it would be larger than may be.
  package func bytes(of generation: FleetID, key: FleetKey) -> [UInt8]? {
    guard crc32c.count < Self.limit / 8 else { return nil }
    var text = FieldText(kind: "done")
    text.add("size", size)
    text.add("crc32c", sums)
    if let sha256 { text.add("sha256", sha256) }
    text.add("mac", mac(generation, key))
    let bytes = text.bytes
    return bytes.count <= Self.limit ? bytes : nil
  }

  private var sums: String { crc32c.map { UInt64($0).hex(digits: 8) }.joined() }

  private func mac(_ generation: FleetID, _ key: FleetKey) -> String {
    let text = "\(size)\0\(sums)\0\(sha256 ?? "")\0"
    return key.mac(of: "done", generation.bytes + Array(text.utf8))
  }
}
