import Glibc

/// Why a text is not a URL that can be fetched.
enum URLFault: Error, Equatable {
  case noScheme
  case otherScheme(String)
  case emptyHost
  case hostCharacter
  case hostEncoding
  case unclosedBracket
  case badIPv6
  case badPort
  case control

  /// What is wrong and what to do, without any part of the URL that could be secret.
  var message: String {
    switch self {
    case .noScheme: "not a URL: it must begin with http:// or https://"
    case .otherScheme(let scheme): "\(scheme): URLs cannot be fetched; only http and https can"
    case .emptyHost: "the URL has no host"
    case .hostCharacter:
      "the URL's host has a character that no host name has; percent-encode what belongs to a password"
    case .hostEncoding: "the URL's host is not UTF-8"
    case .unclosedBracket: "the URL's host begins with [ and has no ] at its end"
    case .badIPv6: "the brackets in the URL hold no IPv6 address"
    case .badPort: "the URL's port is not a number from 1 to 65535"
    case .control: "the URL has a control character; percent-encode it if it belongs there"
    }
  }
}

/// Checks http and https URLs (RFC 3986) and brings them into the form that is requested.
///
/// In that form, scheme and host are in lower case, there is no fragment and no default port, the path is at least `/`,
/// dot segments are resolved (as libcurl would), and spaces and bytes that no URL may hold are percent-encoded. Escapes
/// stay unchanged: some signatures cover them. One parser parses many URLs, so that a URL costs no allocation.
struct URLParser {
  /// The URL in the form that is requested.
  private(set) var bytes: [UInt8] = []
  /// User and password with their `@`; empty when there are none.
  private(set) var userinfo = 0..<0
  /// The host, with the brackets of an IPv6 address.
  private(set) var host = 0..<0
  /// The path; it begins with `/`.
  private(set) var path = 0..<0
  /// The query without its `?`; nil when there is none.
  private(set) var query: Range<Int>?
  /// Whether the path or the query has an escape (`%XX`).
  private(set) var hasEscapes = false

  /// The URL as text.
  var string: String { bytes.span.text(0..<bytes.count) }

  /// Reads an absolute URL, without white space around it.
  mutating func parse(_ text: Span<UInt8>) throws(URLFault) {
    bytes.removeAll(keepingCapacity: true)
    hasEscapes = false
    query = nil
    let isSecure = text.hasPrefix("https://")
    guard isSecure || text.hasPrefix("http://") else { throw Self.schemeFault(text) }
    let authority = isSecure ? 8 : 7
    for index in 0..<authority { bytes.append(text[index].lowercased) }

    var pathStart = authority
    while pathStart < text.count, text[pathStart] != 0x2F, text[pathStart] != 0x3F, text[pathStart] != 0x23 {
      pathStart += 1
    }
    try parseAuthority(text, authority..<pathStart, defaultPort: isSecure ? 443 : 80)
    let start = bytes.count
    if pathStart == text.count || text[pathStart] != 0x2F { bytes.append(0x2F) }
    let pathEnd = try append(text, from: pathStart, allowed: .path, until: 0x3F)
    path = start..<bytes.count
    if hasDotSegments() { removeDotSegments() }
    guard pathEnd < text.count, text[pathEnd] == 0x3F else { return }
    bytes.append(0x3F)
    let queryStart = bytes.count
    // 0 never ends the query, because control characters are refused.
    _ = try append(text, from: pathEnd + 1, allowed: .query, until: 0)
    query = queryStart..<bytes.count
  }

  /// Resolves `reference` against the absolute URL `base` (RFC 3986, section 5.2), then reads it as ``parse(_:)`` does.
  mutating func parse(_ reference: Span<UInt8>, relativeTo base: Span<UInt8>) throws(URLFault) {
    if Self.schemeEnd(reference) != nil { return try parse(reference) }
    try parse(base)
    var joined: [UInt8]
    if reference.hasPrefix("//") {
      let scheme = bytes.span.hasPrefix("https:") ? 6 : 5
      joined = Array(bytes[..<scheme])
    } else if reference.hasPrefix("/") {
      joined = Array(bytes[..<path.lowerBound])
    } else if reference.hasPrefix("?") {
      joined = Array(bytes[..<path.upperBound])
    } else if reference.isEmpty || reference.hasPrefix("#") {
      joined = bytes
    } else {
      let lastSlash = bytes[path].lastIndex(of: 0x2F) ?? path.lowerBound
      joined = Array(bytes[...lastSlash])
    }
    joined.append(reference, 0..<reference.count)
    try parse(joined.span)
  }

