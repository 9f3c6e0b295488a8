/// Where a fleet's objects are: a bucket of an object store, and the part of it that is the fleet's.
package struct StoreLocation: Sendable, Equatable {
  /// Where requests name the bucket.
  package enum Style: String, Sendable {
    /// In the path: `https://host/bucket/key`.
    case path
    /// In the host's name: `https://bucket.host/key`.
    case virtualHost = "virtual"
  }

  package let bucket: String
  /// The part before each key, without slashes at its ends; empty for none.
  package let prefix: String
  package let region: String
  package let style: Style
  /// Whether requests go over TLS.
  package let isSecure: Bool
  /// The field Host, as libcurl sends it.
  let host: String
  /// What stands before the bucket or the key, encoded: empty, or with a slash at its start.
  private let base: String

  /// - Parameters:
  ///   - share: `s3://bucket/prefix`, as the user wrote it.
  ///   - endpoint: the store's URL, nil for AWS.
  ///   - region: nil for `us-east-1`, which stores outside of AWS take mostly.
  ///   - style: nil for what the store takes most likely.
  package init(
    share: String, endpoint: String? = nil, region: String? = nil, style: Style? = nil
  ) throws(StoreSetupError) {
    (bucket, prefix) = try Self.names(share)
    let region = region ?? "us-east-1"
    guard !region.isEmpty, region.utf8.allSatisfy({ Self.isNameByte($0) }) else {
      throw StoreSetupError(description: "“\(region)” is no region: it has letters, digits and dashes")
    }
    self.region = region
    let domain = region.hasPrefix("cn-") ? "amazonaws.com.cn" : "amazonaws.com"
    let server = try Endpoint(endpoint ?? "https://s3.\(region).\(domain)")
    // A certificate for *.host does not hold for a name with a dot before it, and capitals are lost in a host's name.
    let fitsHost = bucket.utf8.allSatisfy { Self.isNameByte($0) }
    let chosen = style ?? (endpoint == nil && fitsHost ? .virtualHost : .path)
    if chosen == .virtualHost, !fitsHost || server.isAddress {
      throw StoreSetupError(
        description: "the bucket “\(bucket)” cannot stand in the host's name \(server.host): name it in the path "
          + "(addressing_style = path)")
    }
    self.style = chosen
    isSecure = server.isSecure
    host = chosen == .virtualHost ? "\(bucket).\(server.host)" : server.host
    base = server.path + (chosen == .path ? "/\(S3Signer.encoded(bucket))" : "")
  }

  /// As users write it.
  package var description: String { "s3://\(bucket)" + (prefix.isEmpty ? "" : "/\(prefix)") }

  /// The object's whole name in the bucket, of its key in the fleet's part.
  package func name(of key: String) -> String { prefix.isEmpty ? key : "\(prefix)/\(key)" }

  /// The key of an object in the fleet's part; nil when it lies elsewhere.
  package func key(of name: String) -> String? {
    if prefix.isEmpty { return name }
    return name.utf8.starts(with: "\(prefix)/".utf8) ? String(name.dropFirst(prefix.count + 1)) : nil
  }

  /// The encoded path of a request for `key`; of one for the bucket, if it is nil.
  func path(of key: String?) -> String {
    base + "/" + (key.map { S3Signer.encoded(name(of: $0), keepsSlashes: true) } ?? "")
  }

  /// The URL of a request with that path and query, both encoded.
  func url(path: String, query: String) -> String {
    "\(isSecure ? "https" : "http")://\(host)\(path)" + (query.isEmpty ? "" : "?\(query)")
  }

  private static func names(_ share: String) throws(StoreSetupError) -> (bucket: String, prefix: String) {
    guard share.hasPrefix("s3://") else {
      throw StoreSetupError(description: "“\(share)” names no bucket: write s3://bucket or s3://bucket/prefix")
    }
    let rest = share.dropFirst(5)
    let bucket = rest.prefix { $0 != "/" }
    guard (3...63).contains(bucket.utf8.count), bucket.utf8.first != 0x2E,
      bucket.utf8.allSatisfy({ isNameByte($0, withCapitals: true) || $0 == 0x2E || $0 == 0x5F })
    else {
      throw StoreSetupError(
        description: "“\(bucket)” is no name of a bucket: it has 3 to 63 letters, digits, dots, dashes and underscores")
    }
    let parts = rest.dropFirst(bucket.count).split(separator: "/")
    // Clients and servers simplify paths with these.
    if let part = parts.first(where: { $0 == "." || $0 == ".." || $0.utf8.contains { $0 < 0x20 || $0 == 0x7F } }) {
      throw StoreSetupError(description: "the prefix in “\(share)” has the part “\(part)”, which no path may have")
    }
    let prefix = parts.joined(separator: "/")
    guard prefix.utf8.count <= 512 else {
      throw StoreSetupError(description: "the prefix in “\(share)” is longer than 512 bytes")
    }
    return (String(bucket), prefix)
  }

  /// A byte of a region, or of a bucket that may stand in a host's name.
  private static func isNameByte(_ byte: UInt8, withCapitals: Bool = false) -> Bool {
    switch byte {
    case 0x30...0x39, 0x61...0x7A, 0x2D: true
    case 0x41...0x5A: withCapitals
    default: false
    }
  }
}

