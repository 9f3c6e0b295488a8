import Base
import Glibc
import Server

/// The file of `mount --config NAME`: the options of a mount under their long names (docs/SERVICE.md, "The file").
///
/// Root's file decides which programs run as root, so nobody else may be able to write it.
struct MountConfiguration {
  /// One line that gives an option.
  struct Line: Equatable {
    let number: Int
    let name: String
    /// Nil for an option without a value.
    let value: String?
  }

  /// The most bytes that a file may have.
  static let limit = 1 << 20

  /// The file, for messages.
  let path: String
  let lines: [Line]

  /// Reads the file of that name, root's or this user's.
  static func named(_ name: String) throws(CommandError) -> MountConfiguration {
    let allowed = name.utf8.allSatisfy { $0.isNamePart || $0 == UInt8(ascii: ".") }
    guard allowed, let first = name.utf8.first, first != UInt8(ascii: ".") else {
      throw .usage(
        "--config takes the name of a file without .conf, of letters, digits, -, _ and ., not \(TerminalText.plain(name)): "
          + "the files are in \(try folder())")
    }
    return try MountConfiguration(reading: "\(folder())/\(name).conf")
  }

  /// Where the files are: root's for the system, others' in their home.
  static func folder() throws(CommandError) -> String {
    if geteuid() == 0 { return "/etc/mediafs" }
    // A relative path is invalid there (XDG Base Directory Specification).
    if let given = getenv("XDG_CONFIG_HOME").map({ String(cString: $0) }), given.utf8.first == UInt8(ascii: "/") {
      return given + "/mediafs"
    }
    guard let home = home else { throw .failed("--config: HOME is not set, so that ~/.config is not known") }
    return home + "/.config/mediafs"
  }

  private static var home: String? {
    getenv("HOME").map { String(cString: $0) }.flatMap { $0.utf8.first == UInt8(ascii: "/") ? $0 : nil }
      ?? getpwuid(geteuid()).map { String(cString: $0.pointee.pw_dir) }
  }

  /// Reads a file, if only who mounts, or root, can have written it.
  init(reading path: String) throws(CommandError) {
    let bytes: [UInt8]
    do {
      // Nobody waits for a pipe.
      let file = try FileDescriptor.open(path, O_RDONLY | O_NONBLOCK)
      let status = try file.status()
      try Self.check(path, status)
      let size = Int(status.st_size)
      guard size <= Self.limit else { throw Errno(rawValue: EFBIG) }
      let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
      defer { buffer.deallocate() }
      bytes = Array(buffer[..<(try file.readFully(at: 0, into: buffer))])
      if geteuid() == 0 {
        let folder = Files.split(path).folder
        try Self.check(folder, try FileDescriptor.open(folder, O_RDONLY | O_DIRECTORY).status(), isFolder: true)
      }
    } catch let error as Errno {
      throw CommandError.usage("cannot read \(path): \(error)")
    } catch let error as CommandError {
      throw error
    } catch {
      throw .usage("cannot read \(path): \(error)")
    }
    self.path = path
    lines = try Self.parse(bytes, path)
  }

  /// Root's file and its folder: only root may write them. Another user's: that user, their group, or root.
  private static func check(_ path: String, _ status: stat, isFolder: Bool = false) throws(CommandError) {
    guard isFolder || status.st_mode & S_IFMT == S_IFREG else { throw .usage("\(path) is not a plain file") }
    let user = geteuid()
    if status.st_uid != 0, status.st_uid != user {
      throw .usage(
        "\(path) belongs to the user \(status.st_uid), who could have anything mounted: run chown \(user) '\(path)'")
    }
    let strangers: mode_t = user == 0 ? 0o022 : 0o002
    guard status.st_mode & strangers == 0 else {
      throw .usage("other users can write to \(path), and could have anything mounted: run chmod go-w '\(path)'")
    }
  }

  // MARK: The format

