import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Who waits, or wants something, gets it in the end, whatever others do.
@Suite struct FairnessScenarios {
  static let megabyte: Int64 = 1 << 20

  /// Files of the names `a.mp4`, `b.mp4` …
  private func bench(
    _ resources: [FakeResource], options: ReadingOptions = .testing, hosts: [String] = []
  ) throws -> Bench {
    var entries: [ManifestEntry] = []
    var served: [String: FakeResource] = [:]
    for (index, resource) in resources.enumerated() {
      let host = index < hosts.count ? hosts[index] : "origin"
      let url = "http://\(host)/\(resource.name)"
      entries.append(Bench.entry(resource.name, UInt64(index + 1), urls: [url]))
      served[url] = resource
    }
    return try Bench(entries, served, options: options)
  }

  /// Reads on at each place as soon as it has what it read, as one program with its kernel's read-ahead does.
  private final class Copier {
    let handle: SimulatedHandle
    var position: Int64
    let count: Int64 = 128 << 10
    var read: Int64 = 0
    init(_ bench: Bench, _ inode: Inode, size: Int64, from: Int64 = 0, process: Int32) {
      handle = SimulatedHandle(bench, inode, size: size, process: process)
      position = from
      handle.begin(ByteRange(at: position, count: count))
    }
    func move() {
      handle.poll()
      while handle.has(ByteRange(at: position, count: count)) {
        position += count
        read += count
        handle.begin(ByteRange(at: position, count: count))
      }
    }
  }

