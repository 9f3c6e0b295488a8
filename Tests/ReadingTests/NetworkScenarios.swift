import Base
import TestSupport
import Testing

@testable import Reading

/// Over TCP connections as a server has them, HTTP/1.1 and TLS: what a connection brings is bound by its congestion
/// window. Queues are in round trips of the line.
@Suite struct NetworkScenarios {
  /// Bytes a second, and the least seconds from a request to its first byte.
  struct Path: Sendable {
    var rate = 4e6
    var trip = 0.06
    /// The part of the packets that is lost.
    var loss = 0.0
    var httpVersion = 11
    /// Whether losses do not slow the server (BBR).
    var keepsRate = false
  }
  private static let size: Int64 = 4 << 30
  private static let read: Int64 = 64 << 10

  private func bench(
    _ path: Path, queue: Double, seed: UInt64 = 1, names: [String] = ["film.mp4", "other.mp4"]
  ) throws -> Bench {
    let urls = names.map { "https://origin/\($0)" }
    var resources: [String: FakeResource] = [:]
    for (name, url) in zip(names, urls) {
      resources[url] = FakeResource(name: name, size: Self.size, httpVersion: path.httpVersion, latency: path.trip)
    }
    let entries = names.indices.map { Bench.entry(names[$0], UInt64($0 + 1), urls: [urls[$0]]) }
    let bench = try Bench(entries, resources)
    bench.service.network = FakeNetwork(
      rate: path.rate, trip: path.trip, queue: queue * path.trip * path.rate, loss: path.loss,
      keepsRate: path.keepsRate, seed: seed)
    return bench
  }

  /// Plays for twelve seconds at a part of the line, with two jumps: the seconds of the stalls that are over 0.1 s.
  private func play(
    _ path: Path = Path(), part: Double = 0.6, queue: Double, seed: UInt64, connections: Int? = nil
  ) throws -> [Double] {
    let bench = try bench(path, queue: queue, seed: seed)
    var random = SeededRandom(seed: seed)
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: Self.size)
    let jumps = [(4.0, 0.4), (8.0, 0.75)].map { second, part in
      SimulatedPlayer.Jump(
        second: second + Double.random(in: -0.3..<0.3, using: &random),
        offset: Int64(part * Double(Self.size)) / Self.read * Self.read)
    }
    bench.run(Double.random(in: 0..<0.3, using: &random), step: 0.001)
    for probe in [ByteRange(0, Self.read), ByteRange(Self.size - Self.read, Self.size)] {
      #expect(handle.wait(for: probe))
    }
    let player = SimulatedPlayer(
      handle, rate: part * path.rate, line: path.rate, roundTrip: path.trip, jumps: jumps, now: bench.now)
    for _ in 0..<13_000 {
      bench.move(0.001)
      player.move(bench.now)
    }
    if let connections { #expect(bench.service.network?.made == connections) }
    // It has gone on after its second jump.
    #expect(player.have > 9 || path.loss > 0)
    return player.waits.map(\.seconds).filter { $0 > 0.1 }
  }

  @Test("A film hardly stalls where congestion windows are small", arguments: [1.0, 5], 1...6)
  func playing(queue: Double, seed: UInt64) throws {
    let stalls = try play(queue: queue, seed: seed)
    #expect(stalls.count <= 2 && stalls.reduce(0, +) <= 0.3, "seed \(seed): \(stalls)")
  }

  @Test("No piece is a burst of which a queue of one round trip drops a part")
  func burst() throws {
    var stalls: [Double] = []
    for seed in UInt64(1)...16 { stalls += try play(queue: 1, seed: seed) }
    #expect(stalls.reduce(0, +) <= 1, "\(stalls)")
  }

  @Test("Nor for long where HTTP/2 has one connection and packets are lost: several bring more", arguments: [1.0, 5])
  func playingWithLosses(queue: Double) throws {
    var stalls: [Double] = []
    for seed in UInt64(1)...4 { stalls += try play(Path(loss: 0.005, httpVersion: 20), queue: queue, seed: seed) }
    #expect(stalls.reduce(0, +) <= 12, "\(stalls)")
  }

  @Test("One connection of HTTP/2 is enough where losses do not slow the server", arguments: [1.0, 5])
  func playingWhereLossesDoNotSlow(queue: Double) throws {
    var stalls: [Double] = []
    let path = Path(loss: 0.005, httpVersion: 20, keepsRate: true)
    for seed in UInt64(1)...24 { stalls += try play(path, queue: queue, seed: seed, connections: 1) }
    // After its jumps it waits for what the server's socket has.
    #expect(stalls.reduce(0, +) <= 10, "\(stalls)")
  }

