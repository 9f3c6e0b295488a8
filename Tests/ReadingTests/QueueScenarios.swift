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
    let copies: [DeadlineScenarios.Copier]
    let film: SimulatedHandle
    private static let size: Int64 = 4 << 30

    init(httpVersion: Int, copies count: Int = 1, connectionRate: Double? = nil) throws {
      var resources: [String: FakeResource] = [:]
      let names = ["film.bin"] + (0..<count).map { "copy\($0).bin" }
      for name in names {
        var resource = FakeResource(name: name, size: Self.size, latency: roundTrip)
        resource.httpVersion = httpVersion
        resources["http://origin/" + name] = resource
      }
      var options = ReadingOptions.testing
      options.continuation = .never
      bench = try Bench(
        names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options)
      bench.service.line = line
      bench.service.connectionRate = connectionRate
      // What one connection brings is less than the line then: nobody waits behind its bytes.
      bench.service.isInOrder = connectionRate == nil
      film = SimulatedHandle(bench, try bench.opened("film.bin"), size: Self.size, process: 1)
      var copies: [DeadlineScenarios.Copier] = []
      for name in names.dropFirst() { copies.append(try DeadlineScenarios.Copier(bench, name, size: Self.size)) }
      self.copies = copies
    }

    func move() {
      bench.move(0.001)
      film.poll()
      for copy in copies { copy.move() }
    }

    func run(_ seconds: Double) {
      let end = bench.now.adding(seconds: seconds)
      while bench.now < end { move() }
    }

    /// The part of the line that the copies get in `seconds`.
    func share(_ seconds: Double) -> Double {
      let read = { copies.reduce(Int64(0)) { $0 + $1.read } }
      let before = read()
      run(seconds)
      return Double(read() - before) / seconds / line
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

  @Test("Beside three copies it takes hardly longer after a minute and a half")
  func seeksBesideCopies() throws {
    let scene = try Scene(httpVersion: 20, copies: 3)
    scene.run(3)
    _ = scene.seek(1 << 26)
    scene.run(50)
    _ = scene.seek(2 << 26)
    scene.run(40)
    let limit = Self.roundTrip + Double(128 << 10) / Self.line
    let seconds = scene.seek(3 << 26)
    #expect(seconds <= 1.7 * limit, "\(seconds / limit) times the limit")
  }

  @Test("A copy fills such a line when it is alone", arguments: [11, 20])
  func fills(httpVersion: Int) throws {
    let scene = try Scene(httpVersion: httpVersion)
    scene.run(6)
    let share = scene.share(30)
    #expect(share >= 0.93, "\(share) of the line")
  }

  @Test("Beside an open file that was just read a copy gets most of such a line, and later all", arguments: [11, 20])
  func leaves(httpVersion: Int) throws {
    let scene = try Scene(httpVersion: httpVersion)
    scene.run(6)
    _ = scene.seek(1 << 26)
    scene.run(2)
    let beside = scene.share(30)
    #expect(beside >= 0.8, "\(beside) of the line")
    scene.run(ReaderRuns.longestVisit - 30)
    let alone = scene.share(20)
    #expect(alone >= 0.93, "\(alone) of the line")
  }

  @Test("Where each connection is slow, a copy keeps its rate beside an open file", arguments: [3.0, 25])
  func slowConnections(part: Double) throws {
    let shares = try [false, true].map { isVisited in
      let scene = try Scene(httpVersion: 11, connectionRate: Self.line / part)
      if isVisited { _ = scene.seek(1 << 26) }
      scene.run(15)
      if isVisited { _ = scene.seek(2 << 26) }
      scene.run(2)
      return scene.share(20)
    }
    #expect(shares[1] >= 0.85 * shares[0], "\(shares) of the line")
  }
}
