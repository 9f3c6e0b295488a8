import Base
@preconcurrency import Glibc  // environ, which nothing here changes
import Testing

@testable import Server
@testable import mediafs

/// A folder of one test: the programs (where any user can run them), a manifest, and a place to mount at.
final class MountPlace: Sendable {
  let folder: String
  let mountpoint: String
  let manifest: String
  let mediafs: String
  /// Programs that were started and not waited for.
  private let running = Lock<Set<pid_t>>([])

  init() throws {
    var template = Array("/tmp/mediafs-helper.XXXXXX".utf8CString)
    let made = try #require(mkdtemp(&template))
    folder = String(cString: made)
    try #require(chmod(folder, 0o755) == 0)
    mountpoint = folder + "/mnt"
    manifest = folder + "/urls.txt"
    mediafs = folder + "/bin/mediafs"
    try write("http://localhost/a.mp4\n", to: manifest)
    try #require(mkdir(folder + "/bin", 0o755) == 0)
    let built = try #require(Self.builtFolder())
    for program in ["mediafs", "mount-helper"] {
      try #require(link(built + "/" + program, folder + "/bin/" + program) == 0 || copy(built, program))
    }
    try #require(symlink("mount-helper", folder + "/bin/mount.mediafs") == 0)
    for (name, owner) in [("data", 0), ("data-nobody", 65534)] as [(String, uid_t)] {
      try #require(mkdir("\(folder)/\(name)", 0o700) == 0 && chown("\(folder)/\(name)", owner, owner) == 0)
    }
  }

  deinit {
    // What a test that failed left running; a helper in the background is found by its mountpoint.
    for process in running.withLock({ $0 }) {
      Self.end(process)
      var status: Int32 = 0
      waitpid(process, &status, 0)
    }
    while let helper {
      Self.end(helper)
      guard eventually({ self.helper != helper }) else { break }
    }
    if isMounted { _ = try? SystemCalls.run(["umount", "-l", mountpoint]) }
    _ = try? SystemCalls.run(["rm", "-rf", "--one-file-system", folder])
  }

  /// Kills a helper (or a command that has become one, or will) and then its server, which may stand still.
  private static func end(_ process: pid_t) {
    let servers = Processes.children(of: process)
    kill(process, SIGKILL)
    for server in servers { kill(server, SIGKILL) }
  }

  func write(_ text: String, to path: String) throws {
    let file = try FileDescriptor.open(path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
    let bytes = Array(text.utf8)
    #expect(Glibc.write(file.rawValue, bytes, bytes.count) == bytes.count)
  }

  private func copy(_ built: String, _ program: String) -> Bool {
    (try? SystemCalls.run(["cp", built + "/" + program, folder + "/bin/" + program]).status) == 0
  }

  /// Where the build put the programs: above the test bundle, wherever the runner itself lies.
  private static func builtFolder() -> String? {
    let own = CommandLine.arguments.first.flatMap { Files.canonical($0) } ?? ""
    let candidates = [own] + CommandLine.arguments + [Files.canonical("/proc/self/exe") ?? ""]
    return candidates.map { Files.split($0).folder }.first { access($0 + "/mount-helper", X_OK) == 0 }
  }

  var isMounted: Bool { entry != nil }
  var entry: MountTableEntry? { try? MountTable.entry(at: mountpoint) }
  /// The mount helper's process, once the command that started it has returned (or in the foreground).
  var helper: Int32? { MountUsers.helper(of: mountpoint) }
  /// The server below the helper: below its child as long as the command waits for a helper in the background.
  /// fusermount3, which unmounts for an ordinary user, is also a helper's child.
  var server: Int32? {
    var parents = helper.map { [$0] } ?? []
    while let parent = parents.popLast() {
      for child in Processes.children(of: parent) {
        if Processes.text(child, "cmdline").utf8.starts(with: "mediafs\0serve\0".utf8) { return child }
        parents.append(child)
      }
    }
    return nil
  }

  /// Runs `mediafs` to its end.
  func run(_ arguments: String..., user: Bool = false) throws -> (status: Int32, text: String) {
    try wait(start([mediafs] + arguments, user: user))
  }

  /// Starts a program; its output goes to a file of the test's folder.
  func start(_ command: [String], user: Bool = false, input: String = "/dev/null") throws -> Running {
    let output = folder + "/output.\(UInt32.random(in: 0 ... .max))"
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, input, O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0o666)
    posix_spawn_file_actions_adddup2(&actions, 1, 2)
    let switched = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    let data = "XDG_DATA_HOME=\(folder)/\(user ? "data-nobody" : "data")"
    let bare = command.first == "-i"
    let words = ["/usr/bin/env"] + (bare ? [] : [data]) + (user ? switched : []) + command
    let argv: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { argv.forEach { free($0) } }
    var process: pid_t = 0
    let result = posix_spawn(&process, words[0], &actions, nil, argv, environ)
    try #require(result == 0)
    let started = process
    running.withLock { _ = $0.insert(started) }
    return Running(process: process, output: output)
  }