  /// The index of a scheme's colon: `name:` with more than one letter (one is a Windows drive); else nil.
  static func schemeEnd(_ text: Span<UInt8>) -> Int? {
    guard let colon = text.firstIndex(of: 0x3A, in: 0..<min(text.count, 32)), colon > 1, text[0].isLetter else {
      return nil
    }
    for index in 1..<colon {
      let byte = text[index]
      guard byte.isLetter || byte.isDigit || byte == 0x2B || byte == 0x2D || byte == 0x2E else { return nil }
    }
    return colon
  }

  private static func schemeFault(_ text: Span<UInt8>) -> URLFault {
    // `localhost:8080/x` and `user:password@host` look like schemes: a scheme must be followed by // or be a known one.
    guard let colon = schemeEnd(text) else { return .noScheme }
    let scheme = text.text(0..<colon).lowercased()
    if scheme == "http" || scheme == "https" { return .noScheme }
    let isScheme = text.hasPrefix("//", at: colon + 1) || ["magnet", "data", "file", "mailto", "urn"].contains(scheme)
    return isScheme ? .otherScheme(scheme) : .noScheme
  }

  private mutating func parseAuthority(
    _ text: Span<UInt8>, _ range: Range<Int>, defaultPort: Int
  ) throws(URLFault) {
    var hostStart = range.lowerBound
    for index in range where text[index] == 0x40 { hostStart = index + 1 }
    let userinfoStart = bytes.count
    for index in range.lowerBound..<hostStart {
      let byte = text[index]
      if byte.isControl { throw .control }
      // A password stays as its owner wrote it, escapes included; only bytes that no request may hold are encoded.
      if byte == 0x20 || byte >= 0x80 { bytes.appendEscaped(byte) } else { bytes.append(byte) }
    }
    userinfo = userinfoStart..<bytes.count

    let hostEnd: Int
    let start = bytes.count
    if hostStart < range.upperBound, text[hostStart] == 0x5B {
      hostEnd = try appendIPv6(text, hostStart..<range.upperBound)
    } else {
      hostEnd = text.firstIndex(of: 0x3A, in: hostStart..<range.upperBound) ?? range.upperBound
      try appendHostName(text, hostStart..<hostEnd)
    }
    host = start..<bytes.count
    if hostEnd == range.upperBound { return }
    guard text[hostEnd] == 0x3A else { throw .unclosedBracket }
    try appendPort(text, hostEnd + 1..<range.upperBound, defaultPort: defaultPort)
  }

  private mutating func appendHostName(_ text: Span<UInt8>, _ range: Range<Int>) throws(URLFault) {
    if range.isEmpty { throw .emptyHost }
    let allowed = ByteSet.host
    let start = bytes.count
    var isASCII = true
    var index = range.lowerBound
    while index < range.upperBound {
      var byte = text[index]
      if byte == 0x25, index + 2 < range.upperBound, let high = text[index + 1].hexValue,
        let low = text[index + 2].hexValue
      {
        byte = high << 4 | low
        index += 2
      }
      if byte.isControl { throw .control }
      if byte >= 0x80 { isASCII = false } else if !allowed.contains(byte) { throw .hostCharacter }
      bytes.append(byte.lowercased)
      index += 1
    }
    // An international name stays unchanged: libcurl converts it to ASCII.
    if !isASCII, String(validating: bytes[start...], as: UTF8.self) == nil { throw .hostEncoding }
  }

