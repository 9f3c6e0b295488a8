import Base
import TestSupport
import Testing

@testable import Reading

/// Over TCP connections as a server has them, HTTP/1.1 and TLS: what a connection brings is bound by its congestion
/// window. Queues are in round trips of the line.
@Suite struct NetworkScenarios {
  private static let trip = 0.06
  private static let line = 4e6
  private static let size: Int64 = 4 << 30
  private static let read: Int64 = 64 << 10

  private func bench(_ queue: Double) throws -> Bench {
    let names = ["film.mp4", "other.mp4"]
    let urls = names.map { "https://origin/\($0)" }
    var resources: [String: FakeResource] = [:]
    for (name, url) in zip(names, urls) {
      resources[url] = FakeResource(name: name, size: Self.size, latency: Self.trip)
    }
    let entries = names.indices.map { Bench.entry(names[$0], UInt64($0 + 1), urls: [urls[$0]]) }
    let bench = try Bench(entries, resources)
    bench.service.network = FakeNetwork(rate: Self.line, trip: Self.trip, queue: queue * Self.trip * Self.line)
    return bench
  }

  /// Plays for twelve seconds at 60 % of the line, with two jumps: the seconds of the stalls that are over 0.1 s.
  private func play(queue: Double, seed: UInt64) throws -> [Double] {
    let bench = try bench(queue)
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
      handle, rate: 0.6 * Self.line, line: Self.line, roundTrip: Self.trip, jumps: jumps, now: bench.now)
    for _ in 0..<13_000 {
      bench.move(0.001)
      player.move(bench.now)
    }
    #expect(player.have > 11)
    return player.waits.map(\.seconds).filter { $0 > 0.1 }
  }

  @Test("A film hardly stalls where congestion windows are small", arguments: [1.0, 5], 1...6)
  func playing(queue: Double, seed: UInt64) throws {
    let stalls = try play(queue: queue, seed: seed)
    #expect(stalls.count <= 2 && stalls.reduce(0, +) <= 0.3, "seed \(seed): \(stalls)")
  }

  @Test("A copy fills such a line", arguments: [1.0, 5])
  func copying(queue: Double) throws {
    let bench = try bench(queue)
    let copy = try DeadlineScenarios.Copier(bench, "other.mp4", size: Self.size)
    func copied(_ seconds: Double) -> Double {
      let before = copy.read
      for _ in 0..<Int(seconds * 1000) {
        bench.move(0.001)
        copy.move()
      }
      return Double(copy.read - before) / seconds / Self.line
    }
    _ = copied(2)
    let share = copied(10)
    #expect(share >= 0.9, "\(share) of the line")
  }

  @Test("A seek beside the file's own continuation takes three round trips at most", arguments: [1.0, 5])
  func seeking(queue: Double) throws {
    var times: [Double] = []
    for seed in UInt64(1)...4 {
      var random = SeededRandom(seed: seed)
      let bench = try bench(queue)
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
    #expect(times[times.count / 2] <= 2.3 * Self.trip, "the median is \(times[times.count / 2])")
    #expect(times[times.count * 19 / 20] <= 3.3 * Self.trip, "the 95th percentile is \(times[times.count * 19 / 20])")
  }
}
