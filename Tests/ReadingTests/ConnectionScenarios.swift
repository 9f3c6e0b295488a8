import Base
import Fetching
import Glibc
import TestSupport
import Testing

@testable import Reading

/// Handshakes that no reader waits for, in simulated time.
@Suite struct ConnectionScenarios {
  private static let trip = 0.05

  private func origin(size: Int64, line: Double) throws -> Bench {
    var resource = FakeResource(name: "film.mp4", size: size)
    resource.latency = Self.trip
    let bench = try Bench(resource)
    bench.service.line = line
    bench.service.connectSeconds = Self.trip
    return bench
  }

  @Test("Who reads on from the head of a host's first file waits for one handshake, and for no silence of the line")
  func begins() throws {
    let (line, size, wanted) = (4e6, Int64(64 << 20), Int64(1 << 20))
    let bench = try origin(size: size, line: line)
    let began = bench.now
    let inode = try bench.opened("film.mp4")
    let handle = SimulatedHandle(bench, inode, size: size)
    for start in stride(from: 0, to: wanted, by: 64 << 10) {
      #expect(handle.wait(for: ByteRange(at: start, count: 64 << 10)))
    }
    let seconds = bench.now.seconds(since: began)
    let limit = 2 * Self.trip + Double(wanted) / line
    #expect(seconds <= limit + 0.025, "\(seconds) s of \(limit)")
    let requests = bench.service.requests
    #expect(requests.count { $0.opensAnother } == 1 && requests.first?.opensAnother == true)
  }

  @Test("The connection over which a request was refused counts as open, and the next one makes no spare beside it")
  func refused() throws {
    let bench = try origin(size: 1 << 20, line: 4e6)
    let url = "http://origin/film.mp4"
    let inode = try bench.inode("film.mp4")
    bench.service.resources[url]?.failure = FakeResource.gone
    #expect(bench.answer(bench.open(inode)) == .error(.io))
    bench.service.resources[url]?.failure = nil
    #expect(bench.answer(bench.open(inode)) == .opened(directIO: false))
    #expect(bench.service.requests.map(\.opensAnother) == [true, false])
  }

  @Test("Neither a look nor an origin that takes one request at a time gets a second connection")
  func refrains() throws {
    try LookScenarios.withLooker { looker in
      let bench = try origin(size: 1 << 20, line: 4e6)
      let inode = try bench.inode("film.mp4")
      let ticket = bench.open(inode, process: looker)
      while bench.port.reply(to: ticket) == nil { bench.move(0.01) }
      #expect(bench.service.requests.map(\.opensAnother) == [false])
    }
    var options = ReadingOptions.testing
    options.connections = 1
    let bench = try Bench(FakeResource(name: "film.mp4", size: 1 << 20), options: options)
    _ = try bench.opened("film.mp4")
    #expect(bench.service.requests.map(\.opensAnother) == [false])
  }

  @Test("A jump beside the own background download finds an idle connection, whenever it comes", arguments: 1...4)
  func jumps(seed: UInt64) throws {
    var random = SeededRandom(seed: seed)
    let (line, size, count) = (20e6, Int64(8 << 30), Int64(128 << 10))
    let bench = try origin(size: size, line: line)
    let inode = try bench.opened("film.mp4")
    let handle = SimulatedHandle(bench, inode, size: size)
    for start in stride(from: 0, to: Int64(12 << 20), by: 128 << 10) {
      #expect(handle.wait(for: ByteRange(at: start, count: 128 << 10)))
    }
    var slowest = 0.0
    for place in 1...40 {
      let pause = bench.now.adding(seconds: .random(in: 0.1..<0.4, using: &random))
      while bench.now < pause { bench.move(0.001) }
      let began = bench.now
      #expect(handle.wait(for: ByteRange(at: Int64(place) * 160 << 20, count: count)))
      slowest = max(slowest, bench.now.seconds(since: began))
    }
    #expect(bench.service.requests.contains { $0.isFresh })
    let limit = Self.trip + Double(count) / line
    #expect(slowest < limit + 0.6 * Self.trip, "seed \(seed): \(slowest) s of \(limit)")
  }
}
