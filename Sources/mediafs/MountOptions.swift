import Glibc
import Server

/// The options of one `mediafs mount`: those of the server, and those of the mount helper alone.
struct MountOptions {
  /// The server's options.
  var request = MountRequest(mountpoint: "", manifest: "")
  /// The descriptor that is read for a manifest of `-`.
  var input = STDIN_FILENO
  /// The user whom the server runs as; nil for the caller.
  var user: String?
  /// The source that the mount table shows; nil for the manifest.
  var sourceName: String?
  /// The values of `header`, in order. The command reads header files after it has parsed every option, because a
  /// later `user=` decides with whose rights.
  var headers: [String] = []
  /// Options for the kernel and libfuse, as given.
  var kernelOptions: [String] = []
  /// How many lists came without a folder.
  var unnamedLists = 0
  /// Whether a service manager starts the mount, and keeps it (docs/SERVICE.md).
  var isService = false
  /// Whether the options are only checked.
  var isCheck = false
  /// Whether unknown `-o` options are ignored (mount -s).
  var sloppy = false

  /// Options of mount(8) and fstab(5) that mediafs accepts and ignores. The mount is always read-only.
  private static let ignored: Set<String> = [
    "ro", "defaults", "auto", "noauto", "nofail", "_netdev", "nouser", "users", "nousers", "owner", "noowner",
    "group", "nogroup", "auto_unmount", "default_permissions", "subtype", "sync", "async", "dirsync", "mand", "nomand",
    "silent", "loud", "iversion", "noiversion", "lazytime", "nolazytime", "comment", "helper", "uhelper",
  ]

  /// Options that libfuse gets unchanged.
  private static let kernel: Set<String> = [
    "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "diratime", "nodiratime", "relatime",
    "norelatime", "strictatime", "nostrictatime",
  ]

  /// SELinux labels, which libfuse gets with their value.
  private static let labels: Set<String> = ["context", "fscontext", "defcontext", "rootcontext"]

  /// One option of the command line, or of `-o` (`isMountOption`).
  mutating func take(_ name: String, _ value: String?, isMountOption: Bool) throws(CommandError) {
    let option = MountOption.named(name)
    guard let option, isMountOption ? option.isMountOption : option.isOnCommandLine else {
      if isMountOption { try takeMountOption(name, value) }
      return
    }
    // Without a value, `user` is the option of fstab(5) that lets users mount.
    if name == MountOption.userName, value == nil { return }
    if option.readsFile, let value {
      headers.append(value)
      if value.hasPrefix("@") { return }
      var checked = request  // reports wrong usage before any other error
      return try take(option, value, &checked)
    }
    let named = request.named.count
    try take(option, value, &request)
    if name == "manifest", request.named.count == named { unnamedLists += 1 }
    if name == MountOption.userName { user = value }
    if name == MountOption.sourceName { sourceName = value }
    if name == MountOption.checkName { isCheck = true }
    if name == MountOption.serviceName {
      isService = true
      request.foreground = true
    }
  }

  private func take(
    _ option: MountOption, _ value: String?, _ request: inout MountRequest
  ) throws(CommandError) {
    do throws(MountOptionError) { try option.take(value, into: &request) } catch { throw CommandError(error) }
  }

  private mutating func takeMountOption(_ name: String, _ value: String?) throws(CommandError) {
    switch name {
    case "rw":
      throw .usage("a mount of mediafs is read-only: remove the option rw")
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

  /// Splits a `-o` list as libfuse does: at commas. A backslash makes the next character part of the value.
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

  /// Escapes a value for a `-o` list. Works on scalars: to libfuse, a comma is a comma even if a combining accent
  /// follows it.
  static func escaped(_ value: String) -> String {
    var result = String.UnicodeScalarView()
    for scalar in value.unicodeScalars {
      if scalar == "\\" || scalar == "," { result.append("\\") }
      result.append(scalar)
    }
    return String(result)
  }

  /// The mount options for libfuse.
  ///
  /// With `default_permissions`, the kernel checks the modes itself and does not ask the server for each access. With
  /// `max_read`, the kernel splits its read-ahead into requests that a slow line can answer one by one.
  ///
  /// An ordinary user's mount is writable for the kernel, so that programs that watch it can be told of changes; the
  /// server refuses every write. There the kernel must not check modes: it would say EACCES where the server says
  /// EROFS. Where a umask takes rights to read away, the kernel has to, and the mount is as root's.
  var libfuseOptions: String {
    let isRoot = geteuid() == 0 || (request.access.umask ?? 0) & 0o555 != 0
    var options = isRoot ? ["ro", "default_permissions"] : ["rw"]
    options += ["subtype=mediafs", "max_read=65536"]
    let source = sourceName ?? (request.readsStandardInput ? "mediafs" : request.listName)
    options.append("fsname=\(Self.escaped(source))")
    if request.access.allowOther { options.append("allow_other") }
    return (options + kernelOptions).joined(separator: ",")
  }
}
