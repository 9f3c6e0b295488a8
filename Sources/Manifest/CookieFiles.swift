import Base
import Glibc

/// Which files `load-cookies=` of a list may name.
package enum CookieAccess: Sendable, Equatable {
  /// Those of this user; a relative path is below that folder, and nil means that there is none.
  case files(below: String?)
  /// None, for that reason.
  case none(Reason)

  package enum Reason: String, Sendable {
    /// What comes from elsewhere names no file of this machine.
    case server = "a list that a server gave names no file of this machine"
    /// Root mounts for a user.
    case user = "with user=NAME, mediafs reads no file that a list names"
  }
}

/// The cookies of files in Netscape's format, which browsers' extensions, curl, wget and yt-dlp write.
final class CookieFiles {
  /// The most bytes of a file.
  static let maximumBytes = 4 << 20
  /// The most bytes of the cookies that one request sends.
  static let maximumHeader = 16 << 10
  /// How many files stay in memory. Most lists name one.
  private static let most = 8

  /// Why a file gives no cookies. No message repeats its path or anything in it.
  struct Fault: Error {
    var message: String
  }

  private struct Cookie {
    var domain: String
    var includesHostsBelow: Bool
    var path: String
    var isSecure: Bool
    var pair: String
  }

  private let access: CookieAccess
  private let disk: ListDisk?
  /// The cookies of each file, by their domains.
  private var files: [String: Result<[String: [Cookie]], Fault>] = [:]

  init(_ setup: ListSetup) { (access, disk) = (setup.cookies, setup.disk) }

  /// The value of the Cookie field that the file at `path` gives for `url`; nil if it has no cookie for it.
  func value(of path: String, for url: borrowing URLParser) throws(Fault) -> String? {
    let bytes = url.bytes.span
    let host = bytes.text(url.host).lowercased()
    let place = bytes.text(url.path)
    let isSecure = bytes.hasPrefix("https:")
    let known = try cookies(of: path)
    let fitting = Self.domains(of: host).flatMap { known[$0] ?? [] }.filter { cookie in
      (isSecure || !cookie.isSecure) && (cookie.includesHostsBelow || cookie.domain == host)
        && Self.isBelow(place, cookie.path)
    }
    if fitting.isEmpty { return nil }
    // RFC 6265, section 5.4: the longest path first. The sort is stable.
    let value = fitting.sorted { $0.path.utf8.count > $1.path.utf8.count }.map(\.pair).joined(separator: "; ")
    if value.utf8.count > Self.maximumHeader {
      throw Fault(message: "its cookies for this host have more than \(Self.maximumHeader >> 10) KiB")
    }
    return value
  }

  private func cookies(of path: String) throws(Fault) -> [String: [Cookie]] {
    if let known = files[path] { return try known.get() }
    if files.count == Self.most { files = [:] }
    let result: Result<[String: [Cookie]], Fault>
    do throws(Fault) { result = .success(try disk.call { () throws(Fault) in try read(path) }) } catch {
      result = .failure(error)
    }
    files[path] = result
    return try result.get()
  }

  private func read(_ path: String) throws(Fault) -> [String: [Cookie]] {
    var whole = path
    switch access {
    case .none(let reason): throw Fault(message: reason.rawValue)
    case .files(let folder):
      if !path.hasPrefix("/") {
        guard let folder else { throw Fault(message: "a list that is no file needs an absolute path") }
        whole = folder + "/" + path
      }
    }
    var bytes: [UInt8] = []
    let count: Int
    do throws(PlainFileError) {
      let file = try FileDescriptor.openPlain(whole)
      var failure: Errno?
      do throws(Errno) {
        // One more than it has, to notice that it grows beyond what is read.
        bytes = [UInt8](repeating: 0, count: min(Int(try file.status().st_size), Self.maximumBytes) + 1)
      } catch { throw .system(error) }
      count = bytes.withUnsafeMutableBytes { buffer in
        do throws(Errno) { return try file.readFully(at: 0, into: buffer) } catch {
          failure = error
          return 0
        }
      }
      if let failure { throw .system(failure) }
    } catch {
      throw Fault(message: "the file cannot be read: \(error)")
    }
    if count > Self.maximumBytes { throw Fault(message: "the file has more than \(Self.maximumBytes >> 20) MiB") }
    let lines = bytes[..<count].split { $0 == 0x0A || $0 == 0x0D }
    let all = lines.compactMap { Self.fields(of: $0) }
    if all.isEmpty {
      throw Fault(message: "the file has no cookie in Netscape's format (one a line, 7 fields with TABs)")
    }
    let now = Int64(time(nil))
    return Dictionary(grouping: all.compactMap { Self.cookie(of: $0, now) }, by: \.domain)
  }

  /// The seven fields of a line; nil for a comment, or for anything else.
  private static func fields(of line: ArraySlice<UInt8>) -> [String]? {
    var text = line
    if text.starts(with: "#HttpOnly_".utf8) { text = text.dropFirst("#HttpOnly_".utf8.count) }
    if text.first == 0x23 { return nil }
    let fields = text.split(separator: 0x09, maxSplits: 6, omittingEmptySubsequences: false)
    // A control character could smuggle in a second header field.
    guard fields.count == 7, !fields[0].isEmpty, !text.contains(where: { $0.isControl && $0 != 0x09 }),
      !fields[6].contains(0x09)
    else { return nil }
    return fields.map { String(decoding: $0, as: UTF8.self) }
  }

  /// The cookie, unless it is over.
  private static func cookie(of fields: [String], _ now: Int64) -> Cookie? {
    let isDotted = fields[0].hasPrefix(".")
    let end = Double(fields[4]) ?? 0
    if end > 0, end < Double(now) { return nil }
    return Cookie(
      domain: (isDotted ? String(fields[0].dropFirst()) : fields[0]).lowercased(),
      includesHostsBelow: isDotted || fields[1].uppercased() == "TRUE", path: fields[2],
      isSecure: fields[3].uppercased() == "TRUE", pair: fields[5].isEmpty ? fields[6] : "\(fields[5])=\(fields[6])")
  }

  /// The host, and the domains that it is in. An address is in none.
  private static func domains(of host: String) -> [String] {
    if host.hasPrefix("[") || host.allSatisfy({ $0.isNumber || $0 == "." }) { return [host] }
    let labels = host.split(separator: ".")
    return labels.indices.suffix(127).map { labels[$0...].joined(separator: ".") }
  }

  /// RFC 6265, section 5.1.4.
  private static func isBelow(_ path: String, _ folder: String) -> Bool {
    if folder.isEmpty || folder == "/" || path == folder { return true }
    return path.hasPrefix(folder.hasSuffix("/") ? folder : folder + "/")
  }
}
