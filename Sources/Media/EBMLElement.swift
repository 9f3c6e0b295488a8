import Base

/// An element of EBML (RFC 8794): where it lies, and what it is.
struct EBMLElement: Sendable {
  /// With the bytes that mark its length.
  let id: UInt64
  /// The whole element; up to the limit when it does not tell its size.
  let range: ByteRange
  /// Where its contents begin.
  let body: Int64
  /// Whether it tells its size.
  let hasSize: Bool

  /// Its contents.
  var contents: ByteRange { ByteRange(body, range.end) }
}

extension ByteCursor {
  /// The element at `offset`. What claims to end behind `limit` ends there: a file may be cut off.
  mutating func element(at offset: Int64, limit: Int64) throws(IndexGap) -> EBMLElement {
    guard offset >= 0, offset < limit else { throw .malformed }
    let idLength = Self.length(UInt8(try number(1, at: offset)))
    guard idLength <= 4 else { throw .malformed }
    let id = try number(idLength, at: offset)
    let place = offset + Int64(idLength)
    guard place < limit else { throw .malformed }
    let sizeLength = Self.length(UInt8(try number(1, at: place)))
    guard sizeLength <= 8 else { throw .malformed }
    let mask = (UInt64(1) << UInt64(7 * sizeLength)) - 1
    let size = try number(sizeLength, at: place) & mask
    let body = place + Int64(sizeLength)
    guard body <= limit else { throw .malformed }
    let end = size == mask ? limit : min(limit, .clampedSum(body, Int64(clamping: size)))
    return EBMLElement(id: id, range: ByteRange(offset, end), body: body, hasSize: size != mask)
  }

  /// How many bytes a number has whose first is `byte`; 9: none.
  private static func length(_ byte: UInt8) -> Int { byte.leadingZeroBitCount + 1 }

  /// Calls `visit` with each element of `contents`.
  mutating func elements(
    in contents: ByteRange, _ visit: (inout ByteCursor, EBMLElement) throws(IndexGap) -> Void
  ) throws(IndexGap) {
    var position = contents.start
    while position < contents.end {
      let element = try element(at: position, limit: contents.end)
      try visit(&self, element)
      position = element.range.end
    }
  }

  /// The contents of an element as a number.
  mutating func unsigned(_ element: EBMLElement) throws(IndexGap) -> UInt64 {
    let count = element.contents.count
    guard count <= 8 else { throw .malformed }
    return count == 0 ? 0 : try number(Int(count), at: element.body)
  }

  /// The contents of an element as a floating-point number.
  mutating func float(_ element: EBMLElement) throws(IndexGap) -> Double {
    switch element.contents.count {
    case 4: return Double(Float(bitPattern: UInt32(try number(4, at: element.body))))
    case 8: return Double(bitPattern: try number(8, at: element.body))
    default: throw .malformed
    }
  }
}
