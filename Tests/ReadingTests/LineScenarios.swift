import Base
import Glibc
import TestSupport
import Fetching
import Testing

import Reading

/// Players on a line that is just fast enough, in simulated time: what is due is there.
@Suite struct LineScenarios {
  static let roundTrip = 0.05
  static let size: Int64 = 64 << 20

  /// Plays for 15 s with two jumps; what was late.
  private func play(rate: Double, line: Double, seed: UInt64) throws -> [(second: Double, seconds: Double)] {
    var random = SeededRandom(seed: seed)
    var resource = FakeResource(name: "film.mp4", size: Self.size)
    resource.latency = Self.roundTrip
    let bench = try Bench(resource)
    bench.service.line = line
    bench.service.connectSeconds = Self.roundTrip
    let inode = try bench.opened("film.mp4")
    let chunk = SimulatedPlayer.chunk
    let jumps = [(4.5, Int64(0.4 * Double(Self.size))), (9.5, Int64(0.75 * Double(Self.size)))].map { second, offset in
      SimulatedPlayer.Jump(
        second: second + Double.random(in: 0..<1, using: &random), offset: offset / chunk * chunk)
    }
    let handle = SimulatedHandle(bench, inode, size: Self.size)
    let began = bench.now
    // As players do: the head, the tail, then from the start.
    for probe in [ByteRange(0, chunk), ByteRange(Self.size - chunk, Self.size)] {
      #expect(handle.wait(for: probe))
    }
    let player = SimulatedPlayer(
      handle, rate: rate, line: line, roundTrip: Self.roundTrip, jumps: jumps, now: began)
    for _ in 0..<15_000 {
      bench.move(0.001)
      player.move(bench.now)
    }
    #expect(player.started != nil)
    return player.waits
  }

  @Test("A line with room for two thirds more than a player takes never makes it stall", arguments: 1...8)
  func playing(seed: UInt64) throws {
    let waits = try play(rate: 1e6, line: 1.6e6, seed: seed)
    #expect(waits.isEmpty, "seed \(seed): \(waits)")
  }

  @Test("Nor does one that a player nearly fills", arguments: 1...8)
  func playingOnAFullLine(seed: UInt64) throws {
    let waits = try play(rate: 1.44e6, line: 1.6e6, seed: seed)
    #expect(waits.isEmpty, "seed \(seed): \(waits)")
  }

  @Test("Players of many files share a line evenly: none stalls")
  func crowd() throws {
    let (count, rate, line) = (32, 250e3, 12e6)
    let size: Int64 = 32 << 20
    var resources: [String: FakeResource] = [:]
    for index in 0..<count {
      let name = "film\(index).mp4"
      resources["http://origin/" + name] = FakeResource(name: name, size: size, latency: Self.roundTrip)
    }
    let entries = (0..<count).map { Bench.entry("film\($0).mp4", UInt64($0 + 1)) }
    let bench = try Bench(entries, resources)
    bench.service.line = line
    bench.service.packet = 4 << 10
    bench.service.connectSeconds = Self.roundTrip
    var players: [SimulatedPlayer] = []
    for index in 0..<count {
      let inode = try bench.opened("film\(index).mp4")
      let handle = SimulatedHandle(bench, inode, size: size)
      players.append(
        SimulatedPlayer(
          handle, rate: rate, line: line / Double(count), roundTrip: Self.roundTrip, jumps: [], now: bench.now))
      for _ in 0..<25 { step() }
    }
    func step() {
      bench.move(0.002)
      for player in players { player.move(bench.now) }
    }
    for _ in 0..<6000 { step() }
    for (index, player) in players.enumerated() {
      let stalls = player.waits.filter { $0.seconds > 0.1 }
      #expect(player.started != nil && stalls.isEmpty, "player \(index): \(player.waits)")
    }
  }