  @Test("A film that was closed keeps a download from the line no longer")
  func closedFilm() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(
      ["a.mp4", "b.mp4"].map { FakeResource(name: $0, size: 64 * Self.megabyte, latency: 0.06) }, options: options)
    bench.service.line = 4e6
    let film = try bench.opened("a.mp4")
    let reader = Copier(bench, film, size: 64 * Self.megabyte, process: 1)
    while reader.read < 2 * Self.megabyte {
      bench.move(0.002)
      reader.move()
    }
    bench.system.release(film)
    // What was under way comes. The reader has less than a second before it.
    bench.run(0.3)
    let other = try bench.inode("b.mp4")
    bench.system.fetch([other])
    bench.run(1)
    let count = try bench.stored(other).count
    #expect(count > 2 * Self.megabyte, "\(count) bytes")
  }

  @Test("A file that is open and not read any more keeps no continuation from the line")
  func openAndIdle() throws {
    let bench = try bench([
      FakeResource(name: "a.mp4", size: 40 * Self.megabyte), FakeResource(name: "b.mp4", size: 4 * Self.megabyte),
    ])
    let inode = try bench.opened("a.mp4")
    for part: Int64 in 0..<5 { bench.expectBytes(inode, part * 131_072, 131_072, of: "a.mp4") }
    bench.run(5)
    bench.system.fetch([try bench.inode("b.mp4")])
    #expect(bench.run(until: 60) { bench.isComplete("b.mp4") })
  }

  @Test("A killed reader of an origin that does not answer keeps no continuation from the line")
  func killedWhileRetrying() throws {
    let bench = try bench([
      FakeResource(name: "a.mp4", size: 40 * Self.megabyte), FakeResource(name: "b.mp4", size: 4 * Self.megabyte),
    ])
    let inode = try bench.opened("a.mp4")
    bench.run(1)
    bench.service.resources["http://origin/a.mp4"]?.failure = TransferFailure(
      kind: .transient, status: 503, retryAfter: 60, message: "busy")
    let ticket = bench.read(inode, 20 * Self.megabyte, 4096)
    bench.run(5)
    bench.interrupt(ticket, isKilled: true)
    #expect(bench.port.reply(to: ticket) == .error(.interrupted))
    bench.run(1)
    bench.system.fetch([try bench.inode("b.mp4")])
    #expect(bench.run(until: 40) { bench.isComplete("b.mp4") })
  }

  @Test("Two readers whose processes the kernel does not tell do not count as one", arguments: [0, getpid()])
  func unknownProcesses(second: Int32) throws {
    let size = 400 * Self.megabyte
    let bench = try bench([FakeResource(name: "a.mp4", size: size)])
    bench.service.line = 1e6
    bench.service.connectSeconds = 0.02
    let inode = try bench.opened("a.mp4")
    let copier = Copier(bench, inode, size: size, from: 200 * Self.megabyte, process: second)
    let player = SimulatedPlayer(
      SimulatedHandle(bench, inode, size: size, process: 0), rate: 300e3, line: 500e3, roundTrip: 0.02, jumps: [],
      now: bench.now)
    for _ in 0..<30_000 {
      bench.move(0.001)
      copier.move()
      player.move(bench.now)
    }
    #expect(player.started != nil && player.waits.isEmpty)
  }

  @Test("What is left is asked for after a while, and then comes whole, though its reader's demand goes on elsewhere")
  func leftForOthers() throws {
    let size = 400 * Self.megabyte
    let bench = try bench([FakeResource(name: "a.mp4", size: size)])
    bench.service.line = 200_000
    bench.service.connectSeconds = 0.02
    let inode = try bench.opened("a.mp4")
    bench.run(2)
    let ticket = bench.read(inode, 100 * Self.megabyte, 131_072, process: getpid())
    let began = bench.now
    bench.run(0.005, step: 0.001)
    let copiers = [200, 250, 300, 350].map {
      Copier(bench, inode, size: size, from: $0 * Self.megabyte, process: getpid())
    }
    while bench.port.reply(to: ticket) == nil, bench.now.seconds(since: began) < 100 {
      bench.move(0.001)
      for copier in copiers { copier.move() }
    }
    #expect(bench.now.seconds(since: began) < 10)
  }

  @Test("A long body of one file does not keep the others of its origin from being tried after a hiccup")
  func hiccupBesideAStream() throws {
    var stream = FakeResource(name: "a.mp4", size: 100 * Self.megabyte)
    stream.ignoresRanges = true
    stream.rate = 100_000
    let bench = try bench([stream, FakeResource(name: "b.mp4", size: 4 * Self.megabyte)])
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(5)
    bench.service.resources["http://origin/b.mp4"]?.failure = FakeResource.reset
    bench.system.fetch([try bench.inode("b.mp4")])
    bench.run(2)
    bench.service.resources["http://origin/b.mp4"]?.failure = nil
    #expect(bench.run(until: 60) { bench.isComplete("b.mp4") })
    #expect(!bench.isComplete("a.mp4"))
  }

  @Test("A long body that nobody reads gives the only connection to a reader, and comes again when that has gone")
  func streamGivesWay() throws {
    var options = ReadingOptions.testing
    options.connections = 1
    var stream = FakeResource(name: "a.mp4", size: 20 * Self.megabyte)
    stream.ignoresRanges = true
    stream.rate = 100_000
    let bench = try bench([stream, FakeResource(name: "b.mp4", size: 40 * Self.megabyte)], options: options)
    func requests() -> Int { bench.service.requests.count { $0.url.hasSuffix("a.mp4") } }
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(5)
    let began = bench.now
    let inode = try bench.opened("b.mp4")
    for part: Int64 in 0..<4 {
      bench.expectBytes(inode, part * 8 * Self.megabyte, 65536, of: "b.mp4", within: 2)
      bench.run(1)
    }
    #expect(bench.now.seconds(since: began) < 8)
    #expect(requests() <= 2, "it took the connection again between two reads")
    bench.system.release(inode)
    bench.service.resources["http://origin/a.mp4"]?.rate = 4_000_000
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).error == nil)
  }

  @Test("A stat ends no body that comes whole: a scan would begin it again and again")
  func statBesideAStream() throws {
    var options = ReadingOptions.testing
    options.connections = 1
    var stream = FakeResource(name: "a.mp4", size: 20 * Self.megabyte)
    stream.ignoresRanges = true
    stream.rate = 1_000_000
    let names = (0..<8).map { "\($0).mp4" }
    let bench = try bench(
      [stream] + names.map { FakeResource(name: $0, size: 40 * Self.megabyte) }, options: options)
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(2)
    for name in names {
      bench.stat(try bench.inode(name))
      bench.run(2)
    }
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(bench.service.requests.count { $0.url.hasSuffix("a.mp4") } == 1)
  }

  @Test("More readers than connections: each has its turn", arguments: [1, 2, 4])
  func turns(connections: Int) throws {
    var options = ReadingOptions.testing
    options.connections = connections
    let size = 200 * Self.megabyte
    let names = (0..<12).map { "\($0).mp4" }
    let bench = try bench(names.map { FakeResource(name: $0, size: size) }, options: options)
    bench.service.line = 4e6
    let copiers = try names.enumerated().map { index, name in
      Copier(bench, try bench.opened(name), size: size, process: getpid())
    }
    expectTurns(copiers, bench)
  }

  @Test("With a limit to the rate, an origin that is silent does not hold up the others")
  func silentBesideALimit() throws {
    var options = ReadingOptions.testing
    options.limits.rates.all = 200_000
    var silent = FakeResource(name: "a.mp4", size: 40 * Self.megabyte)
    silent.isSilent = true
    let bench = try bench(
      [silent, FakeResource(name: "b.mp4", size: 4 * Self.megabyte)], options: options, hosts: ["silent", "well"])
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(1)
    let began = bench.now
    let inode = try bench.opened("b.mp4")
    bench.expectBytes(inode, 2 * Self.megabyte, 65536, of: "b.mp4")
    #expect(bench.now.seconds(since: began) < 8)
  }

  /// Copies for 20 s: each gets about as much as the others.
  private func expectTurns(
    _ copiers: [Copier], _ bench: Bench, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    for _ in 0..<20_000 {
      bench.move(0.001)
      for copier in copiers { copier.move() }
    }
    let read = copiers.map(\.read)
    let (least, most) = (read.min() ?? 0, read.max() ?? 0)
    #expect(least > 0 && most <= 3 * least, "\(read)", sourceLocation: sourceLocation)
  }

  @Test("Many readers of one file on few connections: each has its turn", arguments: [1, 2])
  func turnsInOneFile(connections: Int) throws {
    var options = ReadingOptions.testing
    options.connections = connections
    let size = 800 * Self.megabyte
    let bench = try bench([FakeResource(name: "a.mp4", size: size)], options: options)
    bench.service.line = 4e6
    let inode = try bench.opened("a.mp4")
    let copiers = (0..<6).map { index in
      Copier(bench, inode, size: size, from: Int64(index) * 100 * Self.megabyte, process: 0)
    }
    expectTurns(copiers, bench)
  }
}
