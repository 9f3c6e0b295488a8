import Base
import TestSupport
import Testing

@testable import Reading

/// Lines on which bytes in flight wait in a queue, or in the order of one connection: a newcomer waits behind them.
@Suite struct QueueScenarios {
  private static let roundTrip = 0.06
  private static let line = 4e6

  /// A copy, and a film whose reader jumps, on such a line.
  private struct Scene {
    let bench: Bench
    let copy: DeadlineScenarios.Copier
    let film: SimulatedHandle
    private static let size: Int64 = 4 << 30

    init(httpVersion: Int) throws {
      var resources: [String: FakeResource] = [:]
      for name in ["film.bin", "copy.bin"] {
        var resource = FakeResource(name: name, size: Self.size, latency: roundTrip)
        resource.httpVersion = httpVersion
        resources["http://origin/" + name] = resource
      }
      var options = ReadingOptions.testing
      options.continuation = .never
      bench = try Bench([Bench.entry("film.bin", 1), Bench.entry("copy.bin", 2)], resources, options: options)
      bench.service.line = line
      bench.service.isInOrder = true
      film = SimulatedHandle(bench, try bench.opened("film.bin"), size: Self.size, process: 1)
      copy = try DeadlineScenarios.Copier(bench, "copy.bin", size: Self.size)
    }

    func move() {
      bench.move(0.001)
      film.poll()
      copy.move()
    }

    func run(_ seconds: Double) {
      let end = bench.now.adding(seconds: seconds)
      while bench.now < end { move() }
    }

    /// Seconds that a read at `offset` of the film takes.
    func seek(_ offset: Int64) -> Double {
      let begun = bench.now
      let range = ByteRange(at: offset, count: 64 << 10)
      film.begin(range)
      while !film.has(range), bench.now.seconds(since: begun) < 5 { move() }
      return bench.now.seconds(since: begun)
    }
  }

  @Test("Beside a copy a seek takes the round trip, and the bytes at half of the line", arguments: [11, 20])
  func seeks(httpVersion: Int) throws {
    let scene = try Scene(httpVersion: httpVersion)
    scene.run(6)
    var times: [Double] = []
    for slot in 1...30 {
      scene.run(0.3 + Double(slot % 7) * 0.02)
      times.append(scene.seek(Int64(slot) << 26))
    }
    times.sort()
    let limit = Self.roundTrip + Double(128 << 10) / Self.line
    #expect(times[15] <= 1.25 * limit, "the median is \(times[15] / limit) times the limit")
    #expect(times[28] <= 1.5 * limit, "the 95th percentile is \(times[28] / limit) times the limit")
  }

  @Test("A copy fills such a line nonetheless", arguments: [11, 20])
  func fills(httpVersion: Int) throws {
    let scene = try Scene(httpVersion: httpVersion)
    scene.run(6)
    let before = scene.copy.read
    scene.run(30)
    let share = Double(scene.copy.read - before) / 30 / Self.line
    #expect(share >= 0.93, "\(share) of the line")
  }

  @Test("Beside a file that is open and was read a moment ago, a copy gets most of such a line", arguments: [11, 20])
  func leaves(httpVersion: Int) throws {
    let scene = try Scene(httpVersion: httpVersion)
    scene.run(6)
    _ = scene.seek(1 << 26)
    scene.run(2)
    let before = scene.copy.read
    scene.run(30)
    let share = Double(scene.copy.read - before) / 30 / Self.line
    #expect(share >= 0.8, "\(share) of the line")
  }
}
