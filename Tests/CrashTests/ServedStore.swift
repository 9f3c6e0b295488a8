import Base
import Glibc
import TestSupport

@testable import Storing

/// A store, its mount and its server: started, killed and started again. One test's; any thread may call.
final class ServedStore: Sendable {
  let folder: TemporaryFolder
  let shim: DiskShim
  private let program: MountedProgram
  var mountpoint: String { program.mountpoint }
  var store: String { program.store }
  var library: String { store + "/library" }
  /// The environment of every command: nothing is remembered in the user's own folders.
  var environment: [String: String?] { program.environment }

  /// In `folder`, with nothing running. `store`: made by the caller when it is to be a special place.
  init(in folder: TemporaryFolder, program path: String = builtProduct("mediafs")) throws {
    self.folder = folder
    program = MountedProgram(in: folder, program: path, mountpoint: "mount")
    try folder.makeFolder("mount")
    shim = try DiskShim(in: folder, store: program.store)
  }

  /// Writes the manifest: a name in the mount and a URL for each file.
  func list(_ files: [(name: String, url: String)], options: String = "") throws {
    try folder.write(files.map { "\($0.url)\n  out=\($0.name)\n\(options)" }.joined(), to: "urls.txt")
  }

  /// Starts a server; false when it died before the mount was ready (see ``errors``). `wrapper`: a command to run it
  /// by.
  func start(
    _ options: [String] = [], shimmed: Bool = true, environment: [String: String?] = [:], wrapper: [String] = []
  ) throws -> Bool {
    try program.start(
      ["--min-free", "0"] + options, environment: shimmed ? shim.environment : environment, wrapper: wrapper)
  }

  /// Runs a command of the mount's program, or of `other`, to its end.
  func run(_ arguments: [String], by other: String? = nil) throws -> CommandResult {
    try program.runProgram([other ?? program.program] + arguments)
  }

  /// Starts a command of the mount's program.
  func startCommand(_ arguments: [String]) throws -> BackgroundProcess {
    try BackgroundProcess([program.program] + arguments, environment: environment)
  }

  /// What the server has logged since it was started.
  var errors: String { program.process?.standardErrorSoFar ?? "" }

  /// Whether the server (or its helper) still runs.
  var isRunning: Bool { program.process?.isRunning ?? false }

  /// The server's own process, below the helper's.
  var server: pid_t? { program.server }

  /// The mount helper.
  var helper: pid_t? { program.process?.processID }

  /// Whether that server runs no more; its helper may not have reaped it.
  func hasEnded(_ server: pid_t) -> Bool {
    guard let text = try? readFile("/proc/\(server)/stat") else { return true }
    return String(decoding: text, as: UTF8.self).contains(") Z ")
  }

  /// Kills the server, as `kill -9` does, if it lives. Its helper starts the next one.
  func killServer() { program.killServer() }

  /// Stops the helper, so that it starts no server when this one is killed.
  func holdHelper() { program.holdHelper() }

  /// Kills the server and its helper: the store stays as it is.
  func kill() { program.kill() }

  /// Waits until the helper is gone, and the mount with it.
  func waitForEnd() throws { _ = try program.waitForEnd() }

  /// Unmounts in order.
  func unmount() throws {
    try unmountUnderReaders()
    try waitForEnd()
  }

  /// Takes the mount out of its folder. Its server may go on for readers that have files open and wait.
  func unmountUnderReaders() throws {
    let result = try program.unmount(lazily: true)
    guard result.succeeded || result.errors.contains("its server goes on") else {
      throw CrashFailure(description: "unmount: \(result.errors)")
    }
  }

  /// Ends whatever runs: for the end of a test that failed.
  func abandon() { if isRunning { program.endByForce() } }

  /// `mediafs verify`.
  func verify(_ options: [String] = []) throws -> CommandResult {
    try program.run(["verify", mountpoint] + options, timeout: 300)
  }

  /// Waits until the catalog claims that `range` of an incomplete file is stored, synced or not: the next server knows
  /// it then. Returns in which mount the disk has to be for that (`recent_boot`). `earlier`: a claim that does not
  /// count, of another mount. `isSuperseded`: of a version that has a newer one.
  @discardableResult
  func waitForCommit(
    of range: ByteRange, isSuperseded: Bool = false, unlike earlier: [UInt8]? = nil
  ) throws -> [UInt8] {
    let claims = SQL("SELECT synced, recent, recent_boot FROM generation WHERE state = \(isSuperseded ? 2 : 0)")
    var found: [UInt8]?
    try waitUntil(timeout: 60, interval: 0.05, "a commit of \(range)") {
      let catalog = try Catalog.open(path: store + "/catalog.sqlite", access: .readOnly)
      found = try catalog.connections.read { (connection) throws(StoreError) in
        let row = try connection.statement(claims)
        defer { row.reset() }
        while try row.step() {
          let stored = row.withBlob(row.isNull(1) ? 0 : 1) { ByteRangeSet(encoded: $0) }
          let mount = row.withBlob(2) { Array($0) }
          if stored?.contains(range) == true, mount != earlier { return mount }
        }
        return nil
      }
      try catalog.close()
      return found != nil
    }
    return found ?? []
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
  /// `copies`: where their copies are in the library, if not under the same names.
  func waitForCompletion(_ names: [String], copies: [String]? = nil, timeout: Double = 120) throws {
    try waitUntil(timeout: timeout, interval: 0.05, "\(names) to be complete") {
      (copies ?? names).allSatisfy { access("\(library)/\($0)", F_OK) == 0 }
    }
    try waitUntil(timeout: timeout, interval: 0.1, "the catalog to call \(names) complete") {
      let files = try program.status().files
      return names.allSatisfy { name in files.contains { $0.path == name && $0.state == "complete" } }
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
