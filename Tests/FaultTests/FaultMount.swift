import Base
import Glibc
import TestSupport

/// A real mount of the built program, with a store of its own. ``end()`` takes it away, whatever state it is in.
final class FaultMount: Sendable {
  typealias Status = MountStatus

  /// The mount helper, in the foreground.
  let process: BackgroundProcess
  private let program: MountedProgram
  /// Where it is mounted.
  var path: String { program.mountpoint }
  var store: String { program.store }

  /// Mounts `manifest` below `folder` and waits until it answers.
  init(in folder: TemporaryFolder, manifest: String, options: [String] = [], wrapper: [String] = []) throws {
    program = MountedProgram(in: folder)
    try folder.write(manifest, to: "urls.txt")
    let isMounted = try program.start(options, wrapper: wrapper)
    guard let process = program.process, isMounted else {
      let errors = program.process?.standardErrorSoFar ?? ""
      program.endByForce()
      throw MountFailure(description: "not mounted: " + errors)
    }
    self.process = process
  }

  func file(_ name: String) -> String { "\(path)/\(name)" }
  func copy(_ name: String) -> String { "\(store)/library/\(name)" }

  /// What the server (or, with none, the catalog) says.
  func status() throws -> Status { try program.status() }

  /// The server's process; never 0 or less, which would be a group to kill(2).
  func server() throws -> Int32 {
    guard let process = try status().pid, process > 0 else {
      throw MountFailure(description: "status knows no server: " + self.process.standardErrorSoFar)
    }
    return process
  }

  func status(of name: String) throws -> Status.File { try status().file(name) }

  /// Asks for whole files.
  func fetch(_ name: String) throws { _ = try program.run(["fetch", file(name)]) }

  /// Unmounts in order: what is wrong about how that went, nil for nothing.
  func unmount() throws -> String? {
    var result = try program.unmount()
    // A child that another test starts has this process's descriptors until it runs its program.
    for _ in 0..<20 where !result.succeeded && result.errors.contains(" is busy. ") {
      sleep(seconds: 0.2)
      result = try program.unmount()
    }
    guard result.succeeded else { return "unmount ended with \(result.status): \(result.errors)" }
    do {
      guard let end = try program.waitForEnd(), end.status != 0 else { return nil }
      return "the server ended with \(end.status): \(end.errors)"
    } catch {
      return "\(error)"
    }
  }

  /// Takes it away by force; what hangs in it is freed.
  func end() { program.endByForce() }
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
