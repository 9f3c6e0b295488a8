import Base
import Glibc
import Server

/// What `mediafs mount` was asked for: the server's options, and what concerns the mount helper alone.
struct MountOptions {
  /// The server's options.
  var request = MountRequest(mountpoint: "", manifest: "")
  /// Who the server is to be; nil for the caller.
  var user: String?
  /// The source that the mount table shows; nil for the manifest.
  var sourceName: String?
  /// The values of `header`, in order: read when it is known who the server is to be.
  var headers: [String] = []
  /// Options for the kernel and libfuse, as given.
  var kernelOptions: [String] = []
  /// Whether unknown `-o` options are passed over (mount -s).
  var sloppy = false

  /// The options that stand under their own names on the command line; `-o` takes those with `alsoMountOption`.
  static let own: [(option: Option, alsoMountOption: Bool)] = [
    (.value("manifest"), false), (.value("base-url"), true), (.value("store"), true), (.value("library"), true),
    (.value("continue"), true),
    (.value("timeout"), true), (.value("header"), true), (.value("cacert"), true), (.value("netrc-file"), true),
    (.value("log-file"), true), (.value("max-size"), true), (.value("min-free"), true),
    (.value("limit-rate"), true), (.value("max-connections"), true), (.flag("strict"), true),
    (.flag("foreground"), true), (.flag("verbose", "v"), true),
  ]

  /// What mount(8) passes on or fstab says, and what changes nothing here (the mount is read-only at all times).
  private static let ignored: Set<String> = [
    "ro", "defaults", "auto", "noauto", "nofail", "_netdev", "nouser", "users", "nousers", "owner", "noowner",
    "group", "nogroup", "auto_unmount", "default_permissions", "subtype", "sync", "async", "dirsync", "mand", "nomand",
    "silent", "loud", "iversion", "noiversion", "lazytime", "nolazytime", "comment", "helper", "uhelper",
  ]

  /// Handed to libfuse as they are.
  private static let kernel: Set<String> = [
    "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "diratime", "nodiratime", "relatime",
    "norelatime", "strictatime", "nostrictatime",
  ]

  /// SELinux labels: handed on with their value.
  private static let labels: Set<String> = ["context", "fscontext", "defcontext", "rootcontext"]

  /// One option of the command line, or of `-o` (`isMountOption`).
  mutating func take(_ name: String, _ value: String?, isMountOption: Bool) throws(CommandError) {
    let own = Self.own.first { $0.option.name == name && (!isMountOption || $0.alsoMountOption) }
    if let own {
      if own.option.argument == .required, value == nil { throw .usage("the option \(name) needs a value") }
      if own.option.argument == .none, value != nil { throw .usage("the option \(name) takes no value") }
      try takeOwn(name, value ?? "")
    } else if isMountOption {
      try takeMountOption(name, value)
    }
  }

  private mutating func takeOwn(_ name: String, _ value: String) throws(CommandError) {
    switch name {
    case "manifest": request.manifest = value == "-" ? value : try Files.absolute(value)
    case "base-url": request.baseURL = value
    case "store": request.store = try Files.absolute(value)
    case "library": request.library = try Files.absolute(value)
    case "cacert": request.certificateFile = try Files.absolute(value)
    case "netrc-file": request.netrcFile = try Files.absolute(value)
    case "log-file": request.logFile = try Files.absolute(value)
    case "header":
      if !value.hasPrefix("@") { _ = try Secrets.headers(value) }  // wrong usage is told first of all
      headers.append(value)
    case "continue":
      guard let policy = MountRequest.Continuation(rawValue: value) else {
        throw .usage("--continue is one of playing, always, open, never, not \(value)")
      }
      request.continuation = policy
    case "timeout":
      guard let seconds = Double(value), seconds >= 1, seconds <= 86_400 else {
        throw .usage("--timeout is a number of seconds from 1 to 86400, not \(value)")
      }
      request.timeout = seconds
    case "max-connections":
      guard let count = Int(value), (1...1024).contains(count) else {
        throw .usage("--max-connections is a number from 1 to 1024, not \(value)")
      }
      request.maxConnections = count
    case "max-size": request.maxSize = try size(name, value)
    case "min-free": request.minFree = try size(name, value)
    case "limit-rate":
      let rate = try size(name, value)
      if rate == 0 { throw .usage("--limit-rate must be more than 0") }
      request.limitRate = rate
    case "strict": request.strict = true
    case "foreground": request.foreground = true
    case "verbose": request.verbosity += 1
    default: throw .usage("unknown option --\(name)")
    }
  }

