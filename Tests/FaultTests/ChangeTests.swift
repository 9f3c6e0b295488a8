import Base
import Glibc
import TestSupport
import Testing

/// Files that change at the origin: old handles get stored bytes or ESTALE, new opens the new bytes, nobody a mix.
@Suite("Changes at the origin")
struct ChangeTests {
  private static let size: Int64 = 4 << 20
  private static let never = ["--continue=never", "--timeout", "30"]

  /// A mount whose origin sends no validators, and of which the first 512 KiB were read.
  private func onMountWithoutValidators(_ body: @escaping @Sendable (inout Scene) throws -> Void) async {
    await onMount(size: Self.size, options: Self.never) { stage in
      stage.origin.change(FaultStage.path) {
        $0.tag = .none
        $0.modified = nil
      }
    } _: { scene in
      let first = scene.read([ByteRange(0, 512 << 10)])
      scene.expect(first?.bytes == 512 << 10, "the first read: \(first.map { "\($0)" } ?? "")")
      try body(&scene)
    }
  }

  @Test("Between two mounts")
  func betweenMounts() async {
    await onMount(size: Self.size, options: Self.never) { scene in
      let first = scene.read([ByteRange(0, 512 << 10)])
      scene.expect(first?.bytes == 512 << 10, "the first mount: \(first.map { "\($0)" } ?? "")")
      if let problem = try scene.mount.unmount() { scene.expect(false, problem) }
      scene.origin.nextGeneration(FaultStage.path, size: Self.size - 5000)
      let again = try FaultMount(
        in: scene.stage.folder, manifest: scene.stage.manifest + "\n", options: Self.never)
      defer { again.end() }
      var second = Scene(stage: scene.stage, mount: again)
      let old = second.read()
      second.expect(
        old?.wrongAt == nil && (old?.error.map { $0.code == ESTALE } ?? false),
        "the old one: \(old.map { "\($0)" } ?? "")")
      second.readUntilWhole(size: Self.size - 5000, generation: 2)
      if let problem = try again.unmount() { second.expect(false, problem) }
      for problem in second.problems { scene.expect(false, problem) }
    }
  }

  @Test("Between two mounts, with nothing in the heads that tells: what was stored is not believed")
  func betweenMountsUntold() async {
    await onMountWithoutValidators { scene in
      if let problem = try scene.mount.unmount() { scene.expect(false, problem) }
      scene.origin.change(FaultStage.path) { $0.generation = 2 }
      let again = try FaultMount(
        in: scene.stage.folder, manifest: scene.stage.manifest + "\n", options: Self.never)
      defer { again.end() }
      var second = Scene(stage: scene.stage, mount: again)
      second.readUntilWhole(size: Self.size, generation: 2)
      if let problem = try again.unmount() { second.expect(false, problem) }
      for problem in second.problems { scene.expect(false, problem) }
    }
  }

  @Test(
    "While it is open",
    arguments: ["a strong tag", "the same tag, another length", "If-Range ignored", "Last-Modified"])
  func whileOpen(validator: String) async {
    await onMount(size: Self.size, options: Self.never) { stage in
      switch validator {
      case "the same tag, another length": stage.origin.change(FaultStage.path) { $0.tag = .fixed("\"same\"") }
      case "If-Range ignored": stage.origin.fault(.ignoreIfRange, path: FaultStage.path)
      case "Last-Modified": stage.origin.change(FaultStage.path) { $0.tag = .none }
      default: break
      }
    } _: { scene in
      let path = scene.file
      let descriptor = scene.bounded("an open") { open(path, O_RDONLY | O_CLOEXEC) } ?? -1
      defer { close(descriptor) }
      func read(_ range: ByteRange) -> ReadOutcome? {
        scene.bounded("a read") {
          var outcome = ReadOutcome()
          Reader.read(descriptor, range, pattern: FaultStage.path, generations: 1...1, &outcome)
          return outcome
        }
      }
      let stored = ByteRange(0, 128 << 10)
      let before = read(stored)
      scene.expect(before?.bytes == stored.count, "before: \(before.map { "\($0)" } ?? "")")
      scene.origin.nextGeneration(FaultStage.path, size: Self.size + 4096)
      let hole = read(ByteRange(3 << 20, 4 << 20))
      scene.expect(hole?.wrongAt == nil && hole?.error?.code == ESTALE, "a hole: \(hole.map { "\($0)" } ?? "")")
      let after = read(stored)
      scene.expect(after?.bytes == stored.count && after?.wrongAt == nil, "stored: \(after.map { "\($0)" } ?? "")")
      scene.readUntilWhole(size: Self.size + 4096, generation: 2)
      let late = read(stored)
      scene.expect(late?.bytes == stored.count && late?.wrongAt == nil, "stored, later: \(late.map { "\($0)" } ?? "")")
    }
  }

  @Test("Between two requests, with nothing in the heads that tells: never a mix, in no handle and not in the copy")
  func untold() async {
    await onMountWithoutValidators { scene in
      // A pause, which begins when what was read ahead is there.
      let origin = scene.origin
      scene.expect(eventually { origin.log.totals.openRequests == 0 }, "a request does not end")
      sleep(seconds: 2)
      scene.origin.change(FaultStage.path) { $0.generation = 2 }
      let old = scene.read(generations: 1...2)
      scene.expect(
        old?.wrongAt == nil && old?.generations == [1] && old?.error?.code == ESTALE,
        "a handle on the old one: \(old.map { "\($0)" } ?? "")")
      try scene.mount.fetch(FaultStage.name)
      try scene.waitForState("complete")
      scene.checkCopy(size: Self.size, generation: 2)
    }
  }

