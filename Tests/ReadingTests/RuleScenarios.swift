import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Files that a user keeps, has online only, or has paused.
@Suite struct RuleScenarios {
  private static let megabyte: Int64 = 1 << 20

  private func url(_ name: String) -> String { "http://origin/\(name)" }

  /// A mount of files of that size, of which nothing is fetched unless somebody asks.
  private func bench(
    _ names: [String], size: Int64 = 2 << 20, failure: TransferFailure? = nil,
    _ change: (inout ReadingOptions) -> Void = { $0.continuation = .never }
  ) throws -> Bench {
    var resources: [String: FakeResource] = [:]
    for name in names {
      resources[url(name)] = FakeResource(name: name, size: size)
      resources[url(name)]?.failure = failure
    }
    var options = ReadingOptions.testing
    change(&options)
    return try Bench(names.enumerated().map { Bench.entry($1, UInt64($0) + 1) }, resources, options: options)
  }

  private func stored(_ bench: Bench, _ name: String) throws -> Int64 {
    try bench.catalog.generations.current(of: bench.node(name).key)?.stored.count ?? 0
  }

  @Test(
    "What a rule keeps is fetched whole, whatever the policy, also at the next mount and after a kill",
    arguments: [false, true])
  func keeps(killed: Bool) throws {
    let bench = try bench(["a.mp4", "b.mp4", "c.srt"], size: 6 * Self.megabyte)
    try bench.rule(.keep, "*.mp4")
    #expect(bench.run(until: 20) { (try? stored(bench, "a.mp4")) ?? 0 > Self.megabyte })
    try #require(!bench.isComplete("a.mp4"))
    try bench.restart(killed: killed)
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") && bench.isComplete("b.mp4") })
    #expect(try stored(bench, "c.srt") == 0, "a file that no rule keeps was fetched")
    #expect(try bench.catalog.notes.pins(limit: 1, after: nil).isEmpty, "a rule is not a pin for each file")
  }

  @Test("Of a kept folder of hundreds few are in memory at once, and all come without waiting for a sweep each")
  func manyFiles() throws {
    let names = (1...300).map { "\($0).mp4" }
    let bench = try bench(names, size: 4096)
    try bench.rule(.keep, "")
    var most = 0
    let isDone = bench.run(until: 120) {
      most = max(most, bench.inMemory.count)
      return bench.isComplete("300.mp4")
    }
    #expect(isDone)
    #expect(bench.run(until: 20) { names.allSatisfy { bench.isComplete($0) } })
    #expect(most <= RoomLimits.mostUnfinished, "\(most) in memory")
    #expect(bench.service.requests.count <= 2 * names.count, "\(bench.service.requests.count) requests")
  }

  @Test("A rule reaches hundreds of open files in several turns of the keeper, in which it commits")
  func manyOpenFiles() throws {
    let names = (1...200).map { "\($0).mp4" }
    let bench = try bench(names, size: 4096)
    let inodes = try names.map { try bench.opened($0) }
    try bench.rule(.online, "")
    let first = inodes.count { bench.isOnline($0) }
    #expect(first > 0 && first < names.count / 2, "\(first) files in one turn")
    #expect(bench.run(until: 1) { inodes.allSatisfy { bench.isOnline($0) } })
  }

  @Test("Hundreds of kept files behind a dead origin: bounded memory, few requests, and all come when it is back")
  func deadOrigin() throws {
    let names = (1...400).map { "\($0).mp4" }
    let bench = try bench(names, size: 4096, failure: FakeResource.reset)
    try bench.rule(.keep, "")
    var most = 0
    for _ in 0..<120 {
      bench.run(1, step: 0.25)
      most = max(most, bench.inMemory.count)
    }
    #expect(most <= RoomLimits.mostUnfinished, "\(most) in memory")
    #expect(bench.service.requests.count < 4 * names.count, "\(bench.service.requests.count) requests in two minutes")
    for name in names { bench.service.resources[url(name)]?.failure = nil }
    let isDone = bench.run(until: 3600, step: 0.25) {
      bench.inMemory.isEmpty && names.allSatisfy { bench.isComplete($0) }
    }
    #expect(isDone)
  }

  @Test("A kept file that is gone at its origin is not asked for again and again")
  func gone() throws {
    let bench = try bench(["a.mp4"], failure: FakeResource.gone)
    try bench.rule(.keep, "a.mp4")
    bench.run(5)
    let asked = bench.service.requests.count
    #expect(try bench.state("a.mp4") == .failed)
    bench.run(1200, step: 0.25)
    #expect(bench.service.requests.count == asked)
    bench.service.resources[url("a.mp4")]?.failure = nil
    try bench.restart()
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") }, "the next mount does not try again")
  }