  /// In this model a server that keeps its rate sends bursts, of which a queue of one round trip drops a part.
  @Test(
    "Behind a jump over HTTP/2 little comes that was requested for the old place",
    arguments: [(1.0, false), (5, false), (5, true)])
  func jumpingOverOneConnection(queue: Double, keepsRate: Bool) throws {
    var stalls: [Double] = []
    let path = Path(httpVersion: 20, keepsRate: keepsRate)
    for seed in UInt64(1)...4 { stalls += try play(path, part: 0.9, queue: queue, seed: seed, connections: 1) }
    #expect(stalls.reduce(0, +) <= 0.3, "\(stalls)")
  }

  @Test(
    "One connection of HTTP/2 is enough where only a full queue loses packets",
    arguments: [(4e6, 0.06), (20e6, 0.03), (10e6, 0.06), (4e6, 0.12)])
  func playingOverOneConnection(rate: Double, trip: Double) throws {
    let bench = try bench(Path(rate: rate, trip: trip, httpVersion: 20), queue: 1)
    let copy = try DeadlineScenarios.Copier(bench, "other.mp4", size: Self.size)
    // Longer than CUBIC needs until it loses packets again.
    for _ in 0..<20_000 {
      bench.move(0.001)
      copy.move()
    }
    #expect(copy.read > Int64(16 * rate))
    #expect(!bench.service.requests.contains { $0.isAlone })
  }

  @Test(
    "Nor for long where a round trip of the line is many congestion windows",
    arguments: [(Path(rate: 10e6), 0.4), (Path(trip: 0.12), 1.0)])
  func playingFar(path: Path, most: Double) throws {
    var stalls: [Double] = []
    for seed in UInt64(1)...4 { stalls += try play(path, queue: 1, seed: seed) }
    #expect(stalls.reduce(0, +) / 4 <= most, "\(stalls)")
  }

  @Test("A film begins over the connections of its first requests: its index waits for no other handshake")
  func beginning() throws {
    let path = Path()
    let bench = try bench(path, queue: 5)
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: Self.size)
    #expect(handle.wait(for: ByteRange(0, Self.read)))
    let opened = bench.now
    #expect(handle.wait(for: ByteRange(Self.size - Self.read, Self.size)))
    let index = bench.now.seconds(since: opened)
    // The index comes one round trip after the rest of the head, which was requested with it.
    #expect(index <= 3.6 * path.trip, "\(index / path.trip) round trips")
    for place in 1..<8 { #expect(handle.wait(for: ByteRange(at: Int64(place) * Self.read, count: Self.read))) }
    let begun = bench.now.seconds(since: opened)
    #expect(begun <= 6.8 * path.trip, "\(begun / path.trip) round trips")
  }

  @Test("What a player needs first comes in one response where only one connection is warm", arguments: [1.0, 5])
  func starting(queue: Double) throws {
    let path = Path()
    let bench = try bench(path, queue: queue)
    let other = SimulatedHandle(bench, try bench.opened("other.mp4"), size: Self.size)
    #expect(other.wait(for: ByteRange(0, Self.read)))
    bench.system.release(try bench.inode("other.mp4"))
    bench.run(0.3, step: 0.001)
    let asked = bench.now
    let film = SimulatedHandle(bench, try bench.opened("film.mp4"), size: Self.size)
    #expect(film.wait(for: ByteRange(0, Self.read)))
    #expect(film.wait(for: ByteRange(Self.size - Self.read, Self.size)))
    for place in 1..<8 {
      #expect(film.wait(for: ByteRange(at: Int64(place) * Self.read, count: Self.read)))
      bench.move(0.001)  // the player takes it in, and the kernel reads ahead a step at a time
    }
    let begun = bench.now.seconds(since: asked)
    // A round trip for the head, one for the index, one for the rest.
    let limit = 3 * path.trip + Double(9 * Self.read) / path.rate
    #expect(begun <= 1.2 * limit, "\(begun), limit \(limit)")
  }