  /// The lines that give options, in order.
  static func parse(_ bytes: [UInt8], _ path: String) throws(CommandError) -> [Line] {
    var lines: [Line] = []
    let mark: [UInt8] = [0xEF, 0xBB, 0xBF]  // which some editors put first
    let text = bytes.starts(with: mark) ? bytes[mark.count...] : bytes[...]
    for (index, raw) in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
      let place = "\(path), line \(index + 1)"
      let line = trimmed(raw.last == UInt8(ascii: "\r") ? raw.dropLast() : raw)
      guard let first = line.first, first != UInt8(ascii: "#") else { continue }
      if line.contains(0) { throw .usage("\(place): there is a zero byte") }
      guard String(validating: line, as: UTF8.self) != nil else {
        throw .usage("\(place): this is not text in UTF-8")
      }
      let name = line.prefix { $0.isNamePart }
      let rest = trimmed(line.dropFirst(name.count))
      guard !name.isEmpty, rest.isEmpty || rest.first == UInt8(ascii: "=") else {
        throw .usage("\(place): this is no option: write NAME = VALUE, or NAME alone for an option without a value")
      }
      let value = rest.isEmpty ? nil : try self.value(trimmed(rest.dropFirst()), place)
      lines.append(Line(number: index + 1, name: String(decoding: name, as: UTF8.self), value: value))
    }
    return lines
  }

  /// What stands behind the equals sign: all of it, or what is between quotes.
  private static func value(_ text: ArraySlice<UInt8>, _ place: String) throws(CommandError) -> String {
    let (quote, backslash) = (UInt8(ascii: "\""), UInt8(ascii: "\\"))
    guard let first = text.first else { throw .usage("\(place): the value is missing: write \"\" for an empty one") }
    guard first == quote else { return String(decoding: text, as: UTF8.self) }
    var value: [UInt8] = []
    var rest = text.dropFirst()
    while let byte = rest.popFirst() {
      if byte == quote {
        guard rest.isEmpty else { throw .usage("\(place): there is something behind the closing quote") }
        return String(decoding: value, as: UTF8.self)
      }
      if byte != backslash {
        value.append(byte)
        continue
      }
      guard let next = rest.popFirst(), next == quote || next == backslash else {
        throw .usage("\(place): between quotes, write a backslash as \\\\, and a quote as \\\"")
      }
      value.append(next)
    }
    throw .usage("\(place): the closing quote is missing")
  }

  private static func trimmed(_ text: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
    guard let first = text.firstIndex(where: { !isBlank($0) }), let last = text.lastIndex(where: { !isBlank($0) })
    else { return [] }
    return text[first...last]
  }

  // MARK: The options

  /// Gives the mount these options, but for those in `overridden`, which the command line has. Returns the mountpoint;
  /// nil if the file names none.
  func apply(to mount: inout MountOptions, overridden: Set<String>) throws(CommandError) -> String? {
    var mountpoint: String?
    var first: [String: Int] = [:]
    let here = AbsolutePath.of(".")
    // A relative path is meant from the file's folder. This process has one thread.
    guard chdir(Files.split(path).folder) == 0 else { throw .failed("cannot go to \(path): \(Errno.current)") }
    defer { if let here { _ = chdir(here) } }
    for line in lines {
      do throws(CommandError) {
        let name = line.name == "list" ? "manifest" : line.name
        let option = MountOption.named(name)
        if let before = first.updateValue(line.number, forKey: name), option?.isRepeatable != true {
          throw .usage("\(line.name) is in line \(before) already")
        }
        let value = try line.value.map { (text) throws(CommandError) in try expanded(text, of: name) }
        if name == "mountpoint" {
          guard let value, !value.isEmpty else { throw .usage("the option \(name) needs a value") }
          mountpoint = try Files.absolute(value)
        } else if [MountOption.configName, MountOption.serviceName, MountOption.checkName].contains(name) {
          throw .usage("\(name) is an option for the command line alone")
        } else if !overridden.contains(name) {
          try take(name, value, option, &mount)
        }
      } catch {
        let place = "\(path), line \(line.number): "
        switch error {
        case .usage(let message): throw .usage(place + message)
        case .failed(let message): throw .failed(place + message)
        }
      }
    }
    return mountpoint
  }

  /// The options whose values are paths alone.
  private static let paths = ["mountpoint", "manifest", "store", "library", "log-file", "metrics-file"]

  private func take(
    _ name: String, _ value: String?, _ option: MountOption?, _ mount: inout MountOptions
  ) throws(CommandError) {
    guard let option else { return try mount.take(name, value, isMountOption: true) }
    var value = value
    if option.argument == nil, let word = value {
      guard word == "yes" || word == "no" else { throw .usage("\(name) takes yes or no, not \(word)") }
      if word == "no" { return }
      value = nil
    }
    if option.argument != nil, value == nil { throw .usage("the option \(name) needs a value") }
    if option.readsFile, let text = value, text.utf8.first == UInt8(ascii: "@") {
      value = "@" + (try Files.absolute(String(text.dropFirst())))
    }
    try mount.take(name, value, isMountOption: !option.isOnCommandLine)
  }

  /// The text with the home of who mounts for a tilde: at its start, behind the @ of a file, and behind a list's name.
  private func expanded(_ text: String, of name: String) throws(CommandError) -> String {
    let bytes = Array(text.utf8)
    let start: Int
    if bytes.first == UInt8(ascii: "@") {
      start = 1
    } else if name == "manifest", let equals = bytes.firstIndex(of: UInt8(ascii: "=")),
      !bytes[..<equals].contains(UInt8(ascii: "/"))
    {
      start = equals + 1
    } else {
      start = 0
    }
    guard start < bytes.count, bytes[start] == UInt8(ascii: "~") else { return text }
    guard start + 1 == bytes.count || bytes[start + 1] == UInt8(ascii: "/") else {
      if !Self.paths.contains(name) { return text }
      throw .usage("write the home of another user as a path, not \(text)")
    }
    guard let home = Self.home else { return text }
    return String(decoding: bytes[..<start] + Array(home.utf8) + bytes[(start + 1)...], as: UTF8.self)
  }
}

extension UInt8 {
  /// Whether it may be in the name of an option.
  fileprivate var isNamePart: Bool {
    switch self {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
      true
    default: false
    }
  }
}
