import Base
import Fetching
import TestSupport
import Testing

import Reading

/// Origins that send no validators: only the bytes tell that a file changed.
@Suite struct ComparisonScenarios {
  static let megabyte: Int64 = 1 << 20
  static let size = 4 * megabyte
  static let url = "http://origin/a.mp4"

  private func bench(_ policy: ContinuationPolicy = .never) throws -> Bench {
    var options = ReadingOptions.testing
    options.continuation = policy
    return try Bench(
      FakeResource(name: "a.mp4", size: Self.size, etag: nil, lastModified: nil), options: options)
  }

  @Test("A file that changes between two requests becomes no mix: what completes is one version")
  func neverAMix() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.system.release(inode)
    bench.run(30)
    bench.service.resources[Self.url]?.change()
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    let new = try bench.opened("a.mp4")
    bench.expectBytes(new, 0, Int(Self.size), of: "a.mp4", version: 2)
  }

  @Test("The same after the file left memory")
  func neverAMixAfterPuttingAway() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.system.release(inode)
    #expect(bench.run(until: 120, step: 0.1) { !bench.isInMemory(inode) })
    bench.service.resources[Self.url]?.change()
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.expectBytes(try bench.opened("a.mp4"), 0, Int(Self.size), of: "a.mp4", version: 2)
  }

  @Test(
    "An old handle gets what is stored, and ESTALE for the rest, where it goes on and where it jumps",
    arguments: [256 << 10, 3 << 20, 4 << 20 - 4096])
  func oldHandle(place: Int64) throws {
    let bench = try bench()
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 100_000, of: "a.mp4")
    bench.run(5)
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(old, place, 4096)) == .error(.stale))
    bench.expectBytes(old, 0, 100_000, of: "a.mp4")
    let new = try bench.opened("a.mp4")
    #expect(new != old)
    for offset in [0, place, Self.size / 2] { bench.expectBytes(new, offset, 4096, of: "a.mp4", version: 2) }
  }

  @Test("One answer with other bytes is no other version, and costs no stored byte")
  func oddAnswer() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    for offset in [Self.megabyte, 3 * Self.megabyte] {
      bench.run(5)
      var odd = 1
      bench.service.answer = { _, resource in
        var resource = resource
        if odd > 0 { resource.change() }
        odd -= 1
        return resource
      }
      bench.expectBytes(inode, offset, 4096, of: "a.mp4")
    }
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("Other bytes with each answer are a failure with pauses, and nothing of them is stored")
  func fickle() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(5)
    let before = bench.service.requests.count
    var version: UInt64 = 1
    bench.service.answer = { _, resource in
      var resource = resource
      version += 1
      resource.version = version
      return resource
    }
    #expect(bench.answer(bench.read(inode, 3 * Self.megabyte, 4096)) == .error(.timedOut))
    #expect(bench.service.requests.count - before < 60)
    bench.service.answer = nil
    bench.run(5)
    bench.expectBytes(inode, 3 * Self.megabyte, 4096, of: "a.mp4")
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("Streams that break off before the hole are no progress, and use up nothing of what may be compared")
  func streamsThatBreakOff() throws {
    let bench = try bench()
    bench.service.resources[Self.url]?.ignoresRanges = true
    bench.service.resources[Self.url]?.breaksAfter = 300_000
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(5)
    let before = bench.service.requests.count
    #expect(bench.answer(bench.read(inode, Self.megabyte, 4096), within: 120) == .error(.timedOut))
    #expect(bench.service.requests.count - before < 100)
    // The origin gives ranges after all: they are still compared.
    bench.service.resources[Self.url]?.ignoresRanges = false
    bench.service.resources[Self.url]?.breaksAfter = nil
    bench.service.resources[Self.url]?.change()
    bench.run(5)
    #expect(bench.answer(bench.read(inode, Self.megabyte, 4096)) == .error(.stale))
  }

  @Test("However often a reader pauses, at most half a percent of the bytes comes again")
  func repeatsLittle() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    var offset: Int64 = 0
    while offset < Self.size {
      bench.expectBytes(inode, offset, 64 << 10, of: "a.mp4")
      offset += 64 << 10
      bench.run(3)
    }
    #expect(bench.service.sent <= Self.size + Self.size / 200)
    #expect(bench.service.sent > Self.size, "nothing was compared")
    bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
  }

  @Test("A file that is fetched without a pause is compared with nothing, nor is one with validators")
  func withoutAPause() throws {
    for tag in [nil, "\"1\""] {
      var options = ReadingOptions.testing
      options.continuation = .always
      let bench = try Bench(
        FakeResource(name: "a.mp4", size: Self.size, etag: tag, lastModified: nil), options: options)
      let inode = try bench.opened("a.mp4")
      bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
      if tag != nil { bench.run(30) }
      bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
      #expect(bench.service.sent == Self.size)
    }
  }
}
