import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// A second source that does what a test says. What it gives comes from ``FakeService`` as the resource without a URL.
final class FakeSecondSource: SecondSource {
  static let block: Int64 = 4 << 20

  enum Way { case origin, second, wait }

  var onChange: (ResourceKey) -> Void = { _ in }
  /// The way of each block.
  var way: (Int) -> Way = { _ in .origin }
  /// Where the background download may ask.
  var bounds: [ByteRange]?
  var told: SecondFacts = .none
  /// What other machines wait for.
  var owed: [ByteRange] = []
  /// Whether each answer reaches to the end of its block.
  var reachesEnd = false
  private(set) var wants = SecondWants()
  /// What was stored when a file was shown last.
  var seen = ByteRangeSet()
  private(set) var confirmed: [SecondFile] = []
  private(set) var closed: [Int64] = []
  private(set) var replaced: [Int64] = []
  private(set) var removed: [Int64] = []
  private(set) var rested = 0
  var digest = SecondDigest.none
  var takesStored = false
  private(set) var offered: [Int64: ByteRangeSet] = [:]

  func facts(of key: ResourceKey, isCheck: Bool, now: Instant) -> SecondFacts { told }
  func confirmed(_ file: SecondFile) { confirmed.append(file) }
  func look(at file: SecondFile, _ view: SecondView, now: Instant) -> [ByteRange]? {
    seen = view.stored
    return bounds
  }
  /// What it has got while the origin was asked for it, told once.
  var left: [ByteRange] = []
  func want(_ wants: SecondWants, of file: SecondFile, now: Instant) -> [ByteRange] {
    self.wants = wants
    defer { left = [] }
    return left
  }
  func route(_ range: ByteRange, of file: SecondFile, isProven: Bool, now: Instant) -> SecondRoute {
    let block = range.start / Self.block
    let part = ByteRange(range.start, min(range.end, (block + 1) * Self.block, file.size))
    return switch way(Int(block)) {
    case .origin: .origin(part)
    case .second: .second(reachesEnd ? ByteRange(part.start, min((block + 1) * Self.block, file.size)) : part)
    case .wait: .wait(until: part.end)
    }
  }
  func owes(_ file: SecondFile, besides wants: SecondWants) -> [ByteRange] {
    let covered = seen.ranges.reduce(into: wants.covered) { $0.insert($1) }
    return owed.compactMap { covered.firstGap(in: $0) }
  }
  func rest(_ generation: Int64, isFailing: Bool) { rested += 1 }
  func close(_ generation: Int64, isReplaced: Bool) {
    closed.append(generation)
    if isReplaced { replaced.append(generation) }
  }
  func takesStored(now: Instant) -> Instant { takesStored ? now : .never }
  func offer(_ file: SecondFile, _ view: SecondView, now: Instant) { offered[file.generation] = view.stored }
  func tookAllStored(now: Instant) { takesStored = false }
  func digest(of generation: Int64) -> SecondDigest { digest }
  func removes(_ generation: Int64) { removed.append(generation) }
}

/// What Reading does with a second source of bytes.
@Suite struct SecondSourceScenarios {
  private static let size: Int64 = 24 << 20
  private let second = FakeSecondSource()

