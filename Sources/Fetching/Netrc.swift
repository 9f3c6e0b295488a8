import Base
import Glibc

/// The logins of a netrc file: `machine NAME login USER password PASSWORD`, `default`, `#` comments, and quoted tokens
/// with `\"`, `\\`, `\n`, `\r`, `\t` as in curl. It skips `macdef`s.
///
/// mediafs parses it because libcurl would send the `default` login to whatever host a redirect names.
struct Netrc: Equatable {
  private struct Entry: Equatable {
    var host: String
    var user: String?
    var password: String?
  }

  private var entries: [Entry] = []
  private var fallback: Entry?

  /// The login of the first entry that names `host` (and `user`, if given).
  func login(host: String, user: String? = nil) -> WebURL.Credentials? {
    for entry in entries where entry.host == host {
      if let user, let named = entry.user, named != user { continue }
      if let user = user ?? entry.user { return WebURL.Credentials(user: user, password: entry.password) }
    }
    return nil
  }

  /// The login of the `default` entry.
  var defaultLogin: WebURL.Credentials? {
    fallback.flatMap { entry in entry.user.map { WebURL.Credentials(user: $0, password: entry.password) } }
  }

  /// Parses `text`; skips words that are not keywords.
  init(parsing text: String) {
    var tokens = NetrcTokens(text)
    var current: Entry?
    var isDefault = false
    func finish(_ netrc: inout Netrc) {
      guard let entry = current else { return }
      if isDefault { netrc.fallback = netrc.fallback ?? entry } else { netrc.entries.append(entry) }
    }
    while let word = tokens.next() {
      switch word {
      case "machine":
        finish(&self)
        current = tokens.next().map { Entry(host: $0.lowercased()) }
        isDefault = false
      case "default":
        finish(&self)
        current = Entry(host: "")
        isDefault = true
      case "login": current?.user = tokens.next()
      case "password": current?.password = tokens.next()
      case "account": _ = tokens.next()
      case "macdef": tokens.skipMacro()
      default: break
      }
    }
    finish(&self)
  }
}

/// Splits a netrc file into words.
private struct NetrcTokens {
  private var rest: Substring.UTF8View

  init(_ text: String) { rest = text[...].utf8 }

  mutating func next() -> String? {
    while true {
      rest = rest.drop { $0 == 0x20 || (0x09...0x0D).contains($0) }
      guard rest.first == UInt8(ascii: "#") else { break }
      rest = rest.drop { $0 != 0x0A }
    }
    guard let first = rest.first else { return nil }
    if first == UInt8(ascii: "\"") { return quoted() }
    let word = rest.prefix { $0 != 0x20 && !(0x09...0x0D).contains($0) }
    rest = rest.dropFirst(word.count)
    return String(Substring(word))
  }

  /// A macro's body ends at a blank line.
  mutating func skipMacro() {
    while let byte = rest.popFirst() {
      if byte == 0x0A, rest.first == 0x0A || rest.isEmpty { return }
    }
  }

  private mutating func quoted() -> String {
    var bytes: [UInt8] = []
    rest.removeFirst()
    while let byte = rest.popFirst(), byte != UInt8(ascii: "\"") {
      guard byte == UInt8(ascii: "\\"), let escaped = rest.popFirst() else {
        bytes.append(byte)
        continue
      }
      switch escaped {
      case UInt8(ascii: "n"): bytes.append(0x0A)
      case UInt8(ascii: "r"): bytes.append(0x0D)
      case UInt8(ascii: "t"): bytes.append(0x09)
      default: bytes.append(escaped)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// The netrc file. mediafs reads it again some seconds after it changed, so that a new password needs no new mount.
///
/// Not thread-safe: the loop's thread owns it.
struct NetrcFile {
  /// Real files have a few KiB.
  private static let sizeLimit: Int64 = 1 << 20
  /// How often it is looked at, in seconds: its disk may be slow, and all transfers wait for a look.
  private static let interval = 5.0

  private struct Stamp: Equatable {
    var inode: UInt
    var size: Int
    var seconds: Int
    var nanoseconds: Int
  }

  private let path: String?
  private var stamp: Stamp?
  private var parsed: Netrc?
  private var nextLook = Instant(nanoseconds: 0)

  /// `named` is the file of `--netrc-file`, which must be readable. Without one, ~/.netrc is used if it exists.
  init(named: String?) throws(FetchError) {
    if let named {
      path = named
      do throws(PlainFileError) { _ = try Self.read(named) } catch {
        throw .unreadable(option: "--netrc-file", path: named, reason: error.description)
      }
    } else {
      path = getenv("HOME").map { String(cString: $0) + "/.netrc" }
    }
  }

  /// The logins; nil when there is no file or mediafs cannot read it.
  mutating func logins(now: Instant = .now) -> Netrc? {
    guard let path, now >= nextLook else { return parsed }
    nextLook = now.adding(seconds: Self.interval)
    var status = stat()
    guard stat(path, &status) == 0 else {
      (stamp, parsed) = (nil, nil)
      return nil
    }
    let found = Stamp(
      inode: UInt(status.st_ino), size: status.st_size, seconds: status.st_mtim.tv_sec,
      nanoseconds: status.st_mtim.tv_nsec)
    if found == stamp { return parsed }
    stamp = found
    do throws(PlainFileError) { parsed = Netrc(parsing: try Self.read(path)) } catch {
      parsed = nil
      Log.warning("cannot read the netrc file \(path): \(error); continuing without its logins")
    }
    return parsed
  }

  private static func read(_ path: String) throws(PlainFileError) -> String {
    let file = try FileDescriptor.openPlain(path)
    do throws(Errno) {
      let buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: Int(min(Int64(try file.status().st_size), sizeLimit)), alignment: 1)
      defer { buffer.deallocate() }
      let count = try file.readFully(at: 0, into: buffer)
      return String(decoding: buffer[..<count], as: UTF8.self)
    } catch {
      throw .system(error)
    }
  }
}
