import Base
import FoundationEssentials
import Glibc

/// The real program with a mountpoint, a store and a manifest in one folder: what every suite starts, asks, kills and
/// takes away. Suites add the verbs of their own on top.
///
/// Mounts are remembered below the folder, never among the user's own, and no proxy is used. Any thread may call.
package final class MountedProgram: Sendable {
  /// The program's path.
  package let program: String
  /// Where it mounts.
  package let mountpoint: String
  /// Its store.
  package let store: String
  /// Where the library is when it is not in the store.
  package let library: String?
  /// The manifest, which the test writes.
  package let manifest: String
  /// The variables of every command.
  package let environment: [String: String?]
  /// As whom commands run, nil for ourselves.
  package let user: TestUser?
  private let folder: String
  private let foreground = Lock<BackgroundProcess?>(nil)

  /// In `folder`, with nothing running; `environment` goes on top of what every command gets.
  package init(
    in folder: TemporaryFolder, program: String = builtProduct("mediafs"), mountpoint: String = "mnt",
    manifest: String = "urls.txt", library: String? = nil, environment: [String: String?] = [:],
    user: TestUser? = nil
  ) {
    self.program = program
    self.mountpoint = folder.file(mountpoint)
    self.manifest = folder.file(manifest)
    self.user = user
    self.library = library
    self.folder = folder.path
    store = folder.file("store")
    var variables: [String: String?] = ["XDG_DATA_HOME": folder.file("data"), "HOME": folder.path]
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
      variables[name] = .some(nil)
      variables[name.uppercased()] = .some(nil)
    }
    self.environment = variables.merging(environment) { _, given in given }
  }

  // MARK: Commands

  /// Runs any program to its end, as `mediafs` is run.
  package func runProgram(
    _ arguments: [String], input: [UInt8]? = nil, environment more: [String: String?] = [:], timeout: Double = 120
  ) throws(CommandFailure) -> CommandResult {
    try Command.run(
      arguments, input: input, environment: environment.merging(more) { _, new in new }, folder: folder,
      timeout: timeout, user: user)
  }

  /// Runs `mediafs` to its end.
  package func run(
    _ arguments: [String], input: [UInt8]? = nil, environment more: [String: String?] = [:], timeout: Double = 120
  ) throws(CommandFailure) -> CommandResult {
    try runProgram([program] + arguments, input: input, environment: more, timeout: timeout)
  }

  /// The command that mounts.
  package func mountCommand(_ options: [String] = []) -> [String] {
    [program, "mount", mountpoint, "--manifest", manifest, "--store", store]
      + (library.map { ["--library", $0] } ?? []) + options
  }

  /// What the server (or, with none, the catalog) says.
  package func status() throws -> MountStatus {
    let result = try run(["status", "--json", mountpoint])
    guard result.succeeded else { throw MountFailure(description: "status: " + result.errors) }
    return try JSONDecoder().decode(MountStatus.self, from: Data(result.standardOutput))
  }

  // MARK: In the foreground

  /// Mounts in the foreground; false when the program ended before it was mounted, or `timeout` seconds passed.
  /// `wrapper`: a command to run it by.
  package func start(
    _ options: [String] = [], environment more: [String: String?] = [:], wrapper: [String] = [],
    timeout: Double = 120
  ) throws(CommandFailure) -> Bool {
    let started = try BackgroundProcess(
      wrapper + mountCommand(["--foreground"] + options), environment: environment.merging(more) { _, new in new },
      user: user)
    foreground.withLock { $0 = started }
    return started.waitForOutput("mounted at", timeout: timeout)
  }

  /// The mount helper, once it was started in the foreground.
  package var process: BackgroundProcess? { foreground.withLock { $0 } }

  /// The server's own process, below the helper's; nil when it does not run.
  package var server: pid_t? {
    // Once the server has died the helper's child may be fusermount3: to kill that would leave the mount behind.
    children.first { Self.arguments(of: $0).dropFirst().first == "serve" }
  }

  /// The helper's own children; none when it does not run.
  private var children: [pid_t] {
    guard let helper = process, helper.isRunning else { return [] }
    return text(of: "/proc/\(helper.processID)/task/\(helper.processID)/children").split(separator: " ")
      .compactMap { pid_t($0) }
  }

  private static func arguments(of process: pid_t) -> [String] {
    (bytes(of: "/proc/\(process)/cmdline") ?? []).split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
  }

  /// proc(5)'s letter for what a process does; nil once it is gone.
  private static func state(of process: pid_t) -> Character? {
    let status = text(of: "/proc/\(process)/stat")
    return status.lastIndex(of: ")").flatMap { status[$0...].dropFirst(2).first }
  }

  /// Kills the server, as `kill -9` does, if it lives. Its helper starts the next one.
  package func killServer() { if let server { Glibc.kill(server, SIGKILL) } }

  /// Stops the helper, so that it starts no server when this one is killed: what that one left can be looked at.
  package func holdHelper() { process?.signal(SIGSTOP) }

  /// Kills the server and its helper, as a machine that stops does: none of them can go on or clean up.
  package func kill() {
    guard let process, process.isRunning else { return }
    // A server whose helper is gone would unmount, and a helper whose server is gone would start another.
    process.signal(SIGSTOP)
    // Once it stands still it starts no more. The last one that it started may not have become the server yet.
    _ = eventually(timeout: 10) { Self.state(of: process.processID).map { "TZ".contains($0) } ?? true }
    let left = children.filter { Self.arguments(of: $0).first?.hasSuffix("fusermount3") != true }
    for child in left { Glibc.kill(child, SIGKILL) }
    process.signal(SIGKILL)
    _ = process.wait(timeout: 60)
    unmountDead()
    waitForEnd(of: left)
  }

  /// Unmounts what is left when no process serves it any more. By force: a helper that was killed while the kernel
  /// forgets a name for it lives on until the lookup of that name is answered, and holds the device open.
  private func unmountDead() {
    guard Mounts.isMounted(mountpoint) else { return }
    if umount2(mountpoint, Int32(MNT_FORCE | MNT_DETACH)) == 0 { return }
    do { _ = try Command.run(["fusermount3", "-u", "-z", mountpoint], timeout: 30) } catch { Log.warning("\(error)") }
  }

  /// Waits until the helper in the foreground has ended, and the mount is gone with it.
  package func waitForEnd(timeout: Double = 120) throws -> CommandResult? {
    guard let process else { return nil }
    guard let end = process.wait(timeout: timeout) else {
      let report = ProcessReport.describe(process.processID, withGroup: true)
      throw MountFailure(description: "the helper runs on behind its mount\n\(report)")
    }
    if !eventually(timeout: timeout, { !Mounts.isMounted(mountpoint) }) {
      throw MountFailure(description: "the mount stays behind its helper: \(process.standardErrorSoFar)")
    }
    return end
  }

  // MARK: The end

  /// `mediafs unmount`.
  package func unmount(lazily: Bool = false) throws(CommandFailure) -> CommandResult {
    try run(["unmount"] + (lazily ? ["--lazy"] : []) + [mountpoint])
  }

  /// Unmounts what is mounted, lazily where it is in use, and waits until the server has let go of the store.
  package func end() throws {
    if Mounts.isMounted(mountpoint), try !unmount().succeeded { _ = try unmount(lazily: true) }
    // It may still be saving; its log lies in the folder.
    if !eventually(timeout: 30, { !isStoreLocked }) { throw MountFailure(description: "the server has not ended") }
  }

  /// Takes it away by force; what hangs in it is freed.
  package func endByForce() {
    let left = children
    if Mounts.isMounted(mountpoint) { umount2(mountpoint, Int32(MNT_FORCE | MNT_DETACH)) }
    process?.terminate(grace: 20)
    unmountDead()
    waitForEnd(of: left)
  }

  /// Waits until these processes have ended: what lives on writes to the store.
  private func waitForEnd(of processes: [pid_t]) {
    _ = eventually(timeout: 60) { processes.allSatisfy { Self.state(of: $0).map { $0 == "Z" } ?? true } }
  }

  /// Whether a server holds the store's lock.
  private var isStoreLocked: Bool {
    guard let file = try? FileDescriptor.open(store + "/lock", O_RDWR) else { return false }  // there is none
    var lock = flock()
    lock.l_type = Int16(F_WRLCK)
    lock.l_whence = Int16(SEEK_SET)
    return fcntl(file.rawValue, F_GETLK, &lock) == 0 && lock.l_type != Int16(F_UNLCK)
  }
}

