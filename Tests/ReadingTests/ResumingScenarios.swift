import Base
import Fetching
import Manifest
import Storing
import Testing

import Reading

/// Many unfinished files that are to be gone on with, behind an origin that does not answer.
@Suite struct ResumingScenarios {
  private static let size: Int64 = 4096

  private static func url(_ number: Int) -> String { "http://origin/\(number).mp4" }

  /// A mount that finds `count` files begun, and to be gone on with.
  private func begun(_ count: Int, failure: TransferFailure) throws -> Bench {
    var resources: [String: FakeResource] = [:]
    for number in 1...count {
      var resource = FakeResource(name: "\(number).mp4", size: Self.size)
      resource.failure = failure
      resources[Self.url(number)] = resource
    }
    let bench = try Bench((1...count).map { Bench.entry("\($0).mp4", UInt64($0)) }, resources)
    var changes: [CatalogChange] = []
    for entry in bench.entries {
      let generation = GenerationRecord(
        id: try bench.catalog.changes.nextID(), key: entry.key,
        validators: Validators(etag: "\"1\"", lastModified: 1_600_000_000), size: Self.size, mediaType: "video/mp4")
      changes.append(.learned(generation))
      changes.append(.continues(generation: generation.id, true))
    }
    try bench.catalog.changes.apply(changes, durably: true)
    try bench.restart()
    return bench
  }

  /// Lets time go by; the most files that were in memory at once, and all that ever were.
  private func watch(_ bench: Bench, _ seconds: Double) -> (most: Int, seen: Set<ResourceKey>) {
    var most = 0
    var seen: Set<ResourceKey> = []
    for _ in 0..<Int(seconds) {
      bench.run(1, step: 0.25)
      most = max(most, bench.inMemory.count)
      seen.formUnion(bench.inMemory)
    }
    return (most, seen)
  }

  @Test("Hundreds behind a dead origin: few are in memory, each has its turn, and all come when it is back")
  func deadOrigin() throws {
    let count = 400
    let bench = try begun(count, failure: FakeResource.reset)
    let (most, seen) = watch(bench, 240)
    #expect(most > RoomLimits.resumedAtOnce && most <= RoomLimits.mostUnfinished, "\(most) in memory")
    #expect(seen.count == count, "\(seen.count) of \(count) had a turn")
    for number in 1...count { bench.service.resources[Self.url(number)]?.failure = nil }
    let isDone = bench.run(until: 3600, step: 0.25) { bench.inMemory.isEmpty && self.left(bench) == 0 }
    #expect(isDone, "\(left(bench)) of \(count) are still not there")
    #expect(bench.run(until: 600, step: 0.25) { !bench.isResuming }, "the list is looked at for ever")
  }

  /// How many are not complete.
  private func left(_ bench: Bench) -> Int {
    (try? bench.catalog.generations.continuing(limit: 10_000, after: 0).count) ?? -1
  }

  @Test("Files that fail behind an origin that answers others: those behind them come, however many they are")
  func failingFiles() throws {
    let count = 320
    let bench = try begun(count, failure: TransferFailure(kind: .transient, status: 500, message: "HTTP 500"))
    for number in 311...count { bench.service.resources[Self.url(number)]?.failure = nil }
    let isDone = bench.run(until: 1200, step: 0.25) { (311...count).allSatisfy { bench.isComplete("\($0).mp4") } }
    #expect(isDone)
    #expect(bench.inMemory.count <= RoomLimits.mostUnfinished)
  }

  @Test("The catalog cannot be read when a mount begins: unfinished files come once it can")
  func catalogThatCannotBeRead() throws {
    let store = FakeStore()
    let bench = try Bench(FakeResource(name: "a.mp4", size: 3 << 20), fake: store)
    bench.expectBytes(try bench.opened("a.mp4"), 0, 4096, of: "a.mp4")
    bench.run(2)
    try store.apply([.continues(generation: bench.generation("a.mp4").id, true)], durably: true)
    store.refuseLookUps(true)
    try bench.restart()
    bench.run(20)
    #expect(bench.isEmpty && bench.isResuming && !bench.isComplete("a.mp4"))
    store.refuseLookUps(false)
    #expect(bench.run(until: 70) { bench.isComplete("a.mp4") })
    #expect(bench.run(until: 600, step: 0.25) { !bench.isResuming }, "the list is looked at for ever")
  }

  @Test("What is open or was asked for by name is not put away for others")
  func kept() throws {
    let count = 800
    let bench = try begun(count, failure: FakeResource.reset)
    bench.run(1)
    let open = try bench.inode("1.mp4")
    let wanted = try (2...16).map { try bench.inode("\($0).mp4") }
    bench.open(open)
    bench.system.fetch(wanted)
    for _ in 0..<200 {
      bench.run(1, step: 0.25)
      #expect((wanted + [open]).allSatisfy { bench.isInMemory($0) })
    }
  }
}