/// The parts of an endpoint's URL.
private struct Endpoint {
  let isSecure: Bool
  /// With the port, unless it is the scheme's own.
  let host: String
  /// Encoded; empty, or with a slash at its start alone.
  let path: String
  /// Whether the host is a number, before which no bucket can stand.
  let isAddress: Bool

  init(_ text: String) throws(StoreSetupError) {
    let lower = text.lowercased()
    guard lower.hasPrefix("https://") || lower.hasPrefix("http://") else {
      throw Self.bad(text, "begins with https://")
    }
    isSecure = lower.hasPrefix("https://")
    let rest = text.dropFirst(isSecure ? 8 : 7)
    let authority = rest.prefix { $0 != "/" }
    let path = rest.dropFirst(authority.count)
    guard !authority.contains("@") else { throw Self.bad(text, "has no user: the keys stand elsewhere") }
    guard !rest.contains("?"), !rest.contains("#") else { throw Self.bad(text, "has neither a query nor a fragment") }
    guard path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x25 }) else {
      throw Self.bad(text, "has no encoded path")
    }
    guard path.split(separator: "/").allSatisfy({ $0 != "." && $0 != ".." }) else {
      throw Self.bad(text, "has no dots alone in its path")
    }
    self.path = path.split(separator: "/").map { "/" + S3Signer.encoded(String($0)) }.joined()
    let isBracketed = authority.hasPrefix("[")
    var name = authority.lowercased()
    var port: String?
    let colon = name.lastIndex(of: ":")
    if let colon, !isBracketed || name[..<colon].hasSuffix("]") {
      port = String(name[name.index(after: colon)...])
      name = String(name[..<colon])
    }
    let isHost = { (byte: UInt8) in
      (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte) || byte == 0x2D || byte == 0x2E
    }
    let isName =
      isBracketed
      ? name.hasSuffix("]") && name.dropFirst().dropLast().utf8.allSatisfy { isHost($0) || $0 == 0x3A }
      : name.utf8.allSatisfy(isHost)
    guard !name.isEmpty, isName else { throw Self.bad(text, "names a host") }
    isAddress = isBracketed || name.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == 0x2E }
    if let port {
      guard let number = UInt16(port), number > 0, String(number) == port else {
        throw Self.bad(text, "has a port of 1 to 65535")
      }
      host = number == (isSecure ? 443 : 80) ? name : "\(name):\(number)"
    } else {
      host = name
    }
  }

  private static func bad(_ text: String, _ rule: String) -> StoreSetupError {
    // What stands before an @ may be a password.
    let shown = text.contains("@") ? "the endpoint" : "“\(text)”"
    return StoreSetupError(description: "\(shown) is no endpoint of an object store: one \(rule)")
  }
}
