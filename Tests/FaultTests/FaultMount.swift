import Base
import FoundationEssentials
import Glibc
import TestSupport

/// A real mount of the built program, with a store of its own. ``end()`` takes it away, whatever state it is in.
final class FaultMount: Sendable {
  /// What `mediafs status --json` tells, as far as the tests ask.
  struct Status: Decodable, Sendable {
    struct File: Decodable, Sendable {
      var path: String
      var state: String
      var stored: Int64
      var size: Int64?
      var ranges: [[Int64]]
      var transfers: Int
      var error: String?
    }
    var running: Bool
    var pid: Int32?
    var files: [File]
  }

  /// Where it is mounted.
  let path: String
  let store: String
  let process: BackgroundProcess
  private let environment: [String: String?]

  /// Mounts `manifest` below `folder` and waits until it answers.
  init(in folder: TemporaryFolder, manifest: String, options: [String] = [], wrapper: [String] = []) throws {
    path = folder.file("mnt")
    store = folder.file("store")
    environment = [
      "XDG_DATA_HOME": folder.file("data"), "HOME": folder.path, "http_proxy": nil, "https_proxy": nil,
      "all_proxy": nil, "HTTPS_PROXY": nil, "ALL_PROXY": nil, "no_proxy": "*",
    ]
    try folder.write(manifest, to: "manifest.txt")
    let command =
      wrapper + [
        builtProduct("mediafs"), "mount", path, "--manifest", folder.file("manifest.txt"), "--store", store,
        "--foreground",
      ] + options
    process = try BackgroundProcess(command, environment: environment)
    let process = process
    let path = path
    let mounted = eventually(timeout: 120) { Mounts.isMounted(path) || !process.isRunning }
    guard mounted, process.isRunning else {
      end()
      throw MountFailure(description: "not mounted: " + process.standardErrorSoFar)
    }
  }

  func file(_ name: String) -> String { "\(path)/\(name)" }
  func copy(_ name: String) -> String { "\(store)/library/\(name)" }

  /// What the server (or, with none, the catalog) says.
  func status() throws -> Status {
    let result = try Command.run(
      [builtProduct("mediafs"), "status", path, "--json"], environment: environment, timeout: 120)
    guard result.succeeded else { throw MountFailure(description: "status: " + result.errors) }
    return try JSONDecoder().decode(Status.self, from: Data(result.standardOutput))
  }

  /// The server's process; never 0 or less, which would be a group to kill(2).
  func server() throws -> Int32 {
    guard let process = try status().pid, process > 0 else {
      throw MountFailure(description: "status knows no server: " + self.process.standardErrorSoFar)
    }
    return process
  }

  func status(of name: String) throws -> Status.File {
    guard let file = try status().files.first(where: { $0.path == name }) else {
      throw MountFailure(description: "status does not know \(name)")
    }
    return file
  }

  /// Asks for whole files.
  func fetch(_ name: String) throws {
    _ = try Command.run(
      [builtProduct("mediafs"), "fetch", file(name)], environment: environment, timeout: 120)
  }

  /// Unmounts in order: what is wrong about how that went, nil for nothing.
  func unmount() throws -> String? {
    let result = try Command.run(
      [builtProduct("mediafs"), "unmount", path], environment: environment, timeout: 120)
    guard result.succeeded else { return "unmount ended with \(result.status): \(result.errors)" }
    guard let end = process.wait(timeout: 120) else {
      return "the server runs on behind its unmount: " + ProcessReport.describe(process.processID, withGroup: true)
    }
    if end.status != 0 { return "the server ended with \(end.status): \(end.errors)" }
    return Mounts.isMounted(path) ? "still mounted behind its unmount" : nil
  }

  /// Takes it away by force; what hangs in it is freed.
  func end() {
    if Mounts.isMounted(path) { umount2(path, Int32(MNT_FORCE | MNT_DETACH)) }
    process.terminate(grace: 2)
    if Mounts.isMounted(path) {
      do { _ = try Command.run(["fusermount3", "-u", "-z", path], timeout: 30) } catch { Log.warning("\(error)") }
    }
  }
}

