import Base
import CSystem
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// A folder of one test of the helper: the programs side by side, as they are installed (where any user can run them),
/// a manifest, and a place to mount at. ``MountedProgram`` starts them; what is here knows the helper.
final class MountPlace: Sendable {
  private let place: TestSupport.TemporaryFolder
  /// Run as ourselves, and as nobody: each with the user's own data folder, and the default store.
  private let own: MountedProgram
  private let nobodys: MountedProgram
  /// What was started, for the case that a test fails before it has ended.
  private let running = Lock<[BackgroundProcess]>([])

  var folder: String { place.path }
  var mountpoint: String { own.mountpoint }
  var manifest: String { own.manifest }
  var mediafs: String { own.program }

  init() throws {
    place = try TestSupport.TemporaryFolder(open: true)
    try place.makeFolder("bin")
    for program in ["mediafs", "mount-helper"] {
      let (built, here) = (builtProduct(program), place.file("bin/\(program)"))
      if link(built, here) != 0 { try Command.succeed(["cp", built, here]) }
    }
    try #require(symlink("mount-helper", place.file("bin/mount.mediafs")) == 0)
    for (name, owner) in [("data", 0), ("data-nobody", 65534)] as [(String, uid_t)] {
      try place.makeFolder(name)
      try #require(chmod(place.file(name), 0o700) == 0 && chown(place.file(name), owner, owner) == 0)
    }
    let nobody = try #require(TestUser(named: "nobody"))
    own = MountedProgram(in: place, program: place.file("bin/mediafs"))
    nobodys = MountedProgram(
      in: place, program: place.file("bin/mediafs"), environment: ["XDG_DATA_HOME": place.file("data-nobody")],
      user: nobody)
    try write("http://localhost/a.mp4\n", to: manifest)
  }

  deinit {
    // What a test that failed left running; a helper in the background is found by its mountpoint.
    for process in running.withLock({ $0 }) where process.isRunning { Self.end(process.processID) }
    while let helper {
      Self.end(helper)
      guard eventually({ self.helper != helper }) else { break }
    }
    do { try place.remove() } catch { Log.warning("\(error)") }
  }

  /// Kills a helper (or a command that has become one, or will) and then its server, which may stand still.
  private static func end(_ process: pid_t) {
    let servers = Processes.children(of: process)
    kill(process, SIGKILL)
    for server in servers { kill(server, SIGKILL) }
  }

  /// Gives the program a file of its own: the built one has the same file in all places, and who upgrades one mount to
  /// it may upgrade those of other tests.
  func takeOwnProgram() throws {
    try Command.succeed(["cp", builtProduct("mediafs"), mediafs + ".new"])
    try #require(rename(mediafs + ".new", mediafs) == 0)
  }

  func write(_ text: String, to path: String) throws {
    let file = try FileDescriptor.open(path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
    let bytes = Array(text.utf8)
    #expect(Glibc.write(file.rawValue, bytes, bytes.count) == bytes.count)
  }

  var isMounted: Bool { entry != nil }
  var entry: MountTableEntry? { try? MountTable.entry(at: mountpoint) }
  /// The mount helper's process, once the command that started it has returned (or in the foreground).
  var helper: Int32? { MountUsers.anyHelper(of: mountpoint) }
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

  /// Starts a program; with `-i` before it, with no variables at all.
  func start(_ command: [String], user: Bool = false, input: [UInt8]? = nil) throws -> Running {
    let program = user ? nobodys : own
    let started = try BackgroundProcess(
      command.first == "-i" ? ["env"] + command : command, input: input, environment: program.environment,
      user: program.user)
    running.withLock { $0.append(started) }
    return Running(program: started)
  }

  /// Waits for a program's end: its exit status, or minus the signal that killed it.
  func wait(_ running: Running) throws -> (status: Int32, text: String) {
    let end = try #require(running.program.wait(timeout: 120), "the process did not end: \(text(running))")
    return (end.status > 128 ? 128 - end.status : end.status, text(running))
  }

  func text(_ running: Running) -> String {
    running.program.standardOutputSoFar + running.program.standardErrorSoFar
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
    try #require(eventually { isStopped(helper) })
    kill(server, SIGKILL)
    try #require(eventually { !Processes.isAlive(server) })
    kill(helper, SIGKILL)
    try #require(eventually { !Processes.isAlive(helper) })
    try #require(isMounted, "no dead mount could be made")
    // A thread of the server may end later than the first one, and the mount lives as long as it.
    try #require(eventually { csystem_is_dead_mount(mountpoint) == 1 }, "the mount is not dead")
  }

  /// Nothing of the mount is left: no entry in the table, no process.
  func isGone(server: Int32?) -> Bool {
    eventually { !self.isMounted && self.helper == nil && !(server.map { Processes.isAlive($0) } ?? false) }
  }
}

/// Root's own folder for records, /var/lib/mediafs, which all tests that run as root have in common: root's commands
/// without a MOUNTPOINT look there too, wherever the test's other records are.
enum SystemRecords {
  private static let users = Lock((readers: 0, isKept: false, waiting: 0))

  /// Runs `body`, whose commands count on no record there. Any number of these run side by side.
  static func unused<Result>(by body: () throws -> Result) throws -> Result {
    try waitUntil(timeout: 600, interval: 0.02, "the records of other tests to be gone") {
      users.withLock { users in
        if users.isKept || users.waiting > 0 { return false }
        users.readers += 1
        return true
      }
    }
    defer { users.withLock { $0.readers -= 1 } }
    return try body()
  }

  /// Runs `body`, which has a record there: alone.
  static func used<Result>(by body: () throws -> Result) throws -> Result {
    users.withLock { $0.waiting += 1 }
    defer { users.withLock { $0.waiting -= 1 } }
    try waitUntil(timeout: 600, interval: 0.02, "other tests to be done with the records") {
      users.withLock { users in
        if users.isKept || users.readers > 0 { return false }
        users.isKept = true
        return true
      }
    }
    defer { users.withLock { $0.isKept = false } }
    return try body()
  }
}

/// A program that was started.
struct Running: Sendable {
  let program: BackgroundProcess
  var process: pid_t { program.processID }
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

extension MountUsers {
  /// The process id of the mount helper of `mountpoint`, one of ours or of nobody's.
  static func anyHelper(of mountpoint: String) -> Int32? { helper(of: mountpoint, owner: 65534) }
}

/// Runs `body` with /dev/fuse as open as a desktop has it.
func withFuseForEveryone(_ body: () throws -> Void) throws {
  // Until the process ends: closing it again would take it from the tests that run beside this one.
  try SharedTraveller.openDevice()
  try body()
}