  private func size(_ name: String, _ value: String) throws(CommandError) -> Int64 {
    if let bytes = ByteSize.parse(value) { return bytes }
    throw .usage("--\(name) is a size such as 500M or 1.5GiB, not \(value)")
  }

  private mutating func takeMountOption(_ name: String, _ value: String?) throws(CommandError) {
    switch name {
    case "allow_other": request.allowOther = true
    case "uid": request.uid = try owner(name, value) { getpwnam($0)?.pointee.pw_uid }
    case "gid": request.gid = try owner(name, value) { getgrnam($0)?.pointee.gr_gid }
    case "umask":
      guard let bits = value.flatMap({ UInt32($0, radix: 8) }), bits <= 0o777 else {
        throw .usage("umask= is an octal number up to 777")
      }
      request.umask = bits
    case "user": user = value  // without a value it is fstab's, about who may mount
    case "fsname": sourceName = value
    case "rw":
      throw .usage("a mount of mediafs is read-only: leave rw away")
    case "remount":
      throw .failed("a mount of mediafs cannot be changed: unmount it and mount it again with the new options")
    default:
      if Self.kernel.contains(name), value == nil {
        kernelOptions.append(name)
      } else if Self.labels.contains(name), let value {
        kernelOptions.append("\(name)=\(Self.escaped(value))")
      } else if !Self.ignored.contains(name), !name.hasPrefix("x-"), !name.hasPrefix("X-"), !sloppy {
        throw .usage("unknown mount option \(name)")
      }
    }
  }

  private func owner(
    _ name: String, _ value: String?, _ lookUp: (String) -> UInt32?
  ) throws(CommandError) -> UInt32 {
    guard let value, !value.isEmpty else { throw .usage("the option \(name) needs a value") }
    if let number = UInt32(value) { return number }
    guard let number = lookUp(value) else { throw .failed("\(name)=\(value): there is no such name on this machine") }
    return number
  }

  /// The options in a `-o` list, as libfuse splits it: at commas, where a backslash takes the next character as it is.
  static func split(_ list: String) -> [(name: String, value: String?)] {
    var words: [[UInt8]] = [[]]
    var isEscaped = false
    for byte in list.utf8 {
      if isEscaped {
        words[words.count - 1].append(byte)
        isEscaped = false
      } else if byte == UInt8(ascii: "\\") {
        isEscaped = true
      } else if byte == UInt8(ascii: ",") {
        words.append([])
      } else {
        words[words.count - 1].append(byte)
      }
    }
    return words.filter { !$0.isEmpty }.map { word in
      let text = String(decoding: word, as: UTF8.self)
      guard let equals = text.firstIndex(of: "=") else { return (text, nil) }
      return (String(text[..<equals]), String(text[text.index(after: equals)...]))
    }
  }

  /// A value as it stands in a `-o` list. By scalars: a comma with a combining accent behind it is a comma to libfuse.
  static func escaped(_ value: String) -> String {
    var result = String.UnicodeScalarView()
    for scalar in value.unicodeScalars {
      if scalar == "\\" || scalar == "," { result.append("\\") }
      result.append(scalar)
    }
    return String(result)
  }

  /// What libfuse gets.
  ///
  /// `default_permissions` always: the kernel then checks the modes itself, instead of asking us for each access.
  /// `max_read` splits what the kernel reads ahead into requests that a slow line can answer one by one.
  var libfuseOptions: String {
    var options = ["ro", "subtype=mediafs", "default_permissions", "max_read=65536"]
    let source = sourceName ?? (request.readsStandardInput ? "mediafs" : request.manifest)
    options.append("fsname=\(Self.escaped(source))")
    if request.allowOther { options.append("allow_other") }
    return (options + kernelOptions).joined(separator: ",")
  }
}
