import Base

public enum SafeName {
  public static func numbered(_ name: String, _ number: Int) -> String {
    guard let dot = name.utf8.lastIndex(of: UInt8(ascii: ".")), dot > name.startIndex else { return "\(name) (\(number))" }
    return "\(name[..<dot]) (\(number))\(name[dot...])"
  }
  public static func appendingExtension(_ name: String, _ fileExtension: String) -> String { name + "." + fileExtension }
}
public enum ManifestError: Error, Equatable, Sendable, CustomStringConvertible {
  case unreadable(name: String, reason: Errno)
  public var description: String { "unreadable" }
}
public struct ManifestProblem: Sendable, Equatable {
  public enum Severity: Sendable, Equatable { case warning, error }
  public var line: Int
  public var severity: Severity
  public var message: String
  public init(line: Int, severity: Severity, message: String) {
    self.line = line
    self.severity = severity
    self.message = message
  }
}
public enum ManifestItem: Sendable, Equatable {
  case entry(ManifestEntry)
  case problem(ManifestProblem)
}
public struct ManifestReader: ~Copyable {
  private var lines: [Substring]
  private var index = 0
  public init(bytes: [UInt8], name: String) { lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n") }
  public mutating func next() throws(ManifestError) -> ManifestItem? {
    guard index < lines.count else { return nil }
    let url = String(lines[index])
    index += 1
    guard url.hasPrefix("http") else {
      return .problem(ManifestProblem(line: index, severity: .error, message: "not a URL"))
    }
    var hash: UInt64 = 14_695_981_039_346_656_037
    for byte in url.utf8 { hash = (hash ^ UInt64(byte)) &* 1_099_511_628_211 }
    return .entry(
      ManifestEntry(
        line: index, urls: [url], folder: [], name: String(url.split(separator: "/").last ?? "x"), mayGainExtension: false,
        headers: [], userAgent: nil, referer: nil, checksum: nil, key: ResourceKey(high: hash, low: hash)))
  }
}
extension ManifestEntry {
  public init(
    line: Int, urls: [String], folder: [String], name: String, mayGainExtension: Bool, headers: [HTTPHeader],
    userAgent: String?, referer: String?, checksum: Checksum?, key: ResourceKey, standIn: Void = ()
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
