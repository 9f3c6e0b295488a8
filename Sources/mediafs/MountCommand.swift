import Base
import CSystem
import Glibc
import Server

/// `mediafs mount`: parses and checks its arguments, then replaces itself by the mount helper, which mounts and starts
/// the server (mount-helper/PROTOCOL.md).
enum MountCommand {
  static let help = CommandHelp(
    synopsis: [
      "mount MOUNTPOINT --manifest FILE [OPTION...]", "mount FILE MOUNTPOINT [OPTION...]",
      "mount --config NAME [OPTION...]",
    ],
    summary: "Mount a list of URLs as a folder of files",
    about: [
      """
      Mounts the files that the list in FILE names. Returns when the mount is ready; the server runs on in the \
      background until the mount is unmounted.
      """
    ],
    operands: [("MOUNTPOINT", "An empty folder. mount creates it if it does not exist.")],
    groups: MountOption.Group.allCases.filter { $0 != .mount }.map { group in
      let options = MountOption.all.filter { $0.group == group }.map(Option.init)
      return (group.rawValue, options + (group == .server ? [mountOptions] : []))
    },
    sections: [CommandHelp.Section(title: MountOption.Group.mount.rawValue, items: mountOptionItems)],
    notes: ["A SIZE is a number of bytes, or has a unit in steps of 1024: 500M, 1.5GiB."],
    status: "0 mounted (with --foreground: unmounted cleanly), 1 failed, 2 wrong usage.")

  private static let mountOptions = Option.value(
    "options", "o", of: "OPTIONS", help: "Mount options, separated by commas; see below.")

  private static var mountOptionItems: [(typed: String, does: String, lines: [String])] {
    MountOption.all.filter { $0.group == .mount }.map {
      ("\($0.name)\($0.argument.map { "=\($0)" } ?? "")", $0.helpText, [])
    } + [
      ("nosuid, nodev, ...", "The usual options of mount(8) and fstab(5).", []),
      ("store=DIR, ...", "The options above, under their long names. Write a comma in a value as \\,", []),
    ]
  }

  static func run(_ arguments: [String]) -> Int32 {
    return OptionParser.run("mount", arguments, help, hidden: [.flag("sloppy")]) { parsed throws(CommandError) in
      let lists = (parsed.values("manifest") + parsed.operands).filter { $0.contains("://") }
      Secrets.hideArguments(parsed.values("header") + parsed.values("base-url") + lists)
      do throws(CommandError) {
        let (mount, mountpoint) = try self.options(parsed)
        if mount.isCheck { return ExitCode.done }
        return try exec(mount, mountpoint)
      } catch {
        if parsed.has(MountOption.serviceName), ServiceManager.keepsMount { endKept(after: error) }
        throw error
      }
    }
  }

  /// The options and the mountpoint, checked as far as the command can without the server.
  static func options(_ parsed: ParsedOptions) throws(CommandError) -> (MountOptions, Mountpoint) {
    var mount = MountOptions()
    mount.sloppy = parsed.has("sloppy")
    let given = parsed.options.flatMap { (name, value) -> [(name: String, value: String?, isMountOption: Bool)] in
      if name != "options" { return [(name, value, false)] }
      return MountOptions.split(value ?? "").map { ($0.name, $0.value, true) }
    }
    var operands = parsed.operands[...]
    var listed: String?
    if operands.count == 2, !given.contains(where: { $0.name == "manifest" }) { listed = operands.removeFirst() }
    var named: String?
    if let name = parsed.value(MountOption.configName) {
      let overridden = Set(given.map(\.name) + (listed == nil ? [] : ["manifest"]))
      named = try MountConfiguration.named(name).apply(to: &mount, overridden: overridden)
    }
    for option in given { try mount.take(option.name, option.value, isMountOption: option.isMountOption) }
    if let listed { try mount.take("manifest", listed, isMountOption: false) }
    guard let folder = operands.first ?? named else { throw .usage("MOUNTPOINT is missing: name an empty folder") }
    if operands.count > 1 { throw .usage("mount takes one MOUNTPOINT, not also \(operands.last ?? "")") }
    if mount.request.allLists.isEmpty { throw .usage("--manifest is missing: name the file with the list of URLs") }
    if !mount.request.manifest.isEmpty, let descriptor = Files.ownDescriptor(mount.request.manifest) {
      // Before the command opens anything, which could get the same number.
      guard csystem_fcntl(descriptor, F_GETFD, 0) >= 0 else {
        throw .failed("cannot read the list \(mount.request.manifest): \(Errno.current)")
      }
      // The server does not inherit the descriptor: the command reads the list.
      mount.input = descriptor
      mount.request.manifest = "-"
    }
    if mount.unnamedLists > 1 {
      throw .usage("--manifest is given twice without a name: give each list but one its folder (NAME=FILE)")
    }
    if let conflict = NamedList.conflict(of: mount.request.named) { throw .usage(conflict) }
    let names = mount.request.resolvers.map(\.name)
    if let name = names.indices.first(where: { names[..<$0].contains(names[$0]) }).map({ names[$0] }) {
      throw .usage("--resolver \(name) is given twice")
    }
    if let name = mount.request.resolve, !names.contains(name) {
      throw .usage("--resolve \(name) names no resolver: define it by --resolver \(name)=CMD")
    }
    if mount.request.share.place == nil, mount.request.share != MountRequest(mountpoint: "", manifest: "").share {
      throw .usage("the options --share-… need --share: name the bucket (s3://bucket/prefix)")
    }
    try checkUser(&mount)
    for value in mount.headers { mount.request.origins.headers += try Secrets.headers(value, readBy: mount.user) }

    let mountpoint = try Mountpoint(
      folder, isService: mount.isService && !mount.isCheck,
      kept: mount.isCheck || mount.isService && ServiceManager.keepsMount)
    mount.request.mountpoint = mountpoint.path
    let storage = mount.request.storage
    let kept = [
      ("store", storage.store), ("library", storage.library), ("log file", mount.request.log.file),
      ("metrics file", mount.request.metricsFile),
    ]
    for (what, path) in kept {
      guard let path else { continue }
      if Files.isInside(Files.canonicalWhereItExists(path), mountpoint.path) {
        throw .failed("the \(what) \(path) would be inside the mount: choose a folder outside of \(mountpoint.path)")
      }
    }
    return (mount, mountpoint)
  }

