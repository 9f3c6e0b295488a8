import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// What the store has on disk never exceeds its limit, and what is open or kept stays (P14).
@Suite struct LimitScenarios {
  static let megabyte: Int64 = 1 << 20

  private func bench(
    _ names: [String], size: Int64 = 20 << 20, limit: Int64, _ change: (inout ReadingOptions) -> Void = { _ in }
  ) throws -> Bench {
    var options = ReadingOptions.testing
    options.maximumSize = limit
    options.continuation = .never
    change(&options)
    var resources: [String: FakeResource] = [:]
    for name in names { resources["http://origin/" + name] = FakeResource(name: name, size: size) }
    return try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options)
  }

  /// Reads from `range` of a file, in sequence, and closes it. The store is looked at all the while.
  private func read(
    _ bench: Bench, _ name: String, _ range: Range<Int64>, limit: Int64, keepsOpen: Bool = false,
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let inode = try bench.opened(name)
    for offset in stride(from: range.lowerBound, to: range.upperBound, by: 128 << 10) {
      let count = Int(min(128 << 10, range.upperBound - offset))
      bench.expectBytes(inode, offset, count, of: name, sourceLocation: sourceLocation)
      let onDisk = bench.onDisk
      #expect(onDisk <= limit + Self.slack, "\(name) at \(offset): \(onDisk)", sourceLocation: sourceLocation)
    }
    if !keepsOpen { bench.system.release(inode) }
    bench.run(3)
  }

  /// Blocks in which the filesystem keeps its own lists.
  static let slack: Int64 = 64 << 10

  @Test("The blocks used least recently make room, bodies first; a file's head and tail stay while others have a body")
  func blocks() throws {
    let limit = 16 * Self.megabyte
    let bench = try bench(["a.bin", "b.bin", "c.bin"], limit: limit)
    try read(bench, "a.bin", 0..<(8 << 20), limit: limit)
    try read(bench, "b.bin", 0..<(4 << 20), limit: limit)
    // Of a, what lies behind 5 MiB was used last.
    try read(bench, "a.bin", (5 << 20)..<(8 << 20), limit: limit)
    try read(bench, "c.bin", 0..<(6 << 20), limit: limit)
    let (a, b) = (try bench.generation("a.bin").stored, try bench.generation("b.bin").stored)
    #expect(a.contains(ByteRange(0, Self.megabyte)), "the head of a file went before bodies: \(a)")
    #expect(!a.contains(ByteRange(Self.megabyte, 4 << 20)), "what was used longest ago is there: \(a)")
    #expect(a.contains(ByteRange(6 << 20, 8 << 20)), "what was used last is gone: \(a)")
    #expect(b.contains(ByteRange(0, Self.megabyte)))
    #expect(try bench.generation("c.bin").stored.contains(ByteRange(0, 6 << 20)))
    // What went is fetched again when it is read.
    try read(bench, "a.bin", 0..<(5 << 20), limit: limit)
    bench.stop()
    #expect(try bench.findings().isEmpty)
  }

  @Test("Uses are remembered over a restart and a kill", arguments: [false, true])
  func remembered(killed: Bool) throws {
    let limit = 16 * Self.megabyte
    let bench = try bench(["a.bin", "b.bin"], limit: limit)
    bench.service.resources["http://origin/b.bin"]?.size = 5 << 20
    try read(bench, "a.bin", 0..<(10 << 20), limit: limit)
    bench.run(60, step: 0.1)
    try read(bench, "a.bin", (8 << 20)..<(10 << 20), limit: limit)
    bench.run(5, step: 0.1)
    try bench.restart(killed: killed)
    try read(bench, "b.bin", 0..<(5 << 20), limit: limit)
    let a = try bench.generation("a.bin").stored
    #expect(a.contains(ByteRange(8 << 20, 10 << 20)), "what was used last is gone: \(a)")
    #expect(!a.contains(ByteRange(10 << 20, 12 << 20)), "nothing made room: \(a)")
  }

  @Test("What is no longer listed goes before what is, but for what a rule or a user keeps")
  func unlistedAndKept() throws {
    let limit = 12 * Self.megabyte
    let names = ["ruled.bin", "pinned.bin", "gone.bin", "listed.bin", "new.bin"]
    let bench = try bench(names, size: 3 << 20, limit: limit)
    for name in names.dropLast() { try read(bench, name, 0..<(2 << 20), limit: limit) }
    // Neither is ever completed.
    for name in names.prefix(2) { bench.service.resources["http://origin/" + name]?.failure = FakeResource.reset }
    try bench.rule(.keep, "ruled.bin")
    bench.system.fetch([try bench.inode("pinned.bin")])
    bench.run(2)
    let before = try names.dropLast().map { try bench.generation($0) }
    #expect(before.allSatisfy { $0.stored.count >= 2 << 20 })
    try bench.list([Bench.entry("listed.bin", 4), Bench.entry("new.bin", 5)])
    bench.run(60, step: 0.1)
    try read(bench, "new.bin", 0..<(3 << 20), limit: limit)
    bench.run(2)
    let after = try before.map { try bench.catalog.generations.current(of: $0.key)?.stored.count ?? 0 }
    #expect(after[0] == before[0].stored.count && after[1] == before[1].stored.count, "what is kept went: \(after)")
    #expect(after[2] < 1 << 20 && after[3] == before[3].stored.count, "\(after)")
  }

  @Test("With nothing left to evict, reads go through memory, who asks is told why, and room lets storing go on")
  func throughMemory() throws {
    let limit = 6 * Self.megabyte
    let bench = try bench(["a.bin"], limit: limit)
    try read(bench, "a.bin", 0..<(12 << 20), limit: limit, keepsOpen: true)
    #expect(bench.lack == .inUse && !bench.hasRoom)
    bench.system.fetch([try bench.inode("a.bin")])
    bench.run(5)
    let report = try bench.system.reports.report(on: bench.node("a.bin"))
    #expect(report.awaits == .space && report.advice?.contains("max-size") == true, "\(report)")
    #expect(bench.onDisk <= limit + Self.slack)
    bench.limit { $0.maximumSize = 64 << 20 }
    #expect(bench.run(until: 60) { bench.isComplete("a.bin") })
    #expect(bench.lack == nil)
  }

  @Test("Background downloads wait for room and take none from others; a reader who finds none ends one that waits")
  func readersFirst() throws {
    let limit = 16 * Self.megabyte
    let bench = try bench(["a.bin", "b.bin", "c.bin"], size: 30 << 20, limit: limit) { $0.continuation = .playing }
    try read(bench, "b.bin", 0..<(2 << 20), limit: limit)
    try read(bench, "a.bin", 0..<(10 << 20), limit: limit)
    bench.run(30, step: 0.05)
    #expect(!bench.hasRoom && bench.onDisk <= limit + Self.slack)
    let waiting = try bench.stored(bench.inode("a.bin"))
    #expect(waiting.contains(ByteRange(0, 10 << 20)), "a download that waits lost bytes: \(waiting)")
    #expect(try bench.generation("a.bin").continues)
    try read(bench, "c.bin", 0..<(4 << 20), limit: limit, keepsOpen: true)
    bench.run(10)
    try read(bench, "c.bin", (4 << 20)..<(6 << 20), limit: limit, keepsOpen: true)
    bench.run(3)
    // What it read before there was room went through memory.
    #expect(try bench.stored(bench.inode("c.bin")).contains(ByteRange(5 << 20, 6 << 20)))
    #expect(try !bench.generation("a.bin").continues)
  }

  @Test("A limit that is lowered holds as soon as what may go is gone; what is open and kept stays")
  func lowered() throws {
    let bench = try bench(["a.bin", "b.bin", "c.bin"], limit: 64 << 20)
    try bench.rule(.keep, "c.bin")
    #expect(bench.run(until: 60) { ((try? bench.stored(bench.inode("c.bin")).count) ?? 0) > 4 << 20 })
    bench.service.resources["http://origin/c.bin"]?.failure = FakeResource.reset
    bench.run(2)
    try #require(!bench.isComplete("c.bin"))
    try read(bench, "a.bin", 0..<(6 << 20), limit: 64 << 20)
    try read(bench, "b.bin", 0..<(3 << 20), limit: 64 << 20, keepsOpen: true)
    let open = try bench.stored(bench.inode("b.bin"))
    bench.limit { $0.maximumSize = 1 << 20 }
    bench.run(3)
    #expect(try bench.stored(bench.inode("a.bin")).isEmpty)
    #expect(try bench.stored(bench.inode("b.bin")) == open)
    #expect(try bench.stored(bench.inode("c.bin")).count > 4 << 20)
    #expect(bench.lack != nil)
    let before = bench.onDisk
    bench.expectBytes(try bench.inode("b.bin"), 10 << 20, 1 << 20, of: "b.bin")
    #expect(bench.onDisk <= before, "beyond the limit, more was stored")
  }

  @Test("Complete copies count, and do not go by themselves: when they alone are above the limit, nothing goes")
  func copiesAlone() throws {
    let bench = try bench(["a.bin", "b.bin"], size: 4 << 20, limit: 32 << 20)
    bench.system.fetch([try bench.inode("a.bin")])
    #expect(bench.run(until: 60) { bench.isComplete("a.bin") })
    try read(bench, "b.bin", 0..<(1 << 20), limit: 32 << 20)
    let stored = try bench.stored(bench.inode("b.bin")).count
    #expect(bench.held >= (4 << 20) + stored)
    bench.limit { $0.maximumSize = 3 << 20 }
    bench.run(10)
    #expect(bench.lack == .copies)
    #expect(bench.lack?.advice.contains("evict=complete") == true)
    #expect(bench.isComplete("a.bin"))
    #expect(try bench.stored(bench.inode("b.bin")).count == stored, "it went for nothing")
    bench.expectBytes(try bench.opened("b.bin"), 2 << 20, 100_000, of: "b.bin")
    #expect(bench.onDisk <= (4 << 20) + stored + Self.slack)
  }

  @Test("Copies may go if the user says so: unchanged ones that this store placed, the least recently used first")
  func copiesGo() throws {
    let names = ["adopted", "changed", "linked", "kept", "old", "new"].map { $0 + ".bin" }
    let size = 2 * Self.megabyte
    let bench = try bench(names, size: size, limit: 64 << 20)
    let library = bench.folder + "/library/"
    let bytes = Pattern.bytes(name: "adopted.bin", generation: 1, offset: 0, count: Int(size))
    UserFiles.write(bytes, to: library + "adopted.bin")
    for name in names {
      bench.system.fetch([try bench.inode(name)])
      #expect(bench.run(until: 60) { bench.isComplete(name) }, "\(name)")
      bench.run(2)
      let inode = try bench.opened(name)
      bench.system.release(inode)
      bench.run(2, step: 0.1)
    }
    UserFiles.write([1], to: library + "changed.bin")
    #expect(link(library + "linked.bin", bench.folder + "/second") == 0)
    try bench.rule(.keep, "kept.bin")
    #expect(bench.held == 5 * size, "an adopted copy was there before: \(bench.held)")
    func isThere(_ name: String) -> Bool { access(library + name, F_OK) == 0 }
    bench.limit { limits in
      limits.evicts = .complete
      // The changed one is the user's file now, and so is one with a second name.
      limits.maximumSize = 6 * Self.megabyte + Self.megabyte / 4
    }
    bench.run(5)
    #expect(!isThere("old.bin") && isThere("new.bin"), "the order of use")
    bench.limit { $0.maximumSize = 1 << 20 }
    bench.run(5)
    #expect(names.filter(isThere) == ["adopted.bin", "changed.bin", "linked.bin", "kept.bin"])
    #expect(try bench.state("old.bin") == .remote)
    bench.expectBytes(try bench.opened("old.bin"), 0, 100_000, of: "old.bin")
  }

  @Test("What a user removed from the library does not count, so nothing goes in its place")
  func removedByHand() throws {
    let (size, limit) = (4 * Self.megabyte, 12 * Self.megabyte)
    let bench = try bench(["a.bin", "b.bin", "c.bin"], size: size, limit: limit) { $0.limits.evicts = .complete }
    for name in ["a.bin", "b.bin"] {
      bench.system.fetch([try bench.inode(name)])
      #expect(bench.run(until: 60) { bench.isComplete(name) }, "\(name)")
      bench.run(15, step: 0.1)
    }
    // The copy that is used last: the other one would go before it.
    #expect(unlink(bench.folder + "/library/b.bin") == 0)
    try read(bench, "c.bin", 0..<size, limit: limit)
    #expect(bench.run(until: 60) { bench.isComplete("c.bin") })
    bench.run(30, step: 0.1)
    #expect(access(bench.folder + "/library/a.bin", F_OK) == 0, "a copy went for one that was gone")
    #expect(bench.held == 2 * size, "\(bench.held)")
    // Nor does it count again when room is measured while there is some.
    bench.limit { $0.maximumSize = 64 << 20 }
    for _ in 0..<3 {
      bench.run(70, step: 0.1)
      bench.expectBytes(try bench.opened("c.bin"), 0, 4096, of: "c.bin")
    }
    bench.limit { $0.maximumSize = limit }
    bench.run(30, step: 0.1)
    #expect(access(bench.folder + "/library/a.bin", F_OK) == 0, "a copy went for one that was gone")
  }

  @Test("A file whose copy fits nowhere beside the copies that stay is said to fail, and nothing goes for it")
  func placementNeverFits() throws {
    let fake = FakeStore()
    var options = ReadingOptions.testing
    options.maximumSize = 22 << 20
    options.continuation = .never
    let resources = Dictionary(
      uniqueKeysWithValues: ["a.bin", "b.bin", "c.bin"].map {
        ("http://origin/" + $0, FakeResource(name: $0, size: 8 << 20))
      })
    let bench = try Bench(
      ["a.bin", "b.bin", "c.bin"].enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options,
      fake: fake)
    bench.system.fetch([try bench.inode("a.bin")])
    #expect(bench.run(until: 60) { bench.isComplete("a.bin") })
    try read(bench, "c.bin", 0..<(1 << 20), limit: 1 << 40)
    let stored = try bench.stored(bench.inode("c.bin"))
    fake.isOnOtherFilesystem = true
    bench.system.fetch([try bench.inode("b.bin")])
    bench.run(60, step: 0.1)
    let report = try bench.system.reports.report(on: bench.node("b.bin"))
    #expect(report.error?.contains("raise it") == true, "\(report)")
    #expect(try bench.stored(bench.inode("c.bin")) == stored)
  }

  @Test("What is used when the mount ends is remembered, also of files that are open")
  func rememberedWhileOpen() throws {
    let bench = try bench(["a.bin"], limit: 64 << 20) { $0.limits.maximumAge = 100 }
    try read(bench, "a.bin", 0..<(3 << 20), limit: 64 << 20)
    bench.run(80, step: 0.1)
    try read(bench, "a.bin", (2 << 20)..<(3 << 20), limit: 64 << 20, keepsOpen: true)
    try bench.restart(killed: false)
    bench.system.resume()
    bench.run(60, step: 0.1)
    let stored = try bench.generation("a.bin").stored
    #expect(stored.contains(ByteRange(2 << 20, 3 << 20)) && !stored.contains(ByteRange(1 << 20, 2 << 20)), "\(stored)")
  }

  @Test("A store above the limit that a mount begins with makes room though nothing happens")
  func lowerAtTheMount() throws {
    let bench = try bench(["a.bin"], size: 60 << 20, limit: 64 << 20)
    try read(bench, "a.bin", 0..<(12 << 20), limit: 64 << 20)
    bench.stop()
    bench.options.maximumSize = 4 << 20
    try bench.start()
    bench.run(3)
    #expect(bench.onDisk <= 4 << 20)
  }

  @Test("A copy that has to be made on another filesystem waits for room, and the keeper makes it")
  func placementWaits() throws {
    let fake = FakeStore()
    fake.isOnOtherFilesystem = true
    var options = ReadingOptions.testing
    options.maximumSize = 22 << 20
    options.continuation = .never
    let names = ["a.bin", "b.bin"]
    let resources = Dictionary(
      uniqueKeysWithValues: names.map { ("http://origin/" + $0, FakeResource(name: $0, size: 6 << 20)) })
    let bench = try Bench(
      names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options, fake: fake)
    bench.service.resources["http://origin/b.bin"]?.size = 40 << 20
    let inode = try bench.opened("b.bin")
    bench.expectBytes(inode, 0, 11 << 20, of: "b.bin")
    bench.system.fetch([try bench.inode("a.bin")])
    #expect(bench.run(until: 60) { (try? bench.stored(bench.inode("a.bin")).count) == 6 << 20 })
    bench.run(30, step: 0.1)
    #expect(!bench.isComplete("a.bin"), "b.bin is open: there is no room")
    let report = try bench.system.reports.report(on: bench.node("a.bin"))
    #expect("\(report)".contains("waits for room"), "\(report)")
    bench.system.release(inode)
    #expect(bench.run(until: 60) { bench.isComplete("a.bin") }, "\(bench.held)")
  }

  @Test("What nobody used for --max-age goes, whatever room there is; what was used stays")
  func age() throws {
    let bench = try bench(["a.bin", "b.bin"], limit: 64 << 20) { $0.limits.maximumAge = 100 }
    try read(bench, "a.bin", 0..<(3 << 20), limit: 64 << 20)
    bench.run(60, step: 0.1)
    try read(bench, "b.bin", 0..<(3 << 20), limit: 64 << 20)
    bench.run(60, step: 0.1)
    #expect(try bench.generation("a.bin").stored.isEmpty)
    #expect(try bench.generation("b.bin").stored.contains(ByteRange(0, 3 << 20)))
  }

  @Test("A disk or quota that refuses a write has the oldest blocks go, and storing goes on")
  func refused() throws {
    let bench = try bench(["a.bin", "b.bin"], size: 60 << 20, limit: 160 << 20)
    try read(bench, "a.bin", 0..<(12 << 20), limit: 160 << 20)
    let before = bench.onDisk
    bench.refuseWrite()
    #expect(bench.lack == .refused)
    bench.run(5)
    let after = try bench.generation("a.bin").stored
    #expect(bench.onDisk <= before - (8 << 20) && after.contains(ByteRange(0, Self.megabyte)), "\(after)")
    bench.run(10)
    #expect(bench.lack == nil)
    try read(bench, "b.bin", 0..<(2 << 20), limit: 160 << 20)
    #expect(try bench.generation("b.bin").stored.contains(ByteRange(0, 2 << 20)))
  }

  @Test("A thread that reads from a file whose blocks go at that moment never sees zeros")
  func readWhileBlocksGo() throws {
    let bench = try bench(["a.bin"], size: 60 << 20, limit: 64 << 20)
    let inode = try bench.opened("a.bin")
    bench.expectBytes(inode, 0, 4 << 20, of: "a.bin")
    try #require(bench.isPartial(inode))
    let (held, now, offset) = (try bench.hold(inode), bench.now, 2 * Self.megabyte)
    let expected = Pattern.bytes(name: "a.bin", generation: 1, offset: offset, count: 4096)
    let state = Lock((isDone: false, hits: 0, wrong: 0))
    let reader = OwnedThread(name: "reader") {
      while !state.withLock({ $0.isDone }) {
        let bytes = held.bytes(offset, 4096, ticket: Ticket(rawValue: .max), now: now)
        if let bytes { state.withLock { ($0.hits, $0.wrong) = ($0.hits + 1, $0.wrong + (bytes == expected ? 0 : 1)) } }
      }
    }
    for _ in 0..<10 {
      let before = try #require(bench.storedFile(inode))
      try bench.evict(inode, ByteRangeSet(ByteRange(offset, offset + Self.megabyte)))
      // Whoever took the file before the blocks went does not believe what it reads from it.
      #expect(!before.isReadable(at: offset))
      #expect(bench.storedFile(inode)?.isReadable(at: 0) == true)
      try bench.refill(inode, offset, Pattern.bytes(name: "a.bin", generation: 1, offset: offset, count: 1 << 20))
    }
    state.withLock { $0.isDone = true }
    reader.join()
    #expect(state.withLock { $0.wrong } == 0)
    #expect(state.withLock { $0.hits } > 0)
  }
}

/// What a user does in a library.
enum UserFiles {
  static func write(_ bytes: [UInt8], to path: String) {
    guard let file = fopen(path, "w") else {
      Issue.record("\(path): \(Errno.current)")
      return
    }
    defer { fclose(file) }
    #expect(fwrite(bytes, 1, bytes.count, file) == bytes.count)
  }
}
