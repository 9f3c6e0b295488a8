import Base
import Glibc
import TestSupport
import Testing

/// One test's stage and mount, and what went wrong in it.
struct Scene {
  let stage: FaultStage
  let mount: FaultMount
  fileprivate(set) var problems: [String] = []

  var origin: Origin { stage.origin }
  var file: String { mount.file(FaultStage.name) }

  mutating func expect(_ holds: Bool, _ what: String) {
    if !holds { problems.append(what) }
  }

  /// Runs `body` on a thread of its own; nil (and a problem) when it hangs.
  mutating func bounded<Value: Sendable>(_ what: String, _ body: @escaping @Sendable () -> Value) -> Value? {
    let value = Reader.sideBySide(timeout: FaultRun.bound, [body])[0]
    if value == nil {
      problems.append("\(what) hangs: " + ProcessReport.describe(mount.process.processID, withGroup: true))
    }
    return value
  }

  /// Reads the file once.
  mutating func read(
    _ ranges: [ByteRange] = [ByteRange(0, .max)], pattern: String = FaultStage.path,
    generations: ClosedRange<UInt64> = 1...1
  ) -> ReadOutcome? {
    let path = file
    return bounded("a reader") { Reader.read(path, ranges, pattern: pattern, generations: generations) }
  }

  /// Opens and reads the file until a reader gets all of it, in one generation.
  mutating func readUntilWhole(
    _ ranges: [ByteRange] = [ByteRange(0, .max)], size: Int64, pattern: String = FaultStage.path, generation: UInt64 = 1
  ) {
    var last: ReadOutcome?
    let isWhole = eventually(timeout: FaultRun.bound, interval: 0.2) {
      last = read(ranges, pattern: pattern, generations: generation...generation)
      return last == nil || last?.error == nil && last?.wrongAt == nil && last?.bytes == size
    }
    expect(isWhole, "never whole: \(last.map { "\($0)" } ?? "")")
  }

  /// Waits until the status says so.
  mutating func waitForState(_ state: String, name: String = FaultStage.name) throws {
    var last: FaultMount.Status.File?
    let deadline = Instant.now.adding(seconds: FaultRun.bound)
    while Instant.now < deadline {
      let file = try mount.status(of: name)
      if file.state == state { return }
      last = file
      sleep(seconds: 0.3)
    }
    problems.append("not \(state): \(last.map { "\($0)" } ?? "nothing")")
  }

  /// Compares the library's copy with the pattern.
  mutating func checkCopy(size: Int64, pattern: String = FaultStage.path, generation: UInt64 = 1) {
    let copy = Reader.read(
      mount.copy(FaultStage.name), pattern: pattern, generations: generation...generation)
    expect(copy.error == nil && copy.wrongAt == nil && copy.bytes == size, "the library's copy: \(copy)")
  }
}

/// Runs `body` on a mount of its own, when there is a place for it; records what it found.
func onMount(
  size: Int64 = 1 << 20, options: [String] = [], wrapper: [String] = [],
  arrange: @escaping @Sendable (FaultStage) throws -> Void = { _ in },
  _ body: @escaping @Sendable (inout Scene) throws -> Void
) async {
  let problems = await Gate.shared.run {
    try withTemporaryFolder { folder in
      let stage = try FaultStage(folder, size: size)
      defer { stage.end() }
      try arrange(stage)
      let mount = try FaultMount(
        in: folder, manifest: stage.manifest + "\n", options: options + stage.options, wrapper: wrapper)
      defer { mount.end() }
      var scene = Scene(stage: stage, mount: mount)
      do { try body(&scene) } catch { scene.problems.append("\(error)") }
      if scene.problems.isEmpty, mount.process.isRunning, let problem = try mount.unmount() {
        scene.problems.append(problem)
      }
      if !scene.problems.isEmpty {
        scene.problems.append("log: " + String(mount.process.standardErrorSoFar.suffix(3000)))
      }
      return scene.problems
    }
  }
  for problem in problems { Issue.record("\(problem)") }
}
