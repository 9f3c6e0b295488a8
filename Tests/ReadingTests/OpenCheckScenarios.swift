import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading

/// Opens that ask first whether the file changed at its origin.
@Suite struct OpenCheckScenarios {
  static let megabyte: Int64 = 1 << 20
  private static let size = 20 * megabyte
  /// How long an origin's answer counts.
  private static let fresh = 600.0

  /// A folder of files, which a process has listed: of the last one nothing is stored but the 4 KiB that tell its type.
  private func listed(etag: String? = "\"1\"", lastModified: Int64? = 1_600_000_000) throws -> (Bench, Inode) {
    var options = ReadingOptions.testing
    options.continuation = .never
    options.fresh = Self.fresh
    var entries: [ManifestEntry] = []
    var resources: [String: FakeResource] = [:]
    for number in 1...6 {
      let name = "\(number).mp4"
      entries.append(Bench.entry(name, UInt64(number)))
      resources["http://origin/" + name] = FakeResource(
        name: name, size: Self.size, etag: etag, lastModified: lastModified)
    }
    let bench = try Bench(entries, resources, options: options)
    for entry in entries { _ = bench.answer(bench.stat(try bench.inode(entry.name), process: 7)) }
    bench.run(1)
    let inode = try bench.inode(Self.name)
    #expect(try bench.stored(inode).count == 4096)
    return (bench, inode)
  }
  private static let name = "6.mp4"
  private static let url = "http://origin/6.mp4"