  @Test("What is kept is not evicted, from the disk or from memory; without the rule it may be")
  func notEvicted() throws {
    let bench = try bench(["a.mp4"], size: 8 * Self.megabyte)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 3 << 20, of: "a.mp4")
    bench.run(2)
    bench.service.resources[url("a.mp4")]?.failure = FakeResource.reset
    try bench.rule(.keep, "*.mp4")
    bench.run(2)
    bench.stop()
    try bench.start()  // nothing is resumed: it is not in memory
    let key = try bench.node("a.mp4").key
    let generation = try #require(try bench.catalog.generations.current(of: key))
    #expect(!bench.evict(key, generation: generation.id))
    #expect(try stored(bench, "a.mp4") > Self.megabyte)
    try bench.rule(.auto, "*.mp4")
    #expect(bench.evict(key, generation: generation.id))
  }

  @Test("A copy of a kept file that a user removed is fetched again at the next mount; one that was changed is theirs")
  func removedCopy() throws {
    let bench = try bench(["a.mp4"])
    try bench.rule(.keep, "a.mp4")
    #expect(bench.run(until: 30) { bench.isComplete("a.mp4") })
    let copy = bench.folder + "/library/a.mp4"
    bench.stop()
    #expect(unlink(copy) == 0)
    try bench.start()
    bench.system.resume()
    let sent = bench.service.sent
    #expect(bench.run(until: 30) { bench.service.sent >= sent + 2 << 20 && bench.isComplete("a.mp4") })
    bench.run(2)
    bench.stop()
    #expect(truncate(copy, 3) == 0)
    try bench.start()
    bench.system.resume()
    let again = bench.service.sent
    bench.run(30)
    #expect(bench.service.sent == again, "a second copy is fetched beside the user's")
  }

  @Test("Of an online file nothing is stored: it is read through bounded memory, to its end and back")
  func online() throws {
    let size = 12 * Self.megabyte
    let bench = try bench(["a.mp4"], size: size) { $0.continuation = .always }
    try bench.rule(.online, "a.mp4")
    let inode = try bench.opened("a.mp4")
    var most: Int64 = 0
    var offset: Int64 = 0
    while offset < size {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4", within: 20)
      offset += 65536
      bench.run(0.03)
      most = max(most, try bench.kept(inode).count)
    }
    bench.expectBytes(inode, 0, 65536, of: "a.mp4")
    #expect(try bench.stored(inode).isEmpty)
    #expect(most > 0 && most <= RoomLimits.keptOfOneFile)
    #expect(!bench.isComplete("a.mp4"))
    // The rule ends under the reader: from then on bytes are stored again.
    try bench.rule(.auto, "a.mp4")
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("What was stored before a file is online stays, and is read from there")
  func onlineLater() throws {
    let bench = try bench(["a.mp4"], size: 8 * Self.megabyte)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1 << 20, of: "a.mp4")
    bench.run(2)
    try bench.rule(.online, "")
    bench.run(1)
    let before = try bench.stored(inode)
    bench.expectBytes(inode, 6 * Self.megabyte, 500_000, of: "a.mp4")
    let sent = bench.service.sent
    bench.expectBytes(inode, 0, 1 << 20, of: "a.mp4")
    #expect(try bench.stored(inode) == before)
    #expect(bench.service.sent == sent, "stored bytes were fetched again")
  }

  @Test("A paused file: readers read, but the rest and a fetch stand still over restarts, until it is resumed")
  func paused() throws {
    let size = 24 * Self.megabyte
    let bench = try bench(["a.mp4"], size: size) { $0.continuation = .playing }
    let inode = try bench.inode("a.mp4")
    bench.system.fetch([inode])
    #expect(bench.run(until: 10) { (try? stored(bench, "a.mp4")) ?? 0 > Self.megabyte })
    try bench.pause(true, "")
    bench.run(2)
    let standing = try stored(bench, "a.mp4")
    try #require(standing < size / 2)
    bench.run(RoomLimits.syncSeconds + 15)
    #expect(try stored(bench, "a.mp4") == standing)
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).awaits == .resume)
    #expect(!bench.isInMemory(inode), "a paused file stays in memory")
    try bench.restart()
    bench.run(20)
    #expect(try stored(bench, "a.mp4") == standing)
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).awaits == .resume)
    let opened = try bench.opened("a.mp4")
    bench.expectBytes(opened, size - 300_000, 100_000, of: "a.mp4")
    bench.run(20)
    #expect(try bench.stored(opened).count < standing + 4 * Self.megabyte)
    try bench.pause(false, "")
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("A body that an origin sends whole ends when it is paused, and begins again when it is resumed")
  func pausedStream() throws {
    let bench = try bench(["a.mp4"], size: 24 * Self.megabyte)
    bench.service.resources[url("a.mp4")]?.ignoresRanges = true
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 20) { (try? stored(bench, "a.mp4")) ?? 0 > Self.megabyte })
    try bench.pause(true, "a.mp4")
    bench.run(1)
    let sent = bench.service.sent
    bench.run(10)
    #expect(bench.service.sent == sent)
    try bench.pause(false, "a.mp4")
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("A cancelled fetch ends, and keeps what is stored; it does not begin again at the next mount")
  func cancelled() throws {
    let bench = try bench(["a.mp4", "b.mp4"], size: 24 * Self.megabyte)
    bench.system.fetch([try bench.inode("a.mp4"), try bench.inode("b.mp4")])
    #expect(bench.run(until: 20) { (try? stored(bench, "a.mp4")) ?? 0 > Self.megabyte })
    try bench.cancel("a.mp4")
    bench.run(2)
    let standing = try stored(bench, "a.mp4")
    try #require(standing > 0 && !bench.isComplete("a.mp4"))
    bench.run(10)
    try bench.restart()
    bench.run(10)
    #expect(try stored(bench, "a.mp4") == standing)
    #expect(
      try bench.catalog.notes.pins(limit: 5, after: nil) == [bench.node("b.mp4").key] || bench.isComplete("b.mp4"))
    #expect(bench.run(until: 60) { bench.isComplete("b.mp4") })
  }

  @Test(
    "The cancelled download of a played file stays ended, whether or not it is still open, until it is played anew",
    arguments: [false, true])
  func cancelledPlay(open: Bool) throws {
    let size = 64 * Self.megabyte
    let bench = try bench(["a.mp4"], size: size) { $0.continuation = .playing }
    let inode = try bench.opened("a.mp4")
    for offset in stride(from: 0, to: 9 * Self.megabyte, by: 1 << 19) {
      bench.expectBytes(inode, offset, 1 << 19, of: "a.mp4")
    }
    if !open { bench.system.release(inode) }
    #expect(bench.run(until: 10) { (try? bench.generation("a.mp4"))?.continues == true }, "it does not count as played")
    try bench.cancel("a.mp4")
    bench.run(2)  // what was requested
    let standing = try bench.stored(inode).count
    try #require(standing < size / 2)
    bench.run(20)
    #expect(try bench.stored(inode).count == standing)
    #expect(try bench.generation("a.mp4").continues == false)
    let again = open ? inode : try bench.opened("a.mp4")
    for offset in stride(from: 40 * Self.megabyte, to: 49 * Self.megabyte, by: 1 << 19) {
      bench.expectBytes(again, offset, 1 << 19, of: "a.mp4")
    }
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test(
    "A body that an origin sends whole goes on under its reader, whatever a user says; it ends when nobody reads it",
    arguments: ["pause", "online", "auto", "cancel"])
  func streamUnderAReader(word: String) throws {
    let size = 24 * Self.megabyte
    let bench = try bench(["a.mp4"], size: size)
    bench.service.resources[url("a.mp4")]?.ignoresRanges = true
    bench.service.resources[url("a.mp4")]?.rate = 1_000_000
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1 << 20, of: "a.mp4")
    let isFetched = word == "pause" || word == "cancel"
    if isFetched { bench.system.fetch([inode]) }
    if word == "auto" { try bench.rule(.online, "a.mp4") }
    bench.run(0.5)
    let asked = bench.service.requests.count
    // At this moment no read waits.
    switch word {
    case "pause": try bench.pause(true, "a.mp4")
    case "online": try bench.rule(.online, "a.mp4")
    case "auto": try bench.rule(.auto, "a.mp4")
    default: try bench.cancel("a.mp4")
    }
    bench.run(0.5)
    bench.expectBytes(inode, 3 << 20, 65536, of: "a.mp4")
    #expect(bench.service.requests.count == asked, "it was cut under its reader, and begins again from its first byte")
    bench.system.release(inode)
    bench.run(12)
    let sent = bench.service.sent
    #expect(sent < size, "nobody reads it, and nobody wants the rest")
    bench.run(5)
    #expect(bench.service.sent == sent)
  }

  @Test("What a rule keeps by one name is not cancelled, and not paused, by another name")
  func twoNames() throws {
    var twin = Bench.entry("twin.mp4", 1)
    twin.urls = [url("a.mp4")]
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try Bench(
      [Bench.entry("a.mp4", 1), twin], [url("a.mp4"): FakeResource(name: "a.mp4", size: 24 * Self.megabyte)],
      options: options)
    bench.system.fetch([try bench.inode("a.mp4")])
    try bench.rule(.keep, "a.mp4")
    bench.run(0.5)
    let (ended, kept) = try cancel("twin.mp4", bench)
    #expect(ended == 0 && kept == ["twin.mp4 a.mp4"], "\(kept)")
    try bench.pause(true, "a.mp4")
    try bench.restart()
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") }, "its other name is not paused")
  }

  /// Cancels a path as a client's thread does, while the simulated time goes on: how many downloads ended, and the
  /// paths that a rule keeps, with the paths of the rules.
  private func cancel(_ path: String, _ bench: Bench) throws -> (ended: Int64, kept: [String]) {
    let system = try #require(bench.system)
    let told = Lock((ended: Int64(-1), kept: [String]()))
    let isDone = Lock(false)
    let thread = OwnedThread(name: "cancelling") {
      var kept: [String] = []
      let ended = try? system.cancel({ $0 == path }) { path, rule in kept.append("\(path) \(rule.pattern.text)") }
      told.withLock { [kept] in $0 = (ended ?? -1, kept) }
      isDone.withLock { $0 = true }
    }
    while !isDone.withLock({ $0 }) {
      bench.move(0.01)
      sleep(seconds: 0.001)
    }
    thread.join()
    return told.withLock { $0 }
  }
}
