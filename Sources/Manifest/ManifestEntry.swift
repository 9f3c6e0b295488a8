import Base

/// One entry of a manifest: a path in the mount and the URLs of its bytes.
package struct ManifestEntry: Sendable, Equatable {
  /// The line with its URL, from 1.
  package var line: Int
  /// The URLs of the bytes, in the order in which they are tried; never empty. Absolute http or https, without
  /// fragment; userinfo as given.
  package var urls: [String]
  /// The folders that contain it, from the root; each made safe (docs/MANIFEST.md, "Names").
  package var folder: [String]
  /// Its name, made safe. Other entries may have the same one.
  package var name: String
  /// Whether an extension may be added once the type is known: the name came from the URL or a playlist and has none.
  package var mayGainExtension: Bool
  /// Header fields to send to the URL's own origin.
  package var headers: [HTTPHeader]
  /// The User-Agent to send; nil for mediafs's own.
  package var userAgent: String?
  /// The Referer to send.
  package var referer: String?
  /// The digest that the bytes must have.
  package var checksum: Checksum?
  /// The name of the program that gives the links to the bytes: the URLs are then for it, and are never requested.
  package var resolver: String?
  /// The resource's key (``ResourceKey``).
  package var key: ResourceKey
  /// What else the list tells of it; nil for nothing.
  package var facts: EntryFacts?
  /// Whether a server's folder names it, and not the list itself.
  package var isServed = false

  /// An entry with those values.
  package init(
    line: Int, urls: [String], folder: [String], name: String, mayGainExtension: Bool = false,
    headers: [HTTPHeader] = [], userAgent: String? = nil, referer: String? = nil, checksum: Checksum? = nil,
    resolver: String? = nil, key: ResourceKey, facts: EntryFacts? = nil
  ) {
    self.line = line
    self.urls = urls
    self.folder = folder
    self.name = name
    self.mayGainExtension = mayGainExtension
    self.headers = headers
    self.userAgent = userAgent
    self.referer = referer
    self.checksum = checksum
    self.resolver = resolver
    self.key = key
    self.facts = facts
  }
}

/// A digest that the whole resource must have.
package struct Checksum: Hashable, Sendable {
  /// The hash functions a manifest may name.
  package enum Algorithm: String, Sendable, CaseIterable {
    /// 160 bits; against accidents only.
    case sha1 = "sha-1"
    /// 256 bits.
    case sha256 = "sha-256"
    /// 512 bits.
    case sha512 = "sha-512"
    /// 128 bits; against accidents only.
    case md5 = "md5"
  }

  /// The hash function.
  package var algorithm: Algorithm
  /// The digest; its length is the function's.
  package var digest: [UInt8]

  /// The digest of that function.
  package init(algorithm: Algorithm, digest: [UInt8]) {
    self.algorithm = algorithm
    self.digest = digest
  }
}

/// Identifies a resource, also after its link is signed anew or its entry renamed: the first 16 bytes of the SHA-256 of
/// `id:` and the entry's `id=`, else of `url:` and its first URL without userinfo, fragment and known signing
/// parameters.
package struct ResourceKey: Hashable, Comparable, Sendable {
  /// The first eight bytes, big-endian.
  package var high: UInt64
  /// The last eight bytes, big-endian.
  package var low: UInt64

  /// The key of those bytes.
  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Orders keys by their bytes.
  package static func < (left: Self, right: Self) -> Bool { (left.high, left.low) < (right.high, right.low) }
}
