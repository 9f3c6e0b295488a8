import Base
import Fetching
import Glibc
import TestSupport
import Testing

import Reading

/// What is fetched of the files that follow one that is being played, in simulated time.
@Suite struct NextScenarios {
  static let roundTrip = 0.05
  static let line = 4e6
  /// The pace of the player, and so of each file, in bytes a second.
  static let pace = 500_000.0
  /// What is fetched of a file whose index is not known: its head, and 20 seconds.
  static let beginning = Int64(256 << 10) + Int64(20 * pace)

  /// A folder of files of these sizes.
  private func bench(
    _ names: [String], sizes: [Int64], _ change: (inout ReadingOptions) -> Void = { _ in }
  ) throws -> Bench {
    var resources: [String: FakeResource] = [:]
    for (index, name) in names.enumerated() {
      resources["http://origin/" + name] = FakeResource(
        name: name, size: sizes[index % sizes.count], latency: Self.roundTrip)
    }
    var options = ReadingOptions.testing
    change(&options)
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options)
    bench.service.line = Self.line
    return bench
  }

  private final class Play {
    let bench: Bench
    let inode: Inode
    let player: SimulatedPlayer

    init(_ bench: Bench, _ name: String, size: Int64) throws {
      self.bench = bench
      inode = try bench.opened(name)
      player = SimulatedPlayer(
        SimulatedHandle(bench, inode, size: size), rate: pace, line: line, roundTrip: roundTrip, jumps: [],
        now: bench.now)
    }

    func run(_ seconds: Double) {
      let end = bench.now.adding(seconds: seconds)
      while bench.now < end {
        bench.move(0.01)
        player.move(bench.now)
      }
    }

    func run(until seconds: Double, _ condition: () throws -> Bool) rethrows -> Bool {
      let end = bench.now.adding(seconds: seconds)
      while try !condition() {
        if bench.now >= end { return false }
        run(0.1)
      }
      return true
    }
  }

  private func requests(_ bench: Bench, _ name: String) -> [TransferRequest] {
    bench.service.requests.filter { $0.url == "http://origin/" + name }
  }

  private func stored(_ bench: Bench, _ name: String) throws -> ByteRangeSet { try bench.stored(bench.inode(name)) }

  @Test("The first 20 seconds of the next two files are there when they are opened, and no request is made for them")
  func startsAtOnce() throws {
    let size: Int64 = 24 << 20
    let names = ["e1.mkv", "cover.jpg", "e2.mkv", "e3.mkv", "e4.mkv"]
    let bench = try bench(names, sizes: [size])
    let play = try Play(bench, "e1.mkv", size: size)
    #expect(
      try play.run(until: 40) {
        try ["e2.mkv", "e3.mkv"].allSatisfy { try stored(bench, $0).contains(ByteRange(0, Self.beginning)) }
      })
    #expect(play.player.stalls.isEmpty, "\(play.player.stalls)")
    // The rest of the file that is open came first.
    let first = try #require(bench.service.requests.firstIndex { $0.url.hasSuffix("e2.mkv") })
    #expect(bench.service.requests[first...].allSatisfy { !$0.url.hasSuffix("e1.mkv") })
    play.run(2)
    for name in ["e2.mkv", "e3.mkv"] {
      let there = try stored(bench, name)
      #expect(there.contains(ByteRange(size - 128 << 10, size)), "the tail of \(name)")
      // The pace is measured.
      #expect(there.count <= Self.beginning * 11 / 10 + 128 << 10, "\(name): \(there)")
    }
    #expect(requests(bench, "e4.mkv").isEmpty && requests(bench, "cover.jpg").isEmpty)
    let before = requests(bench, "e2.mkv").count
    let inode = try bench.inode("e2.mkv")
    #expect(bench.port.reply(to: bench.open(inode)) == .opened(directIO: false))
    for start in stride(from: Int64(0), to: Int64(5 << 20), by: 65536) {
      let read = bench.read(inode, start, 65536)
      #expect(bench.port.reply(to: read) != nil, "the read at \(start) waits")
    }
    bench.run(0.5)
    #expect(requests(bench, "e2.mkv").count == before)
  }

  @Test("Of a file with two names, those follow that are in the folder in which it is played")
  func twoNames() throws {
    let size: Int64 = 24 << 20
    let places = [(1, "All", "1.mkv"), (2, "All", "2.mkv"), (1, "Album", "1.mkv"), (3, "Album", "3.mkv")]
    var resources: [String: FakeResource] = [:]
    let entries = places.enumerated().map { line, place in
      let url = "http://origin/\(place.0).mkv"
      resources[url] = FakeResource(name: "\(place.0).mkv", size: size, latency: Self.roundTrip)
      var entry = Bench.entry(place.2, UInt64(place.0), urls: [url])
      entry.line = line + 1
      entry.folder = [place.1]
      return entry
    }
    let bench = try Bench(entries, resources)
    bench.service.line = Self.line
    func inode(_ folder: String, _ name: String) throws -> Inode {
      let bytes = Array(name.utf8)
      let parent = try bench.inode(folder)
      return try #require(bytes.withUnsafeBufferPointer { try bench.store.tree.lookup(parent: parent, name: $0) }).inode
    }
    // A program looks at the other name first.
    _ = bench.answer(bench.stat(try inode("All", "1.mkv")))
    let played = try inode("Album", "1.mkv")
    _ = bench.answer(bench.open(played))
    let player = SimulatedPlayer(
      SimulatedHandle(bench, played, size: size), rate: Self.pace, line: Self.line, roundTrip: Self.roundTrip,
      jumps: [], now: bench.now)
    let end = bench.now.adding(seconds: 30)
    while bench.now < end {
      bench.move(0.01)
      player.move(bench.now)
    }
    #expect(!requests(bench, "3.mkv").isEmpty && requests(bench, "2.mkv").isEmpty)
  }

  @Test("All of the next file comes once what is left to play is less than its fetching takes, and no sooner")
  func allInTime() throws {
    let bench = try bench(["1.flac", "2.flac", "3.flac"], sizes: [30_000_000, 80_000_000])
    let play = try Play(bench, "1.flac", size: 30_000_000)
    // 60 s in all. After 30 s 17 s of fetching are left of the next file, and 30 of playing.
    play.run(30)
    #expect(try stored(bench, "2.flac").count < 2 * Self.beginning)
    play.run(29)
    #expect(try stored(bench, "2.flac").count > 45_000_000)
    #expect(try stored(bench, "3.flac").count < 2 * Self.beginning)
  }

  @Test("A player that takes the whole file at once, and keeps it open, gets the next ones; a copy does not")
  func fullCache() throws {
    let size: Int64 = 6 << 20
    let bench = try bench(["1.flac", "2.flac", "3.flac", "4.flac"], sizes: [size])
    func take(_ name: String) throws -> Inode {
      let inode = try bench.opened(name)
      for start in stride(from: Int64(0), to: size, by: 65536) { bench.expectBytes(inode, start, 65536, of: name) }
      return inode
    }
    bench.system.release(try take("1.flac"))
    bench.run(15)
    #expect(requests(bench, "2.flac").isEmpty)
    _ = try take("2.flac")
    bench.run(25, step: 0.02)
    // Neither an index nor a pace is known.
    for name in ["3.flac", "4.flac"] {
      #expect(try stored(bench, name).contains(ByteRange(0, 256 << 10 + 5_000_000)), "\(name)")
    }
  }

  @Test("A complete file that is held open is being played, although no read is seen")
  func complete() throws {
    let bench = try bench(["1.mp4", "2.mp4"], sizes: [16 << 20])
    bench.system.fetch([try bench.inode("1.mp4")])
    #expect(bench.run(until: 30) { bench.isComplete("1.mp4") })
    bench.run(10)
    let inode = try bench.opened("1.mp4")
    bench.run(4)
    #expect(requests(bench, "2.mp4").isEmpty)
    bench.run(26, step: 0.05)
    #expect(try stored(bench, "2.mp4").contains(ByteRange(0, 256 << 10 + 5_000_000)))
    bench.system.release(inode)
  }

  @Test("A copy of a folder, and programs that look at its files, fetch nothing of the files behind")
  func scansAndCopies() throws {
    let size: Int64 = 64 << 20
    let names = (1...12).map { "clip\($0).mp4" }
    let bench = try bench(names, sizes: [size])
    let scanner = DeadlineScenarios.Scanner(bench, Array(names[0..<6]), size: size) { getpid() }
    let copier = try DeadlineScenarios.Copier(bench, names[8], size: size)
    let end = bench.now.adding(seconds: 20)
    while bench.now < end {
      bench.move(0.005)
      try scanner.move()
      copier.move()
    }
    for name in names[6..<8] + names[9...] { #expect(requests(bench, name).isEmpty, "\(name)") }
  }

  @Test("Nothing with --next 0 or --continue never; as many files as --next says", arguments: [0, 1, 3])
  func asManyAsAsked(_ count: Int) throws {
    let size: Int64 = 12 << 20
    let names = (1...5).map { "\($0).mkv" }
    for policy in [ContinuationPolicy.playing, .never] {
      let bench = try bench(names, sizes: [size]) { options in
        options.next = count
        options.continuation = policy
      }
      let play = try Play(bench, "1.mkv", size: size)
      play.run(20)
      let fetched = names.dropFirst().filter { !requests(bench, $0).isEmpty }
      #expect(fetched == (policy == .never ? [] : Array(names[1..<(1 + count)])))
    }
  }

  @Test("When playing moves elsewhere nothing more of the next file is fetched")
  func movesElsewhere() throws {
    let bench = try bench(["1.mkv", "2.mkv", "x.mkv"], sizes: [12 << 20, 400 << 20, 12 << 20])
    let play = try Play(bench, "1.mkv", size: 12 << 20)
    #expect(try play.run(until: 24) { try stored(bench, "2.mkv").count > 2 * Self.beginning })
    bench.system.release(play.inode)
    bench.run(6)
    let before = requests(bench, "2.mkv").count
    bench.run(20, step: 0.05)
    #expect(requests(bench, "2.mkv").count == before)
    #expect(try bench.system.reports.report(on: bench.node("2.mkv")).awaits == .reader)
  }

  @Test("A store that is nearly full is not filled, nothing is evicted for it, and status says so")
  func space() throws {
    let size: Int64 = 12 << 20
    let bench = try bench(["0.mkv", "1.mkv", "2.mkv"], sizes: [size]) { $0.maximumSize = 90 << 20 }
    // What somebody has looked at stays.
    let other = try bench.opened("0.mkv")
    bench.expectBytes(other, 4 << 20, 1 << 20, of: "0.mkv")
    bench.system.release(other)
    bench.run(12)
    let kept = try stored(bench, "0.mkv").count
    let play = try Play(bench, "1.mkv", size: size)
    // It needs 12 MiB, and 64 MiB stay free.
    play.run(3.5)
    #expect(requests(bench, "2.mkv").isEmpty)
    bench.limit { $0.maximumSize = 120 << 20 }
    play.run(17)
    #expect(try stored(bench, "2.mkv").contains(ByteRange(0, Self.beginning)))
    #expect(try stored(bench, "0.mkv").count == kept)

    let full = try self.bench(["1.mkv", "2.mkv"], sizes: [size]) { $0.maximumSize = 70 << 20 }
    let again = try Play(full, "1.mkv", size: size)
    again.run(20)
    #expect(requests(full, "2.mkv").isEmpty && full.hasRoom)
    #expect(try full.system.reports.report(on: full.node("2.mkv")).awaits == .space)
  }

  @Test("An origin that answers 429 is left alone, and the player does not notice")
  func pushedBack() throws {
    let size: Int64 = 20 << 20
    let bench = try bench(["1.mkv", "2.mkv", "3.mkv"], sizes: [size])
    let busy = TransferFailure(kind: .transient, status: 429, retryAfter: 30, message: "too many requests (HTTP 429)")
    bench.service.resources["http://origin/2.mkv"]?.failure = busy
    bench.service.resources["http://origin/3.mkv"]?.failure = busy
    let play = try Play(bench, "1.mkv", size: size)
    play.run(35)
    #expect(requests(bench, "2.mkv").count + requests(bench, "3.mkv").count <= 2)
    #expect(requests(bench, "2.mkv").count > 0 && play.player.stalls.isEmpty, "\(play.player.stalls)")
    guard case .origin = try bench.system.reports.report(on: bench.node("2.mkv")).awaits else {
      Issue.record("\(String(describing: try bench.system.reports.report(on: bench.node("2.mkv")).awaits))")
      return
    }
  }

  @Test("While the line has nothing left, status says that the next file waits for the line")
  func nothingLeft() throws {
    let size: Int64 = 40 << 20
    func play(_ next: Int) throws -> (Bench, Play) {
      let bench = try self.bench(["1.mkv", "2.mkv"], sizes: [size]) { $0.next = next }
      bench.service.line = 1.3 * Self.pace
      let play = try Play(bench, "1.mkv", size: size)
      play.run(30)
      return (bench, play)
    }
    let (bench, playing) = try play(2)
    #expect(requests(bench, "2.mkv").isEmpty)
    #expect(playing.player.stalls.map(\.seconds) == (try play(0).1).player.stalls.map(\.seconds))
    #expect(try bench.system.reports.report(on: bench.node("2.mkv")).awaits == .line)
  }

  @Test("How much 20 seconds are follows from the file's own index, or from that of the playing file")
  func byIndex() throws {
    let size: Int64 = 24 << 20
    let bench = try bench(["1.mp4", "2.mp4", "3.mp4"], sizes: [size])
    func head(_ sizes: [Int]) -> [UInt8] {
      var offset: Int64 = 65536
      let offsets = sizes.map { size in
        defer { offset += Int64(size) }
        return offset
      }
      return MovieHead.bytes([.init(sizes: sizes, offsets: offsets)])
    }
    // 96 seconds, in which the player takes more than the index says: it is ahead of what it shows.
    let inode = try bench.opened("1.mp4")
    try bench.learn(inode, index: head([Int](repeating: 250_000, count: 100)))
    bench.system.release(inode)
    let second = try bench.inode("2.mp4")
    #expect(bench.answer(bench.stat(second)) != nil)
    try bench.learn(second, index: head([Int](repeating: 100_000, count: 40) + [Int](repeating: 300_000, count: 60)))
    let play = try Play(bench, "1.mp4", size: size)
    play.run(30)
    let (of2, of3) = (try stored(bench, "2.mp4"), try stored(bench, "3.mp4"))
    #expect(of2.contains(ByteRange(0, 65536 + 2_000_000)) && of2.count < 2_600_000, "\(of2)")
    #expect(of3.contains(ByteRange(0, 256 << 10 + 5_000_000)) && of3.count < 6_000_000, "\(of3)")
  }

  @Test("What a user clears meanwhile is not fetched ahead again")
  func cleared() throws {
    let bench = try bench(["1.mkv", "2.mkv"], sizes: [12 << 20])
    let play = try Play(bench, "1.mkv", size: 12 << 20)
    #expect(try play.run(until: 20) { try stored(bench, "2.mkv").count > 3 << 20 })
    try bench.clear(bench.inode("2.mkv"))
    play.run(3)
    #expect(try stored(bench, "2.mkv").isEmpty)
  }
}
