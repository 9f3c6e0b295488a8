import Base
import Manifest

// The catalog keeps an entry's line of the manifest in `entry.source` (docs/STORE-FORMAT.md). The form is compact:
// there are a million lines, and most have one URL and nothing else.

private let sourceVersion: UInt8 = 1

private struct SourceFlags: OptionSet {
  let rawValue: UInt8
  static let mayGainExtension = SourceFlags(rawValue: 1)
  static let headers = SourceFlags(rawValue: 2)
  static let userAgent = SourceFlags(rawValue: 4)
  static let referer = SourceFlags(rawValue: 8)
  static let checksum = SourceFlags(rawValue: 16)
}

extension Checksum.Algorithm {
  fileprivate var code: UInt8 {
    switch self {
    case .sha1: 1
    case .sha256: 2
    case .sha512: 3
    case .md5: 4
    }
  }

  fileprivate init?(code: UInt8) {
    guard let known = Self.allCases.first(where: { $0.code == code }) else { return nil }
    self = known
  }
}

extension BlobWriter {
  /// Appends all of `entry` except its folder, name, line and key, which have columns.
  mutating func append(sourceOf entry: ManifestEntry) {
    var flags: SourceFlags = []
    if entry.mayGainExtension { flags.insert(.mayGainExtension) }
    if !entry.headers.isEmpty { flags.insert(.headers) }
    if entry.userAgent != nil { flags.insert(.userAgent) }
    if entry.referer != nil { flags.insert(.referer) }
    if entry.checksum != nil { flags.insert(.checksum) }
    append(byte: sourceVersion)
    append(byte: flags.rawValue)
    append(Int64(entry.urls.count))
    for url in entry.urls { append(url) }
    if !entry.headers.isEmpty {
      append(Int64(entry.headers.count))
      for header in entry.headers {
        append(header.name)
        append(header.value)
      }
    }
    if let agent = entry.userAgent { append(agent) }
    if let referer = entry.referer { append(referer) }
    if let checksum = entry.checksum {
      append(byte: checksum.algorithm.code)
      append(checksum.digest)
    }
  }
}

extension BlobReader {
  /// The entry that this source encodes; nil if the source is invalid.
  mutating func source(line: Int, folder: [String], name: String, key: ResourceKey) -> ManifestEntry? {
    guard byte() == sourceVersion, let flags = byte().map(SourceFlags.init(rawValue:)), let urlCount = number(),
      urlCount > 0
    else { return nil }
    var urls: [String] = []
    for _ in 0..<urlCount {
      guard let url = text() else { return nil }
      urls.append(url)
    }
    var headers: [HTTPHeader] = []
    if flags.contains(.headers) {
      guard let count = number() else { return nil }
      for _ in 0..<count {
        guard let name = text(), let value = text() else { return nil }
        headers.append(HTTPHeader(name: name, value: value))
      }
    }
    var agent: String?
    if flags.contains(.userAgent) {
      agent = text()
      if agent == nil { return nil }
    }
    var referer: String?
    if flags.contains(.referer) {
      referer = text()
      if referer == nil { return nil }
    }
    var checksum: Checksum?
    if flags.contains(.checksum) {
      guard let algorithm = byte().flatMap(Checksum.Algorithm.init(code:)), let digest = blob() else { return nil }
      checksum = Checksum(algorithm: algorithm, digest: digest)
    }
    guard isAtEnd else { return nil }
    return ManifestEntry(
      line: line, urls: urls, folder: folder, name: name,
      mayGainExtension: flags.contains(.mayGainExtension), headers: headers, userAgent: agent, referer: referer,
      checksum: checksum, key: key)
  }
}

/// Whether the source says that its entry may gain an extension.
func sourceMayGainExtension(_ bytes: UnsafeRawBufferPointer) -> Bool {
  bytes.count >= 2 && SourceFlags(rawValue: bytes[1]).contains(.mayGainExtension)
}
