import Base
import CSystem
import Glibc
import Server
import Storing

/// What mediafs needs of a machine, whatever is mounted.
enum MachineChecks {
  static var all: [Check] {
    [
      Check(name: "/dev/fuse") { [device()] },
      Check(name: "the programs") { programs() },
      Check(name: "/etc/fuse.conf") { allowOther() },
      Check(name: "/etc/mtab") { [table()] },
      Check(name: "the kernel") { kernel() },
      Check(name: "the clock") { [clock(time(nil))] },
      Check(name: "the limits") { [descriptors(), inotify()] },
      Check(name: "the names of hosts") { [names()] },
      Check(name: "the certificates") { [certificates()] },
      Check(name: "the proxies") { proxies() },
      Check(name: "the folder of new stores") { newStores() },
    ]
  }

  // MARK: - Mounting

  static func device() -> Finding {
    let device = open("/dev/fuse", O_RDWR | O_CLOEXEC)
    let error = Errno.current
    if device >= 0 {
      defer { close(device) }
      var status = stat()
      // The number of the kernel's own device: major 10, minor 229 (Documentation/admin-guide/devices.txt).
      guard fstat(device, &status) == 0, status.st_mode & S_IFMT == S_IFCHR, status.st_rdev == 10 << 8 | 229 else {
        return .problem(
          "/dev/fuse is not the FUSE device: nothing can be mounted.",
          toDo: "rm /dev/fuse; mknod -m 666 /dev/fuse c 10 229, as root")
      }
      return .ok("/dev/fuse can be opened.")
    }
    switch error {
    case .notFound:
      return .problem(
        "There is no /dev/fuse: nothing can be mounted.",
        toDo: "load the module (modprobe fuse); give a container the device (docker run --device /dev/fuse)")
    case .accessDenied:
      return .problem(
        "/dev/fuse may not be opened by you: you cannot mount.",
        toDo: "chmod 666 /dev/fuse as root, which is its usual mode, or join the group that it belongs to")
    default:
      return .problem(
        "/dev/fuse cannot be opened (\(error)): nothing can be mounted.",
        toDo: "load the module (modprobe fuse); a container needs the device and the right to use it")
    }
  }

  static func programs() -> [Finding] {
    var findings: [Finding] = []
    if let folder = Files.programFolder()?.folder {
      do throws(CommandError) {
        findings.append(.ok("The mount helper is \(try MountCommand.findHelper(folder))."))
      } catch {
        findings.append(.problem("The mount helper is missing: nothing can be mounted.", toDo: "install mediafs anew"))
      }
    }
    if geteuid() == 0 { return findings }  // root mounts without it
    let folders = (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":") + ["/usr/bin", "/bin"]
    let places: [String] = folders.map { "\($0)/fusermount3" }
    var status = stat()
    guard let program = places.first(where: { stat($0, &status) == 0 }) else {
      findings.append(
        .problem("fusermount3 is missing: only root can mount.", toDo: "install the package fuse3 as root"))
      return findings
    }
    if let why = whyRightsAreNotGained(program) {
      findings.append(.problem("\(program) cannot mount: \(why).", toDo: "mount outside of this sandbox, or as root"))
      return findings
    }
    let isSetuid = status.st_mode & S_ISUID != 0 && status.st_uid == 0
    findings.append(
      isSetuid && access(program, X_OK) == 0
        ? .ok("\(program) lets you mount.")
        : .problem(
          "\(program) is not setuid root, or not for you: only root can mount.",
          toDo: "install the package fuse3 again as root; some sandboxes and containers forbid setuid programs"))
    return findings
  }