  @Test("Several reads that wait in a file get a connection each, at once", arguments: 1...3)
  func together(reads: Int) throws {
    let bench = try bench(Path(), queue: 5)
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: Self.size)
    #expect(handle.wait(for: ByteRange(0, Self.read)))
    let places = (1...reads).map { Int64($0) * Self.size / 8 }
    for place in places { handle.begin(ByteRange(at: place, count: Self.read)) }
    bench.run(0.005, step: 0.001)
    let asked = Set(bench.service.requests.compactMap { $0.range?.start })
    // One alone waits for the head's connection.
    #expect(places.count { asked.contains($0) } == (reads == 1 ? 0 : reads))
  }

  @Test("A jump takes a round trip, though the connections were idle and bring ten packets each", arguments: 1...4)
  func jumping(seed: UInt64) throws {
    let path = Path()
    let bench = try bench(path, queue: 5, seed: seed)
    var random = SeededRandom(seed: seed)
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: Self.size)
    for index in 0..<64 { #expect(handle.wait(for: ByteRange(Int64(index) * Self.read, Int64(index + 1) * Self.read))) }
    var waits: [Double] = []
    // What was read in sequence has a play-ahead, which the first jump may meet.
    for index in 0...10 {
      bench.run(1 + Double.random(in: 0..<0.3, using: &random), step: 0.001)
      let start = Int64(1 + index * 7 % 11) * Self.size / 12
      let asked = bench.now
      #expect(handle.wait(for: ByteRange(start, start + Self.read)))
      waits.append(bench.now.seconds(since: asked))
    }
    let limit = path.trip + Double(Self.read) / path.rate
    #expect(waits.dropFirst().allSatisfy { $0 < 1.1 * limit }, "seed \(seed): \(waits), limit \(limit)")
  }

  @Test("So do the first bytes of a file of a listed folder", arguments: 1...4)
  func opening(seed: UInt64) throws {
    let path = Path()
    let names = (0..<9).map { "film\($0).mp4" }
    let bench = try bench(path, queue: 5, seed: seed, names: names)
    var random = SeededRandom(seed: seed)
    for name in names { _ = bench.answer(bench.stat(try bench.inode(name)), step: 0.001) }
    let limit = path.trip + Double(Self.read) / path.rate
    // The first response shows that the server forgets congestion windows.
    for (index, name) in names.reversed().prefix(4).enumerated() {
      bench.run(2 + Double.random(in: 0..<0.3, using: &random), step: 0.001)
      let begun = bench.now
      let inode = try bench.opened(name)
      #expect(SimulatedHandle(bench, inode, size: Self.size).wait(for: ByteRange(0, Self.read)))
      let waited = bench.now.seconds(since: begun)
      #expect(index == 0 || waited < 1.1 * limit, "seed \(seed), \(name): \(waited), limit \(limit)")
      bench.system.release(inode)
    }
  }

  /// What a copy gets of lines near `path`, a part of each, on average: on a single one it is chance which packets get
  /// lost. From second `start` on, for ten seconds.
  private func copied(_ path: Path, queue: Double, from start: Int) throws -> Double {
    var sum = 0.0
    let count = 6
    for index in 0..<count {
      var near = path
      near.rate *= 0.9 + 0.04 * Double(index)
      near.trip *= 0.9 + 0.03 * Double(index * 5 % 7)
      let bench = try bench(near, queue: queue)
      let copy = try DeadlineScenarios.Copier(bench, "other.mp4", size: Self.size)
      var before: Int64 = 0
      for step in 0..<(start + 10) * 1000 {
        if step == start * 1000 { before = copy.read }
        bench.move(0.001)
        copy.move()
      }
      sum += Double(copy.read - before) / 10 / near.rate
    }
    return sum / Double(count)
  }

  @Test("A copy fills such a line", arguments: [1.0, 5])
  func copying(queue: Double) throws {
    let share = try copied(Path(), queue: queue, from: 2)
    #expect(share >= 0.85, "\(share) of the line")
  }

  @Test(
    "A copy lets congestion windows grow where a round trip of the line is many of them",
    arguments: [Path(rate: 10e6), Path(trip: 0.12)], [1.0, 5])
  func copyingFar(path: Path, queue: Double) throws {
    let share = try copied(path, queue: queue, from: 10)
    #expect(share >= 0.8, "\(share) of the line")
  }

  @Test("A seek beside the file's own continuation hardly waits for what is on the way", arguments: [1.0, 5])
  func seeking(queue: Double) throws {
    var times: [Double] = []
    let path = Path()
    for seed in UInt64(1)...4 {
      var random = SeededRandom(seed: seed)
      let bench = try bench(path, queue: queue)
      let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: Self.size)
      func wait(_ offset: Int64) -> Double {
        let begun = bench.now
        let range = ByteRange(at: offset, count: Self.read)
        handle.begin(range)
        while !handle.has(range), bench.now.seconds(since: begun) < 5 {
          bench.move(0.001)
          handle.poll()
        }
        return bench.now.seconds(since: begun)
      }
      for offset in stride(from: Int64(0), to: 12 << 20, by: Int(Self.read)) { _ = wait(offset) }
      bench.run(1, step: 0.001)
      for slot in (1..<60).map({ Int64($0) }).shuffled(using: &random).prefix(12) {
        bench.run(Double.random(in: 0.2..<0.4, using: &random), step: 0.001)
        times.append(wait(slot << 26 + Int64.random(in: 0..<256, using: &random) * Self.read))
      }
    }
    times.sort()
    #expect(times[times.count / 2] <= 1.45 * path.trip, "the median is \(times[times.count / 2])")
    #expect(times[times.count * 19 / 20] <= 1.7 * path.trip, "the 95th percentile is \(times[times.count * 19 / 20])")
  }
}
