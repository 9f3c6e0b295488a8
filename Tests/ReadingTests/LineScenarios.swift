import Base
import Glibc
import TestSupport
import Testing

@testable import Reading

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
    // As players do: the head, the tail, then from the start.
    for probe in [ByteRange(0, chunk), ByteRange(Self.size - chunk, Self.size)] {
      handle.begin(probe)
      #expect(
        bench.run(until: 5, step: 0.001) {
          handle.poll()
          return handle.has(probe)
        })
    }
    let player = SimulatedPlayer(
      handle, rate: rate, line: line, roundTrip: Self.roundTrip, jumps: jumps, now: bench.now)
    for _ in 0..<15_000 {
      bench.move(0.001)
      player.move(bench.now)
    }
    #expect(player.started != nil)
    print("LINE \(rate / line) \(player.waits.count) \(player.waits.reduce(0) { $0 + $1.seconds }) \(player.started ?? 0) \(bench.service.requests.count) \(bench.service.sent)")
    return player.waits
  }

  @Test("A line with room for two thirds more than a player takes never makes it stall", arguments: 1...40)
  func playing(seed: UInt64) throws {
    let waits = try play(rate: 1e6, line: 1.6e6, seed: seed)
    #expect(waits.isEmpty, "seed \(seed): \(waits)")
  }
  @Test("Ninety", arguments: 1...40)
  func playing90(seed: UInt64) throws {
    let waits = try play(rate: 1.44e6, line: 1.6e6, seed: seed)
    #expect(waits.isEmpty, "seed \(seed): \(waits)")
  }
}
