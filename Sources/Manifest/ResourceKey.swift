import CCrypto

extension ResourceKey {
  /// The key of an entry with `id=`.
  package init(id: String) {
    var bytes = Array("id:".utf8)
    bytes.append(contentsOf: id.utf8)
    self = KeyDigest().key(of: bytes.span)
  }

  /// The key of an entry without `id=` whose first URL is `url`. A text that is not an http or https URL is digested
  /// unchanged.
  package init(url: String) {
    var builder = KeyBuilder()
    var parser = URLParser()
    do {
      try parser.parse(Array(url.utf8).span)
      self = builder.key(of: parser)
    } catch {
      self = KeyDigest().key(of: Array("url:\(url)".utf8).span)
    }
  }
}

/// SHA-256 with one OpenSSL context for all keys, because making a context costs more than a digest. Not to be used by
/// several threads at once.
struct KeyDigest: ~Copyable {
  private let context: OpaquePointer

  init() {
    guard let context = EVP_MD_CTX_new(), EVP_DigestInit_ex(context, EVP_sha256(), nil) == 1 else {
      preconditionFailure("libcrypto gives no SHA-256: out of memory, or a broken installation")
    }
    self.context = context
  }

  deinit { EVP_MD_CTX_free(context) }

  /// The first 16 bytes of the SHA-256 of `bytes`.
  func key(of bytes: Span<UInt8>) -> ResourceKey {
    var digest: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    // libcrypto keeps neither pointer after the call. The tuple has the digest's 32 bytes.
    let done = bytes.withUnsafeBytes { input in
      withUnsafeMutableBytes(of: &digest) { output in
        EVP_DigestInit_ex(context, nil, nil) == 1  // nil: SHA-256 again
          && EVP_DigestUpdate(context, input.baseAddress, input.count) == 1
          && EVP_DigestFinal_ex(context, output.baseAddress, nil) == 1
      }
    }
    precondition(done, "libcrypto failed in SHA-256, which has no way to fail once it is set up")
    return ResourceKey(high: UInt64(bigEndian: digest.0), low: UInt64(bigEndian: digest.1))
  }
}

/// Makes keys of parsed URLs. One builder makes many keys, so that a key costs no allocation.
struct KeyBuilder: ~Copyable {
  private let digest = KeyDigest()
  /// The text that was digested last.
  private(set) var text: [UInt8] = []
  private var query: [UInt8] = []

  /// The key of an `id=`.
  mutating func key(id: String) -> ResourceKey {
    text.removeAll(keepingCapacity: true)
    text.append(contentsOf: "id:".utf8)
    text.append(contentsOf: id.utf8)
    return digest.key(of: text.span)
  }

  /// The key of a URL.
  mutating func key(of url: borrowing URLParser) -> ResourceKey {
    writeText(url)
    return digest.key(of: text.span)
  }

  private mutating func writeText(_ url: borrowing URLParser) {
    text.removeAll(keepingCapacity: true)
    text.append(contentsOf: "url:".utf8)
    let bytes = url.bytes.span
    text.append(bytes, 0..<url.userinfo.lowerBound)
    text.append(bytes, url.userinfo.upperBound..<url.path.lowerBound)
    if url.hasEscapes { text.appendNormalized(bytes, url.path) } else { text.append(bytes, url.path) }
    guard let range = url.query else { return }
    query.removeAll(keepingCapacity: true)
    query.appendNormalized(bytes, range)
    SigningParameters.append(query: query, path: bytes.extracting(url.path), to: &text)
  }
}

extension [UInt8] {
  /// Appends with normalized percent-encoding (RFC 3986, section 6.2.2): escapes of unreserved characters are decoded,
  /// the others are in upper case. Nothing else is equivalent: `%2F` is not `/`.
  mutating func appendNormalized(_ source: Span<UInt8>, _ range: Range<Int>) {
    var index = range.lowerBound
    while let percent = source.firstIndex(of: 0x25, in: index..<range.upperBound) {
      append(source, index..<percent)
      index = percent + 1
      guard percent + 2 < range.upperBound, let high = source[percent + 1].hexValue,
        let low = source[percent + 2].hexValue
      else {
        append(0x25)
        continue
      }
      let value = high << 4 | low
      if ByteSet.unreserved.contains(value) { append(value) } else { appendEscaped(value) }
      index = percent + 3
    }
    append(source, index..<range.upperBound)
  }
}
