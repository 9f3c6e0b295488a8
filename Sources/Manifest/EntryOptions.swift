import Base

/// The option lines of one entry.
struct EntryOptions {
  /// A problem with an option line.
  struct Finding {
    var severity: ManifestProblem.Severity
    var message: String
  }

  /// The options that exist.
  enum Option: String {
    case out, dir, header, referer, checksum, id, resolver
    case userAgent = "user-agent"
    case httpUser = "http-user"
    case httpPassword = "http-passwd"
    case cookies = "load-cookies"

    /// The option with that name, in any case.
    init?(_ name: Span<UInt8>) {
      switch name.count {
      case 2 where name.hasPrefix("id"): self = .id
      case 3 where name.hasPrefix("out"): self = .out
      case 3 where name.hasPrefix("dir"): self = .dir
      case 6 where name.hasPrefix("header"): self = .header
      case 7 where name.hasPrefix("referer"): self = .referer
      case 8 where name.hasPrefix("checksum"): self = .checksum
      case 8 where name.hasPrefix("resolver"): self = .resolver
      case 9 where name.hasPrefix("http-user"): self = .httpUser
      case 10 where name.hasPrefix("user-agent"): self = .userAgent
      case 11 where name.hasPrefix("http-passwd"): self = .httpPassword
      case 12 where name.hasPrefix("load-cookies"): self = .cookies
      default: return nil
      }
    }

    fileprivate var mark: Marks {
      switch self {
      case .out: Marks(rawValue: 1)
      case .dir: Marks(rawValue: 2)
      case .header: Marks(rawValue: 4)
      case .referer: Marks(rawValue: 8)
      case .checksum: Marks(rawValue: 16)
      case .id: Marks(rawValue: 32)
      case .userAgent: Marks(rawValue: 64)
      case .httpUser: Marks(rawValue: 128)
      case .httpPassword: Marks(rawValue: 256)
      case .cookies: Marks(rawValue: 512)
      case .resolver: Marks(rawValue: 1024)
      }
    }
  }

  /// A set of options. A `Set` of the enumeration would hash each case.
  fileprivate struct Marks: OptionSet {
    let rawValue: UInt16
  }

  /// The most header fields of an entry: servers refuse more, and memory stays bounded.
  static let maximumHeaders = 64
  /// The most nested folders. Together with the name and the library's own path, their path must stay below Linux's
  /// 4096 bytes, so its length is limited too.
  static let maximumDepth = 32
  /// The most bytes of the folders' path (see ``maximumDepth``).
  static let maximumFolderBytes = 2048

  /// Whether an option was set.
  private(set) var isUsed = false
  /// The value of `id=`, which identifies the resource.
  private(set) var id: String?

  private var name: String?
  private var folders: [String] = []
  private var foldersOfName: [String] = []
  private var headers: [HTTPHeader] = []
  private var userAgent: String?
  private var referer: String?
  private var checksum: Checksum?
  private var httpUser: String?
  private var httpPassword: String?
  /// The path of `load-cookies=`.
  private(set) var cookieFile: String?
  private(set) var resolver: String?
  /// Whether a value was refused without which the entry is another one.
  private(set) var isRefused = false
  private var seen: Marks = []

  /// Sets the entry's properties to the values of the options.
  func apply(to entry: inout ManifestEntry) {
    if let name {
      entry.name = name
      entry.mayGainExtension = false
    }
    entry.folder = foldersOfName.isEmpty ? folders : folders + foldersOfName
    entry.headers = headers
    if let httpUser { entry.setHeader("Authorization", "Basic " + base64("\(httpUser):\(httpPassword ?? "")")) }
    entry.userAgent = userAgent
    entry.referer = referer
    entry.checksum = checksum
    entry.resolver = resolver
  }

  /// Whether a password has no user.
  var hasPasswordAlone: Bool { httpUser == nil && httpPassword != nil }