  /// A file, and another one on the same host, over one connection.
  private func bench(_ options: ReadingOptions = .testing, connections: Int = 32) throws -> Bench {
    var options = options
    options.limits.connections = connections
    let entries = [Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)]
    var resources: [String: FakeResource] = [:]
    for entry in entries { resources[entry.urls[0]] = FakeResource(name: entry.name, size: Self.size) }
    resources[""] = FakeResource(name: "a.mp4", size: Self.size)
    return try Bench(entries, resources, options: options, second: second)
  }

  private func origin(_ bench: Bench) -> [TransferRequest] { bench.service.requests.filter { $0.generation == nil } }
  private func shared(_ bench: Bench) -> [TransferRequest] { bench.service.requests.filter { $0.generation != nil } }

  @Test("What another machine stored meanwhile the origin sends no more, and the reader gets it from the source")
  func left() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    bench.run(1)
    // An origin that many ask: nothing comes for long.
    bench.service.resources["http://origin/a.mp4"]?.latency = 30
    let read = bench.read(inode, 9 << 20, 65536)
    bench.run(1)
    #expect(bench.port.reply(to: read) == nil)
    let block = ByteRange(8 << 20, 12 << 20)
    #expect(origin(bench).contains { $0.range.map { $0.overlaps(block) } ?? false })
    second.way = { _ in .second }
    second.left = [block]
    second.onChange(try bench.node("a.mp4").key)
    guard case .data(let bytes)? = bench.answer(read, within: 2) else {
      Issue.record("the reader still waits for the origin")
      return
    }
    #expect(bytes.count == 65536 && second.left.isEmpty)
  }

  @Test("What waits for another machine has no slot, and goes when the source says so")
  func waits() throws {
    let bench = try bench(connections: 1)
    let inode = try bench.opened("a.mp4")
    let before = origin(bench).count
    second.way = { _ in .wait }
    let read = bench.read(inode, 9 << 20, 65536)
    bench.run(1)
    #expect(bench.port.reply(to: read) == nil && origin(bench).count == before && shared(bench).isEmpty)
    #expect(second.wants.fronts == [9 << 20], "it is told where the reader waits: \(second.wants.fronts)")
    // The one connection is free for others.
    second.way = { $0 == 0 ? .origin : .wait }
    let other = try bench.opened("b.mp4")
    bench.expectBytes(other, 0, 4096, of: "b.mp4", within: 2)
    second.way = { $0 == 0 ? .origin : .second }
    second.onChange(try bench.node("a.mp4").key)
    guard case .data(let bytes)? = bench.answer(read, within: 1) else {
      Issue.record("no bytes come from the second source")
      return
    }
    let place = ByteRange(9 << 20, 10 << 20)
    #expect(bytes.count == 65536 && !shared(bench).isEmpty)
    #expect(!origin(bench).contains { $0.range.map { $0.overlaps(place) } ?? false }, "the origin is not asked for it")
  }

  @Test("A window ends where its block does, and each block has its own way")
  func cuts() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    second.way = { $0 % 2 == 0 ? .origin : .second }
    var offset: Int64 = 0
    while offset < Self.size {
      bench.expectBytes(inode, offset, 131072, of: "a.mp4")
      offset += 131072
    }
    for request in bench.service.requests {
      guard let range = request.range else { continue }
      let block = range.start / FakeSecondSource.block
      #expect((range.end - 1) / FakeSecondSource.block == block, "\(range)")
      #expect(request.generation != nil ? block % 2 == 1 : block % 2 == 0 || range.start == 0, "\(range)")
    }
    // What the list's host brought is what it is asked for; the other has a line of its own.
    let metrics = bench.system.metrics()
    #expect(metrics.sharedBytes >= 12 << 20)
    // Some of both was waited for.
    for source in [ReadSource.tier, .origin] {
      #expect(metrics.reads.contains { $0.source == source && $0.audience == .reader && $0.bytes > 0 }, "\(source)")
    }
  }

  @Test("Bytes that a start of the same turn, or a transfer under way, brings are asked for once")
  func once() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    // The reader is in sequence, and has several windows in a block at once.
    second.way = { $0 == 0 ? .origin : .wait }
    var offset: Int64 = 0
    while offset < 4 << 20 {
      bench.expectBytes(inode, offset, 131072, of: "a.mp4")
      offset += 131072
    }
    (second.way, second.reachesEnd) = ({ _ in .second }, true)
    while offset < Self.size {
      bench.expectBytes(inode, offset, 131072, of: "a.mp4")
      offset += 131072
    }
    let asked = shared(bench).compactMap(\.range)
    let sum = asked.reduce(Int64(0)) { $0 + $1.count }
    #expect(asked.count >= 5 && sum <= Self.size - 4 << 20, "\(sum) of \(Self.size - 4 << 20): \(asked)")
  }

  @Test("What other machines wait for is asked of the origin though nobody here wants it")
  func owes() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(options)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    second.owed = [ByteRange(9 << 20, 9 << 20 + 65536)]
    bench.expectBytes(inode, 20 << 20, 4096, of: "a.mp4")
    #expect(bench.run(until: 5) { (try? bench.stored(inode))?.contains(second.owed[0]) == true }, "\(origin(bench))")
  }

  @Test("What other machines wait for is asked for once, however late the answer: no reader left it")
  func owesLate() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(options)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    bench.run(1)
    // Later than any answer before.
    bench.service.resources["http://origin/a.mp4"]?.latency = 2
    let owed = ByteRange(at: 9 << 20, count: 16384)
    second.owed = [owed]
    second.onChange(try bench.node("a.mp4").key)
    #expect(bench.run(until: 5) { (try? bench.stored(inode))?.contains(owed) == true })
    let asked = origin(bench).count { $0.range.map { $0.overlaps(owed) } ?? false }
    #expect(asked == 1, "asked for \(asked) times")
  }

  @Test("What other machines wait for comes in windows like a copy's: a block is not asked for at once")
  func owesInWindows() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(options)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    let owed = ByteRange(8 << 20, 16 << 20)
    second.owed = [owed]
    bench.expectBytes(inode, 20 << 20, 4096, of: "a.mp4")
    #expect(bench.run(until: 30) { (try? bench.stored(inode))?.contains(owed) == true })
    let asked = origin(bench).compactMap(\.range).filter { owed.contains($0.start) }
    #expect(asked.count > 8 && asked.allSatisfy { $0.count <= 1 << 20 }, "\(asked)")
  }

  @Test("A complete file that a program opens is shown to the second source")
  func complete() throws {
    var options = ReadingOptions.testing
    (options.shares, options.next) = (true, 0)
    let bench = try bench(options)
    let inode = try bench.opened("a.mp4")
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.system.release(inode)
    bench.run(1)
    second.seen = ByteRangeSet()
    _ = try bench.opened("a.mp4")
    #expect(bench.run(until: 5) { second.seen.contains(ByteRange(0, Self.size)) })
  }

  @Test("A second source that fails is no failure of the origin")
  func fails() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    second.way = { _ in .second }
    bench.service.resources[""]?.failure = FakeResource.gone
    let read = bench.read(inode, 9 << 20, 4096)
    bench.run(0.5)
    #expect(bench.port.reply(to: read) == nil && !shared(bench).isEmpty)
    second.way = { _ in .origin }
    second.onChange(try bench.node("a.mp4").key)
    guard case .data? = bench.answer(read, within: 1) else {
      Issue.record("the origin is not asked")
      return
    }
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).error == nil)
  }

  @Test("An answer of the source that is of no use counts as none: its line keeps no account of it")
  func uselessAnswers() throws {
    var options = ReadingOptions.testing
    options.continuation = .always
    let bench = try bench(options)
    // The whole file where a part was asked for.
    bench.service.resources[""]?.ignoresRanges = true
    second.way = { $0 == 0 ? .origin : .second }
    _ = try bench.opened("a.mp4")
    #expect(bench.run(until: 10) { !shared(bench).isEmpty })
    bench.run(0.2)
    second.way = { _ in .wait }
    bench.run(2)
    #expect(bench.secondAsking == 0)
  }

  @Test("A background download asks where it may")
  func bounds() throws {
    var options = ReadingOptions.testing
    options.continuation = .always
    let bench = try bench(options)
    second.bounds = [ByteRange(8 << 20, 12 << 20)]
    _ = try bench.opened("a.mp4")
    #expect(bench.run(until: 30) { second.wants.inFlight.isEmpty && bench.service.running.isEmpty })
    bench.run(2)
    let inside = ByteRange(1 << 20, Self.size - (1 << 20))
    let background = origin(bench).compactMap(\.range).filter { inside.contains($0.start) }
    #expect(!background.isEmpty && background.allSatisfy { ByteRange(8 << 20, 12 << 20).contains($0) }, "\(background)")
    second.bounds = nil
    second.onChange(try bench.node("a.mp4").key)
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("A stat and an open need no request where the second source knows the file")
  func facts() throws {
    let bench = try bench()
    let key = try bench.node("a.mp4").key
    second.told = .wait
    let stat = bench.stat(try bench.inode("a.mp4"))
    bench.run(0.2)
    #expect(bench.port.reply(to: stat) == nil && bench.service.requests.isEmpty)
    let file = SecondFile(
      key: key, generation: 0, etag: "\"1\"", size: Self.size, modified: 1_600_000_000, mediaType: "video/mp4")
    second.told = .found(file, checkedAt: bench.now)
    second.onChange(key)
    guard case .attributes(let shown)? = bench.answer(stat, within: 1) else {
      Issue.record("the stat is not answered")
      return
    }
    #expect(shown.size == Self.size && shown.modified == 1_600_000_000)
    let inode = try bench.opened("a.mp4")
    #expect(bench.service.requests.isEmpty)
    second.way = { _ in .second }
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    #expect(origin(bench).isEmpty && second.confirmed.isEmpty)
    // The origin's own word is told on, once.
    second.way = { _ in .origin }
    bench.expectBytes(inode, 12 << 20, 4096, of: "a.mp4")
    bench.expectBytes(inode, 20 << 20, 4096, of: "a.mp4")
    #expect(second.confirmed.map(\.etag) == ["\"1\""])
  }

  @Test("Files without a strong tag are the origin's alone")
  func weak() throws {
    let bench = try bench()
    bench.service.resources["http://origin/a.mp4"]?.isWeak = true
    second.way = { _ in .wait }
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 9 << 20, 4096, of: "a.mp4")
    #expect(second.confirmed.isEmpty && shared(bench).isEmpty)
  }

  @Test("Bytes that the list's own checksum proves are not fetched again, whatever another machine noted of them")
  func ownChecksum() throws {
    var entry = Bench.entry("a.mp4", 1)
    let bytes = Pattern.bytes(name: "a.mp4", offset: 0, count: 1 << 20)
    var digester = try Digester(.sha256)
    bytes.withUnsafeBytes { digester.update($0) }
    entry.checksum = Checksum(algorithm: .sha256, digest: digester.finish())
    let bench = try Bench([entry], [entry.urls[0]: FakeResource(name: "a.mp4", size: 1 << 20)], second: second)
    second.digest = .differs
    let inode = try bench.opened("a.mp4")
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(bench.service.sent <= 1 << 20 + 1000, "\(bench.service.sent) bytes were sent")
  }

  @Test("A new version is told at once, however short ago the old one was")
  func tellsTheNewVersion() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 9 << 20, 4096, of: "a.mp4")
    bench.service.resources["http://origin/a.mp4"]?.change()
    #expect(bench.answer(bench.read(inode, 20 << 20, 4096)) == .error(.stale))
    #expect(second.confirmed.map(\.etag) == ["\"1\"", "\"2\""])
  }

  @Test("A wrong checksum says nothing of the origin's next version: that one is shared")
  func trustsTheNewVersion() throws {
    let size: Int64 = 2 << 20
    var entry = Bench.entry("a.mp4", 1)
    var digester = try Digester(.sha256)
    Pattern.bytes(name: "a.mp4", generation: 2, offset: 0, count: Int(size)).withUnsafeBytes { digester.update($0) }
    entry.checksum = Checksum(algorithm: .sha256, digest: digester.finish())
    let url = entry.urls[0]
    let bench = try Bench([entry], [url: FakeResource(name: "a.mp4", size: size)], second: second)
    let wrong = try bench.opened("a.mp4")
    bench.system.fetch([wrong])
    // It is fetched once more, under another inode.
    #expect(bench.run(until: 30) { (try? bench.inode("a.mp4")) != wrong })
    #expect(second.confirmed.map(\.etag) == ["\"1\""])
    bench.service.resources[url]?.change()
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(second.confirmed.map(\.etag) == ["\"1\"", "\"2\""])
  }

  @Test("What another mirror brought is not shared under the first one's tag before its checksum is known to be right")
  func otherMirror() throws {
    let size: Int64 = 12 << 20
    let part = ByteRange(at: 9 << 20, count: 4096)
    var entry = Bench.entry("a.mp4", 1, urls: ["http://one/a.mp4", "http://two/a.mp4"])
    var digester = try Digester(.sha256)
    Pattern.bytes(name: "a.mp4", offset: 0, count: Int(size)).withUnsafeBytes { digester.update($0) }
    entry.checksum = Checksum(algorithm: .sha256, digest: digester.finish())
    let one = FakeResource(name: "a.mp4", size: size)
    var two = one
    two.etag = nil
    let bench = try Bench(
      [entry], [entry.urls[0]: one, entry.urls[1]: two], fake: FakeStore(), second: second)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    bench.run(1)
    #expect(second.seen.contains(ByteRange(0, 4096)))
    bench.service.resources[entry.urls[0]]?.failure = FakeResource.gone
    bench.expectBytes(inode, part.start, Int(part.count), of: "a.mp4")
    bench.run(1)
    #expect(try bench.stored(inode).contains(part) && !second.seen.contains(part))
    bench.system.release(inode)
    bench.run(5)
    try bench.restart()
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, part.start, Int(part.count), of: "a.mp4")
    bench.run(1)
    #expect(try bench.stored(inode).contains(part) && !second.seen.contains(part))
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(bench.run(until: 1) { second.seen.contains(ByteRange(0, size)) })
  }

  @Test("A catalog that cannot be read for a while ends no round: what is stored is offered once it can")
  func catalogError() throws {
    let store = FakeStore()
    let entry = Bench.entry("a.mp4", 1)
    let bench = try Bench(
      [entry], [entry.urls[0]: FakeResource(name: "a.mp4", size: Self.size)], fake: store, second: second)
    bench.expectBytes(try bench.opened("a.mp4"), 0, 4096, of: "a.mp4")
    store.refuseLookUps(true)
    second.takesStored = true
    bench.run(20)
    #expect(store.lookUps == 1 && second.takesStored && second.offered.isEmpty, "it is asked \(store.lookUps) times")
    store.refuseLookUps(false)
    #expect(bench.run(until: 70) { !second.takesStored } && second.offered.count == 1)
  }

  @Test("What is offered of a file whose download is resumed later makes no room for others")
  func offeredContinuation() throws {
    let entry = Bench.entry("a.mp4", 1)
    let bench = try Bench([entry], [entry.urls[0]: FakeResource(name: "a.mp4", size: 64 << 20)], second: second)
    let inode = try bench.opened("a.mp4")
    for offset: Int64 in stride(from: 0, to: 9 << 20, by: 1 << 19) {
      bench.expectBytes(inode, offset, 1 << 19, of: "a.mp4")
    }
    try #require(bench.run(until: 10) { (try? bench.generation("a.mp4"))?.continues == true })
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.reset
    bench.system.release(inode)
    bench.run(2)
    second.onChange = { _ in }  // it holds the room, and that the store
    bench.stop()
    try bench.start()  // nothing is resumed
    let before = try bench.generation("a.mp4")
    try #require(!bench.isComplete("a.mp4") && before.stored.count >= 9 << 20)
    second.takesStored = true
    try #require(bench.run(until: 10) { second.offered[before.id] != nil })
    try #require(bench.isInMemory(bench.inode("a.mp4")))
    bench.limit { $0.maximumSize = 4 << 20 }
    bench.run(2)
    let after = try bench.generation("a.mp4")
    #expect(after.stored == before.stored && after.continues, "\(after.stored) of \(before.stored)")
  }

  @Test("A version of which the source was only offered something is replaced, also by one that is not for it")
  func offeredVersion() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 9 << 20, 4096, of: "a.mp4")
    let number = try bench.generation("a.mp4").id
    bench.system.release(inode)
    bench.run(60)
    second.onChange = { _ in }  // it holds the room, and that the store
    try bench.restart()
    second.takesStored = true
    #expect(bench.run(until: 10) { second.offered[number] != nil } && second.replaced.isEmpty)
    bench.service.resources["http://origin/a.mp4"]?.change()
    // Without a strong tag.
    bench.service.resources["http://origin/a.mp4"]?.etag = nil
    let again = try bench.opened("a.mp4")
    _ = bench.answer(bench.read(again, 20 << 20, 4096))
    bench.run(1)
    #expect(second.replaced == [number], "\(second.replaced)")
  }

  @Test("The source hears that stored bytes go, and that a version was replaced")
  func hears() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 9 << 20, 4096, of: "a.mp4")
    let number = try bench.generation("a.mp4").id
    bench.service.resources["http://origin/a.mp4"]?.change()
    _ = bench.answer(bench.read(inode, 20 << 20, 4096))
    bench.run(1)
    #expect(second.replaced == [number], "\(second.replaced)")
  }
}
