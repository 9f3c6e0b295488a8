import Base
import Fetching
import TestSupport
import Testing

import Reading
@testable import Storing

/// Generations that change, bytes that are taken away, and the counting of who has a file open.
@Suite struct ChangeScenarios {
  static let megabyte: Int64 = 1 << 20
  static let url = "http://origin/a.mp4"

  @Test("A changed file: stored bytes or ESTALE for the old handle, all of the new bytes for the new one")
  func supersedes() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 100_000, of: "a.mp4")
    bench.run(2)
    bench.service.resources[Self.url]?.change(size: 40 * Self.megabyte)
    #expect(bench.answer(bench.read(old, 30 * Self.megabyte, 4096)) == .error(.stale))
    #expect(bench.port.invalidated == ["a.mp4"])
    let new = try bench.opened("a.mp4")
    #expect(new != old)
    bench.expectBytes(old, 0, 100_000, of: "a.mp4", version: 1)
    bench.expectBytes(new, 0, 100_000, of: "a.mp4", version: 2)
    bench.expectBytes(new, 30 * Self.megabyte, 100_000, of: "a.mp4", version: 2)
    #expect(bench.port.reply(to: bench.open(old)) == .error(.stale))
    let (_, generation) = try #require(try bench.catalog.generations.superseded(inode: old))
    bench.system.release(old)
    bench.run(1)
    #expect(!bench.isInMemory(old))
    #expect(try bench.catalog.generations.find(generation.id) == nil)
  }

  @Test("Readers beyond the end of a shorter version find it, however often they give up before it is known")
  func shorter() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    var resource = FakeResource(name: "a.mp4", size: 2 * Self.megabyte)
    resource.latency = 1
    let bench = try Bench(resource, options: options)
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 4096, of: "a.mp4")
    bench.service.resources[Self.url]?.change(size: 200_000)
    for _ in 0..<3 {
      let ticket = bench.read(old, Self.megabyte, 4096)
      let before = bench.service.requests.count
      // The answer to the third, which would tell, never comes.
      _ = bench.run(until: 20) { bench.service.requests.count == before + 3 }
      bench.service.resources[Self.url]?.isSilent = true
      bench.interrupt(ticket, isKilled: true)
      // The origin is asked for ranges again.
      bench.run(100, step: 0.1)
      bench.service.resources[Self.url]?.isSilent = false
    }
    #expect(bench.answer(bench.read(old, Self.megabyte, 4096), within: 60) == .error(.stale))
    bench.expectBytes(try bench.opened("a.mp4"), 0, 200_000, of: "a.mp4", version: 2)
  }

  @Test("A version that is replaced before the catalog has recorded it leaves its inode too", arguments: [false, true])
  func changesBeforeItIsRecorded(isFake: Bool) throws {
    let resource = FakeResource(name: "a.mp4", size: 50 * Self.megabyte)
    let bench = try Bench(resource, fake: isFake ? FakeStore() : nil)
    bench.holdsKeeper = true
    let old = try bench.opened("a.mp4")
    // From here on the kernel may have these bytes in its page cache, whoever opens the inode next.
    bench.expectBytes(old, 0, 100_000, of: "a.mp4", version: 1)
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(old, 30 * Self.megabyte, 4096)) == .error(.stale))
    #expect(bench.port.invalidated == ["a.mp4"])
    #expect(try bench.inode("a.mp4") != old)
    // The keeper's commit of the first version comes late.
    bench.holdsKeeper = false
    bench.run(2)
    let new = try bench.opened("a.mp4")
    #expect(new != old)
    bench.expectBytes(new, 0, 100_000, of: "a.mp4", version: 2)
    bench.expectBytes(old, 0, 100_000, of: "a.mp4", version: 1)
    #expect(bench.port.reply(to: bench.open(old)) == .error(.stale))
    bench.system.release(old)
    bench.run(2)
    #expect(!bench.isInMemory(old) && bench.port.reply(to: bench.open(old)) == .error(.stale))
    #expect(try bench.generation("a.mp4").stored == bench.stored(new))
    bench.expectBytes(new, 30 * Self.megabyte, 100_000, of: "a.mp4", version: 2)
  }

  @Test("A version that the catalog cannot record is remembered: its inode shows no other")
  func changesWhileNothingIsRecorded() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    bench.holdsKeeper = true
    bench.refuseWrite()
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 100_000, of: "a.mp4", version: 1)
    bench.system.release(old)
    bench.run(20, step: 0.1)
    #expect(!bench.isInMemory(old))
    bench.service.resources[Self.url]?.change(size: 40 * Self.megabyte)
    // Nothing of it is stored: the open asks.
    #expect(try bench.inode("a.mp4") == old && bench.answer(bench.open(old)) == .error(.stale))
    #expect(bench.port.invalidated == ["a.mp4"])
    bench.holdsKeeper = false
    let new = try bench.opened("a.mp4")
    #expect(new != old)
    bench.expectBytes(new, 0, 100_000, of: "a.mp4", version: 2)
    bench.run(20, step: 0.1)
    bench.expectBytes(new, 30 * Self.megabyte, 100_000, of: "a.mp4", version: 2)
    #expect(try bench.generation("a.mp4").size == 40 * Self.megabyte)
  }

  @Test("One odd answer is no new version, and costs no stored byte")
  func oddAnswer() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    var odd = 1
    bench.service.answer = { _, resource in
      var resource = resource
      if odd > 0 {
        odd -= 1
        resource.change()
      }
      return resource
    }
    bench.expectBytes(inode, 30 * Self.megabyte, 4096, of: "a.mp4")
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("Two answers that were asked for at the same time do not confirm each other")
  func simultaneousAnswers() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    var odd = 2
    bench.service.answer = { _, resource in
      var resource = resource
      if odd > 0 {
        odd -= 1
        resource.change()
      }
      return resource
    }
    let first = bench.read(inode, 20 * Self.megabyte, 4096)
    let second = bench.read(inode, 40 * Self.megabyte, 4096)
    for (ticket, offset) in [(first, 20 * Self.megabyte), (second, 40 * Self.megabyte)] {
      guard case .data(let bytes)? = bench.answer(ticket) else {
        Issue.record("a read failed")
        return
      }
      #expect(Pattern.check(bytes, name: "a.mp4", offset: offset) == nil)
    }
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("Two servers with a tag each: the version does not change back and forth")
  func flapping() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 400 * Self.megabyte))
    var inode = try bench.opened("a.mp4")
    var random = SeededRandom(seed: 7)
    bench.service.answer = { _, resource in
      var resource = resource
      if Bool.random(using: &random) { resource.etag = "\"other\"" }  // the same bytes
      return resource
    }
    var changes = 0
    for step in 1...60 {
      let offset = Int64(step) * 6 * Self.megabyte
      if bench.answer(bench.read(inode, offset, 4096)) == .error(.stale) {
        changes += 1
        inode = try bench.opened("a.mp4")
      }
    }
    #expect(changes <= 3)
  }

  @Test("A version that comes back is believed in the end")
  func changesBack() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let first = try bench.opened("a.mp4")
    let original = try #require(bench.service.resources[Self.url])
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(first, 30 * Self.megabyte, 4096)) == .error(.stale))
    let second = try bench.opened("a.mp4")
    bench.expectBytes(second, 0, 4096, of: "a.mp4", version: 2)
    bench.service.resources[Self.url] = original
    #expect(bench.answer(bench.read(second, 45 * Self.megabyte, 4096)) == .error(.stale))
    let third = try bench.opened("a.mp4")
    bench.expectBytes(third, 30 * Self.megabyte, 4096, of: "a.mp4", version: 1)
  }

  @Test("A login page where media was is no new version, not even for an hour")
  func captivePortal() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    bench.service.answer = { _, _ in
      var page = FakeResource(name: "login", size: 5000)
      page.etag = nil
      page.lastModified = nil
      page.mediaType = "text/html"
      page.ignoresRanges = true
      return page
    }
    #expect(bench.answer(bench.read(inode, 30 * Self.megabyte, 4096)) == .error(.timedOut))
    bench.run(600, step: 0.5)
    #expect(try bench.inode("a.mp4") == inode)
    bench.service.answer = nil
    bench.expectBytes(inode, 30 * Self.megabyte, 4096, of: "a.mp4")
  }

  @Test("What was cleared while it was read is fetched again")
  func clearsWhileReading() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 200_000, of: "a.mp4")
    let parked = bench.read(inode, 20 * Self.megabyte, 65536)
    let done = Lock(false)
    try bench.clear(inode) { done.withLock { $0 = true } }
    guard case .data(let bytes)? = bench.answer(parked) else {
      Issue.record("the parked read failed")
      return
    }
    #expect(Pattern.check(bytes, name: "a.mp4", offset: 20 * Self.megabyte) == nil)
    #expect(done.withLock { $0 })
    bench.expectBytes(inode, 0, 200_000, of: "a.mp4")
  }

  @Test("Cleared while it is being placed: then it is neither stored nor failed, and no empty file is in the library")
  func clearsWhileCompleting() throws {
    let size = Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let inode = try bench.opened("a.mp4")
    let last = bench.read(inode, 0, Int(size))
    // The finisher is held back: as a long checksum would.
    var left = 1000
    while !bench.isCompleting(inode), left > 0 {
      left -= 1
      bench.move(0.01, finishing: false)
    }
    #expect(bench.port.reply(to: last) != nil)
    let done = Lock(false)
    try bench.clear(inode) { done.withLock { $0 = true } }
    for _ in 0..<10 { bench.move(0.01, finishing: false) }
    bench.run(2)
    #expect(done.withLock { $0 })
    #expect(try bench.state("a.mp4") != .failed)
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
    #expect(bench.run(until: 30) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 1000, 1000, of: "a.mp4")
    #expect(bench.service.sent == 2 * size)
  }

  @Test("A failed open of an old version does not keep it for ever")
  func staleOpens() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte))
    let old = try bench.opened("a.mp4")
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(old, 30 * Self.megabyte, 4096)) == .error(.stale))
    // A stale open counts for a moment, and the real handle is closed within it.
    try bench.countStaleOpen(old, by: 1)
    bench.system.release(old)
    #expect(bench.isInMemory(old))
    try bench.countStaleOpen(old, by: -1)
    #expect(bench.port.reply(to: bench.open(old)) == .error(.stale))
    #expect(!bench.isInMemory(old))
  }

  @Test("Entries that share a resource share what is stored, each under its own inode")
  func sharedResource() throws {
    var second = Bench.entry("b.mp4", 1)
    second.urls = [Self.url]
    let bench = try Bench(
      [Bench.entry("a.mp4", 1), second], [Self.url: FakeResource(name: "a.mp4", size: 20 * Self.megabyte)])
    let one = try bench.opened("a.mp4")
    bench.expectBytes(one, 0, 100_000, of: "a.mp4")
    let requests = bench.service.requests.count
    let two = try bench.opened("b.mp4")
    #expect(one != two)
    bench.expectBytes(two, 0, 100_000, of: "a.mp4")
    #expect(bench.service.requests.count == requests)
    bench.system.release(one)
    bench.expectBytes(two, 10 * Self.megabyte, 1000, of: "a.mp4")
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(two, 15 * Self.megabyte, 1000)) == .error(.stale))
    #expect(Set(bench.port.invalidated) == ["a.mp4", "b.mp4"])
  }

  @Test("What is put away while a thread still holds it loses no request")
  func putAwayWhileHeld() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let held = try bench.hold(inode)
    bench.system.release(inode)
    bench.run(120, step: 0.1)
    #expect(!bench.isInMemory(inode))
    let answer = held.read(10 * Self.megabyte, 100, ticket: Ticket(rawValue: .max), now: bench.now)
    if case .parked = answer { Issue.record("parked where nobody looks") }
    bench.expectBytes(inode, 10 * Self.megabyte, 1000, of: "a.mp4")
  }

  @Test("What was stored is there after a restart and after a kill, and is not fetched again")
  func resumes() throws {
    for killed in [false, true] {
      let bench = try Bench(FakeResource(name: "a.mp4", size: 30 * Self.megabyte))
      let inode = try bench.opened("a.mp4")
      bench.expectBytes(inode, 0, 200_000, of: "a.mp4")
      bench.system.fetch([inode])
      bench.run(11)
      let before = bench.service.sent
      #expect(before > Self.megabyte)
      try bench.restart(killed: killed)
      #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
      let slack: Int64 = killed ? 8 * Self.megabyte : Self.megabyte
      #expect(bench.service.sent < bench.service.resources[Self.url]!.size + slack)
      bench.expectBytes(try bench.opened("a.mp4"), 0, 200_000, of: "a.mp4")
    }
  }

  @Test("A store at its limit evicts what was used least recently, never what is open")
  func evicts() throws {
    var options = ReadingOptions.testing
    options.maximumSize = 3 * Self.megabyte
    let names = ["a.mp4", "b.mp4", "c.mp4", "d.mp4"]
    var resources: [String: FakeResource] = [:]
    for name in names { resources["http://origin/" + name] = FakeResource(name: name, size: 50 * Self.megabyte) }
    let bench = try Bench(
      names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options)
    let open = try bench.opened("a.mp4")
    bench.expectBytes(open, 0, 1_200_000, of: "a.mp4")
    for name in names[1...] {
      let inode = try bench.opened(name)
      bench.expectBytes(inode, 0, 1_200_000, of: name)
      bench.system.release(inode)
      bench.run(90, step: 0.1)
    }
    let node = try bench.node("a.mp4")
    #expect(try bench.catalog.generations.current(of: node.key)?.stored.isEmpty == false)
    #expect(try bench.catalog.generations.current(of: try bench.node("b.mp4").key)?.stored.isEmpty == true)
    let total = try bench.catalog.generations.partialsByUse().reduce(Int64(0)) { $0 + $1.stored.count }
    #expect(total <= options.maximumSize + Self.megabyte)
    bench.expectBytes(try bench.opened("b.mp4"), 0, 100_000, of: "b.mp4")
  }

  @Test("A killed stat goes, and its ticket is answered once")
  func interrupted() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    bench.service.resources[Self.url]?.isSilent = true
    let inode = try bench.inode("a.mp4")
    let ticket = bench.stat(inode)
    bench.run(0.1)
    bench.interrupt(ticket, isKilled: false)
    #expect(bench.port.reply(to: ticket) == nil)
    bench.interrupt(ticket, isKilled: true)
    #expect(bench.port.reply(to: ticket) == .error(.interrupted))
    bench.run(60, step: 0.1)
  }

  @Test("An open that the kernel does not want any more is not counted")
  func unwantedOpen() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.inode("a.mp4")
    let ticket = bench.open(inode)
    bench.port.unwanted.withLock { _ = $0.insert(ticket) }
    bench.run(1)
    #expect(bench.opens(inode) == 0)
  }

  @Test("After a suspend everyone who waits has a fresh deadline")
  func sleeps() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.service.resources[Self.url]?.isSilent = true
    let ticket = bench.read(inode, 10 * Self.megabyte, 4096)
    bench.run(10)
    bench.time.withLock { $0 = $0.adding(seconds: 3600) }
    bench.run(1)
    #expect(bench.port.reply(to: ticket) == nil)
    bench.service.resources[Self.url]?.isSilent = false
    guard case .data? = bench.answer(ticket) else {
      Issue.record("it was not answered with data")
      return
    }
  }
}
