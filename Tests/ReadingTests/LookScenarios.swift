import Base
import Glibc
import Storing
import TestSupport
import Testing

import Reading

/// Programs that look at files, and readers that jump, in simulated time: what they read is fetched, and little more.
@Suite struct LookScenarios {
  static let roundTrip = 0.05
  static let line = 4e6

  /// Runs `body` with a process that has the name of a program that only looks at files, by which the room knows it.
  static func withLooker(_ body: (Int32) throws -> Void) throws {
    try withTemporaryFolder { folder in
      try Command.succeed(["cp", "/bin/sleep", folder.file("ffprobe")])
      let looker = try BackgroundProcess([folder.file("ffprobe"), "600"])
      defer { looker.terminate(grace: 0) }
      try #require(try Command.succeed(["cat", "/proc/\(looker.processID)/comm"]) == "ffprobe\n")
      try body(looker.processID)
    }
  }

  private func bench(_ names: [String], size: Int64, line: Double = line, roundTrip: Double = roundTrip) throws -> Bench
  {
    var resources: [String: FakeResource] = [:]
    for name in names {
      resources["http://origin/" + name] = FakeResource(name: name, size: size, latency: roundTrip)
    }
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources)
    bench.service.line = line
    bench.service.connectSeconds = roundTrip
    return bench
  }

  /// Reads `range` in steps, as a program does whose reads the kernel passes on as they are.
  private func read(_ bench: Bench, _ inode: Inode, _ range: ByteRange, step: Int64 = 32 << 10, process: Int32) {
    for start in stride(from: range.start, to: range.end, by: Int(step)) {
      let count = Int(min(step, range.end - start))
      let reply = bench.answer(bench.read(inode, start, count, process: process), step: 0.001)
      if case .data(let bytes)? = reply, bytes.count == count { continue }
      Issue.record("a read at \(start) ended with \(String(describing: reply))")
    }
  }

  /// Opens each file, reads its head and its tail, and closes it. The requests for each.
  private func scan(
    _ bench: Bench, _ names: [String], head: Int64, tail: Int64, size: Int64, _ looker: Int32
  ) throws -> [(requests: Int, bytes: Int64)] {
    try names.map { try look(bench, $0, head: head, tail: tail, size: size, looker) }
  }

  /// Opens a file, reads its head and its tail, and closes it.
  private func look(
    _ bench: Bench, _ name: String, head: Int64, tail: Int64, size: Int64, _ looker: Int32
  ) throws -> (requests: Int, bytes: Int64) {
    let before = bench.service.requests.count
    let sent = bench.service.sent
    let inode = try bench.inode(name)
    // The kernel asks for the attributes before it opens.
    _ = bench.answer(bench.stat(inode, process: looker), step: 0.001)
    let reply = bench.answer(bench.open(inode, process: looker), step: 0.001)
    #expect(reply == .opened(directIO: true))
    read(bench, inode, ByteRange(0, min(head, 32 << 10)), process: looker)
    read(bench, inode, ByteRange(size - tail, size), process: looker)
    read(bench, inode, ByteRange(min(head, 32 << 10), head), process: looker)
    bench.system.release(inode)
    bench.run(0.3, step: 0.001)
    return (bench.service.requests.count - before, bench.service.sent - sent)
  }

  @Test("A scan costs what it reads, in two requests a file, from the second file of a kind on; again it costs nothing")
  func scan() throws {
    let size: Int64 = 64 << 20
    let (head, tail) = (Int64(122 << 10), Int64(40_000))
    let names = (0..<20).map { "clip\($0).mp4" }
    let bench = try bench(names, size: size)
    try Self.withLooker { looker in
      let costs = try scan(bench, names, head: head, tail: tail, size: size, looker)
      for (name, cost) in zip(names, costs).dropFirst() {
        #expect(cost.requests <= 2 && cost.bytes <= head + tail + 16 << 10, "\(name): \(cost)")
      }
      let bytes = costs.reduce(0) { $0 + $1.bytes } / Int64(names.count)
      #expect(bytes <= head + tail + 128 << 10, "\(bytes) a file")
      let again = try scan(bench, names, head: head, tail: tail, size: size, looker)
      #expect(again.allSatisfy { $0.requests == 0 }, "\(again)")
    }
  }

  @Test("Scanners side by side fetch no more, however much the line brings")
  func sideBySide() throws {
    let size: Int64 = 64 << 20
    let names = (0..<32).map { "clip\($0).mp4" }
    let bench = try bench(names, size: size, line: 400e6, roundTrip: 0.001)
    try Self.withLooker { looker in
      _ = try look(bench, names[0], head: 64 << 10, tail: 40_000, size: size, looker)
      let inodes = try names.dropFirst().map { try bench.inode($0) }
      for inode in inodes {
        _ = bench.answer(bench.stat(inode, process: looker), step: 0.001)
        _ = bench.answer(bench.open(inode, process: looker), step: 0.001)
      }
      let before = bench.service.sent
      for start in [0, 32 << 10, 64 << 10, 96 << 10, size - 40_000] as [Int64] {
        let count = Int(min(32 << 10, size - start))
        let reads = inodes.map { bench.read($0, start, count, process: looker) }
        for ticket in reads { _ = bench.answer(ticket, step: 0.0001) }
      }
      let extra = (bench.service.sent - before) / Int64(inodes.count) - (128 << 10) - 40_000
      #expect(extra <= 128 << 10, "\(extra) a file")
    }
  }

  @Test("Files of one kind differ: on average a look takes two requests at most, and 128 KiB more than it reads")
  func differing() throws {
    let size: Int64 = 64 << 20
    let names = (0..<60).map { "clip\($0).mp4" }
    let bench = try bench(names, size: size)
    var random = SeededRandom(seed: 3)
    try Self.withLooker { looker in
      var looks: [(name: String, head: Int64, tail: Int64)] = []
      var costs: [(requests: Int, bytes: Int64)] = []
      for name in names {
        // The index is at the front, or else in a tail that nobody can foresee.
        let isFirst = Bool.random(using: &random)
        let head = Int64.random(in: 16...48, using: &random) << 12
        let tail = isFirst ? 0 : Int64.random(in: 10_000...400_000, using: &random)
        looks.append((name, head, tail))
        costs.append(try look(bench, name, head: head, tail: tail, size: size, looker))
      }
      let requests = costs.reduce(0) { $0 + $1.requests }
      // Half of them have a tail.
      #expect(Double(requests) <= 1.65 * Double(names.count), "\(requests) requests for \(names.count) files")
      let read = looks.reduce(0) { $0 + $1.head + $1.tail }
      let extra = (costs.reduce(0) { $0 + $1.bytes } - read) / Int64(names.count)
      #expect(extra <= 128 << 10, "\(extra) a file")
      for (name, head, tail) in looks {
        let again = try look(bench, name, head: head, tail: tail, size: size, looker)
        #expect(again.requests == 0 && again.bytes == 0, "\(name): \(again)")
      }
    }
  }

  @Test("A program that looked at what is stored and ended at once is no player")
  func endsAtOnce() throws {
    let size: Int64 = 64 << 20
    let bench = try bench(["a.mp4"], size: size)
    try Self.withLooker { _ = try look(bench, "a.mp4", head: 64 << 10, tail: 0, size: size, $0) }
    bench.run(1)
    let before = bench.service.requests.count
    let inode = try bench.inode("a.mp4")
    try Self.withLooker { looker in
      bench.open(inode, process: looker)
      bench.read(inode, 0, 64 << 10, process: looker)
      bench.system.release(inode)
    }
    bench.run(2)
    #expect(bench.service.requests.count == before)
  }

  @Test("A program that looks, and asks for one size after the other, lists: sizes are asked for ahead of it")
  func listing() throws {
    let names = (0..<40).map { "clip\($0).mp4" }
    let bench = try bench(names, size: 64 << 20)
    try Self.withLooker { looker in
      for name in names.prefix(2) {
        _ = bench.answer(bench.stat(try bench.inode(name), process: looker), step: 0.001)
      }
      bench.run(0.2, step: 0.001)
      #expect(bench.service.requests.count == names.count, "\(bench.service.requests.count) requests")
    }
  }

  @Test(
    "What was learned outlives the server: the first look after a restart takes two requests at most",
    arguments: [false, true])
  func afterARestart(killed: Bool) throws {
    let size: Int64 = 64 << 20
    let (head, tail) = (Int64(300 << 10), Int64(40_000))
    let bench = try bench(["a.mp4", "b.mp4", "c.mp4"], size: size)
    try Self.withLooker { looker in
      let first = try scan(bench, ["a.mp4"], head: head, tail: tail, size: size, looker)[0]
      #expect(first.requests > 2)
      bench.run(2, step: 0.01)
      try bench.restart(killed: killed)
      let cost = try scan(bench, ["b.mp4"], head: head, tail: tail, size: size, looker)[0]
      #expect(cost.requests <= 2 && cost.bytes <= head + tail + 16 << 10, "\(cost)")
      bench.run(2, step: 0.01)
      #expect(try bench.store.notes.kinds().map(\.name) == ["mp4"])
      #expect(try bench.store.notes.kinds().first?.files == 2)
      // Nothing of a damaged note is believed that costs more than a look.
      try bench.store.changes.apply(
        [.kind(KindNote(name: "mp4", head: .max, tail: .max, files: .max, at: .max))], durably: true)
      try bench.restart(killed: killed)
      let odd = try scan(bench, ["c.mp4"], head: head, tail: tail, size: size, looker)[0]
      #expect(odd.requests <= 2 && odd.bytes <= 1 << 20, "\(odd)")
    }
  }

  @Test("Who reads a beginning of any length and closes the file is sent the first request, and no tail")
  func closes() throws {
    let size: Int64 = 64 << 20
    let names = (0..<4).map { "clip\($0).mp4" }
    // A round trip brings as much as the kernel reads ahead.
    let bench = try bench(names, size: size, line: 2.4e6)
    for name in names {
      let (before, sent) = (bench.service.requests.count, bench.service.sent)
      let inode = try bench.inode(name)
      let open = bench.open(inode, process: getpid())
      let read = bench.read(inode, 0, 64 << 10, process: getpid())
      let readAhead = bench.read(inode, 64 << 10, 64 << 10, process: getpid())
      for ticket in [open, read, readAhead] { _ = bench.answer(ticket, step: 0.001) }
      // The program closed the file before. The kernel tells it when its read-ahead is answered.
      bench.run(0.002, step: 0.001)
      bench.system.release(inode)
      bench.run(2, step: 0.001)
      let requests = bench.service.requests[before...]
      #expect(requests.count == 1 && bench.service.sent - sent <= 256 << 10, "\(requests.map(\.range))")
    }
  }

  @Test("A player that has jumped to its film's index has none requested at the end")
  func knowsTheIndex() throws {
    let size: Int64 = 64 << 20
    let bench = try bench(["film.mp4"], size: size)
    let film = SimulatedHandle(bench, try bench.opened("film.mp4"), size: size)
    #expect(film.wait(for: ByteRange(0, 64 << 10)))
    #expect(film.wait(for: ByteRange(at: size - 4 << 20, count: 64 << 10)))
    bench.run(0.3, step: 0.001)
    #expect(film.wait(for: ByteRange(64 << 10, 128 << 10)))
    bench.run(1, step: 0.001)
    let ends = bench.service.requests.compactMap(\.range).map(\.end)
    #expect(ends.allSatisfy { $0 <= size - 128 << 10 }, "\(ends)")
  }

  @Test("A program that reads further than others did gets the rest at its own pace")
  func readsFurther() throws {
    let size: Int64 = 64 << 20
    let names = ["a.mp4", "b.mp4"]
    let bench = try bench(names, size: size)
    try Self.withLooker { looker in
      _ = try scan(bench, ["a.mp4"], head: 64 << 10, tail: 4096, size: size, looker)
      let cost = try scan(bench, ["b.mp4"], head: 400 << 10, tail: 4096, size: size, looker)[0]
      #expect(cost.requests <= 6 && cost.bytes <= 700 << 10, "\(cost)")
    }
  }

  @Test("A reader that jumps gets what it reads and a little, in one round trip")
  func jumps() throws {
    var random = SeededRandom(seed: 7)
    let size: Int64 = 64 << 30
    let bench = try bench(["a.bin"], size: size)
    let inode = try bench.opened("a.bin")
    bench.run(1, step: 0.001)
    for number in 0..<60 {
      let before = bench.service.requests.count
      let began = bench.now
      let place = Int64.random(in: 1..<size / 4096, using: &random) * 4096
      let reply = bench.answer(bench.read(inode, place, 4096, process: getpid()), step: 0.001)
      if case .data? = reply {} else { Issue.record("a read at \(place) ended with \(String(describing: reply))") }
      let seconds = bench.now.seconds(since: began)
      bench.run(0.15, step: 0.001)
      let asked = bench.service.requests[before...]
      let bytes = asked.reduce(Int64(0)) { $0 + ($1.range?.count ?? size) }
      // A few jumps show it.
      if number >= 5 {
        #expect(asked.count == 1 && bytes <= 32 << 10, "read \(number): \(bytes) bytes in \(asked.count) requests")
        #expect(seconds <= 1.15 * (Self.roundTrip + 4096 / Self.line), "read \(number): \(seconds) s")
      }
    }
  }

  @Test("A reader that has jumped and then reads on is soon at the line's rate")
  func jumpsAndStays() throws {
    let size: Int64 = 64 << 30
    let bench = try bench(["a.bin"], size: size)
    let inode = try bench.opened("a.bin")
    let handle = SimulatedHandle(bench, inode, size: size)
    for place in 1...6 {
      let range = ByteRange(at: Int64(place) << 32, count: 4096)
      handle.begin(range)
      #expect(
        bench.run(until: 5, step: 0.001) {
          handle.poll(); return handle.has(range)
        })
    }
    let seconds = sequential(bench, handle, from: 40 << 30, count: 4 << 20)
    // Three round trips more than the limit, until what it asks for is seen to be more than a look.
    #expect(seconds <= 4 * Self.roundTrip + Double(4 << 20) / Self.line * 1.05, "\(seconds)")
  }

  @Test("Who reads the head, jumps and reads on gets what it reads there without a gap")
  func jumpsOnce() throws {
    let size: Int64 = 64 << 20
    let names = ["warm.bin", "a.bin"]
    let bench = try bench(names, size: size)
    let warm = SimulatedHandle(bench, try bench.opened("warm.bin"), size: size)
    _ = sequential(bench, warm, count: 8 << 20)
    bench.run(12, step: 0.005)
    let handle = SimulatedHandle(bench, try bench.opened("a.bin"), size: size)
    _ = sequential(bench, handle, count: 128 << 10)
    let seconds = sequential(bench, handle, from: 40 << 20, count: 640 << 10)
    let limit = Self.roundTrip + Double(640 << 10) / Self.line
    #expect(seconds <= 1.15 * limit, "\(seconds / limit) times the limit")
  }

  @Test("A jump waits for the connection whose response is about to end, not for a new one")
  func jumpsFromTheHead() throws {
    let line = 5e6
    let bench = try bench(["a.mp4"], size: 64 << 20, line: line)
    let inode = try bench.opened("a.mp4")
    let first = bench.read(inode, 0, 208 << 10, process: getpid())
    // The kernel reads ahead beyond the head, and that takes the connection that was made beside the first one.
    _ = bench.read(inode, 208 << 10, 112 << 10, process: getpid())
    _ = bench.answer(first, step: 0.0005)
    let began = bench.now
    _ = bench.answer(bench.read(inode, 40 << 20, 4096, process: getpid()), step: 0.0005)
    let seconds = bench.now.seconds(since: began)
    let requests = bench.service.requests.map(\.range)
    #expect(requests.count == 3 && requests.first == ByteRange(0, 256 << 10), "\(requests)")
    let rest = Double(48 << 10) / line
    #expect(seconds <= Self.roundTrip + rest + 0.01, "\(seconds) s, of which the head takes \(rest)")
  }

  /// Reads in steps of 64 KiB; the seconds that it takes.
  private func sequential(_ bench: Bench, _ handle: SimulatedHandle, from: Int64 = 0, count: Int64) -> Double {
    let began = bench.now
    for start in stride(from: from, to: from + count, by: 64 << 10) {
      let range = ByteRange(at: start, count: 64 << 10)
      handle.begin(range)
      handle.poll()
      while !handle.has(range), bench.now.seconds(since: began) < 60 {
        bench.move(0.0005)
        handle.poll()
      }
    }
    return bench.now.seconds(since: began)
  }

  @Test(
    "A cold start in sequence waits for one round trip and its bytes, whatever the line",
    arguments: [(0.05, 4e6), (0.05, 1e6), (0.01, 4e6), (0.2, 2e6), (0.02, 20e6), (0.1, 20e6)])
  func coldStart(roundTrip: Double, line: Double) throws {
    let names = ["warm.bin", "a.bin"]
    for count: Int64 in [64 << 10, 512 << 10, 4 << 20] {
      let bench = try bench(names, size: 256 << 20, line: line, roundTrip: roundTrip)
      // The line is known, as after any other file.
      let warm = SimulatedHandle(bench, try bench.opened("warm.bin"), size: 256 << 20)
      _ = sequential(bench, warm, count: 4 << 20)
      bench.run(12, step: 0.005)
      let began = bench.now
      let inode = try bench.inode("a.bin")
      let ticket = bench.open(inode)
      while bench.port.reply(to: ticket) == nil { bench.move(0.0005) }
      let handle = SimulatedHandle(bench, inode, size: 256 << 20)
      _ = sequential(bench, handle, count: count)
      let seconds = bench.now.seconds(since: began)
      let limit = roundTrip + Double(count) / line
      // The first bytes wait for one round trip alone. Then it doubles what it gets at once with each round trip, and
      // what the kernel reads ahead shares the line.
      let beside = count > 64 << 10 ? Double(SimulatedHandle.readAhead) / line : 0
      let most = limit + roundTrip * (0.15 + log2(Double(count >> 16))) + beside
      #expect(seconds <= most, "\(count >> 10) KiB: \(seconds / limit) times the limit")
      print("cold start, \(roundTrip) s, \(line) B/s, \(count >> 10) KiB: \(seconds / limit) times the limit")
    }
  }
}