  @Test("And back again")
  func backAgain() async {
    await onMount(size: Self.size, options: Self.never) { scene in
      _ = scene.read([ByteRange(0, 256 << 10)])
      scene.origin.nextGeneration(FaultStage.path)
      // Not all of it: what is complete is never asked about again.
      scene.readUntilWhole([ByteRange(1 << 20, 2 << 20)], size: 1 << 20, generation: 2)
      scene.origin.change(FaultStage.path) { $0.generation = 1 }
      scene.readUntilWhole([ByteRange(3 << 20, .max), ByteRange(0, 3 << 20)], size: Self.size, generation: 1)
    }
  }

  @Test("In the middle of a continuation that nobody reads")
  func continuation() async {
    await onMount(size: Self.size, options: ["--continue=always", "--timeout", "30"]) { stage in
      stage.origin.configure { $0.connectionRate = 2e6 }
      let origin = stage.origin
      origin.decide { request in
        if request.indexOfPath == 4 { origin.nextGeneration(FaultStage.path) }
        return []
      }
    } _: { scene in
      _ = scene.read([])
      try scene.waitForState("complete")
      scene.checkCopy(size: Self.size, generation: 2)
    }
  }

  /// Nothing in the heads tells of it: the checksum does.
  @Test("In the middle of one body, under the head of the old one: with a checksum it is fetched again")
  func tornBody() async {
    let size: Int64 = 200_000
    let isTorn = Lock(false)
    await onMount(size: size, options: ["--continue=always", "--timeout", "30"]) { stage in
      let file = try stage.folder.write(
        Pattern.bytes(name: FaultStage.path, generation: 2, offset: 0, count: Int(size)), to: "whole")
      stage.manifest += "\n  checksum=sha-256=" + (try Command.succeed(["sha256sum", file]).prefix(64))
      // In the first body that is long enough: what the server asks for at first depends on the line.
      stage.origin.decide { request in
        guard (request.range?.count ?? size) > 20_000 else { return nil }
        return isTorn.withLock { isTorn in
          defer { isTorn = true }
          return isTorn ? nil : [.nextGenerationAfter(20_000)]
        }
      }
    } _: { scene in
      _ = scene.read([])
      try scene.waitForState("complete")
      scene.expect(isTorn.withLock { $0 }, "no body was torn")
      scene.checkCopy(size: size, generation: 2)
      scene.readUntilWhole(size: size, generation: 2)
      let requests = scene.origin.log.totals.requests
      scene.expect(requests <= 8, "\(requests) requests")
    }
  }

  @Test("At random, under random readers: every handle sees one generation")
  func random() async {
    var seeds = SeededRandom.fromEnvironment()
    let changes = seeds.fork()
    let forks = (0..<6).map { _ in seeds.fork() }
    await onMount(size: Self.size, options: ["--timeout", "30"]) { scene in
      let origin = scene.origin
      let path = scene.file
      let sizes = Lock([Self.size])
      let isOver = Lock(false)
      Reader.detached {
        var random = changes
        for _ in 0..<12 {
          sleep(seconds: Double.random(in: 0.05...0.6, using: &random))
          origin.nextGeneration(
            FaultStage.path, size: random.oneIn(2) ? Int64.random(in: 1 << 20...Self.size, using: &random) : nil)
          let size = origin.resource(FaultStage.path)?.size ?? 0
          sizes.withLock { $0.append(size) }
        }
        isOver.withLock { $0 = true }
      }
      let bodies = forks.map { fork -> @Sendable () -> [String] in
        {
          var random = fork
          var problems: [String] = []
          while !isOver.withLock({ $0 }) {
            let ranges = (0..<Int.random(in: 1...6, using: &random)).map { _ in
              ByteRange(at: Int64.random(in: 0..<Self.size, using: &random), count: 64 << 10)
            }
            let outcome = Reader.read(path, ranges, pattern: FaultStage.path, generations: 1...20)
            if outcome.wrongAt != nil || outcome.generations.count > 1
              || outcome.error.map({ $0.code != ESTALE && $0.code != ETIMEDOUT }) ?? false
            {
              problems.append("\(outcome) of \(ranges)")
            }
          }
          return problems
        }
      }
      for result in Reader.sideBySide(timeout: FaultRun.bound, bodies) {
        guard let result else {
          let report = ProcessReport.describe(scene.mount.process.processID, withGroup: true)
          scene.expect(false, "a reader hangs: " + report)
          continue
        }
        for problem in result { scene.expect(false, problem) }
      }
      // The last one, unless one was complete before: such a copy is never asked about again.
      let all = sizes.withLock { $0 }
      var outcome: ReadOutcome?
      let isWhole = eventually(timeout: FaultRun.bound, interval: 0.2) {
        outcome = scene.read(generations: 1...UInt64(all.count))
        guard let generation = outcome?.generations.first else { return outcome == nil }
        return outcome?.error == nil && outcome?.wrongAt == nil && outcome?.bytes == all[Int(generation) - 1]
      }
      scene.expect(isWhole, "never whole: \(outcome.map { "\($0)" } ?? "")")
      scene.expect(outcome?.generations.count == 1, "a mix: \(outcome.map { "\($0)" } ?? "")")
      if outcome?.generations != [UInt64(all.count)] { try scene.waitForState("complete") }
    }
  }
}