/// What becomes of one reader.
struct ReadOutcome: Sendable, CustomStringConvertible {
  var bytes: Int64 = 0
  /// Which generations the bytes are of.
  var generations: Set<UInt64> = []
  /// The offset of the first byte that belongs to no generation that was allowed.
  var wrongAt: Int64?
  /// What failed: the call, where, and how.
  var error: (call: String, offset: Int64, code: Int32)?

  var description: String {
    var text = "\(bytes) bytes of generations \(generations.sorted())"
    if let wrongAt { text += ", wrong at \(wrongAt)" }
    if let error { text += ", \(error.call) at \(error.offset): \(Errno(rawValue: error.code))" }
    return text
  }
}

/// Reads as a program does, on the calling thread; every byte is compared with the pattern.
enum Reader {
  static let piece = 128 << 10

  /// Opens `path` and reads `ranges` in their order (each up to its end or the file's).
  static func read(
    _ path: String, _ ranges: [ByteRange] = [ByteRange(0, .max)], pattern: String,
    generations: ClosedRange<UInt64> = 1...1
  ) -> ReadOutcome {
    var outcome = ReadOutcome()
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      outcome.error = ("open", 0, errno)
      return outcome
    }
    defer { close(descriptor) }
    for range in ranges where outcome.error == nil && outcome.wrongAt == nil {
      read(descriptor, range, pattern: pattern, generations: generations, &outcome)
    }
    return outcome
  }

  /// Reads one range of an open file.
  static func read(
    _ descriptor: Int32, _ range: ByteRange, pattern: String, generations: ClosedRange<UInt64>,
    _ outcome: inout ReadOutcome
  ) {
    var buffer = [UInt8](repeating: 0, count: piece)
    var offset = range.start
    while offset < range.end {
      let wanted = Int(min(Int64(piece), range.end - offset))
      let count = pread(descriptor, &buffer, wanted, Int(offset))
      if count < 0 {
        outcome.error = ("read", offset, errno)
        return
      }
      if count == 0 { return }
      outcome.bytes += Int64(count)
      let part = Array(buffer[..<count])
      // A short piece fits a wrong generation by chance: only long ones tell.
      if let found = Pattern.generation(of: part, name: pattern, offset: offset, among: generations) {
        outcome.generations.insert(found)
      } else {
        outcome.wrongAt = Pattern.check(part, name: pattern, generation: generations.lowerBound, offset: offset)
        return
      }
      offset += Int64(count)
    }
  }

  /// Runs `bodies` side by side, each on a thread of its own; nil for those that have not ended within `timeout`
  /// seconds.
  static func sideBySide<Value: Sendable>(
    timeout: Double, _ bodies: [@Sendable () -> Value]
  ) -> [Value?] {
    let results = Lock([Value?](repeating: nil, count: bodies.count))
    for (index, body) in bodies.enumerated() {
      detached {
        let value = body()
        results.withLock { $0[index] = value }
      }
    }
    _ = eventually(timeout: timeout) { results.withLock { $0.allSatisfy { $0 != nil } } }
    return results.withLock { $0 }
  }

  /// A thread that nobody joins: it may hang in a system call until its mount is taken away.
  static func detached(_ body: @escaping @Sendable () -> Void) {
    _ = OwnedThread(name: "test-reader") {
      pthread_detach(pthread_self())
      body()
    }
  }
}

/// How many mounts there are at a time, so that a small machine is busy and not flooded.
actor Gate {
  static let shared = Gate(places: 14)
  private var places: Int
  private var waiting: [CheckedContinuation<Void, Never>] = []

  init(places: Int) { self.places = places }

  private func enter() async {
    if places > 0 {
      places -= 1
      return
    }
    await withCheckedContinuation { waiting.append($0) }
  }

  private func leave() {
    if waiting.isEmpty { places += 1 } else { waiting.removeFirst().resume() }
  }

  /// Runs `body` on a thread of its own (it blocks) when there is a place for it: what it found wrong.
  nonisolated func run(_ body: @escaping @Sendable () throws -> [String]) async -> [String] {
    await enter()
    let problems = await withCheckedContinuation { (continuation: CheckedContinuation<[String], Never>) in
      Reader.detached {
        do { continuation.resume(returning: try body()) } catch { continuation.resume(returning: ["\(error)"]) }
      }
    }
    await leave()
    return problems
  }
}

/// What a mount or its commands did wrong.
struct MountFailure: Error, CustomStringConvertible {
  let description: String
}