  /// Reads `name=value`, without white space around it. Returns the findings in their order.
  mutating func read(_ text: Span<UInt8>) -> [Finding] {
    isUsed = true
    guard let equals = text.firstIndex(of: 0x3D, in: 0..<text.count) else {
      return [.error("an option line must be name=value; it is skipped")]
    }
    let nameRange = text.trimmedRange(0..<equals)
    guard let option = Option(text.extracting(nameRange)) else {
      // Repeats only what looks like a name: anything else may be a secret.
      var isName = (1...40).contains(nameRange.count)
      for index in nameRange where !(0x61...0x7A).contains(text[index]) && text[index] != 0x2D { isName = false }
      let shown = isName ? "the option \(text.text(nameRange))= does" : "this option does"
      return [.warning("\(shown) not exist here and is ignored")]
    }
    let value = text.extracting(text.trimmedRange(equals + 1..<text.count))
    var findings: [Finding] = []
    if option != .header, !seen.insert(option.mark).inserted {
      findings.append(.warning("\(option.rawValue)= is given twice for this entry; the last one counts"))
    }
    if value.isEmpty, option != .resolver {
      return findings + [.error("\(option.rawValue)= has no value and is skipped")]
    }
    if let finding = set(option, value) { findings.append(finding) }
    return findings
  }

  private mutating func set(_ option: Option, _ value: Span<UInt8>) -> Finding? {
    switch option {
    case .out: return setName(value)
    case .dir: return setFolders(SafeName.folders(value), foldersOfName)
    case .checksum: return setChecksum(value.text(0..<value.count))
    case .header: return addHeader(value)
    case .resolver: return setResolver(value.text(0..<value.count))
    case .userAgent, .referer, .id, .httpUser, .httpPassword, .cookies: break
    }
    // These values are taken unchanged. The first two become header values, which must be one line.
    for index in value.indices where value[index].isControl {
      return .error("\(option.rawValue)= has a control character and is skipped")
    }
    let text = value.text(0..<value.count)
    switch option {
    case .userAgent: userAgent = text
    case .referer: referer = text
    case .httpPassword: httpPassword = text
    case .cookies: cookieFile = text
    case .httpUser:
      // RFC 7617, section 2: the first colon ends the user.
      if text.contains(":") { return .error("http-user= has a colon, which HTTP does not allow; it is skipped") }
      httpUser = text
    default: id = text
    }
    return nil
  }

  private mutating func setResolver(_ name: String) -> Finding? {
    // A list comes from a stranger: it names what the user defined, and never a program.
    guard ResolverName.isValid(name) else {
      // Without a resolver, the entry's URL itself would be requested: a page in the place of the file.
      isRefused = true
      return .error("resolver= must be a name of letters, digits, - and _; its entry is left out")
    }
    resolver = name
    return nil
  }

  private mutating func setName(_ path: Span<UInt8>) -> Finding? {
    // As in aria2, the value is a path below dir=; its last part is the name.
    let start = path.indices.last { path[$0] == 0x2F }.map { $0 + 1 } ?? 0
    let last = path.extracting(start..<path.count)
    guard !SafeName.isDots(last), let safe = SafeName.component(last) else {
      return .error("out= names no file and is skipped")
    }
    if start > 0 || !foldersOfName.isEmpty {
      if let finding = setFolders(folders, SafeName.folders(path.extracting(0..<start))) { return finding }
    }
    name = safe
    return nil
  }

  private mutating func setFolders(_ folders: [String], _ foldersOfName: [String]) -> Finding? {
    if folders.count + foldersOfName.count > Self.maximumDepth {
      return .error("the folders nest deeper than \(Self.maximumDepth); the option is skipped")
    }
    let bytes = folders.reduce(0) { $0 + $1.utf8.count + 1 } + foldersOfName.reduce(0) { $0 + $1.utf8.count + 1 }
    if bytes > Self.maximumFolderBytes {
      return .error("the folders' path is longer than \(Self.maximumFolderBytes) bytes; the option is skipped")
    }
    self.folders = folders
    self.foldersOfName = foldersOfName
    return nil
  }

