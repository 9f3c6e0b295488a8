import Base
import Glibc
import TestSupport

/// A store, its mount and its server: started, killed and started again. One test's; any thread may call.
final class ServedStore: Sendable {
  let folder: TemporaryFolder
  let shim: DiskShim
  var mountpoint: String { folder.file("mount") }
  var store: String { folder.file("store") }
  var library: String { store + "/library" }
  private let manifest: String
  private let process = Lock<BackgroundProcess?>(nil)

  /// In `folder`, with nothing running. `store`: made by the caller when it is to be a special place.
  init(in folder: TemporaryFolder) throws {
    self.folder = folder
    manifest = folder.file("urls.txt")
    try folder.makeFolder("mount")
    try folder.makeFolder("home")
    shim = try DiskShim(in: folder, store: folder.file("store"))
  }

  /// The environment of every command: nothing is remembered in the user's own folders.
  var environment: [String: String?] { ["XDG_DATA_HOME": folder.file("home"), "HOME": folder.file("home")] }

  /// Writes the manifest: a name in the mount and a URL for each file.
  func list(_ files: [(name: String, url: String)], options: String = "") throws {
    try folder.write(files.map { "\($0.url)\n  out=\($0.name)\n\(options)" }.joined(), to: "urls.txt")
  }

  /// Starts a server; false when it died before the mount was ready (see ``errors``). `wrapper`: a command to run it
  /// by.
  func start(_ options: [String] = [], shimmed: Bool = true, wrapper: [String] = []) throws -> Bool {
    var environment = environment
    if shimmed { environment.merge(shim.environment) { _, new in new } }
    let arguments =
      wrapper + [
        builtProduct("mediafs"), "mount", mountpoint, "--manifest", manifest, "--store", store, "--foreground",
        "--min-free", "0",
      ] + options
    let started = try BackgroundProcess(arguments, environment: environment)
    process.withLock { $0 = started }
    return started.waitForOutput("mounted at", timeout: 120)
  }

  /// What the server has logged since it was started.
  var errors: String { process.withLock { $0 }?.standardErrorSoFar ?? "" }

  /// Whether the server (or its helper) still runs.
  var isRunning: Bool { process.withLock { $0 }?.isRunning ?? false }

  /// The server's own process, below the helper's.
  var server: pid_t? {
    guard let helper = process.withLock({ $0 }), helper.isRunning else { return nil }
    // Once the server has died the helper's child may be fusermount3: to kill that would leave the mount behind.
    return childProcesses(of: helper.processID).first { isServer($0) }
  }

  /// Kills the server, as `kill -9` does, if it still lives.
  func kill() { if let server { Glibc.kill(server, SIGKILL) } }

  /// Waits until the helper of a killed server is gone, and the mount with it.
  func waitForEnd() throws {
    guard let running = process.withLock({ $0 }) else { return }
    guard running.wait(timeout: 120) != nil else {
      let report = ProcessReport.describe(running.processID, withGroup: true)
      running.terminate(grace: 0)
      throw CrashFailure(description: "the helper of a killed server did not end\n\(report)")
    }
    if !eventually(timeout: 60, { !Mounts.isMounted(mountpoint) }) {
      throw CrashFailure(description: "a killed server's mount stays: \(errors)")
    }
  }

  /// Unmounts in order.
  func unmount() throws {
    try Command.succeed(
      [builtProduct("mediafs"), "unmount", "--lazy", mountpoint], environment: environment, timeout: 120)
    try waitForEnd()
  }

  /// Ends whatever runs: for the end of a test that failed.
  func abandon() {
    guard let running = process.withLock({ $0 }), running.isRunning else { return }
    running.terminate(grace: 5)
  }

  /// `mediafs verify`.
  func verify(_ options: [String] = []) throws -> CommandResult {
    try Command.run(
      [builtProduct("mediafs"), "verify", mountpoint] + options, environment: environment, timeout: 300)
  }

  /// Has the kernel forget what it read of a file in the mount: the next read asks the server.
  func forgetPages(_ name: String) throws(Errno) {
    let file = try FileDescriptor.open("\(mountpoint)/\(name)", O_RDONLY)
    let error = posix_fadvise(file.rawValue, 0, 0, POSIX_FADV_DONTNEED)
    if error != 0 { throw Errno(rawValue: error) }
  }

  /// The whole of a file, through the mount.
  func read(_ name: String) throws(Errno) -> [UInt8] { try readFile("\(mountpoint)/\(name)") }

  /// `count` bytes at `offset`, through the mount.
  func read(_ name: String, at offset: Int64, count: Int) throws(Errno) -> [UInt8] {
    try readPart(FileDescriptor.open("\(mountpoint)/\(name)", O_RDONLY), at: offset, count: count)
  }

  /// Waits until `mediafs status` calls every one of `names` complete.
  func waitForCompletion(_ names: [String], timeout: Double = 120) throws {
    try waitUntil(timeout: timeout, interval: 0.05, "\(names) to be complete") {
      names.allSatisfy { access("\(library)/\($0)", F_OK) == 0 }
    }
    try waitUntil(timeout: timeout, interval: 0.1, "the catalog to call \(names) complete") {
      let status = try Command.run(
        [builtProduct("mediafs"), "status", mountpoint, "--json"], environment: environment, timeout: 120)
      return status.output.split(separator: "\"state\":\"complete\"", omittingEmptySubsequences: false).count
        > names.count
    }
  }
}

/// Lends a store in a temporary folder; whatever still runs is ended afterwards.
func withServedStore<Result>(_ body: (ServedStore) throws -> Result) throws -> Result {
  try withTemporaryFolder { folder in
    let store = try ServedStore(in: folder)
    defer { store.abandon() }
    return try body(store)
  }
}

/// The processes whose parent `process` is.
private func childProcesses(of process: pid_t) -> [pid_t] {
  let path = "/proc/\(process)/task/\(process)/children"
  let text = (try? readFile(path)).map { String(decoding: $0, as: UTF8.self) } ?? ""  // it may have ended
  return text.split(separator: " ").compactMap { pid_t($0) }
}

private func isServer(_ process: pid_t) -> Bool {
  let arguments = (try? readFile("/proc/\(process)/cmdline")) ?? []  // it may have ended
  return arguments.split(separator: 0).dropFirst().first.map { $0.elementsEqual("serve".utf8) } ?? false
}

/// The bytes of a file.
func readFile(_ path: String) throws(Errno) -> [UInt8] {
  let file = try FileDescriptor.open(path, O_RDONLY)
  var all: [UInt8] = []
  while true {
    let part = try readPart(file, at: Int64(all.count), count: 1 << 17)
    all += part
    if part.count < 1 << 17 { return all }
  }
}

/// Up to `count` bytes at `offset`.
func readPart(_ file: borrowing FileDescriptor, at offset: Int64, count: Int) throws(Errno) -> [UInt8] {
  var failure: Errno?
  let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
    do throws(Errno) {
      filled = try file.readFully(at: offset, into: UnsafeMutableRawBufferPointer(buffer))
    } catch {
      failure = error
    }
  }
  if let failure { throw failure }
  return bytes
}

/// A server did not do what every test needs.
struct CrashFailure: Error, CustomStringConvertible {
  let description: String
}