  /// Waits for a program's end: its exit status, or minus the signal that killed it.
  func wait(_ running: Running) throws -> (status: Int32, text: String) {
    var status: Int32 = 0
    let ended = eventually { waitpid(running.process, &status, WNOHANG) == running.process }
    if ended { self.running.withLock { _ = $0.remove(running.process) } }
    try #require(ended, "the process did not end: \(text(running))")
    let code = status & 0x7f == 0 ? (status >> 8) & 0xff : -(status & 0x7f)
    return (code, text(running))
  }

  func text(_ running: Running) -> String {
    String(decoding: (try? Files.read(running.output, limit: 1 << 20)) ?? [], as: UTF8.self)
  }

  /// Starts a foreground mount and waits until it answers.
  func startForeground(_ options: String...) throws -> Running {
    let running = try start(
      [mediafs, "mount", mountpoint, "--manifest", manifest, "--foreground"] + options)
    try #require(eventually { self.text(running).contains("mounted at") }, "\(text(running))")
    return running
  }

  /// A store of nobody's, who has no home.
  var storeOfNobody: String { folder + "/data-nobody/store" }

  /// Leaves a dead mount behind: its server and its helper are gone, and neither could clean up.
  func makeDead() throws {
    let (helper, server) = (try #require(self.helper), try #require(self.server))
    // The helper is the one that stands still: a stopped server would be woken by the kernel when its helper dies (its
    // process group is orphaned then), and might clean up before it is killed too.
    kill(helper, SIGSTOP)
    try #require(eventually { Processes.isStopped(helper) })
    kill(server, SIGKILL)
    try #require(eventually { !Processes.isAlive(server) })
    kill(helper, SIGKILL)
    try #require(eventually { !Processes.isAlive(helper) })
    try #require(isMounted, "no dead mount could be made")
  }

  /// Nothing of the mount is left: no entry in the table, no process.
  func isGone(server: Int32?) -> Bool {
    eventually { !self.isMounted && self.helper == nil && !(server.map { Processes.isAlive($0) } ?? false) }
  }
}

struct Running: Sendable {
  let process: pid_t
  let output: String
}

/// Looks at processes in /proc.
enum Processes {
  /// State letter and parent of a process.
  private static func state(_ process: Int32) -> (letter: String, parent: Int32)? {
    guard let bytes = try? Files.read("/proc/\(process)/stat", limit: 4096) else { return nil }
    let fields = String(decoding: bytes, as: UTF8.self).split(separator: ")").last?.split(separator: " ") ?? []
    return fields.count > 1 ? (String(fields[0]), Int32(fields[1]) ?? 0) : nil
  }

  /// Running: a zombie is not.
  static func isAlive(_ process: Int32) -> Bool { state(process).map { $0.letter != "Z" } ?? false }

  /// Whether every thread of it stands still: SIGSTOP takes a moment.
  static func isStopped(_ process: Int32) -> Bool {
    guard let stream = opendir("/proc/\(process)/task") else { return false }
    defer { closedir(stream) }
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      guard let thread = Int32(name) else { continue }
      let bytes = (try? Files.read("/proc/\(process)/task/\(thread)/stat", limit: 4096)) ?? []
      let fields = String(decoding: bytes, as: UTF8.self).split(separator: ")").last?.split(separator: " ") ?? []
      if fields.first != "T" { return false }
    }
    return true
  }

  /// Whether `signal` waits to be taken by it.
  static func isPending(_ signal: Int32, for process: Int32) -> Bool {
    text(process, "status").split(separator: "\n").contains { line in
      guard line.utf8.starts(with: "ShdPnd:".utf8) else { return false }
      let mask = UInt64(line.dropFirst("ShdPnd:".count).filter { $0 != "\t" }, radix: 16) ?? 0
      return mask & (1 << UInt64(signal - 1)) != 0
    }
  }

  static func all() -> [Int32] {
    guard let stream = opendir("/proc") else { return [] }
    defer { closedir(stream) }
    var found: [Int32] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if let process = Int32(name) { found.append(process) }
    }
    return found
  }

  static func children(of parent: Int32) -> [Int32] {
    all().filter { state($0).map { $0.parent == parent && $0.letter != "Z" } ?? false }
  }

  static func text(_ process: Int32, _ file: String) -> String {
    String(decoding: (try? Files.read("/proc/\(process)/\(file)", limit: 1 << 20)) ?? [], as: UTF8.self)
  }
}

/// Whether `condition` comes true within 20 seconds: long enough for a machine under load, and never a measure of
/// speed.
func eventually(_ condition: () -> Bool) -> Bool {
  let end = Instant.now.adding(seconds: 20)
  while Instant.now < end {
    if condition() { return true }
    usleep(5_000)
  }
  return condition()
}

/// Runs `body` with /dev/fuse as open as a desktop has it.
func withFuseForEveryone(_ body: () throws -> Void) throws {
  // Until the process ends: closing it again would take it from the tests that run beside this one.
  try SharedTraveller.openDevice()
  try body()
}
