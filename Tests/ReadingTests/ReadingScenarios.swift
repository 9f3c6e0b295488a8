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

  @Test("A file whose last two handles are closed at once, by two threads, is told to be closed")
  func closedAtOnce() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.run(1)
    _ = bench.takeClosings()
    // In the middle of a close, which has been told and is not counted: another thread opens and closes the file.
    var isWithin = false
    bench.wakes.withLock { hook in
      hook = {
        if isWithin { return }
        isWithin = true
        bench.open(inode)
        bench.system.release(inode)
      }
    }
    bench.system.release(inode)
    bench.wakes.withLock { $0 = nil }
    #expect(isWithin && bench.takeClosings() == 2, "the second close was the last one")
    #expect(bench.opens(inode) == 0)
    // Neither is still counted as being closed.
    for _ in 0..<2 { bench.open(inode) }
    _ = bench.takeClosings()
    bench.system.release(inode)
    #expect(bench.takeClosings() == 0)
    bench.system.release(inode)
    #expect(bench.takeClosings() == 1)
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
