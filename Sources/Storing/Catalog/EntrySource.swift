import Base
import Manifest

// The catalog keeps an entry's line of the manifest in `entry.source` (docs/STORE-FORMAT.md). The form is compact:
// there are a million lines, and most have one URL and nothing else.

/// Without and with what the list says of the file. A program that knows version 1 alone refuses the other.
private let (plainVersion, listedVersion): (UInt8, UInt8) = (1, 2)

private struct SourceFlags: OptionSet {
  let rawValue: UInt8
  static let mayGainExtension = SourceFlags(rawValue: 1)
  static let headers = SourceFlags(rawValue: 2)
  static let userAgent = SourceFlags(rawValue: 4)
  static let referer = SourceFlags(rawValue: 8)
  static let checksum = SourceFlags(rawValue: 16)
  static let resolver = SourceFlags(rawValue: 32)
}

private struct ListedFlags: OptionSet {
  let rawValue: UInt8
  static let size = ListedFlags(rawValue: 1)
  static let modified = ListedFlags(rawValue: 2)
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
    if entry.resolver != nil { flags.insert(.resolver) }
    let listed = ListedFacts(entry.facts)
    append(byte: listed.isEmpty ? plainVersion : listedVersion)
    append(byte: flags.rawValue)
    if !listed.isEmpty { append(listed) }
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
    if let resolver = entry.resolver { append(resolver) }
  }

  private mutating func append(_ listed: ListedFacts) {
    var flags: ListedFlags = []
    if listed.size != nil { flags.insert(.size) }
    if listed.modified != nil { flags.insert(.modified) }
    append(byte: flags.rawValue)
    if let size = listed.size { append(size) }
    if let modified = listed.modified { append(modified) }
  }
}

extension BlobReader {
  /// The entry that this source encodes; nil if the source is invalid.
  mutating func source(line: Int, folder: [String], name: String, key: ResourceKey) -> ManifestEntry? {
    guard let version = byte(), let flags = byte().map(SourceFlags.init(rawValue:)),
      let listed = listedFacts(version), let urlCount = number(), urlCount > 0
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
    var resolver: String?
    if flags.contains(.resolver) {
      resolver = text()
      if resolver == nil { return nil }
    }
    guard isAtEnd else { return nil }
    return ManifestEntry(
      line: line, urls: urls, folder: folder, name: name,
      mayGainExtension: flags.contains(.mayGainExtension), headers: headers, userAgent: agent, referer: referer,
      checksum: checksum, resolver: resolver, key: key, facts: listed.entryFacts)
  }

  /// What the list says of the file, behind the first two bytes; nil if it is damaged, or of another version.
  fileprivate mutating func listedFacts(_ version: UInt8) -> ListedFacts? {
    if version == plainVersion { return ListedFacts(nil) }
    guard version == listedVersion, let flags = byte().map(ListedFlags.init(rawValue:)) else { return nil }
    var size: Int64?
    if flags.contains(.size) {
      size = number()
      if size == nil { return nil }
    }
    var modified: Int64?
    if flags.contains(.modified) {
      modified = number()
      if modified == nil { return nil }
    }
    return ListedFacts(size: size, modified: modified)
  }
}

/// In what a line of the list differs from the one before.
enum SourceDifference {
  case none
  /// In what the list says of the file, and not in a size that it said before.
  case facts
  /// In the size that the list gave before, which stat may have shown.
  case size
  /// In how the file is fetched.
  case link

  init(from old: UnsafeRawBufferPointer, to new: UnsafeRawBufferPointer) {
    if old.elementsEqual(new) {
      self = .none
      return
    }
    let (former, latter) = (ListedFacts(source: old), ListedFacts(source: new))
    guard let one = Self.request(old), let other = Self.request(new), one.elementsEqual(other) else {
      self = .link
      return
    }
    self = former.size != nil && former.size != latter.size ? .size : .facts
  }

  /// The flags, and what follows the facts; nil if it is damaged.
  private static func request(_ source: UnsafeRawBufferPointer) -> [UInt8]? {
    guard source.count > 2 else { return nil }
    var reader = BlobReader(UnsafeRawBufferPointer(rebasing: source[2...]))
    guard reader.listedFacts(source[0]) != nil else { return nil }
    return [source[1]] + reader.rest
  }
}

/// The size and the date that a list gives a file: what stat shows until the origin has answered.
struct ListedFacts {
  /// Bytes. Zero is not kept: programs take it for "empty", and many lists write it for "unknown".
  var size: Int64?
  /// Seconds since 1970, from then on.
  var modified: Int64?

  /// No file is larger than a pebibyte, and no date is after the year 9999.
  private static let (mostBytes, lastDate): (Int64, Int64) = (1 << 50, 253_402_300_799)

  init(_ facts: EntryFacts?) { self.init(size: facts?.size, modified: facts?.date) }

  fileprivate init(size: Int64?, modified: Int64?) {
    self.size = size.flatMap { (1...Self.mostBytes).contains($0) ? $0 : nil }
    self.modified = modified.flatMap { (0...Self.lastDate).contains($0) ? $0 : nil }
  }

  /// Those of the source in a row. None, if it is damaged: the open of the file reports that.
  init(source bytes: UnsafeRawBufferPointer) {
    self.init(nil)
    guard bytes.count > 2, bytes[0] == listedVersion else { return }
    var reader = BlobReader(UnsafeRawBufferPointer(rebasing: bytes[2...]))
    if let facts = reader.listedFacts(listedVersion) { self = facts }
  }

  fileprivate var isEmpty: Bool { size == nil && modified == nil }

  fileprivate var entryFacts: EntryFacts? {
    if isEmpty { return nil }
    var facts = EntryFacts()
    (facts.size, facts.date) = (size, modified)
    return facts
  }
}

/// Whether the source says that its entry may gain an extension.
func sourceMayGainExtension(_ bytes: UnsafeRawBufferPointer) -> Bool {
  bytes.count >= 2 && SourceFlags(rawValue: bytes[1]).contains(.mayGainExtension)
}
