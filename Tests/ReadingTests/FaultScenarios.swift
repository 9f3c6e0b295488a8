import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// What origins do wrong, and what a reader sees of it.
@Suite struct FaultScenarios {
  static let megabyte: Int64 = 1 << 20

  @Test("A stall ends with the deadline, and the one-page retry at once")
  func deadline() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.service.resources["http://origin/a.mp4"]?.isSilent = true
    let begun = bench.now
    #expect(bench.answer(bench.read(inode, 30 * Self.megabyte, 131072)) == .error(.timedOut))
    let waited = bench.now.seconds(since: begun)
    #expect(waited >= bench.options.timeout && waited < bench.options.timeout + 2)
    let retry = bench.read(inode, 30 * Self.megabyte, 4096)
    #expect(bench.port.reply(to: retry) == .error(.timedOut))
  }

  @Test("A reader whose bytes never come is told, though another reader's do")
  func deadlineBesideAnother() throws {
    var resource = FakeResource(name: "a.mp4", size: 400 * Self.megabyte)
    resource.rate = 500_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    bench.service.answer = { request, resource in
      var resource = resource
      if request.range.map({ $0.start >= 300 * Self.megabyte }) ?? false { resource.isSilent = true }
      return resource
    }
    let stuck = bench.read(inode, 300 * Self.megabyte, 65536)
    let begun = bench.now
    var offset: Int64 = 0
    while bench.port.reply(to: stuck) == nil, bench.now.seconds(since: begun) < 3 * bench.options.timeout {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4")
      offset += 65536
      bench.run(0.1)
    }
    #expect(bench.port.reply(to: stuck) == .error(.timedOut))
  }

  @Test("A slow but honest line is never cut off")
  func slow() throws {
    var resource = FakeResource(name: "a.mp4", size: 2 * Self.megabyte)
    resource.rate = 2_000
    let bench = try Bench(resource)
    let inode = try bench.inode("a.mp4")
    #expect(bench.answer(bench.open(inode)) == .opened(directIO: false))
    bench.expectBytes(inode, 200_000, 10_000, of: "a.mp4", within: 600)
  }

  @Test("Connections that break again and again, with progress, bring the whole file")
  func breaks() throws {
    var resource = FakeResource(name: "a.mp4", size: Self.megabyte)
    resource.breaksAfter = 40_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, Int(Self.megabyte), of: "a.mp4", within: 120)
  }

  @Test("An origin that is gone for good is asked again when the file is opened again")
  func failedThenReopened() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.megabyte))
    let url = "http://origin/a.mp4"
    let inode = try bench.inode("a.mp4")
    bench.service.resources[url]?.failure = FakeResource.gone
    #expect(bench.answer(bench.open(inode)) == .error(.io))
    guard case .attributes(let shown)? = bench.answer(bench.stat(inode)) else {
      Issue.record("a stat failed")
      return
    }
    #expect(shown.size == 1 && !shown.isFinal)
    bench.service.resources[url]?.failure = nil
    #expect(bench.answer(bench.open(inode)) == .opened(directIO: false))
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
  }

  @Test(
    "Mirrors that all refuse connections are asked with pauses, not in a storm, though they say that they may be asked",
    arguments: [nil, 0] as [Double?])
  func deadMirrors(asked: Double?) throws {
    let entry = Bench.entry("a.mp4", 1, urls: ["http://one/a.mp4", "http://two/a.mp4"])
    var dead = FakeResource(name: "a.mp4", size: Self.megabyte)
    dead.failure = FakeResource.reset
    dead.failure?.retryAfter = asked
    dead.latency = 0
    let bench = try Bench([entry], ["http://one/a.mp4": dead, "http://two/a.mp4": dead])
    #expect(bench.answer(bench.open(try bench.inode("a.mp4"))) == .error(.timedOut))
    #expect(bench.service.requests.count < 200)
    bench.service.resources["http://two/a.mp4"]?.failure = nil
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 5, 1000, of: "a.mp4")
  }

  @Test("Another mirror's bytes are never mixed in without a checksum, not even after one failure")
  func mirrorsWithoutChecksum() throws {
    let entry = Bench.entry("a.mp4", 1, urls: ["http://one/a.mp4", "http://two/a.mp4"])
    let one = FakeResource(name: "a.mp4", size: 40 * Self.megabyte)
    var two = one
    two.version = 2
    let bench = try Bench([entry], ["http://one/a.mp4": one, "http://two/a.mp4": two])
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    var failures = 1
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url.contains("one"), failures > 0, request.range?.start == 20 * Self.megabyte {
        failures -= 1
        resource.failure = FakeResource.reset
      }
      return resource
    }
    bench.expectBytes(inode, 20 * Self.megabyte, 100_000, of: "a.mp4")
    #expect(try bench.inode("a.mp4") == inode, "one reset is no reason to give up what is stored")
    // The first is gone for good: the other takes over as another version, under another inode.
    bench.service.answer = nil
    bench.service.resources["http://one/a.mp4"]?.failure = FakeResource.gone
    let reply = bench.answer(bench.read(inode, 30 * Self.megabyte, 4096))
    #expect(reply == .error(.stale))
    let new = try bench.opened("a.mp4")
    #expect(new != inode)
    bench.expectBytes(new, 0, 100_000, of: "a.mp4", version: 2)
  }

  @Test("With a checksum another mirror, whose tags are its own, brings all that the first one has not")
  func mirrorsWithChecksum() throws {
    let size = 12 * Self.megabyte
    var entry = Bench.entry("a.mp4", 1, urls: ["http://one/a.mp4", "http://two/a.mp4"])
    var digester = try Digester(.sha256)
    Pattern.bytes(name: "a.mp4", offset: 0, count: Int(size)).withUnsafeBytes { digester.update($0) }
    entry.checksum = Checksum(algorithm: .sha256, digest: digester.finish())
    let one = FakeResource(name: "a.mp4", size: size)
    var two = one
    (two.etag, two.lastModified) = ("\"two\"", 1_700_000_000)
    let bench = try Bench([entry], [entry.urls[0]: one, entry.urls[1]: two])
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.service.resources[entry.urls[0]]?.failure = FakeResource.gone
    for place: Int64 in [9, 3, 6] { bench.expectBytes(inode, place * Self.megabyte, 100_000, of: "a.mp4") }
    #expect(bench.service.requests.allSatisfy { !$0.url.contains("two") || $0.range != nil })
    #expect(bench.service.requests.allSatisfy { !$0.url.contains("two") || $0.ifRange ?? "\"two\"" == "\"two\"" })
    // The list gives the first one up.
    entry.urls = [entry.urls[1]]
    try bench.list([entry])
    bench.run(0.1)
    bench.expectBytes(inode, 10 * Self.megabyte, 100_000, of: "a.mp4")
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(try bench.inode("a.mp4") == inode, "the bytes of the first mirror were given up")
  }

  @Test("An origin that once answered with the whole is asked for ranges again")
  func oneWholeAnswer() throws {
    var resource = FakeResource(name: "a.mp4", size: 100 * Self.megabyte)
    resource.rate = 1_000_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    var odd = 1
    bench.service.answer = { _, resource in
      var resource = resource
      if odd > 0 {
        odd -= 1
        resource.ignoresRanges = true
        resource.breaksAfter = 100_000
      }
      return resource
    }
    bench.expectBytes(inode, 50 * Self.megabyte, 65536, of: "a.mp4", within: 5)
    bench.expectBytes(inode, 70 * Self.megabyte, 65536, of: "a.mp4", within: 5)
  }

  @Test("An origin that answers If-Range with the whole, of the same version, is asked without it")
  func ifRangeDistrusted() throws {
    var resource = FakeResource(name: "a.mp4", size: 100 * Self.megabyte)
    resource.rate = 1_000_000
    resource.distrustsIfRange = true
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 50 * Self.megabyte, 65536, of: "a.mp4", within: 5)
  }

  @Test("Without ranges the file comes as a stream; a slow reader does not fetch it again and again")
  func noRanges() throws {
    var resource = FakeResource(name: "a.mp4", size: 6 * Self.megabyte)
    resource.ignoresRanges = true
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    var offset: Int64 = 0
    while offset < resource.size {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4")
      offset += 65536
      bench.run(0.05)
    }
    #expect(bench.service.sent < 4 * resource.size)
  }

  @Test("A body of untold length is read to its end")
  func growing() throws {
    var resource = FakeResource(name: "a.mp3", size: 3 * Self.megabyte + 77)
    resource.hidesLength = true
    let bench = try Bench(resource)
    let inode = try bench.inode("a.mp3")
    #expect(bench.answer(bench.open(inode)) == .opened(directIO: true))
    bench.expectBytes(inode, 1_000_000, 65536, of: "a.mp3")
    #expect(
      bench.answer(bench.read(inode, resource.size - 7, 100)).flatMap { reply in
        if case .data(let bytes) = reply { bytes.count } else { nil }
      } == 7)
    #expect(bench.answer(bench.read(inode, resource.size, 100)) == .data([]))
  }

  @Test("A read beyond 2^60 brings nothing, also while no length is known")
  func farAway() throws {
    var resource = FakeResource(name: "a.mp3", size: 3 * Self.megabyte)
    resource.hidesLength = true
    resource.stallsAfter = 500_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp3")
    let far = (1...3).map { bench.read(inode, .max - Int64($0) * 65536, 65536) }
    bench.run(40)  // longer than a read waits
    #expect(far.allSatisfy { bench.port.reply(to: $0) == .data([]) })
    bench.expectBytes(inode, 0, 65536, of: "a.mp3")
  }

  @Test("An untold length that was cut short is fetched anew after a restart, and commits go on")
  func growingRestart() throws {
    var resource = FakeResource(name: "a.mp3", size: 3 * Self.megabyte)
    resource.hidesLength = true
    resource.stallsAfter = 500_000
    let bench = try Bench(
      [Bench.entry("a.mp3", 1), Bench.entry("b.mp4", 2)],
      [
        "http://origin/a.mp3": resource, "http://origin/b.mp4": FakeResource(name: "b.mp4", size: 900_000),
      ])
    bench.expectBytes(try bench.opened("a.mp3"), 0, 65536, of: "a.mp3")
    bench.run(3)
    try bench.restart()
    bench.service.resources["http://origin/a.mp3"]?.stallsAfter = nil
    bench.expectBytes(try bench.opened("a.mp3"), 2_000_000, 65536, of: "a.mp3")
    let other = try bench.opened("b.mp4")
    bench.expectBytes(other, 0, 900_000, of: "b.mp4")
    #expect(bench.run(until: 30) { bench.isComplete("b.mp4") })
    let inMemory = try bench.generationInMemory(bench.inode("a.mp3"))
    #expect(try bench.generation("a.mp3").id == inMemory)
  }

  @Test("A body without validators that breaks and comes back with other bytes is another version")
  func growingChanges() throws {
    var resource = FakeResource(name: "a.mp3", size: 3 * Self.megabyte)
    resource.hidesLength = true
    resource.etag = nil
    resource.lastModified = nil
    resource.stallsAfter = 500_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp3")
    bench.expectBytes(inode, 0, 65536, of: "a.mp3")
    bench.service.resources["http://origin/a.mp3"]?.stallsAfter = nil
    bench.service.resources["http://origin/a.mp3"]?.version = 2
    let reply = bench.answer(bench.read(inode, 600_000, 4096))
    #expect(reply == .error(.stale))
  }

  @Test("A body that ends before the known size is a failure with a pause, not a storm")
  func endsEarly() throws {
    var resource = FakeResource(name: "a.mp4", size: 3 * Self.megabyte)
    resource.ignoresRanges = true
    resource.latency = 0
    resource.stallsAfter = 300_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    bench.service.answer = { _, resource in
      var resource = resource
      resource.stallsAfter = nil
      resource.hidesLength = true
      resource.endsEarly = 1_000_000
      return resource
    }
    let reply = bench.answer(bench.read(inode, 2 * Self.megabyte, 4096), within: 120)
    #expect(reply == .error(.timedOut))
    #expect(bench.service.requests.count < 200)
  }

  @Test("A body that runs on beyond the known size stores nothing there")
  func runsOn() throws {
    var resource = FakeResource(name: "a.mp4", size: 3 * Self.megabyte)
    resource.ignoresRanges = true
    resource.stallsAfter = 300_000
    let bench = try Bench(resource)
    let inode = try bench.opened("a.mp4")
    bench.service.answer = { _, resource in
      var resource = resource
      resource.stallsAfter = nil
      resource.hidesLength = true
      resource.size = 4 * Self.megabyte
      return resource
    }
    bench.expectBytes(inode, 3 * Self.megabyte - 10, 10, of: "a.mp4", within: 60)
    bench.run(5)
    let stored = try bench.stored(inode)
    #expect(stored.count <= 3 * Self.megabyte)
  }

  @Test("A range that never comes and an origin that refuses end the read")
  func oddRanges() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.odd
    let reply = bench.answer(bench.read(inode, 30 * Self.megabyte, 4096))
    #expect(reply == .error(.io) || reply == .error(.timedOut))
  }

  @Test("A first byte that takes long, though not too long, is waited for")
  func longThought() throws {
    var resource = FakeResource(name: "a.mp4", size: 50 * Self.megabyte)
    resource.latency = 14
    let bench = try Bench(resource)
    let inode = try bench.inode("a.mp4")
    #expect(bench.answer(bench.open(inode)) == .opened(directIO: false))
    bench.expectBytes(inode, 30 * Self.megabyte, 4096, of: "a.mp4")
  }

  @Test("Dead files that were to be continued do not keep the others from it")
  func deadContinuations() throws {
    var entries: [ManifestEntry] = []
    var resources: [String: FakeResource] = [:]
    for number in 1...40 {
      let name = "\(number).mp4"
      entries.append(Bench.entry(name, UInt64(number)))
      var resource = FakeResource(name: name, size: 2 * Self.megabyte)
      resource.rate = 200_000
      resources["http://origin/\(name)"] = resource
    }
    let bench = try Bench(entries, resources)
    for number in 1...40 {
      let inode = try bench.opened("\(number).mp4")
      bench.system.fetch([inode])
      bench.run(0.1)
      bench.system.release(inode)
    }
    bench.run(2)
    for number in 1...40 {
      let url = "http://origin/\(number).mp4"
      if number <= 30 {
        bench.service.resources[url]?.failure = FakeResource.gone
      } else {
        bench.service.resources[url]?.rate = 4_000_000
      }
    }
    try bench.restart()
    #expect(bench.run(until: 120, step: 0.05) { (31...40).allSatisfy { bench.isComplete("\($0).mp4") } })
  }

  @Test("What speaks HTTP/2 behind a redirect has the places of HTTP/2, and not the host that sends there")
  func redirectedVersion() throws {
    let there = "http://there/a.mp4"
    var resource = FakeResource(name: "a.mp4", size: 8 * Self.megabyte)
    resource.httpVersion = 20
    var first = resource
    first.redirect = there
    let entry = Bench.entry("a.mp4", 1)
    let bench = try Bench([entry], [entry.urls[0]: first, there: resource])
    let inode = try bench.opened("a.mp4")
    let here = try #require(bench.origin("http://origin"))
    #expect(here.most == bench.options.connections && here.limit == bench.options.connections)
    bench.expectBytes(inode, 4 * Self.megabyte, 4096, of: "a.mp4")
    #expect(bench.origin("http://there")?.most == RoomLimits.streamsOfHTTP2)
    #expect(bench.origin("http://origin")?.most == bench.options.connections)
  }

  @Test("A host that answers one file with 500 is there for the others; one that answers nothing is away")
  func statusesAreAnswers() throws {
    let names = ["a.mp4", "b.mp4"]
    var resources = Dictionary(
      uniqueKeysWithValues: names.map { ("http://origin/\($0)", FakeResource(name: $0, size: Self.megabyte)) })
    let failing = "http://origin/a.mp4"
    resources[failing]?.failure = TransferFailure(kind: .transient, status: 500, message: "HTTP 500")
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources)
    let ticket = bench.open(try bench.inode("a.mp4"))
    let asked = bench.service.requests.count
    #expect(bench.run(until: 10) { bench.service.requests.count >= asked + 5 })
    #expect(bench.origin("http://origin")?.isUnreachable == false)
    bench.service.resources[failing]?.failure = FakeResource.reset
    #expect(bench.run(until: 10) { bench.origin("http://origin")?.isUnreachableForLong == true })
    // An answer, though of no use: it is back.
    bench.service.resources[failing]?.failure = TransferFailure(kind: .transient, status: 500, message: "HTTP 500")
    #expect(bench.run(until: 10) { bench.origin("http://origin")?.isUnreachable == false })
    #expect(bench.port.reply(to: ticket) == nil)
    bench.expectBytes(try bench.opened("b.mp4"), 0, 4096, of: "b.mp4")
  }

  @Test("A checksum that is wrong costs one more fetch, then the file has failed")
  func wrongChecksum() throws {
    let size = Self.megabyte
    let bench = try Bench(
      FakeResource(name: "a.mp4", size: size),
      checksum: .init(algorithm: .md5, digest: [UInt8](repeating: 0, count: 16)))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
    #expect(bench.run(until: 60) { (try? bench.state("a.mp4")) == .failed })
    #expect(bench.service.sent <= 2 * size + 1000)
    #expect(!bench.isComplete("a.mp4"))
    bench.run(60, step: 0.1)
    #expect(bench.service.sent <= 2 * size + 1000)
  }
}