  @Test("A film does not wait for a connection that stopped, while others bring what comes after")
  func stuck() throws {
    let size: Int64 = 256 << 20
    let url = "http://origin/film.mp4"
    let bench = try Bench(
      [Bench.entry("film.mp4", 1)], [url: FakeResource(name: "film.mp4", size: size, latency: Self.roundTrip)])
    bench.service.line = 4e6
    var stopped: TransferID?
    bench.service.answer = { request, resource in
      var resource = resource
      let start = request.range?.start ?? 0
      if stopped == nil, start > 12 << 20 { stopped = request.id }
      if request.id == stopped { resource.stallsAfter = 20_000 }
      return resource
    }
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: size)
    let player = SimulatedPlayer(
      handle, rate: 2.4e6, line: 4e6, roundTrip: Self.roundTrip, jumps: [], now: bench.now)
    for _ in 0..<12_000 {
      bench.move(0.001)
      player.move(bench.now)
    }
    #expect(stopped != nil)
    #expect(player.have > 11)
    #expect(player.waits.allSatisfy { $0.seconds < 0.1 }, "\(player.have) \(player.waits)")
  }

  // MARK: Seeks

  enum Busy: CaseIterable { case idle, own, other, six, copy }

  /// Reads at places of which nothing near is stored; seconds each took.
  private func seek(_ busy: Busy, line: Double, count: Int, seed: UInt64) throws -> [Double] {
    var random = SeededRandom(seed: seed)
    let size: Int64 = 4 << 30
    var resources: [String: FakeResource] = [:]
    for name in ["film.mp4", "other.mp4"] {
      resources["http://origin/" + name] = FakeResource(name: name, size: size, latency: Self.roundTrip)
    }
    let more = (0..<5).map { "more\($0).mp4" }
    for name in more {
      resources["http://origin/" + name] = FakeResource(name: name, size: size, latency: Self.roundTrip)
    }
    let names = ["film.mp4", "other.mp4"] + more
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources)
    bench.service.line = line
    bench.service.packet = 8 << 10
    bench.service.connectSeconds = Self.roundTrip
    let inode = try bench.opened("film.mp4")
    let handle = SimulatedHandle(bench, inode, size: size)
    let read: Int64 = 128 << 10
    func wait(_ range: ByteRange, _ other: () -> Void = {}) -> Double {
      let begun = bench.now
      handle.begin(range)
      while !handle.has(range), bench.now.seconds(since: begun) < 5 {
        bench.move(0.0005)
        handle.poll()
        other()
      }
      return bench.now.seconds(since: begun)
    }
    _ = wait(ByteRange(0, read))
    var copy: SimulatedHandle?
    var copied: Int64 = 0
    let goOn = {
      guard let copy else { return }
      copy.poll()
      while copy.has(ByteRange(at: copied, count: read)) {
        copied += read
        copy.begin(ByteRange(at: copied, count: read))
      }
    }
    switch busy {
    case .idle: break
    case .own:
      for offset in stride(from: Int64(0), to: 12 << 20, by: Int(read)) { _ = wait(ByteRange(at: offset, count: read)) }
    case .other, .six:
      for name in busy == .six ? more : [] { bench.system.fetch([try bench.inode(name)]) }
      bench.system.fetch([try bench.opened("other.mp4")])
    case .copy:
      let other = try bench.opened("other.mp4")
      copy = SimulatedHandle(bench, other, size: size, process: 1)
      copy?.begin(ByteRange(0, read))
    }
    for _ in 0..<2000 {
      bench.move(0.0005)
      goOn()
    }
    var result: [Double] = []
    for slot in (1..<60).map({ Int64($0) }).shuffled(using: &random).prefix(count) {
      for _ in 0..<Int.random(in: 400..<800, using: &random) {
        bench.move(0.0005)
        goOn()
      }
      let offset = slot << 26 + Int64.random(in: 0..<256, using: &random) * read
      result.append(wait(ByteRange(at: offset, count: read), goOn))
    }
    return result
  }

  @Test(
    "A seek into a hole takes a round trip and its transfer, whatever else mediafs fetches", arguments: Busy.allCases)
  func seeks(busy: Busy) throws {
    let line = 20e6
    let times = try seek(busy, line: line, count: 40, seed: 1).sorted()
    // Beside another reader it has half of the line.
    let limit = Self.roundTrip + Double(busy == .copy ? 256 << 10 : 128 << 10) / line
    let (median, late) = (times[times.count / 2] / limit, times[times.count * 19 / 20 - 1] / limit)
    #expect(median <= 1.15, "\(busy): \(median) times the limit")
    // How many requests a copy may have at once is tried now and then, at the cost of others.
    #expect(late <= (busy == .copy ? 1.6 : 1.15), "\(busy): the 95th percentile is \(late) times the limit")
    // Windows that nobody waits for follow each other, and leave a connection: no seek meets several or has to connect,
    // but for one in this file's own continuation, which may come while the spare connection is used.
    let overdue = times.count { $0 > 1.2 * limit }
    #expect(busy == .copy || overdue <= (busy == .own ? 1 : 0), "\(busy): \(overdue) seeks of \(times.count) are late")
  }

  @Test(
    "A continuation fills the line when no file is open, and most of it beside one that is",
    arguments: [0.002, 0.05, 0.2])
  func continuation(roundTrip: Double) throws {
    let line = 20e6
    var resources: [String: FakeResource] = [:]
    for name in ["a.mp4", "b.mp4"] {
      resources["http://origin/" + name] = FakeResource(name: name, size: 4 << 30, latency: roundTrip)
    }
    let bench = try Bench([Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)], resources)
    bench.service.line = line
    bench.service.packet = 8 << 10
    bench.service.connectSeconds = roundTrip
    bench.system.fetch([try bench.inode("a.mp4")])
    func share(of seconds: Double) -> Double {
      bench.run(2 + 40 * roundTrip, step: 0.001)
      let before = bench.service.sent
      bench.run(seconds, step: 0.001)
      return Double(bench.service.sent - before) / seconds / line
    }
    let alone = share(of: 3)
    #expect(alone > 0.95, "\(alone) of the line")
    let inode = try bench.opened("b.mp4")
    bench.expectBytes(inode, 0, 4096, of: "b.mp4")
    let beside = share(of: 3)
    #expect(beside > 0.7, "\(beside) of the line")
  }

  @Test("A scan of a library does not delay a player, and costs little more than it reads")
  func scan() throws {
    let (line, size, count) = (8e6, Int64(64 << 20), 60)
    let names = ["film.mp4"] + (0..<count).map { "clip\($0).mkv" }
    var resources: [String: FakeResource] = [:]
    for name in names {
      resources["http://origin/" + name] = FakeResource(name: name, size: size, latency: Self.roundTrip)
    }
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources)
    bench.service.line = line
    bench.service.connectSeconds = Self.roundTrip
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: size)
    let player = SimulatedPlayer(
      handle, rate: 1e6, line: line, roundTrip: Self.roundTrip, jumps: [], now: bench.now)
    func step() {
      bench.move(0.001)
      player.move(bench.now)
    }
    for _ in 0..<1000 { step() }
    let looked: Int64 = 32 << 10
    for name in names.dropFirst() {
      let inode = try bench.inode(name)
      let opened = bench.open(inode)
      while bench.port.reply(to: opened) == nil { step() }
      let clip = SimulatedHandle(bench, inode, size: size, process: 1)
      for place in [ByteRange(0, looked), ByteRange(size - looked, size)] {
        clip.begin(place)
        while !clip.has(place) {
          step()
          clip.poll()
        }
      }
      bench.system.release(inode)
    }
    for _ in 0..<500 { step() }
    #expect(player.started != nil && player.waits.isEmpty, "\(player.waits)")
    for name in names.dropFirst() {
      let sent = bench.service.requests.filter { $0.url.hasSuffix("/" + name) }.reduce(Int64(0)) {
        $0 + ($1.range?.count ?? size)
      }
      #expect(sent <= 2 * looked + 512 << 10, "\(name): \(sent) bytes were asked for")
    }
  }
}