  /// Appends `[address]` and returns the index after it. A zone (`%25eth0`, RFC 6874) may follow the address.
  private mutating func appendIPv6(_ text: Span<UInt8>, _ range: Range<Int>) throws(URLFault) -> Int {
    guard let close = text.firstIndex(of: 0x5D, in: range) else { throw .unclosedBracket }
    let inside = range.lowerBound + 1..<close
    let zone = text.firstIndex(of: 0x25, in: inside) ?? close
    // inet_pton stops at a NUL, so its input must have none.
    for index in inside.lowerBound..<zone where text[index].hexValue == nil {
      guard text[index] == 0x3A || text[index] == 0x2E else { throw .badIPv6 }
    }
    var address = in6_addr()
    guard inet_pton(AF_INET6, text.text(inside.lowerBound..<zone), &address) == 1 else { throw .badIPv6 }
    if zone < close {
      guard text.hasPrefix("%25", at: zone), zone + 3 < close else { throw .badIPv6 }
      for index in zone + 3..<close where !ByteSet.unreserved.contains(text[index]) { throw .badIPv6 }
    }
    bytes.append(0x5B)
    for index in inside { bytes.append(index < zone ? text[index].lowercased : text[index]) }
    bytes.append(0x5D)
    return close + 1
  }

  private mutating func appendPort(
    _ text: Span<UInt8>, _ range: Range<Int>, defaultPort: Int
  ) throws(URLFault) {
    if range.isEmpty { return }  // `host:` is allowed, and means the default
    var port = 0
    for index in range {
      guard text[index].isDigit else { throw .badPort }
      port = port * 10 + Int(text[index] - 0x30)
      if port > 65535 { throw .badPort }
    }
    if port == 0 { throw .badPort }
    if port != defaultPort { bytes.append(contentsOf: ":\(port)".utf8) }
  }

  /// Appends from `start` to `terminator`, `#` or the end, with the necessary encoding; returns the index of that end.
  private mutating func append(
    _ text: Span<UInt8>, from start: Int, allowed: ByteSet, until terminator: UInt8
  ) throws(URLFault) -> Int {
    var index = start
    var runStart = start  // bytes that need no encoding are copied in runs
    while index < text.count {
      let byte = text[index]
      if allowed.contains(byte) {
        index += 1
        continue
      }
      bytes.append(text, runStart..<index)
      if byte == 0x23 || (byte == terminator && byte != 0) { return index }
      if byte.isControl { throw .control }
      if byte == 0x25, index + 2 < text.count, text[index + 1].hexValue != nil, text[index + 2].hexValue != nil {
        hasEscapes = true
        bytes.append(text, index..<index + 3)
        index += 3
      } else {
        hasEscapes = true
        bytes.appendEscaped(byte)  // a lone % too: it can only mean itself
        index += 1
      }
      runStart = index
    }
    bytes.append(text, runStart..<index)
    return index
  }

  /// Whether a path segment is `.` or `..`.
  private func hasDotSegments() -> Bool {
    let bytes = bytes.span
    var index = path.lowerBound
    while index + 1 < path.upperBound {
      if bytes[index] == 0x2F, bytes[index + 1] == 0x2E {
        var end = index + 2
        if end < path.upperBound, bytes[end] == 0x2E { end += 1 }
        if end == path.upperBound || bytes[end] == 0x2F { return true }
      }
      index += 1
    }
    return false
  }

  /// Applies RFC 3986, section 5.2.4, to the path, which begins with `/` and ends the bytes.
  private mutating func removeDotSegments() {
    var kept: [ArraySlice<UInt8>] = []
    let segments = bytes[path].dropFirst().split(separator: 0x2F, omittingEmptySubsequences: false)
    for (index, segment) in segments.enumerated() {
      let isLast = index == segments.count - 1
      if segment.elementsEqual(".".utf8) || segment.elementsEqual("..".utf8) {
        if segment.count == 2 { _ = kept.popLast() }
        if isLast { kept.append([]) }
      } else {
        kept.append(segment)
      }
    }
    let shortened = [0x2F] + Array(kept.joined(separator: CollectionOfOne(0x2F)))
    bytes.replaceSubrange(path, with: shortened)
    path = path.lowerBound..<path.lowerBound + shortened.count
  }
}