  /// Only root can mount for another user. mount(8) adds `user=` with the caller's own name to a user's mount, which
  /// changes nothing.
  private static func checkUser(_ mount: inout MountOptions) throws(CommandError) {
    guard let name = mount.user else { return }
    guard let entry = getpwnam(name) else { throw .failed("user=\(name): there is no such user on this machine") }
    let uid = entry.pointee.pw_uid
    if uid == geteuid() {
      mount.user = nil
    } else if geteuid() != 0 {
      throw .failed("user=\(name): only root can mount for another user")
    }
  }

  /// Replaces this program by the mount helper; returns only by throwing.
  private static func exec(_ mount: MountOptions, _ mountpoint: Mountpoint) throws(CommandError) -> Int32 {
    guard let (program, folder) = Files.programFolder() else {
      throw .failed("cannot find the path of this program: is /proc mounted?")
    }
    let helper = try findHelper(folder)
    let input = mount.request.readsStandardInput ? try spool(mount.input) : nil
    let options = try memoryFile(of: mount.request)
    var words = [
      "mount-helper", "--mountpoint", mountpoint.path, "--server", program, "--options-fd", "\(options.rawValue)",
      "--watchdog", "\(Int((mount.request.watchdog * 1000).rounded(.up)))", "-o", mount.libfuseOptions,
    ]
    if let file = input { words += ["--input-fd", "\(file)"] }
    if mount.request.needsLauncher { words.append("--launcher") }
    if mount.isService { words.append("--service") }
    if mount.request.foreground { words.append("--foreground") }
    if let user = mount.user { words += ["--user", user] }
    if mountpoint.missing > 0 { words += ["--made-folders", "\(mountpoint.missing)"] }
    words += ["--state", String(repeating: " ", count: MountUsers.stateLength)]  // last, as process lists show it

    try mountpoint.make()
    let argv: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { argv.forEach { free($0) } }
    execv(helper, argv)
    let error = Errno.current
    mountpoint.removeMade()
    throw .failed("cannot run the mount helper \(helper): \(error)")
  }

  /// A service that restarts cannot mount: the mount helper unmounts what the service manager kept, and ends with this
  /// command's status. Returns if there is no helper.
  private static func endKept(after error: CommandError) {
    let status: Int32
    switch error {
    case .usage(let message): status = complain("mount: \(message)", ExitCode.usage)
    case .failed(let message): status = complain(message, ExitCode.failed)
    }
    do throws(CommandError) {
      guard let (_, folder) = Files.programFolder() else { return }
      let words = ["mount-helper", "--give-up", "\(status)"]
      let argv: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
      execv(try findHelper(folder), argv)
    } catch { OptionParser.complain("\(error)") }
  }

  private static func complain(_ message: String, _ status: Int32) -> Int32 {
    OptionParser.complain(message)
    return status
  }

  /// An unnamed file with the options, which may be secret: every user can read the arguments of a process.
  private static func memoryFile(of request: MountRequest) throws(CommandError) -> FileDescriptor {
    let bytes = request.encoded()
    let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
    defer { copy.deallocate() }
    copy.copyBytes(from: bytes)
    do throws(Errno) {
      let file = FileDescriptor(owning: try retrying { csystem_make_memory_file("mediafs options") })
      try file.writeFully(UnsafeRawBufferPointer(copy), at: 0)
      _ = try retrying { csystem_seal_memory_file(file.rawValue) }  // servers of another user get it
      return file
    } catch {
      throw .failed("cannot pass the options to the mount helper: \(error)")
    }
  }

  /// The helper is beside this program after a build, else where `make install` puts it.
  static func findHelper(_ folder: String) throws(CommandError) -> String {
    if let named = getenv("MEDIAFS_HELPER") { return String(cString: named) }
    let places = ["mount-helper", "../libexec/mediafs/mount-helper", "../sbin/mount.mediafs"].map { folder + "/" + $0 }
    guard let found = places.first(where: { access($0, X_OK) == 0 }) else {
      throw .failed("cannot find the mount helper; looked for \(places.joined(separator: ", "))")
    }
    return found
  }

  /// Copies the list from `input` into an unnamed file, which the server reads with pread(2). Returns the descriptor of
  /// the file, which the helper inherits.
  private static func spool(_ input: Int32) throws(CommandError) -> Int32 {
    let folder = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array("\(folder)/mediafs.XXXXXX".utf8CString)
    let descriptor = mkstemp(&template)
    if descriptor < 0 { throw .failed("cannot copy the list to \(folder): \(Errno.current)") }
    unlink(template)
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count: Int
      do throws(Errno) { count = try retrying { read(input, &piece, piece.count) } } catch {
        let name = input == STDIN_FILENO ? "standard input" : "descriptor \(input)"
        throw .failed("cannot read the list from \(name): \(error)")
      }
      if count == 0 { return descriptor }
      do throws(Errno) {
        var written = 0
        while written < count {
          written += try retrying { write(descriptor, Array(piece[written..<count]), count - written) }
        }
      } catch {
        throw .failed("cannot copy the list to \(folder): \(error); set TMPDIR to a folder with more space")
      }
    }
  }
}