  private mutating func setChecksum(_ text: String) -> Finding? {
    let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
    let type = parts[0].lowercased()
    let algorithm = Checksum.Algorithm.allCases.first {
      $0.rawValue == type || $0.rawValue == type.replacing("sha", with: "sha-")
    }
    guard let algorithm, parts.count == 2 else {
      let known = Checksum.Algorithm.allCases.map(\.rawValue).sorted().joined(separator: ", ")
      return .error("checksum= must be TYPE=HEX with a type of \(known); the file will not be verified")
    }
    let digits = Array(parts[1].utf8)
    let values = digits.compactMap(\.hexValue)
    guard values.count == digits.count, values.count == 2 * algorithm.byteCount else {
      return .error(
        "checksum= must have \(2 * algorithm.byteCount) hexadecimal digits for \(algorithm.rawValue); "
          + "the file will not be verified")
    }
    let digest = stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    checksum = Checksum(algorithm: algorithm, digest: digest)
    return nil
  }

  private mutating func addHeader(_ value: Span<UInt8>) -> Finding? {
    guard let colon = value.firstIndex(of: 0x3A, in: 0..<value.count) else {
      return .error("header= must be NAME: VALUE; it is skipped")
    }
    let nameRange = 0..<colon
    var isToken = colon > 0
    for index in nameRange where !ByteSet.token.contains(value[index]) { isToken = false }
    guard isToken else { return .error("header= has a field name that HTTP does not allow; it is skipped") }
    let name = value.text(nameRange)
    let valueRange = value.trimmedRange(colon + 1..<value.count)
    if valueRange.isEmpty { return .error("the header \(name) has no value and is skipped") }
    for index in valueRange where value[index].isControl && value[index] != 0x09 {
      return .error("the header \(name) has a control character in its value and is skipped")
    }
    let text = value.text(valueRange)
    switch name.lowercased() {
    case "user-agent": userAgent = text
    case "referer": referer = text
    case let lower where Self.reserved.contains(lower):
      return .error("the header \(name) belongs to the transfer and cannot be set; it is skipped")
    default:
      if headers.count == Self.maximumHeaders {
        return .error("an entry may have \(Self.maximumHeaders) headers; this one is skipped")
      }
      headers.append(HTTPHeader(name: name, value: text))
    }
    return nil
  }

  /// Header fields that would change which bytes the origin sends, or how a message is framed.
  private static let reserved: Set<String> = [
    // These choose the bytes; mediafs sets them itself.
    "range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "accept-encoding",
    // These belong to one hop or to the message (RFC 9110, section 7.6.1).
    "host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "trailer", "transfer-encoding",
    "upgrade", "http2-settings", "expect", "content-length", "content-encoding", "content-range", "content-type",
  ]
}

extension ManifestEntry {
  /// Sets a header field, in the place of those of that name.
  mutating func setHeader(_ name: String, _ value: String) {
    headers.removeAll { $0.name.lowercased() == name.lowercased() }
    headers.append(HTTPHeader(name: name, value: value))
  }
}

/// RFC 4648, section 4.
private func base64(_ text: String) -> String {
  let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
  let bytes = Array(text.utf8)
  var result: [UInt8] = []
  for start in stride(from: 0, to: bytes.count, by: 3) {
    let group = bytes[start..<min(start + 3, bytes.count)]
    let bits = group.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - group.count))
    for place in 0..<4 { result.append(place > group.count ? 0x3D : alphabet[bits >> (18 - 6 * place) & 63]) }
  }
  return String(decoding: result, as: UTF8.self)
}

extension EntryOptions.Finding {
  fileprivate static func error(_ message: String) -> Self { Self(severity: .error, message: message) }
  fileprivate static func warning(_ message: String) -> Self { Self(severity: .warning, message: message) }
}

extension Checksum.Algorithm {
  /// The length of a digest in bytes.
  package var byteCount: Int {
    switch self {
    case .md5: 16
    case .sha1: 20
    case .sha256: 32
    case .sha512: 64
    }
  }
}
