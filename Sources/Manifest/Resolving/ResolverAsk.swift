import Base
import FoundationEssentials

/// What mediafs asks a resolver (docs/RESOLVERS.md).
package struct ResolverAsk: Sendable, Equatable {
  /// Why it asks.
  package enum Reason: String, Sendable, CaseIterable {
    /// There was no link yet since the server began.
    case first
    /// The link ends soon, or has ended.
    case soon
    /// The origin answered the link with that status.
    case unauthorized = "401", forbidden = "403", missing = "404", gone = "410"
    /// The link led to a page in the place of the medium.
    case html
    /// The link led to something of another length.
    case size

    /// The reason that a status is; nil for one that says nothing of the link.
    package init?(status: Int) { self.init(rawValue: "\(status)") }
  }

  package var key: ResourceKey
  /// The entry's URL in the list.
  package var source: String
  package var why: Reason
  /// Of the version that is stored, in bytes.
  package var size: Int64?
  /// Its ETag, or its time of modification.
  package var validator: String?

  package init(key: ResourceKey, source: String, why: Reason, size: Int64? = nil, validator: String? = nil) {
    (self.key, self.source, self.why, self.size, self.validator) = (key, source, why, size, validator)
  }

  /// The line, without its end. JSON escapes line breaks, so that it is one line whatever is in it.
  package var line: String {
    struct Line: Encodable { var key, source, why: String, size: Int64?, validator: String? }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let line = Line(key: key.hex, source: source, why: why.rawValue, size: size, validator: validator)
    return (try? encoder.encode(line)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
  }
}

extension ResourceKey {
  /// 32 lower-case hexadecimal digits.
  package var hex: String {
    [high, low].map { half in
      let digits = String(half, radix: 16)
      return String(repeating: "0", count: 16 - digits.utf8.count) + digits
    }.joined()
  }

  /// nil for anything but 32 hexadecimal digits.
  package init?(hex: String) {
    let bytes = Array(hex.utf8)
    guard bytes.count == 32, bytes.allSatisfy({ $0.hexValue != nil }),
      let high = UInt64(String(decoding: bytes[..<16], as: UTF8.self), radix: 16),
      let low = UInt64(String(decoding: bytes[16...], as: UTF8.self), radix: 16)
    else { return nil }
    self.init(high: high, low: low)
  }
}
