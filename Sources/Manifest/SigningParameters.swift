/// The query parameters that sign a link. They change each time the link is issued; its bytes stay the same.
///
/// ``ResourceKey`` leaves them out. A name alone is never enough: `token` may well be what distinguishes two files, and
/// one key for two resources would mean wrong bytes. An unknown signature costs a download at worst, which `id=`
/// avoids. So a scheme is recognized by a set of parameters that occur together, each once; parameters with common
/// names must also have values of the right shape. Parameters of no matching scheme stay, in their order: `versionId`,
/// `partNumber`, `x-oss-process` and `snapshot` choose other bytes.
enum SigningParameters {
  /// A condition besides the presence of the parameters.
  private enum Check: Sendable {
    case digits(String, ClosedRange<Int>)
    case hex(String, ClosedRange<Int>)
    case base64URL(String, Set<Int>)
    case length(String, atLeast: Int)
    case date(String)
    case contains(String, String)
    case pathPrefix(String)
    /// The path ends in a file's name: then the path identifies the file, and the query need not.
    case pathNamesFile
  }

  private struct Scheme: Sendable {
    var required: UInt128
    var dropped: UInt128
    var checks: [Check]
  }

  /// Names in lower case; a scheme's sets have bit `n` for `names[n]`.
  private struct Table: Sendable {
    var names: [[UInt8]] = []
    /// Bit `n`: some name has `n` bytes. Most parameters belong to no scheme, which their length already shows.
    var lengths: UInt64 = 0
    var schemes: [Scheme] = []

    mutating func add(_ required: [String], with others: [String] = [], _ checks: [Check] = []) {
      let needed = bits(required)
      schemes.append(Scheme(required: needed, dropped: needed | bits(others), checks: checks))
    }

    private mutating func bits(_ wanted: [String]) -> UInt128 {
      wanted.reduce(0) { set, name in
        let bytes = Array(name.utf8)
        if let known = names.firstIndex(of: bytes) { return set | 1 << UInt128(known) }
        names.append(bytes)
        lengths |= 1 << UInt64(bytes.count)
        return set | 1 << UInt128(names.count - 1)
      }
    }

    func index(of name: String) -> Int? { names.firstIndex { $0.elementsEqual(name.utf8) } }
  }

  /// docs/MANIFEST.md has the same list for users.
  private static let table: Table = {
    var table = Table()
    let expiry = Check.digits("expires", 10...13)
    // Amazon S3, Signature Version 4, and compatible stores (MinIO, R2, Wasabi, B2).
    table.add(
      ["x-amz-signature", "x-amz-credential", "x-amz-date"],
      with: ["x-amz-algorithm", "x-amz-expires", "x-amz-signedheaders", "x-amz-security-token", "x-amz-content-sha256"])
    // Amazon S3, Signature Version 2.
    table.add(["awsaccesskeyid", "signature", "expires"], with: ["x-amz-security-token"])
    // Amazon CloudFront, canned and custom policy.
    table.add(["key-pair-id", "signature"], with: ["expires", "policy"])
    // Google Cloud Storage, V4 and V2; Cloud CDN.
    table.add(
      ["x-goog-signature", "x-goog-credential", "x-goog-date"],
      with: ["x-goog-algorithm", "x-goog-expires", "x-goog-signedheaders"])
    table.add(["googleaccessid", "signature", "expires"])
    table.add(["keyname", "signature", "expires"], with: ["urlprefix"], [expiry, .length("signature", atLeast: 20)])
    // Azure Storage: `sv` is the API version, a date. `snapshot`, `versionid` and the `rsc*` headers are not part of
    // the signature.
    table.add(
      ["sig", "sv"],
      with: [
        "ss", "srt", "sr", "st", "se", "sp", "sip", "spr", "si", "skoid", "sktid", "skt", "ske", "sks", "skv",
        "saoid", "suoid", "scid", "sdd", "ses",
      ], [.date("sv"), .length("sig", atLeast: 20)])
    // Alibaba OSS, V1 and V4; Tencent COS.
    table.add(["ossaccesskeyid", "signature", "expires"], with: ["security-token"])
    table.add(
      ["x-oss-signature", "x-oss-credential", "x-oss-date"],
      with: ["x-oss-signature-version", "x-oss-expires", "x-oss-security-token", "x-oss-additional-headers"])
    table.add(
      ["q-signature", "q-ak"],
      with: [
        "q-sign-algorithm", "q-sign-time", "q-key-time", "q-header-list", "q-url-param-list", "x-cos-security-token",
      ])
    // Akamai edge tokens: `exp=…~acl=…~hmac=…`.
    for name in ["hdnts", "hdnea", "hdntl", "__token__"] { table.add([name], [.contains(name, "hmac")]) }
    // Backblaze B2's own download links: /file/BUCKET/NAME.
    table.add(["authorization"], [.pathPrefix("/file/"), .length("authorization", atLeast: 20)])
    // Discord's attachments: hexadecimal times and an HMAC-SHA-256.
    table.add(["ex", "is", "hm"], [.hex("ex", 8...16), .hex("is", 8...16), .hex("hm", 64...64)])
    // A signature over the rest of the URL with its expiry (Laravel and many home-made schemes).
    table.add(["signature", "expires"], [expiry, .length("signature", atLeast: 20)])
    // bunny.net: base64url of a SHA-256 or an MD5; nginx's secure_link: base64url of an MD5.
    table.add(["token", "expires"], with: ["token_path"], [expiry, .base64URL("token", [22, 43]), .pathNamesFile])
    table.add(["md5", "expires"], [expiry, .base64URL("md5", [22]), .pathNamesFile])
    precondition(table.names.count <= UInt128.bitWidth && table.names.allSatisfy { $0.count < UInt64.bitWidth })
    return table
  }()

