/// Why an object of the bucket was not understood.
package enum ObjectRefusal: Error, Hashable, CustomStringConvertible {
  /// It does not begin as such an object does.
  case notOurs
  /// It is of another version.
  case version(String)
  /// This field is damaged, or the text itself.
  case damaged(String)
  /// The fleet's key is another one.
  case otherKey

  /// What is wrong with the object.
  package var description: String {
    switch self {
    case .notOurs: "mediafs did not write it"
    case .version(let version): "its format is version \(version), and this program knows version 1 alone"
    case .damaged(let what): "its \(what) is damaged"
    case .otherKey: "it was written with another fleet key"
    }
  }
}

/// The text of a small object: a line with its kind and version, and a line for each field (FLEET-FORMAT.md).
struct FieldText {
  private static let most = 32
  private static let feed = UInt8(ascii: "\n")
  private static let escape = UInt8(ascii: "\\")

  let kind: String
  private(set) var fields: [(name: String, value: String)] = []
  /// What follows an empty line.
  private(set) var body: ArraySlice<UInt8> = []

  /// A text without fields.
  init(kind: String) { self.kind = kind }

  /// Reads a text of that kind that has at most `limit` bytes.
  init(_ bytes: [UInt8], kind: String, limit: Int, hasBody: Bool = false) throws(ObjectRefusal) {
    self.kind = kind
    guard bytes.count <= limit else { throw .damaged("length") }
    var rest = bytes[...]
    let head = Array("mediafs \(kind) ".utf8)
    guard rest.starts(with: head), let first = Self.line(from: &rest) else { throw .notOurs }
    let version = String(decoding: first.dropFirst(head.count).prefix(16), as: UTF8.self)
    guard version == "1" else { throw .version(version) }
    while let line = Self.line(from: &rest), !line.isEmpty || !hasBody {
      guard fields.count < Self.most, let split = line.firstIndex(of: UInt8(ascii: "=")) else { throw .damaged("text") }
      let value = try Self.unescaped(line[(split + 1)...])
      guard let name = String(validating: line[..<split], as: UTF8.self),
        let value = String(validating: value, as: UTF8.self),
        self[name] == nil
      else { throw .damaged("text") }
      fields.append((name, value))
    }
    guard hasBody || rest.isEmpty else { throw .damaged("text") }
    body = rest
  }

  /// The value of a field.
  subscript(name: String) -> String? { fields.first { $0.name == name }?.value }

  mutating func add(_ name: String, _ value: some CustomStringConvertible) { fields.append((name, value.description)) }

  /// The text as it is written.
  var bytes: [UInt8] {
    var bytes = Array("mediafs \(kind) 1\n".utf8)
    for (name, value) in fields {
      bytes += Array(name.utf8) + [UInt8(ascii: "=")]
      for byte in value.utf8 {
        switch byte {
        case Self.feed: bytes += [Self.escape, UInt8(ascii: "n")]
        case Self.escape: bytes += [Self.escape, Self.escape]
        default: bytes.append(byte)
        }
      }
      bytes.append(Self.feed)
    }
    return bytes
  }

  /// A field that has to be there.
  func text(_ name: String, atMost limit: Int = 1024) throws(ObjectRefusal) -> String {
    guard let value = self[name], value.utf8.count <= limit else { throw .damaged(name) }
    return value
  }

  /// A decimal number of `range`, without a sign or leading zeros.
  func number<Number: FixedWidthInteger>(_ name: String, _ range: ClosedRange<Number>) throws(ObjectRefusal) -> Number {
    guard let value = self[name], let number = Number(value), "\(number)" == value, range.contains(number) else {
      throw .damaged(name)
    }
    return number
  }

  /// So many lower-case hexadecimal digits, 16 at most, as a number.
  func hex(_ name: String, digits: Int = 16) throws(ObjectRefusal) -> UInt64 {
    guard let value = self[name], let number = UInt64(hex: value, digits: digits) else { throw .damaged(name) }
    return number
  }

  /// The next line without its end; nil when no line ends.
  private static func line(from rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
    guard let end = rest.firstIndex(of: feed) else { return nil }
    defer { rest = rest[(end + 1)...] }
    return rest[..<end]
  }

  private static func unescaped(_ value: ArraySlice<UInt8>) throws(ObjectRefusal) -> [UInt8] {
    guard value.contains(escape) else { return Array(value) }
    var bytes: [UInt8] = []
    var isEscaped = false
    for byte in value {
      switch (isEscaped, byte) {
      case (false, escape): isEscaped = true
      case (true, escape), (true, UInt8(ascii: "n")):
        bytes.append(byte == escape ? escape : feed)
        isEscaped = false
      case (true, _): throw .damaged("text")
      case (false, _): bytes.append(byte)
      }
    }
    if isEscaped { throw .damaged("text") }
    return bytes
  }
}

extension UInt64 {
  /// The number that exactly so many lower-case hexadecimal digits write.
  init?(hex text: some StringProtocol, digits: Int) {
    guard digits <= 16, text.utf8.count == digits else { return nil }
    var value: UInt64 = 0
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(byte - UInt8(ascii: "0"))
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(byte - UInt8(ascii: "a") + 10)
      default: return nil
      }
    }
    self = value
  }

  /// It in so many hexadecimal digits.
  func hex(digits: Int = 16) -> String {
    let text = String(self, radix: 16)
    return String(repeating: "0", count: Swift.max(0, digits - text.utf8.count)) + text
  }
}
