import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// What a user asked for by name goes on over mounts, whatever the policy.
@Suite struct PinningScenarios {
  private static let size: Int64 = 8 << 20

  private func bench(_ failure: TransferFailure? = nil) throws -> Bench {
    var options = ReadingOptions.testing
    options.continuation = .never
    var resource = FakeResource(name: "a.mp4", size: Self.size)
    resource.failure = failure
    return try Bench(resource, options: options)
  }

  private func pins(_ bench: Bench) throws -> [ResourceKey] { try bench.catalog.notes.pins(limit: 10, after: nil) }

  private func stored(_ bench: Bench) throws -> Int64 {
    try bench.catalog.generations.current(of: bench.node("a.mp4").key)?.stored.count ?? 0
  }

  @Test("A fetched file goes on at the next mount under --continue never, also after a kill", arguments: [false, true])
  func goesOn(killed: Bool) throws {
    let bench = try bench()
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 10) { (try? stored(bench)) ?? 0 > 1 << 20 })
    try #require(!bench.isComplete("a.mp4"))
    try bench.restart(killed: killed)
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.run(3)
    #expect(try pins(bench).isEmpty, "a file that is whole is pinned for ever")
  }

  @Test("A file that was only read does not")
  func readOnly() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 3 << 20, of: "a.mp4")
    bench.run(3)
    try bench.restart()
    bench.run(30)
    #expect(!bench.isComplete("a.mp4"))
  }

  @Test("A file of which nothing was known when it was fetched comes at the next mount")
  func unknown() throws {
    let bench = try bench(FakeResource.reset)
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(5)
    try bench.restart()
    bench.run(5)
    bench.service.resources["http://origin/a.mp4"]?.failure = nil
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("A fetch of hundreds of files takes several turns of the keeper, in which it commits, and all of them come")
  func manyFiles() throws {
    let names = (1...300).map { "\($0).mp4" }
    let resources = Dictionary(
      uniqueKeysWithValues: names.map { ("http://origin/" + $0, FakeResource(name: $0, size: 4096)) })
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0) + 1) }, resources)
    bench.system.fetch(try names.map { try bench.inode($0) })
    bench.move(0)
    let loaded = bench.inMemory.count
    #expect(loaded > 0 && loaded < names.count / 2, "\(loaded) files were loaded in one turn")
    #expect(bench.run(until: 120) { names.allSatisfy { bench.isComplete($0) } })
  }

  @Test("A cancel that comes while a fetch of many files is taken up ends all of them")
  func cancelledBehindAFetch() throws {
    let names = (1...300).map { "\($0).mp4" }
    let resources = Dictionary(
      uniqueKeysWithValues: names.map { ("http://origin/" + $0, FakeResource(name: $0, size: 64 << 20)) })
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0) + 1) }, resources)
    bench.system.fetch(try names.map { try bench.inode($0) })
    let system = bench.system
    let ended = Lock<Int64?>(nil)
    let thread = OwnedThread(name: "cancelling") {
      let count = try? system?.cancel({ _ in true }) { _, _ in }
      ended.withLock { $0 = count ?? -1 }
    }
    while ended.withLock({ $0 == nil }) {
      bench.move(0.01)
      sleep(seconds: 0.001)
    }
    thread.join()
    #expect(ended.withLock { $0 } == 300)
    bench.run(2)
    #expect(try bench.store.notes.pins(limit: 10, after: nil).isEmpty)
  }

  @Test("One that failed for good is tried once more at the next mount")
  func failed() throws {
    let bench = try bench(FakeResource.gone)
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(20)
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).state == .failed)
    bench.service.resources["http://origin/a.mp4"]?.failure = nil
    try bench.restart()
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("What a user clears is not fetched any more")
  func cleared() throws {
    let bench = try bench()
    let inode = try bench.inode("a.mp4")
    bench.system.fetch([inode])
    #expect(bench.run(until: 10) { (try? stored(bench)) ?? 0 > 1 << 20 })
    let isDone = Lock(false)
    try bench.clear(inode) { isDone.withLock { $0 = true } }
    #expect(bench.run(until: 5) { isDone.withLock { $0 } })
    bench.run(3)
    #expect(try pins(bench).isEmpty)
    try bench.restart()
    bench.run(30)
    #expect(try stored(bench) == 0)
  }

  @Test("A pinned part is not evicted")
  func notEvicted() throws {
    let bench = try bench()
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 10) { (try? stored(bench)) ?? 0 > 1 << 20 })
    bench.stop()
    try bench.start()  // nothing is resumed: it is not in memory
    let key = try bench.node("a.mp4").key
    let generation = try #require(try bench.catalog.generations.current(of: key))
    #expect(!bench.evict(key, generation: generation.id))
    #expect(try stored(bench) > 1 << 20)
  }
}
