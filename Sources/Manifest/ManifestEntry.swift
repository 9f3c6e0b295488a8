import Base

/// One entry of a manifest: a path in the mount and where its bytes are.
package struct ManifestEntry: Sendable, Equatable {
  /// The line its URL stands on, from 1.
  package var line: Int
  /// Where the bytes are, the first to be asked first; never empty. Absolute http or https, without fragment;
  /// userinfo as given.
  package var urls: [String]
  /// The folders it lies in, from the root; each made safe (docs/MANIFEST.md, "Names").
  package var folder: [String]
  /// Its name, made safe. Not yet told apart from others of the same name.
  package var name: String
  /// Whether an extension may be added once the type is known: the name came from the URL or a playlist and has none.
  package var mayGainExtension: Bool
  /// Header fields to send to the URL's own origin.
  package var headers: [HTTPHeader]
  /// The User-Agent to send, nil for our own.
  package var userAgent: String?
  /// The Referer to send.
  package var referer: String?
  /// What the bytes must hash to.
  package var checksum: Checksum?
  /// What identifies the resource (``ResourceKey``).
  package var key: ResourceKey

  /// An entry with those values.
  package init(
    line: Int, urls: [String], folder: [String], name: String, mayGainExtension: Bool = false,
    headers: [HTTPHeader] = [], userAgent: String? = nil, referer: String? = nil, checksum: Checksum? = nil,
    key: ResourceKey
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
    self.key = key
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
  /// The digest, as many bytes as the function gives.
  package var digest: [UInt8]

  /// That digest by that function.
  package init(algorithm: Algorithm, digest: [UInt8]) {
    self.algorithm = algorithm
    self.digest = digest
  }
}

/// What stays the same when a link is signed anew or an entry renamed: the first 16 bytes of the SHA-256 of `id:` and
/// the entry's `id=`, else of `url:` and its first URL without userinfo, fragment and the known signing parameters.
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

  /// As their bytes.
  package static func < (left: Self, right: Self) -> Bool { (left.high, left.low) < (right.high, right.low) }
}
