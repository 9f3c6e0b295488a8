import CCrypto

/// The id of an entry or a generation in the bucket: 16 bytes, written as 32 hexadecimal digits.
package struct FleetID: Hashable, Sendable, CustomStringConvertible {
  /// The first and the last eight bytes, big-endian.
  package var high, low: UInt64

  /// The id of these bytes.
  package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

  /// The id that 32 lower-case hexadecimal digits write.
  package init?(_ text: some StringProtocol) {
    guard text.utf8.count == 32, let high = UInt64(hex: text.prefix(16), digits: 16),
      let low = UInt64(hex: text.suffix(16), digits: 16)
    else { return nil }
    self.init(high: high, low: low)
  }

  /// The digits.
  package var description: String { high.hex() + low.hex() }

  /// Its 16 bytes.
  var bytes: [UInt8] { high.bigEndianBytes + low.bigEndianBytes }
}

/// The secret that the nodes of a fleet share: what the bucket names is told to those alone who have it.
package struct FleetKey: Hashable, Sendable {
  private let inner, outer: [UInt8]

  /// The key of these bytes, which may be of any number.
  package init(_ secret: [UInt8]) {
    let key = secret.count > 64 ? Self.sha256(secret) : secret
    let padded = key + [UInt8](repeating: 0, count: 64 - key.count)
    inner = padded.map { $0 ^ 0x36 }
    outer = padded.map { $0 ^ 0x5C }
  }

  /// The entry whose resource key has these bytes.
  package func entry(_ identity: [UInt8]) -> FleetID { id("entry", identity) }

  /// The generation of an entry that has that size and that strong validator.
  package func generation(of entry: FleetID, validator: String, size: Int64) -> FleetID {
    id("generation", entry.bytes + UInt64(bitPattern: size).bigEndianBytes + Array(validator.utf8))
  }

  /// What tells this key from another in the bucket, and tells nothing of it.
  var mark: UInt64 { UInt64(bigEndianBytes: mac("mediafs key 1", [])[..<8]) }

  /// The digits of the HMAC over what a small object says.
  func mac(of kind: String, _ bytes: [UInt8]) -> String {
    let digest = mac("mediafs \(kind) 1", [0] + bytes)
    return stride(from: 0, to: 32, by: 8).map { UInt64(bigEndianBytes: digest[$0..<$0 + 8]).hex() }.joined()
  }

  private func id(_ kind: String, _ bytes: [UInt8]) -> FleetID {
    let digest = mac("mediafs \(kind) 1", [0] + bytes)
    return FleetID(high: UInt64(bigEndianBytes: digest[..<8]), low: UInt64(bigEndianBytes: digest[8..<16]))
  }

  private func mac(_ label: String, _ bytes: [UInt8]) -> [UInt8] { hmac(Array(label.utf8) + bytes) }

  /// HMAC-SHA256 (RFC 2104).
  func hmac(_ bytes: [UInt8]) -> [UInt8] { Self.sha256(outer + Self.sha256(inner + bytes)) }

  private static func sha256(_ bytes: [UInt8]) -> [UInt8] {
    var digest = [UInt8](repeating: 0, count: 32)
    var count: UInt32 = 0
    // libcrypto keeps neither pointer after the call.
    let done = bytes.withUnsafeBytes { EVP_Digest($0.baseAddress, $0.count, &digest, &count, EVP_sha256(), nil) }
    precondition(done == 1 && count == 32, "libcrypto gives no SHA-256: out of memory, or a broken installation")
    return digest
  }
}

extension UInt64 {
  /// Its eight bytes, the highest first.
  var bigEndianBytes: [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: self >> (56 - 8 * $0)) } }

  /// The number of eight bytes, the highest first.
  init(bigEndianBytes bytes: ArraySlice<UInt8>) { self = bytes.reduce(0) { $0 << 8 | UInt64($1) } }
}