/// What `mediafs status --json` tells.
package struct MountStatus: Decodable, Sendable {
  /// One file.
  package struct File: Decodable, Sendable {
    /// In the mount.
    package var path: String
    /// `remote`, `partial`, `complete`, `failed`, `modified`.
    package var state: String
    /// Bytes in the store.
    package var stored: Int64
    /// Bytes in all, when known.
    package var size: Int64?
    /// What is stored, as [start, end].
    package var ranges: [[Int64]]
    /// Bytes a second of late.
    package var rate: Double
    /// Downloads in flight.
    package var transfers: Int
    /// What went wrong last.
    package var error: String?
    /// Seconds since then.
    package var errorAge: Int64?
    /// `reader`, `line`, `turn`, `space`, `origin`.
    package var waitsFor: String?
    /// Until when, in seconds since 1970.
    package var waitsUntil: Int64?
    /// What to do about it.
    package var advice: String?
    /// A rule that applies.
    package struct Rule: Decodable, Sendable, Equatable {
      /// `keep`, `auto`, `online`, `pause` or `resume`.
      package var word: String
      /// For what it is.
      package var pattern: String
    }
    /// The rule that says what is stored.
    package var rule: Rule?
    /// The rule that says whether downloads are paused.
    package var downloads: Rule?
  }
  /// Sums over all files.
  package struct Totals: Decodable, Sendable {
    /// How many there are.
    package var files: Int
    /// Of those, the complete ones.
    package var complete: Int
    /// Those that are stored in part.
    package var partial: Int
    /// Those of which nothing is stored.
    package var remote: Int
    /// Bytes in the store.
    package var stored: Int64
    /// Bytes of the files whose size is known.
    package var size: Int64
    /// Bytes of files that are no longer listed.
    package var unlisted: Int64?
    /// How many files have no known size.
    package var unknownSizes: Int
    /// Downloads in flight.
    package var transfers: Int
  }
  /// Where it is mounted.
  package var mountpoint: String
  /// Whether a server runs.
  package var running: Bool
  /// The server's process.
  package var pid: Int32?
  /// The files that were asked for.
  package var files: [File]
  /// Their sums.
  package var totals: Totals

  /// The file of that path.
  package func file(_ path: String) throws(MountFailure) -> File {
    guard let file = files.first(where: { $0.path == path }) else {
      throw MountFailure(description: "status does not list \(path)")
    }
    return file
  }
}

/// What a mount or its commands did wrong.
package struct MountFailure: Error, CustomStringConvertible {
  /// The message.
  package let description: String
  /// With that message.
  package init(description: String) { self.description = description }
}
