import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Entries with several URLs: which of them is requested when.
@Suite struct MirrorScenarios {
  static let megabyte: Int64 = 1 << 20

  @Test("The time that one mirror names binds no other; the one that named it is not requested before")
  func retryAfter() throws {
    let urls = ["http://one/a.mp4", "http://two/a.mp4"]
    let two = FakeResource(name: "a.mp4", size: 50 * Self.megabyte)
    var one = two
    one.failure = TransferFailure(kind: .transient, status: 503, retryAfter: 3600, message: "busy (HTTP 503)")
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try Bench(
      [Bench.entry("a.mp4", 1, urls: urls)], [urls[0]: one, urls[1]: two], options: options)
    let inode = try bench.inode("a.mp4")
    #expect(bench.answer(bench.open(inode), within: 2) == .opened(directIO: false))
    // However often the other one fails, it is requested again.
    var failures = 5
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url == urls[1], failures > 0 {
        failures -= 1
        resource.failure = FakeResource.reset
      }
      return resource
    }
    bench.expectBytes(inode, 20 * Self.megabyte, 4096, of: "a.mp4", within: 20)
    #expect(failures == 0)
    bench.service.resources[urls[1]]?.failure = FakeResource.gone
    #expect(bench.answer(bench.read(inode, 40 * Self.megabyte, 4096)) == .error(.timedOut))
    let asked = { bench.service.requests.count { $0.url == urls[0] } }
    #expect(asked() == 1)
    bench.run(3700, step: 1)
    bench.read(inode, 40 * Self.megabyte, 4096)
    bench.run(2)
    #expect(asked() > 1)
  }

  @Test("The time that a mirror names is obeyed also after another request to it fails later, without a time")
  func laterFailure() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte), options: options)
    let inode = try bench.opened("a.mp4")
    bench.run(1)
    let (first, second) = (20 * Self.megabyte, 40 * Self.megabyte)
    bench.service.answer = { request, resource in
      var resource = resource
      let isFirst = request.range.map { $0.start < 30 * Self.megabyte } ?? true
      resource.failure =
        isFirst
        ? TransferFailure(kind: .transient, status: 503, retryAfter: 60, message: "busy (HTTP 503)")
        : TransferFailure(kind: .transient, status: 500, message: "HTTP 500")
      resource.latency = isFirst ? 0.02 : 0.2
      return resource
    }
    let reads = [bench.read(inode, first, 4096), bench.read(inode, second, 4096)]
    bench.run(0.05)
    let asked = bench.service.requests.count
    for offset in [first, second] {
      #expect(bench.service.requests.contains { $0.range.map { $0.contains(offset) } ?? false })
    }
    #expect(!bench.service.running.isEmpty, "nothing fails later")
    bench.run(40)
    #expect(bench.service.running.isEmpty && reads.allSatisfy { bench.port.reply(to: $0) == .error(.timedOut) })
    #expect(bench.service.requests.count == asked, "it was asked before its time")
    bench.service.answer = nil
    bench.run(25)
    bench.expectBytes(inode, first, 4096, of: "a.mp4")
  }

  /// Two mirrors whose tags differ, and the first megabytes of the file, stored from the one that answers first. The
  /// mount is then made again. `hasChecksum`: the mirrors have the same bytes, else others.
  private func restarted(
    hasChecksum: Bool = false, firstIsAway: Bool = false
  ) throws -> (bench: Bench, inode: Inode, urls: [String]) {
    let urls = ["http://one/a.mp4", "http://two/a.mp4"]
    var entry = Bench.entry("a.mp4", 1, urls: urls)
    var one = FakeResource(name: "a.mp4", size: 12 * Self.megabyte)
    var two = one
    if hasChecksum {
      var digester = try Digester(.sha256)
      Pattern.bytes(name: "a.mp4", offset: 0, count: Int(one.size)).withUnsafeBytes { digester.update($0) }
      entry.checksum = Checksum(algorithm: .sha256, digest: digester.finish())
      (two.etag, two.lastModified) = ("\"two\"", 1_700_000_000)
    } else {
      two.change()
    }
    if firstIsAway { one.failure = FakeResource.gone }
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try Bench([entry], [urls[0]: one, urls[1]: two], options: options)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4", version: firstIsAway && !hasChecksum ? 2 : 1)
    bench.system.release(inode)
    bench.run(5)
    try bench.restart()
    return (bench, inode, urls)
  }

  @Test("After a restart a hiccup of the mirror whose bytes are stored does not give them up")
  func hiccupAfterARestart() throws {
    let (bench, inode, urls) = try restarted()
    var failures = 2
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url == urls[0], failures > 0 {
        failures -= 1
        resource.failure = FakeResource.reset
      }
      return resource
    }
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, 6 * Self.megabyte, 100_000, of: "a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(try bench.inode("a.mp4") == inode && failures == 0)
  }

  @Test("After a restart the mirror that the stored bytes came from is asked, though another comes before it")
  func secondAfterARestart() throws {
    let (bench, inode, urls) = try restarted(firstIsAway: true)
    bench.service.resources[urls[0]]?.failure = nil
    let asked = bench.service.requests.count
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, 6 * Self.megabyte, 100_000, of: "a.mp4", version: 2, within: 2)
    #expect(try bench.inode("a.mp4") == inode)
    #expect(bench.service.requests[asked...].allSatisfy { $0.url == urls[1] })
  }

  @Test("After a restart another mirror goes on with what a checksum can verify", arguments: [false, true])
  func checksumAfterARestart(firstIsAway: Bool) throws {
    let (bench, inode, urls) = try restarted(hasChecksum: true, firstIsAway: firstIsAway)
    bench.service.resources[urls[0]]?.failure = firstIsAway ? nil : FakeResource.gone
    bench.service.resources[urls[1]]?.failure = firstIsAway ? FakeResource.gone : nil
    #expect(try bench.opened("a.mp4") == inode)
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(try bench.inode("a.mp4") == inode, "what was stored was given up")
  }

  @Test("After a restart a new version of the mirror that the stored bytes came from is believed")
  func changedAfterARestart() throws {
    let (bench, _, urls) = try restarted()
    bench.service.resources[urls[0]]?.version = 3
    bench.service.resources[urls[0]]?.etag = "\"3\""
    let inode = try bench.opened("a.mp4")
    #expect(bench.answer(bench.read(inode, 6 * Self.megabyte, 4096), within: 2) == .error(.stale))
    bench.expectBytes(try bench.opened("a.mp4"), 6 * Self.megabyte, 4096, of: "a.mp4", version: 3, within: 2)
  }

  @Test("After a restart the version of a mirror that stays away gives way to the other's")
  func goneAfterARestart() throws {
    let (bench, inode, urls) = try restarted()
    bench.service.resources[urls[0]]?.failure = FakeResource.gone
    #expect(try bench.opened("a.mp4") == inode)
    #expect(bench.answer(bench.read(inode, 6 * Self.megabyte, 4096), within: 30) == .error(.stale))
    bench.expectBytes(try bench.opened("a.mp4"), 6 * Self.megabyte, 4096, of: "a.mp4", version: 2)
  }

  @Test("After a restart no reader waits longer than it did for a mirror that is silent, or names a far time")
  func silentAfterARestart() throws {
    for isSilent in [true, false] {
      let (bench, inode, urls) = try restarted()
      bench.service.resources[urls[0]]?.isSilent = isSilent
      if !isSilent {
        bench.service.resources[urls[0]]?.failure = TransferFailure(
          kind: .transient, status: 503, retryAfter: 3600, message: "busy (HTTP 503)")
      }
      #expect(try bench.opened("a.mp4") == inode)
      let reply = bench.answer(bench.read(inode, 6 * Self.megabyte, 4096), within: isSilent ? 12 : 2)
      #expect(reply == .error(.stale))
      bench.expectBytes(try bench.opened("a.mp4"), 6 * Self.megabyte, 4096, of: "a.mp4", version: 2)
    }
  }

  @Test("A list that changes anything else of a file does not change the mirror that its bytes come from")
  func relisted() throws {
    let (bench, inode, urls) = try restarted(firstIsAway: true)
    bench.service.resources[urls[0]]?.failure = nil
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, 3 * Self.megabyte, 4096, of: "a.mp4", version: 2)
    var entry = Bench.entry("a.mp4", 1, urls: urls)
    entry.userAgent = "another"
    try bench.list([entry])
    bench.run(0.1)
    let asked = bench.service.requests.count
    bench.expectBytes(inode, 6 * Self.megabyte, 4096, of: "a.mp4", version: 2, within: 2)
    #expect(try bench.inode("a.mp4") == inode)
    #expect(bench.service.requests[asked...].allSatisfy { $0.url == urls[1] })
  }

  @Test("A version that another mirror describes too is that one's, once nothing of the first one's is stored")
  func clearedBetween() throws {
    let urls = ["http://one/a.mp4", "http://two/a.mp4"]
    let two = FakeResource(name: "a.mp4", size: 12 * Self.megabyte)
    var one = two
    one.failure = FakeResource.gone
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try Bench(
      [Bench.entry("a.mp4", 1, urls: urls)], [urls[0]: one, urls[1]: two], options: options)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    bench.system.release(inode)
    bench.run(1)
    try bench.clear(inode) {}
    bench.run(6)
    bench.service.resources[urls[0]]?.failure = nil
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    bench.run(2)
    let known = try #require(try bench.store.generations.current(of: ResourceKey(high: 1, low: 1)))
    #expect(known.mirror == ResourceKey(url: urls[0]))
  }
}
