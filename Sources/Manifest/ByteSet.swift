import Glibc

/// A set of ASCII bytes, one bit each, so that a lookup costs a shift.
struct ByteSet: Sendable {
  private var low: UInt64 = 0
  private var high: UInt64 = 0

  /// The bytes of `characters`, which are ASCII.
  init(_ characters: String) {
    for byte in characters.utf8 {
      if byte < 64 { low |= 1 << UInt64(byte) } else { high |= 1 << UInt64(byte & 63) }
    }
  }

  /// Whether `byte` is in the set; never for a byte of 128 or more.
  @inline(__always)
  func contains(_ byte: UInt8) -> Bool {
    byte < 128 && (byte < 64 ? low : high) >> UInt64(byte & 63) & 1 == 1
  }

  private static let alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

  /// RFC 3986, section 2.3: these mean the same with and without percent-encoding.
  static let unreserved = ByteSet(alphanumeric + "-._~")
  /// Allowed in a path without encoding. RFC 3986 does not list `[` and `]`, but they are in use, and servers accept
  /// them.
  static let path = ByteSet(alphanumeric + "-._~!$&'()*+,;=:@/[]")
  /// Allowed in a query without encoding.
  static let query = ByteSet(alphanumeric + "-._~!$&'()*+,;=:@/?[]")
  /// Allowed in a host name. libcurl refuses the rest of RFC 3986's sub-delims too.
  static let host = ByteSet(alphanumeric + "-._~")
  /// RFC 9110, section 5.6.2: allowed in a header field's name.
  static let token = ByteSet(alphanumeric + "!#$%&'*+-.^_`|~")
}

extension UInt8 {
  /// Space, TAB or CR, which are trimmed from the ends of lines.
  @inline(__always)
  var isBlank: Bool { self == 0x20 || self == 0x09 || self == 0x0D }

  /// Below U+0020, or U+007F.
  @inline(__always)
  var isControl: Bool { self < 0x20 || self == 0x7F }

  /// `0` to `9`.
  var isDigit: Bool { (0x30...0x39).contains(self) }

  /// An ASCII letter.
  var isLetter: Bool { (0x61...0x7A).contains(self | 0x20) }

  /// The lower case of an ASCII letter; any other byte unchanged.
  @inline(__always)
  var lowercased: UInt8 { self >= 0x41 && self <= 0x5A ? self | 0x20 : self }

  /// The value of a hexadecimal digit; nil for another byte.
  var hexValue: UInt8? {
    switch self {
    case 0x30...0x39: self - 0x30
    case 0x41...0x46: self - 0x41 + 10
    case 0x61...0x66: self - 0x61 + 10
    default: nil
    }
  }

  /// The digit of a value below 16, in upper case (RFC 3986, section 2.1).
  static func hexDigit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 + value : 0x41 + value - 10 }
}

extension Span where Element == UInt8 {
  /// The part of `range` without white space at both ends.
  func trimmedRange(_ range: Range<Int>) -> Range<Int> {
    var range = range
    while !range.isEmpty, self[range.lowerBound].isBlank { range = range.lowerBound + 1..<range.upperBound }
    while !range.isEmpty, self[range.upperBound - 1].isBlank { range = range.lowerBound..<range.upperBound - 1 }
    return range
  }

  /// Whether `prefix` (in lower case) follows at `offset`, in any case of its ASCII letters.
  func hasPrefix(_ prefix: StaticString, at offset: Int = 0) -> Bool {
    guard count - offset >= prefix.utf8CodeUnitCount else { return false }
    return prefix.withUTF8Buffer { wanted in
      for index in wanted.indices where self[offset + index].lowercased != wanted[index] { return false }
      return true
    }
  }

  /// The first index of `byte` in `range`.
  func firstIndex(of byte: UInt8, in range: Range<Int>) -> Int? {
    // memchr is several times as fast as a loop; its pointers stay within the closure.
    extracting(range).withUnsafeBytes { bytes in
      guard let base = bytes.baseAddress, let found = memchr(base, Int32(byte), bytes.count) else { return nil }
      return range.lowerBound + (UnsafeRawPointer(found) - base)
    }
  }

  /// The bytes of `range` as text, with U+FFFD for invalid UTF-8.
  func text(_ range: Range<Int>) -> String {
    // The pointer does not leave the closure: String copies.
    extracting(range).withUnsafeBufferPointer { String(decoding: $0, as: UTF8.self) }
  }
}

extension [UInt8] {
  /// Appends the bytes of `range` of `source`.
  @inline(__always)
  mutating func append(_ source: Span<UInt8>, _ range: Range<Int>) {
    // The pointer does not leave the closure: the array copies.
    source.extracting(range).withUnsafeBufferPointer { append(contentsOf: $0) }
  }

  /// Appends `byte` as `%XX`.
  mutating func appendEscaped(_ byte: UInt8) {
    append(0x25)
    append(UInt8.hexDigit(byte >> 4))
    append(UInt8.hexDigit(byte & 15))
  }
}
