import Base
import Fetching
import TestSupport
import Testing

import Reading

/// Scripts of what a kernel asks and what an origin answers, in simulated time.
@Suite struct ReadingScenarios {
  static let megabyte: Int64 = 1 << 20

  @Test("One request serves the open and the first read")
  func firstTouch() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    #expect(bench.service.requests.count == 1)
    let reply = bench.answer(bench.stat(inode))
    #expect(
      reply
        == .attributes(
          Attributes(
            inode: inode, isFolder: false, size: 20 * Self.megabyte, modified: 1_600_000_000, isFinal: true,
            isCacheable: false)))
  }

  @Test("A stat tells the size that the head brings at any moment of it", arguments: 1...3)
  func statMeetsTheHead(moment: Int) throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.inode("a.mp4")
    let opening = bench.open(inode)
    var looks = 0
    bench.looks.withLock { hook in
      hook = {
        looks += 1
        if looks == moment { bench.run(1) }
      }
    }
    let stat = bench.stat(inode)
    let seen = looks
    bench.looks.withLock { $0 = nil }
    #expect(seen >= 2, "the scene is none: the stat looked at the time \(seen) times")
    #expect(
      bench.answer(stat)
        == .attributes(
          Attributes(
            inode: inode, isFolder: false, size: 20 * Self.megabyte, modified: 1_600_000_000, isFinal: true,
            isCacheable: false)))
    #expect(bench.answer(opening) == .opened(directIO: false))
  }

  @Test("The kernel caches a size that it was shown a second ago, and none before")
  func cacheable() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    for (after, isCacheable) in [(2.0, false), (0, false), (0.9, false), (0.2, true)] {
      bench.run(after)
      guard case .attributes(let shown) = bench.answer(bench.stat(inode)) else {
        Issue.record("no attributes")
        return
      }
      #expect(shown.size == 20 * Self.megabyte && shown.isCacheable == isCacheable, "\(after) s later: \(shown)")
    }
  }

  @Test("A seek is answered while the first window is still coming")
  func seek() throws {
    var resource = FakeResource(name: "a.mp4", size: 200 * Self.megabyte)
    resource.rate = 1_000_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 100 * Self.megabyte, 65536, of: "a.mp4", within: 1)
    bench.expectBytes(inode, 200 * Self.megabyte - 10, 10, of: "a.mp4", within: 1)
    #expect(bench.answer(bench.read(inode, 200 * Self.megabyte, 100)) == .data([]))
  }

  @Test("What is complete is placed, and read without an origin after a restart")
  func completes() throws {
    let size = 9 * Self.megabyte + 123
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let inode = try bench.opened("a.mp4")
    var offset: Int64 = 0
    while offset < size {
      let count = min(131072, size - offset)
      bench.expectBytes(inode, offset, Int(count), of: "a.mp4")
      offset += count
    }
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.system.release(inode)
    #expect(bench.service.sent == size)
    bench.service.resources = [:]
    try bench.restart()
    let again = try bench.opened("a.mp4")
    #expect(again == inode)
    bench.expectBytes(again, 5_000_001, 100_000, of: "a.mp4")
  }
}
