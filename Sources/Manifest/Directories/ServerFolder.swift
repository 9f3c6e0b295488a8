import Base

/// A folder of a server that a list names, or that another one has in it: a URL that ends with a slash.
package struct ServerFolder: Sendable, Equatable {
  /// Its URL, with the userinfo of the list's line.
  package var url: String
  /// What the line says for its requests, and for those of the files in it.
  package var headers: [HTTPHeader] = []
  package var userAgent: String?
  package var referer: String?
  /// How many folders lie between it and the one that the list names.
  package var depth = 0
  /// The answers that it is in.
  var above: FolderAnswer?

  package init(url: String) { self.url = url }

  /// Its URL tells of the answers above it: they say what is listed.
  package static func == (left: Self, right: Self) -> Bool {
    left.url == right.url && left.depth == right.depth && left.headers == right.headers
      && left.userAgent == right.userAgent && left.referer == right.referer
  }

  /// The folder of a list's line; nil for a file. What says more of itself than a name is a file.
  init?(_ entry: ManifestEntry) {
    guard let url = entry.urls.first, url.utf8.last == 0x2F, entry.resolver == nil, entry.checksum == nil,
      entry.facts.map({ $0.size == nil && $0.mediaType == nil && $0.duration == nil }) ?? true
    else { return nil }
    self.url = url
    (headers, userAgent, referer) = (entry.headers, entry.userAgent, entry.referer)
  }

  /// Whether an answer of `url` is one of this folder: on the same host, and not without its TLS. The files of another
  /// host would get what the line says for this one.
  package func isAnswered(by url: String) -> Bool {
    guard let (scheme, host, port) = Self.origin(of: self.url), let other = Self.origin(of: url), other.host == host
    else { return false }
    return other.scheme == scheme ? other.port == port : other.scheme == "https"
  }

  /// `url` with the userinfo of this folder.
  package func withUserinfo(_ url: String) -> String {
    var parser = URLParser()
    do throws(URLFault) {
      try parser.parse(Array(self.url.utf8).span)
      if parser.userinfo.isEmpty { return url }
      let userinfo = parser.bytes[parser.userinfo]
      try parser.parse(Array(url.utf8).span)
      let bytes = parser.bytes
      let host = parser.userinfo.upperBound
      return String(decoding: bytes[..<parser.userinfo.lowerBound] + userinfo + bytes[host...], as: UTF8.self)
    } catch {
      return url
    }
  }

  private static func origin(of url: String) -> (scheme: String, host: String, port: String)? {
    var parser = URLParser()
    do throws(URLFault) { try parser.parse(Array(url.utf8).span) } catch { return nil }
    let bytes = parser.bytes
    let scheme = bytes.starts(with: "https:".utf8) ? "https" : "http"
    let port = String(decoding: bytes[parser.host.upperBound..<parser.path.lowerBound], as: UTF8.self)
    return (
      scheme, String(decoding: bytes[parser.host], as: UTF8.self),
      port == (scheme == "https" ? ":443" : ":80") ? "" : port
    )
  }
}

/// The answer that a server's folder was listed in, and those above it.
final class FolderAnswer: Sendable {
  private let url: String
  private let above: FolderAnswer?

  /// `url`: that of the answer.
  init(_ url: String, in above: FolderAnswer?) { (self.url, self.above) = (url, above) }

  /// Whether one of them is the answer of `url`.
  func contains(_ url: String) -> Bool {
    var answer = self as FolderAnswer?
    while let one = answer {
      if one.url == url { return true }
      answer = one.above
    }
    return false
  }
}

/// What is remembered of servers' folders.
package protocol ServerFolders: Sendable {
  /// What is remembered of `folder`; nil: nothing.
  func listing(of folder: ServerFolder) throws(Errno) -> FolderListing?
}

/// The answer of a server that was asked for a folder.
package struct FolderListing: ~Copyable {
  var file: FileDescriptor
  var url: String
  var mediaType: String?

  /// `file` is at the start of the answer's body. `url`: that of the answer.
  package init(file: consuming FileDescriptor, url: String, mediaType: String?) {
    self.file = file
    (self.url, self.mediaType) = (url, mediaType)
  }
}

/// A folder of the tree that shows a server's.
package struct ManifestFolder: Sendable, Equatable {
  package var line: Int
  /// The folders that lead to it, itself the last; empty for the top.
  package var path: [String]
  package var source: ServerFolder
  /// The name of its list, if that shows below a folder of its own.
  package var list: String?

  /// The path of the folder in which the list itself names it; nil if a listing names it, and for the top.
  package var namedIn: [String]? { source.depth > 0 || path.isEmpty ? nil : Array(path.dropLast()) }
}
