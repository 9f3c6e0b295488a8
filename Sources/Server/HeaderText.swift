import Base

/// Parses header fields as users write them.
package enum HeaderText {
  /// Parses one field (RFC 9110, section 5): a token, a colon, and a value without control characters. `place` names
  /// the option or line for messages, which never show a value.
  package static func parse(_ text: String, where place: String) throws(MountOptionError) -> HTTPHeader {
    let bytes = Array(text.utf8)
    guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), colon > 0, bytes[..<colon].allSatisfy(isToken) else {
      throw .usage("\(place): a header has the form 'Name: value'")
    }
    guard bytes.allSatisfy({ $0 == 9 || ($0 >= 32 && $0 != 127) }) else {
      throw .usage("\(place): the header contains a control character")
    }
    let isBlank: (UInt8) -> Bool = { $0 == 32 || $0 == 9 }
    var value = bytes[(colon + 1)...].drop(while: isBlank)
    while let last = value.last, isBlank(last) { value.removeLast() }
    return HTTPHeader(
      name: String(decoding: bytes[..<colon], as: UTF8.self), value: String(decoding: value, as: UTF8.self))
  }

  private static func isToken(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
      UInt8(ascii: "A")...UInt8(ascii: "Z"):
      true
    default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
    }
  }
}