  /// A reader opens the file as the kernel does, which looks the name up again after ESTALE, and reads. Returns how
  /// long the open took.
  @discardableResult
  private func play(_ bench: Bench, version: UInt64 = 1, sourceLocation: SourceLocation = #_sourceLocation) throws
    -> Double
  {
    let begun = bench.now
    var inode = try bench.inode(Self.name)
    if bench.answer(bench.open(inode)) == .error(.stale) {
      inode = try bench.inode(Self.name)
      let again = bench.answer(bench.open(inode))
      #expect(again == .opened(directIO: false), sourceLocation: sourceLocation)
    }
    let seconds = bench.now.seconds(since: begun)
    for offset in [0, 100_000, Self.size / 2] {
      bench.expectBytes(inode, offset, 65536, of: Self.name, version: version, sourceLocation: sourceLocation)
    }
    bench.system.release(inode)
    return seconds
  }

  @Test("An open that comes as soon as the stat before it is answered waits for nothing more")
  func rightAfterAStat() throws {
    var options = ReadingOptions.testing
    options.fresh = Self.fresh
    let bench = try Bench(FakeResource(name: Self.name, size: Self.size), options: options)
    let inode = try bench.inode(Self.name)
    let isOpened = Lock<Bool?>(nil)
    let (system, ticket) = (try #require(bench.system), bench.ticket("open \(inode)"))
    bench.port.afterStat.withLock { action in
      action = {
        let answer = system.open(inode, ticket: ticket, caller: Caller(process: 0))
        isOpened.withLock { $0 = if case .now = answer { true } else { false } }
      }
    }
    _ = bench.answer(bench.stat(inode))
    #expect(isOpened.withLock { $0 } == true)
  }

  @Test("A file that changed since it was listed: the open moves on to the new version, and no read fails")
  func changed() throws {
    let (bench, old) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.change(size: 15 * Self.megabyte)
    let before = bench.service.requests.count
    #expect(bench.answer(bench.open(old)) == .error(.stale))
    // The second opinion brings what is read first.
    #expect(bench.service.requests.count == before + 2)
    let new = try bench.inode(Self.name)
    #expect(new != old)
    let ticket = bench.open(new)
    #expect(bench.port.reply(to: ticket) == .opened(directIO: false), "it asks again")
    bench.expectBytes(new, 0, 65536, of: Self.name, version: 2)
    #expect(bench.service.requests.count == before + 2)
    #expect(bench.opens(new) == 1)
  }

  @Test(
    "The same for the file whose stat brought its head: nobody has read it, in this mount or an earlier one",
    arguments: [false, true])
  func changedBehindTheHead(restarts: Bool) throws {
    let (bench, _) = try listed()
    let inode = try bench.inode("1.mp4")
    #expect(try bench.stored(inode).contains(ByteRange(0, 65536)))
    if restarts { try bench.restart() } else { bench.run(Self.fresh + 1, step: 0.5) }
    bench.service.resources["http://origin/1.mp4"]?.change()
    let before = bench.service.requests.count
    #expect(bench.answer(bench.open(inode)) == .error(.stale))
    #expect(bench.service.requests.count == before + 2)
    let new = try bench.opened("1.mp4")
    for offset in [0, 300_000, Self.size / 2] { bench.expectBytes(new, offset, 65536, of: "1.mp4", version: 2) }
  }

  @Test("Once a program has read such a head, an open waits for nothing, also after a restart")
  func readBefore() throws {
    let (bench, _) = try listed()
    let inode = try bench.opened("1.mp4")
    bench.expectBytes(inode, 0, 4096, of: "1.mp4")
    bench.system.release(inode)
    bench.run(Self.fresh + 1, step: 0.5)
    for _ in 1...2 {
      let before = bench.service.requests.count
      #expect(bench.port.reply(to: bench.open(inode)) == .opened(directIO: false))
      bench.expectBytes(inode, 0, 4096, of: "1.mp4")
      #expect(bench.service.requests.count == before)
      try bench.restart()
    }
  }

  @Test("It need not be forgotten and loaded anew for that: another program may have it open all the time")
  func readBeside() throws {
    let (bench, _) = try listed()
    let inode = try bench.opened("1.mp4")
    _ = try bench.opened("1.mp4")
    bench.expectBytes(inode, 0, 4096, of: "1.mp4")
    bench.system.release(inode)
    bench.run(Self.fresh + 1, step: 0.5)
    let before = bench.service.requests.count
    #expect(bench.port.reply(to: bench.open(inode)) == .opened(directIO: false))
    #expect(bench.service.requests.count == before)
  }

  @Test("The same while the old version is open, which keeps what is stored")
  func changedWhileOpen() throws {
    let (bench, old) = try listed()
    #expect(bench.answer(bench.open(old)) == .opened(directIO: false))
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.change()
    try play(bench, version: 2)
    bench.expectBytes(old, 0, 4096, of: Self.name)
    #expect(bench.answer(bench.read(old, 2 * Self.megabyte, 4096)) == .error(.stale))
  }

  @Test("After a restart the origin is asked, however short ago it answered", arguments: [false, true])
  func changedOverARestart(killed: Bool) throws {
    let (bench, _) = try listed()
    bench.run(2)
    bench.service.resources[Self.url]?.change()
    try bench.restart(killed: killed)
    try play(bench, version: 2)
  }

  @Test("Without validators the bytes that are stored decide")
  func withoutValidators() throws {
    for isChanged in [false, true] {
      let (bench, inode) = try listed(etag: nil, lastModified: nil)
      bench.run(Self.fresh + 1, step: 0.5)
      if isChanged { bench.service.resources[Self.url]?.change() }
      try play(bench, version: isChanged ? 2 : 1)
      #expect(try (bench.inode(Self.name) != inode) == isChanged)
    }
  }

  @Test("A file that did not change: its open makes the request of its first read, and no more")
  func unchanged() throws {
    let (bench, inode) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    let before = bench.service.requests.count
    let ticket = bench.open(inode)
    #expect(bench.port.reply(to: ticket) == nil)
    #expect(bench.answer(ticket) == .opened(directIO: false))
    #expect(bench.opens(inode) == 1)
    bench.expectBytes(inode, 0, 65536, of: Self.name)
    // What follows it is the reader's play-ahead.
    let made = bench.service.requests[before...].compactMap { $0.range?.start }
    #expect(made.first == 4096 && made.count { $0 <= 4096 } == 1)
    // It was checked now: nobody waits again.
    let again = bench.open(inode)
    #expect(bench.port.reply(to: again) == .opened(directIO: false))
  }

  @Test("Within the time that an answer counts, and with the start of the file stored, an open waits for nothing")
  func atOnce() throws {
    let (bench, inode) = try listed()
    let first = bench.open(inode)
    #expect(bench.port.reply(to: first) == .opened(directIO: false))
    bench.expectBytes(inode, 0, 65536, of: Self.name)
    bench.system.release(inode)
    bench.run(Self.fresh + 1, step: 0.5)
    let before = bench.service.requests.count
    let second = bench.open(inode)
    #expect(bench.port.reply(to: second) == .opened(directIO: false))
    bench.run(2)
    #expect(bench.service.requests.count == before)
  }

  @Test("An origin that does not answer delays an open by a second, and no read finds another error than before")
  func silent() throws {
    let (bench, inode) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.isSilent = true
    let begun = bench.now
    let ticket = bench.open(inode)
    #expect(bench.answer(ticket) == .opened(directIO: false))
    let seconds = bench.now.seconds(since: begun)
    #expect(seconds >= 1 && seconds < 1.1)
    let read = bench.read(inode, 0, 4096 * 4)
    bench.service.resources[Self.url]?.isSilent = false
    guard case .data? = bench.answer(read) else {
      Issue.record("the read got no data")
      return
    }
  }

  @Test("While the host is known to be away, an open waits for nothing; a refusal ends a wait at once")
  func away() throws {
    let (bench, inode) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.failure = FakeResource.reset
    let first = bench.open(inode)
    #expect(bench.answer(first, within: 0.2) == .opened(directIO: false))
    bench.system.release(inode)
    let second = bench.open(inode)
    bench.move(0.01)
    #expect(bench.port.reply(to: second) == .opened(directIO: false))
  }

  @Test("One odd answer is no change: the open gets the file as it is known")
  func oddAnswer() throws {
    let (bench, inode) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    var odd = 1
    bench.service.answer = { _, resource in
      var resource = resource
      if odd > 0 { resource.change() }
      odd -= 1
      return resource
    }
    try play(bench)
    #expect(try bench.inode(Self.name) == inode)
  }

  @Test("A second answer that comes late delays the open by a second, and is heard all the same")
  func lateOpinion() throws {
    let (bench, old) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.change()
    bench.service.resources[Self.url]?.latency = 0.8
    #expect(bench.answer(bench.open(old), within: 1.1) == .opened(directIO: false))
    #expect(bench.answer(bench.read(old, 0, 65536)) == .error(.stale))
    bench.expectBytes(try bench.opened(Self.name), 0, 65536, of: Self.name, version: 2)
  }

  @Test("An opener that is killed while it waits is not counted; nor is one that the kernel gave up")
  func interrupted() throws {
    let (bench, inode) = try listed()
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.isSilent = true
    let killed = bench.open(inode)
    bench.run(0.1)
    bench.interrupt(killed, isKilled: true)
    #expect(bench.port.reply(to: killed) == .error(.interrupted))
    let unwanted = bench.open(inode)
    bench.port.unwanted.withLock { _ = $0.insert(unwanted) }
    bench.run(2)
    #expect(bench.opens(inode) ?? 0 == 0)
  }

  @Test("A complete file is opened without a question")
  func complete() throws {
    let (bench, inode) = try listed()
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete(Self.name) })
    bench.run(Self.fresh + 1, step: 0.5)
    bench.service.resources[Self.url]?.change()
    let before = bench.service.requests.count
    try play(bench)
    #expect(bench.service.requests.count == before)
  }
}
