import Base
import Glibc
import TestSupport
import Testing

/// What a hundred files that wait for one origin make of it: requests while it is away, connections when it is back.
@Suite("A hundred files and their origin")
struct StormTests {
  private static let size: Int64 = 512 << 10

  private static func addFiles(_ numbers: Range<Int>, of origin: Origin, to stage: FaultStage) {
    for number in numbers {
      origin.set("/\(number).bin", OriginResource(size: size, pattern: "/\(number).bin"))
      stage.manifest += origin.url("/\(number).bin") + "\n"
    }
  }

  /// Opens and closes files, one after the other: from then on each is to be continued.
  private static func open(_ numbers: Range<Int>, _ scene: inout Scene) {
    for number in numbers {
      let path = scene.mount.file("\(number).bin")
      let outcome = scene.bounded("an open") { Reader.read(path, [], pattern: "") }
      scene.expect(outcome?.error == nil, "the open of \(number): \(outcome.map { "\($0)" } ?? "")")
    }
  }

  private static func waitForComplete(_ names: Set<String>, _ mount: FaultMount) throws -> Int {
    var complete = 0
    let deadline = Instant.now.adding(seconds: FaultRun.bound)
    repeat {
      sleep(seconds: 0.3)
      complete = try mount.status().files.filter { names.contains($0.path) && $0.state == "complete" }.count
    } while complete < names.count && Instant.now < deadline
    return complete
  }

  @Test("Nobody reads: the pauses of one while it is away, six connections when it is back")
  func continuations() async {
    let count = 100
    await onMount(options: ["--timeout", "5", "--continue=always"]) { stage in
      stage.manifest = ""
      Self.addFiles(0..<count, of: stage.origin, to: stage)
      // The heads come, and nothing behind them.
      stage.origin.decide { $0.firstByte > 0 ? [.resetBeforeHeaders] : [] }
    } _: { scene in
      let origin = scene.origin
      Self.open(0..<count, &scene)
      // From now on nothing at all.
      origin.fault(.resetBeforeHeaders)
      origin.decide(nil)
      origin.dropConnections()
      scene.expect(eventually(timeout: 30) { origin.log.totals.openConnections == 0 }, "connections stay")
      origin.log.reset()
      sleep(seconds: 15)
      let away = origin.log.totals
      scene.expect((1...40).contains(away.requests), "while it is away: \(away)")
      scene.expect(away.peakConnections <= 6, "while it is away: \(away)")

      origin.log.reset()
      origin.clearFaults()
      let complete = try Self.waitForComplete(Set((0..<count).map { "\($0).bin" }), scene.mount)
      let back = origin.log.totals
      scene.expect(complete == count, "\(complete) of \(count) came back: \(back)")
      scene.expect(back.peakConnections <= 6, "a storm: \(back)")
      scene.expect(back.requests <= 16 * count, "a storm: \(back)")
      for number in stride(from: 0, to: count, by: 9) {
        let copy = Reader.read(scene.mount.copy("\(number).bin"), pattern: "/\(number).bin")
        scene.expect(copy.bytes == Self.size && copy.wrongAt == nil, "\(number): \(copy)")
      }
    }
  }

  @Test("A hundred wait for its return: no more connections than a host may have", arguments: [32, 5])
  func readers(limit: Int) async {
    let count = 100
    let options = limit == 32 ? [] : ["--max-connections", "\(limit)"]
    await onMount(options: ["--timeout", "100", "--continue=never"] + options) { stage in
      stage.manifest = ""
      Self.addFiles(0..<count, of: stage.origin, to: stage)
      stage.origin.configure { $0.latency = 0.05 }
      try stage.origin.setUp(false)
    } _: { scene in
      let (mount, origin) = (scene.mount, scene.origin)
      let left = Lock(count)
      let outcomes = Lock([ReadOutcome?](repeating: nil, count: count))
      for number in 0..<count {
        Reader.detached {
          let outcome = Reader.read(mount.file("\(number).bin"), pattern: "/\(number).bin")
          outcomes.withLock { $0[number] = outcome }
          left.withLock { $0 -= 1 }
        }
      }
      sleep(seconds: 5)
      let early = outcomes.withLock { $0.compactMap { $0 } }
      scene.expect(early.isEmpty, "a reader did not wait: \(early)")
      try origin.setUp(true)
      let isOver = eventually(timeout: FaultRun.bound) { left.withLock { $0 } == 0 }
      let bad = outcomes.withLock { $0 }.filter { $0?.bytes != Self.size || $0?.wrongAt != nil }
      scene.expect(isOver && bad.isEmpty, "\(bad.count) were not served: \(bad.prefix(3))")
      let totals = origin.log.totals
      scene.expect((2...limit).contains(totals.peakConnections), "a storm: \(totals)")
      // Each reads half a MiB. Windows are short where a busy machine makes the line look slow.
      scene.expect(totals.requests <= 16 * count, "a storm: \(totals)")
    }
  }

  @Test("What is to be continued comes at the next mount, although the first files' origin is dead")
  func resumedBehindDead() async {
    let dead = 0..<24
    let good = 24..<34
    let options = ["--timeout", "5", "--continue=always"]
    await onMount(options: options) { stage in
      stage.manifest = ""
      let other = try stage.addOrigin(size: 0)
      Self.addFiles(dead, of: stage.origin, to: stage)
      Self.addFiles(good, of: other, to: stage)
      for origin in [stage.origin, other] { origin.decide { $0.firstByte > 0 ? [.resetBeforeHeaders] : [] } }
      // Else looks at siblings would bring some of its heads first: files are gone on with in the order of those.
      try other.setUp(false)
    } _: { scene in
      Self.open(dead, &scene)
      try scene.stage.others[0].setUp(true)
      Self.open(good, &scene)
      if let problem = try scene.mount.unmount() { scene.expect(false, problem) }
      try scene.origin.setUp(false)
      scene.stage.others[0].clearFaults()
      let again = try FaultMount(in: scene.stage.folder, manifest: scene.stage.manifest, options: options)
      defer { again.end() }
      let complete = try Self.waitForComplete(Set(good.map { "\($0).bin" }), again)
      scene.expect(complete == good.count, "\(complete) of \(good.count) were gone on with")
      if let problem = try again.unmount() { scene.expect(false, problem) }
    }
  }
}
