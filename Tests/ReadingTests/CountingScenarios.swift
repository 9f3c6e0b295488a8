import Base
import Glibc
import Storing
import TestSupport
import Testing

import Reading

/// What a running server counts, and what it tells as it happens.
@Suite struct CountingScenarios {
  private static let size: Int64 = 8 << 20

  private func sum(_ metrics: RoomMetrics, _ source: ReadSource, _ audience: Audience) -> UInt64 {
    metrics.reads.filter { $0.source == source && $0.audience == audience }.reduce(0) { $0 + $1.bytes }
  }

  private func fetched(_ metrics: RoomMetrics, _ audience: Audience) -> UInt64 {
    metrics.requests.filter { $0.audience == audience }.reduce(0) { $0 + $1.bytes }
  }

  @Test("Every byte that a program gets is counted once, by where it came from")
  func readBytes() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size, latency: 0.1))
    let inode = try bench.opened("a.mp4")
    let before = bench.system.metrics()
    bench.expectBytes(inode, 4 << 20, 100_000, of: "a.mp4")
    let waited = bench.system.metrics()
    #expect(sum(waited, .origin, .reader) - sum(before, .origin, .reader) == 100_000)
    bench.expectBytes(inode, 4 << 20, 100_000, of: "a.mp4")
    let stored = bench.system.metrics()
    #expect(sum(stored, .store, .reader) - sum(waited, .store, .reader) == 100_000)
    #expect(sum(stored, .origin, .reader) == sum(waited, .origin, .reader))
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.run(1)
    bench.expectBytes(inode, 0, 50_000, of: "a.mp4")
    let complete = bench.system.metrics()
    #expect(sum(complete, .copy, .reader) == 50_000 && complete.completions == 1)
    // What the origin sent, and nothing twice.
    let all = Audience.allCases.reduce(0) { $0 + fetched(complete, $1) }
    #expect(all == UInt64(Self.size) && complete.duplicateBytes == 0, "\(all)")
    #expect(fetched(complete, .continuation) > 0 && fetched(complete, .reader) > 0)
    #expect(complete.requests.reduce(0) { $0 + $1.count } == UInt64(bench.service.requests.count))
    #expect(complete.inFlight == 0 && complete.opens == 1 && complete.waitingReads == 0)
  }

  @Test("A stall lasts from the first read that waits to the last, and grows while it lasts")
  func stalls() throws {
    var resource = FakeResource(name: "a.mp4", size: Self.size)
    resource.latency = 1
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    let before = bench.system.metrics()
    let since = bench.now
    // Both wait at once: that is one stall of the file.
    let tickets = [bench.read(inode, 4 << 20, 65536), bench.read(inode, (4 << 20) + 65536, 65536)]
    bench.run(0.5)
    let amid = bench.system.metrics()
    #expect(abs(amid.stalledSeconds - before.stalledSeconds - 0.5) < 0.1, "\(amid.stalledSeconds)")
    #expect(amid.waitingReads == 2)
    for ticket in tickets { _ = bench.answer(ticket) }
    let seconds = bench.now.seconds(since: since)
    bench.run(5)
    let after = bench.system.metrics()
    let counted = after.stalledSeconds - before.stalledSeconds
    #expect(abs(counted - seconds) < 0.1 && seconds > 0.9, "\(counted) of \(seconds)")
    #expect(after.waitingReads == 0)
  }

  @Test("The first bytes of answers are in the buckets of their times, and errors by their kinds")
  func answers() throws {
    var gone = FakeResource(name: "b.mp4", size: Self.size)
    gone.failure = FakeResource.gone
    let bench = try Bench(
      [Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)],
      ["http://origin/a.mp4": FakeResource(name: "a.mp4", size: Self.size, latency: 0.2), "http://origin/b.mp4": gone])
    _ = try bench.opened("a.mp4")
    let metrics = bench.system.metrics()
    let answers = metrics.firstBytes.reduce(0, +)
    let bounds = RoomMetrics.firstByteBounds
    #expect(metrics.firstBytes.count == bounds.count + 1 && answers > 0)
    let early = zip(bounds, metrics.firstBytes).filter { $0.0 < 0.2 }.reduce(0) { $0 + $1.1 }
    #expect(early == 0, "\(metrics.firstBytes)")
    #expect(metrics.firstByteSeconds >= 0.2 * Double(answers))
    #expect(bench.answer(bench.open(try bench.inode("b.mp4"))) == .error(.io))
    let failed = bench.system.metrics()
    #expect(failed.requestErrors.first { $0.kind == .permanent }?.count == 1)
    #expect(bench.answer(bench.read(try bench.inode("b.mp4"), 0, 10)) == .error(.io))
    #expect(bench.system.metrics().readErrors.first { $0.kind == .failed }?.count == 1)
  }

  @Test("What a program that looks at files reads is a scan's, and what it has fetched")
  func scans() throws {
    try LookScenarios.withLooker { looker in
      let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size, latency: 0.05))
      let inode = try bench.inode("a.mp4")
      _ = bench.answer(bench.stat(inode, process: looker))
      _ = bench.answer(bench.open(inode, process: looker))
      for start in [Int64(0), Self.size - 65536, 0] {
        _ = bench.answer(bench.read(inode, start, 65536, process: looker))
      }
      let metrics = bench.system.metrics()
      let read = ReadSource.allCases.reduce(0) { $0 + sum(metrics, $1, .scan) }
      #expect(read == 3 * 65536, "\(metrics.reads)")
      #expect(ReadSource.allCases.allSatisfy { sum(metrics, $0, .reader) == 0 })
      #expect(fetched(metrics, .scan) > 0 && fetched(metrics, .continuation) == 0)
      #expect(fetched(metrics, .reader) == 0, "\(metrics.requests)")
    }
  }

  private final class Listener: HappeningListener {
    let told = Lock<[Happening]>([])
    let hears = Lock(true)
    var isHeard: Bool { hears.withLock { $0 } }
    func happened(_ happening: Happening) { told.withLock { $0.append(happening) } }
    func take() -> [Happening] {
      told.withLock { told in
        defer { told = [] }
        return told
      }
    }
  }

  @Test("What happens is told once, in its order")
  func events() throws {
    var resource = FakeResource(name: "a.mp4", size: Self.size)
    resource.failure = FakeResource.reset
    let bench = try Bench(resource)
    let listener = Listener()
    bench.system.tell(listener)
    let inode = try bench.inode("a.mp4")
    bench.open(inode)
    bench.run(8)
    #expect(listener.take() == [Happening(.failing, path: "a.mp4", message: FakeResource.reset.message)])
    bench.service.resources["http://origin/a.mp4"]?.failure = nil
    bench.service.resources["http://origin/a.mp4"]?.latency = 3
    bench.run(60)
    let opened = try bench.opened("a.mp4")
    #expect(listener.take() == [Happening(.new, path: "a.mp4", bytes: Self.size)])
    bench.expectBytes(opened, 4 << 20, 1000, of: "a.mp4")
    #expect(listener.take() == [Happening(.stalled, path: "a.mp4")])
    bench.service.resources["http://origin/a.mp4"]?.latency = 0.01
    bench.system.fetch([opened])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.run(1)
    #expect(
      listener.take() == [
        Happening(.complete, path: "a.mp4", bytes: Self.size, copy: "a.mp4", url: "http://origin/a.mp4")
      ])
  }

  @Test("Nothing is looked up while nobody listens")
  func unheard() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    let listener = Listener()
    listener.hears.withLock { $0 = false }
    bench.system.tell(listener)
    _ = try bench.opened("a.mp4")
    #expect(listener.take().isEmpty)
  }

  @Test(
    "What makes room is counted and told once, and only if its bytes go: not of a file that is kept",
    arguments: [false, true])
  func evictions(isKept: Bool) throws {
    var options = ReadingOptions.testing
    (options.continuation, options.maximumSize) = (.never, 32 << 20)
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size), options: options)
    let listener = Listener()
    bench.system.tell(listener)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 3 << 20, of: "a.mp4")
    bench.run(3)
    let stored = try bench.stored(inode).count
    try #require(stored >= 3 << 20)
    _ = listener.take()
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.reset
    if isKept { try bench.rule(.keep, "a.mp4") }
    bench.system.release(inode)
    bench.limit { $0.maximumSize = 64 << 10 }
    bench.run(20)
    let evicted = listener.take().filter { $0.kind == .evicted }
    let metrics = bench.system.metrics()
    #expect(evicted == (isKept ? [] : [Happening(.evicted, path: "a.mp4", bytes: stored)]))
    #expect(metrics.evictions == (isKept ? 0 : 1) && metrics.evictedBytes == (isKept ? 0 : UInt64(stored)))
    #expect(try bench.generation("a.mp4").stored.count == (isKept ? stored : 0))
  }

  @Test(
    "A copy that a user changed is told once, with the reason, and is no other version of the origin",
    arguments: [false, true])
  func changedCopy(inMemory: Bool) throws {
    let size: Int64 = 2 << 20
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let old = try bench.opened("a.mp4")
    bench.system.fetch([old])
    #expect(bench.run(until: 30) { bench.isComplete("a.mp4") })
    bench.run(1)
    bench.system.release(old)
    if !inMemory { #expect(bench.run(until: 90) { bench.isEmpty }) }
    let listener = Listener()
    bench.system.tell(listener)
    #expect(truncate(bench.folder + "/library/a.mp4", 5) == 0)
    _ = bench.answer(bench.open(try bench.inode("a.mp4")))
    let new = try bench.opened("a.mp4")
    bench.expectBytes(new, 0, Int(size), of: "a.mp4")
    #expect(new != old)
    let told = listener.take().filter { $0.kind == .changed }
    let reason = inMemory ? "its copy in the library was changed" : "its copy in the library was changed or removed"
    #expect(told == [Happening(.changed, path: "a.mp4", message: reason)], "\(told)")
    #expect(bench.system.metrics().versions == 0)
  }

  @Test("Another version at the origin is told and counted once, with the reason")
  func changedOrigin() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    let listener = Listener()
    bench.system.tell(listener)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.service.resources["http://origin/a.mp4"]?.change()
    _ = bench.answer(bench.read(inode, 6 << 20, 65536))
    bench.run(3)
    let told = listener.take().filter { $0.kind == .changed }
    #expect(told == [Happening(.changed, path: "a.mp4", bytes: Self.size, message: "a new version at the origin")])
    #expect(bench.system.metrics().versions == 1)
  }
}