  private struct Parameter {
    /// Index into the table's names; nil for parameters one after the other whose names are not there.
    var known: Int?
    var range: Range<Int>
    var value: Range<Int>
  }

  /// Appends `?` and the parameters of `query` that are no signature. `query` is normalized and has no `?`.
  static func append(query normalized: borrowing [UInt8], path: Span<UInt8>, to text: inout [UInt8]) {
    let table = table
    let query = normalized.span
    var parameters: [Parameter] = []
    var found: UInt128 = 0
    var repeated: UInt128 = 0
    var (start, unknown) = (0, 0)
    while start <= query.count {
      let end = query.firstIndex(of: 0x26, in: start..<query.count) ?? query.count
      let equals = query.firstIndex(of: 0x3D, in: start..<end) ?? end
      if let known = index(of: query, start..<equals, in: table) {
        if unknown < start {
          parameters.append(Parameter(known: nil, range: unknown..<start - 1, value: start..<start))
        }
        parameters.append(Parameter(known: known, range: start..<end, value: min(equals + 1, end)..<end))
        let bit: UInt128 = 1 << UInt128(known)
        repeated |= found & bit
        found |= bit
        unknown = end + 1
      }
      start = end + 1
    }
    // Most queries sign nothing, and every scheme has a name.
    if found == 0 {
      text.append(0x3F)
      text.append(query, 0..<query.count)
      return
    }
    if unknown <= query.count {
      parameters.append(Parameter(known: nil, range: unknown..<query.count, value: unknown..<unknown))
    }
    var dropped: UInt128 = 0
    for scheme in table.schemes where scheme.required & ~(found & ~repeated) == 0 {
      let holds = scheme.checks.allSatisfy { check in
        self.holds(check, parameters: parameters, table: table, query: query, path: path)
      }
      if holds { dropped |= scheme.dropped }
    }
    var separator: UInt8 = 0x3F
    for parameter in parameters {
      if let known = parameter.known, dropped >> UInt128(known) & 1 == 1 { continue }
      text.append(separator)
      text.append(query, parameter.range)
      separator = 0x26
    }
  }

  private static func index(of query: Span<UInt8>, _ range: Range<Int>, in table: Table) -> Int? {
    guard range.count < UInt64.bitWidth, table.lengths >> UInt64(range.count) & 1 == 1 else { return nil }
    next: for (index, name) in table.names.enumerated() where name.count == range.count {
      for offset in name.indices where query[range.lowerBound + offset].lowercased != name[offset] { continue next }
      return index
    }
    return nil
  }

  private static func holds(
    _ check: Check, parameters: [Parameter], table: Table, query: Span<UInt8>, path: Span<UInt8>
  ) -> Bool {
    func value(_ name: String) -> [UInt8] {
      guard let known = table.index(of: name), let found = parameters.first(where: { $0.known == known }) else {
        return []
      }
      return found.value.map { query[$0] }
    }
    switch check {
    case .digits(let name, let counts):
      let value = value(name)
      return counts.contains(value.count) && value.allSatisfy(\.isDigit)
    case .hex(let name, let counts):
      let value = value(name)
      return counts.contains(value.count) && value.allSatisfy { $0.hexValue != nil }
    case .base64URL(let name, let counts):
      var value = value(name)[...]
      while value.last == 0x3D { value.removeLast() }
      return counts.contains(value.count)
        && value.allSatisfy { $0.isLetter || $0.isDigit || $0 == 0x2D || $0 == 0x5F }
    case .length(let name, let least):
      return value(name).count >= least
    case .date(let name):
      let parts = value(name).split(separator: 0x2D, omittingEmptySubsequences: false)
      return parts.map(\.count) == [4, 2, 2] && parts.joined().allSatisfy(\.isDigit)
    case .contains(let name, let part):
      return value(name).contains(Array(part.utf8))
    case .pathPrefix(let prefix):
      return path.count > prefix.utf8.count && prefix.utf8.enumerated().allSatisfy { path[$0] == $1 }
    case .pathNamesFile:
      guard let dot = (0..<path.count).last(where: { path[$0] == 0x2E || path[$0] == 0x2F }), path[dot] == 0x2E else {
        return false
      }
      return FileType.mediaType(forExtension: path.text(dot + 1..<path.count)) != nil
    }
  }
}
