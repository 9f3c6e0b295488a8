import CCrypto
import CSystem

/// SHA-256 and HMAC-SHA256, by libcrypto.
enum SHA256 {
  static func digest(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
    var digest = [UInt8](repeating: 0, count: 32)
    let done = EVP_Digest(bytes.baseAddress, bytes.count, &digest, nil, EVP_sha256(), nil)
    precondition(done == 1, "libcrypto gives no SHA-256: out of memory, or a broken installation")
    return digest
  }

  static func digest(_ text: String) -> [UInt8] {
    var text = text
    return text.withUTF8 { digest(UnsafeRawBufferPointer($0)) }
  }

  /// The keyed digest of `text`.
  static func code(_ text: String, key: [UInt8]) -> [UInt8] {
    var code = [UInt8](repeating: 0, count: 32)
    var text = text
    let done = text.withUTF8 { HMAC(EVP_sha256(), key, Int32(key.count), $0.baseAddress, $0.count, &code, nil) }
    precondition(done != nil, "libcrypto gives no HMAC: out of memory, or a broken installation")
    return code
  }
}

/// CRC-32C of bytes that come in pieces: it finds what a disk, memory or a broken answer changed, not what somebody
/// changed on purpose.
package struct CRC32C: Sendable, Equatable {
  package private(set) var value: UInt32 = 0

  package init() {}

  package init(_ bytes: UnsafeRawBufferPointer) { add(bytes) }

  package mutating func add(_ bytes: UnsafeRawBufferPointer) {
    value = csystem_crc32c(value, bytes.baseAddress, bytes.count)
  }

  /// As metadata have it: eight digits in lower case.
  package var text: String { hexadecimal([24, 16, 8, 0].map { UInt8(truncatingIfNeeded: value >> $0) }) }
}

/// Two digits for each byte, in lower case.
func hexadecimal(_ bytes: [UInt8]) -> String {
  let digits = Array("0123456789abcdef".utf8)
  var text: [UInt8] = []
  text.reserveCapacity(bytes.count * 2)
  for byte in bytes { text += [digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
  return String(decoding: text, as: UTF8.self)
}