  /// Why a setuid program gives this process no rights; nil: it does.
  private static func whyRightsAreNotGained(_ program: String) -> String? {
    let text = (try? Files.read("/proc/self/status", limit: 1 << 16)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    let words = text.split(separator: "\n").first { $0.hasPrefix("NoNewPrivs:") }?.split(whereSeparator: \.isWhitespace)
    if words?.last == "1" { return "this process may not gain rights (NoNewPrivileges)" }
    var disk = statvfs()
    let nosuid: UInt = 2  // ST_NOSUID of statvfs(3), which Glibc does not show
    if statvfs(program, &disk) == 0, disk.f_flag & nosuid != 0 { return "its disk is mounted nosuid" }
    return nil
  }

  static func allowOther() -> [Finding] {
    if geteuid() == 0 { return [] }
    let text = (try? Files.read("/etc/fuse.conf", limit: 1 << 20)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    let isSet = text.split(separator: "\n").contains { line in
      line.prefix { $0 != "#" }.split(whereSeparator: \.isWhitespace) == ["user_allow_other"]
    }
    return [
      isSet
        ? .ok("/etc/fuse.conf lets you mount for other users (-o allow_other).")
        : .note(
          "You cannot mount for other users (-o allow_other): root's programs and servers that run as other users "
            + "cannot read your mounts.",
          toDo: "if they are to, write the line user_allow_other into /etc/fuse.conf as root")
    ]
  }

  static func table() -> Finding {
    var status = stat()
    if lstat("/etc/mtab", &status) != 0 {
      return .note(
        "/etc/mtab is missing: 'fusermount3 -u' fails. 'mediafs unmount' works.",
        toDo: "ln -s ../proc/self/mounts /etc/mtab, as root")
    }
    if status.st_mode & S_IFMT != S_IFLNK {
      return .note(
        "/etc/mtab is a file of its own, not a link to the kernel's table: it may tell of mounts that are gone.",
        toDo: "ln -sf ../proc/self/mounts /etc/mtab, as root")
    }
    return .ok("/etc/mtab is the kernel's table of mounts.")
  }

  static func kernel() -> [Finding] {
    let features = KernelFeatures.find()
    var findings: [Finding] = [.ok("The kernel is \(features.release).")]
    switch features.passthrough {
    case .success(true):
      findings.append(.ok("The kernel reads complete files by itself, at the disk's speed (FUSE passthrough)."))
    case .success(false):
      findings.append(
        .note(
          "The kernel has no FUSE passthrough: complete files are read through the server, slower than from the disk.",
          toDo: "Linux 6.9 or later has it"))
    case .failure: break  // the device's own check says why
    }
    if !features.hasUniqueMountIDs {
      findings.append(
        .note(
          "The kernel has no unique mount ids: after a store's disk was unplugged, up to 30 s of stored data may be "
            + "fetched again.", toDo: "Linux 6.8 or later has them"))
    }
    switch features.landlock {
    case .success(let version) where version >= KernelFeatures.leastLandlock:
      findings.append(.ok("Landlock (version \(version)) can restrict the server of a mount with user=NAME."))
    case .success(let version):
      findings.append(unrestricted("version \(version)"))
    case .failure(let error):
      findings.append(unrestricted("\(error)"))
    }
    return findings
  }

  private static func unrestricted(_ why: String) -> Finding {
    .note(
      "Landlock is missing (\(why)): the server of a mount with user=NAME has all files of its user.",
      toDo: "Linux 5.19 or later has it, if 'landlock' is among the kernel's lsm= modules")
  }

  // MARK: - Time and limits

  static func clock(_ seconds: Int) -> Finding {
    if seconds < 1_704_067_200 {
      return .problem(
        "The clock stands before 2024: certificates seem to be not valid yet, and https fails.",
        toDo: "set the clock (timedatectl set-ntp true, or date -s)")
    }
    return .ok("The clock is past 2024.")
  }

  static func descriptors() -> Finding {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    let most = UInt64(limit.rlim_max)
    if most < MediafsServer.enoughDescriptors {
      return .problem(
        "A server started here can open only \(most) files at once, and reads beyond that fail.",
        toDo: "raise the hard limit (ulimit -Hn, /etc/security/limits.conf, or LimitNOFILE= of a systemd unit)")
    }
    return .ok("A server can open enough files (\(most >= UInt64(Int64.max) ? "no limit" : "\(most)")).")
  }

  static func inotify() -> Finding {
    let descriptor = inotify_init1(Int32(IN_CLOEXEC))
    let error = Errno.current
    guard descriptor >= 0 else {
      return .note(
        "No program of yours can begin to watch files (inotify: \(error)): an edited list shows some seconds late.",
        toDo: "raise the limit as root: sysctl fs.inotify.max_user_instances=1024")
    }
    defer { close(descriptor) }
    if inotify_add_watch(descriptor, "/", UInt32(IN_MODIFY)) < 0, Errno.current == .noSpace {
      return .note(
        "You have as many watches of files as the kernel allows: an edited list shows some seconds late, and media "
          + "servers miss changes of the mount.",
        toDo: "raise the limit as root: sysctl fs.inotify.max_user_watches=524288")
    }
    return .ok("Files can be watched (inotify).")
  }

  // MARK: - Network

  static func names() -> Finding {
    func words(_ path: String) -> [[Substring]] {
      let text = (try? Files.read(path, limit: 1 << 20)).map { String(decoding: $0, as: UTF8.self) } ?? ""
      return text.split(separator: "\n").map { line in
        line.prefix { $0 != "#" && $0 != ";" }.split(whereSeparator: \.isWhitespace)
      }
    }
    let servers = words("/etc/resolv.conf").filter { $0.first == "nameserver" && $0.count > 1 }.map { $0[1] }
    if !servers.isEmpty { return .ok("Names of hosts are looked up at \(servers.joined(separator: ", ")).") }
    if words("/etc/nsswitch.conf").contains(where: { $0.first == "hosts:" && $0.contains("resolve") }) {
      return .ok("Names of hosts are looked up by systemd-resolved.")
    }
    return .problem(
      "/etc/resolv.conf names no name server: only hosts in /etc/hosts and plain addresses can be reached.",
      toDo: "connect to the network, or write 'nameserver ADDRESS' into /etc/resolv.conf as root")
  }

  static func certificates() -> Finding {
    let file = "/etc/ssl/certs/ca-certificates.crt"
    if access(file, R_OK) == 0 { return .ok("The certificates of \(file) are trusted.") }
    return .problem(
      "\(file) cannot be read (\(Errno.current)): https fails.",
      toDo: "install the package ca-certificates as root, or name a file of your own (mount --cacert FILE)")
  }

  /// For mounts that are started from here.
  static func proxies() -> [Finding] {
    let set = proxies { name in getenv(name).map { String(cString: $0) } }
    if set.isEmpty { return [.ok("No proxy is set.")] }
    return [
      .note(
        "A mount that is started from here asks through a proxy: \(set).",
        toDo: "unset the variable if that is not meant")
    ]
  }

  /// The variables that libcurl reads, of an environment; empty without any.
  static func proxies(_ value: (String) -> String?) -> String {
    ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"].compactMap { name in
      value(name).flatMap { $0.isEmpty ? nil : "\(name)=\(withoutLogin($0))" }
    }.joined(separator: ", ")
  }

  /// A proxy's URL without user name and password.
  private static func withoutLogin(_ proxy: String) -> String {
    guard let at = proxy.lastIndex(of: "@") else { return proxy }
    let scheme = proxy.firstRange(of: "://").map { String(proxy[..<$0.upperBound]) } ?? ""
    return scheme + proxy[proxy.index(after: at)...]
  }

  // MARK: - Disk

  static func newStores() -> [Finding] {
    do throws(StoreError) {
      return DiskChecks.folder(Files.split(try MountSelection.registry().writableFolder).folder, of: "new stores")
    } catch {
      return [.problem("\(error.message).", toDo: "set HOME or XDG_DATA_HOME, or name a folder (mount --store DIR)")]
    }
  }
}
