import Base
import Glibc
import TestSupport
import Testing

@testable import Reading

/// Lines that are too slow for all who read, in simulated time.
@Suite struct ShortLineScenarios {
  typealias Setting = DeadlineScenarios.Setting

  @Test(
    "Where players leave next to nothing, each copy still gets 1 KiB/s, and none of its reads fails",
    arguments: [
      Setting(rate: 1.1e6, roundTrip: 0.08, copies: 8, httpVersion: 20),
      Setting(rate: 1.2e6, roundTrip: 0.08, copies: 20, connections: 2),
    ])
  func nobodyStarves(setting: Setting) throws {
    let seconds = 50.0
    let outcome = try DeadlineScenarios.run(setting, seconds: seconds)
    #expect(outcome.errors == 0)
    // What a copy waits for is requested before what follows it.
    #expect(outcome.skips == 0)
    let least = try #require(outcome.copies.min())
    #expect(Double(least) >= 1024 * seconds, "\(outcome.copies) bytes")
  }

  /// A player that keeps a second of film ahead needs more than ten seconds to fill that. Only then it shows its pace.
  @Test(
    "On a line with 15 % to spare, a player beside readers that take all they get stalls for 0.1 s at most",
    arguments: [
      Setting(rate: 1.15e6, roundTrip: 0.005, copies: 10), Setting(rate: 1.15e6, roundTrip: 0.04, copies: 10),
      Setting(rate: 1.15e6, roundTrip: 0.08, copies: 30), Setting(rate: 1.15e6, roundTrip: 0.3, copies: 3),
      Setting(rate: 1.15e6, roundTrip: 0.08, copies: 10, httpVersion: 20),
      Setting(rate: 2.875e6, roundTrip: 0.08, players: [2.5e6], copies: 3),
      Setting(rate: 5.75e6, roundTrip: 0.04, players: [5e6], copies: 10),
      Setting(rate: 1.15e6, roundTrip: 0.08, probes: true, copies: 10, scanners: 8),
      Setting(rate: 1.15e6, roundTrip: 0.04, newestJumps: 15, copies: 10),
      Setting(rate: 1.15e6, roundTrip: 0.3, newestJumps: 15, copies: 3),
    ])
  func besideOthers(setting: Setting) throws {
    let outcome = try DeadlineScenarios.run(setting, seconds: 32)
    let stalls = outcome.stalls[0].filter { $0.seconds > 0.1 }
    #expect(stalls.isEmpty, "\(stalls.count): \(stalls.prefix(8))")
    #expect(outcome.errors == 0)
  }

  @Test("What a player needs behind its jump does not wait for a trial of more lanes")
  func behindJump() throws {
    let setting = Setting(rate: 1.15e6, roundTrip: 0.04, newestJumps: 15, copies: 10, scanners: 8)
    let outcome = try DeadlineScenarios.run(setting, seconds: 23)
    #expect(outcome.starts[0] != nil)
    let stalls = outcome.stalls[0].filter { $0.seconds > 0.1 }
    // Beside scanners the jump itself takes a little longer than alone.
    #expect(stalls.allSatisfy { $0.second == 15 && $0.seconds < 0.3 }, "\(stalls)")
  }

  @Test("A player that jumps does not wait behind what is in flight for other players")
  func jumpBesidePlayers() throws {
    let setting = Setting(rate: 3.45e6, roundTrip: 0.08, players: [1.5e6, 1e6, 0.5e6], probes: true)
    let outcome = try DeadlineScenarios.run(setting, seconds: 20)
    for stalls in outcome.stalls.map({ $0.filter { $0.seconds > 0.1 } }) { #expect(stalls.isEmpty, "\(stalls)") }
  }

  @Test(
    "Players with a lead live on it while another has jumped",
    arguments: [
      Setting(rate: 3.45e6, roundTrip: 0.08, players: [0.5e6, 1e6, 1.5e6], newestJumps: 10.5, httpVersion: 20),
      Setting(rate: 2.3e6, roundTrip: 0.08, players: [1e6, 1e6], newestJumps: 9),
      Setting(rate: 2.3e6, roundTrip: 0.08, players: [1e6, 1e6], newestJumps: 9, copies: 1),
      Setting(rate: 3.45e6, roundTrip: 0.3, players: [0.5e6, 1e6, 1.5e6], newestJumps: 9),
    ])
  func newestJumps(setting: Setting) throws {
    let outcome = try DeadlineScenarios.run(setting, seconds: 15)
    for stalls in outcome.stalls.map({ $0.filter { $0.seconds > 0.1 } }) { #expect(stalls.isEmpty, "\(stalls)") }
  }

  @Test(
    "On a line that is too slow for all players, the newest gives way, and the others do not stall",
    arguments: [
      Setting(rate: 1.5e6, roundTrip: 0.08, players: [1e6, 1e6], spacing: 15),
      Setting(rate: 2.5e6, roundTrip: 0.08, players: [1e6, 1e6, 1e6], spacing: 8, copies: 3),
      Setting(rate: 2.5e6, roundTrip: 0.08, players: [1e6, 1e6, 1e6], spacing: 7, httpVersion: 20),
      Setting(rate: 2.5e6, roundTrip: 0.08, players: [1e6, 1e6, 1e6], spacing: 8, httpVersion: 20),
    ])
  func newestGivesWay(setting: Setting) throws {
    let outcome = try DeadlineScenarios.run(setting, seconds: 40)
    for (index, stalls) in outcome.stalls.enumerated() {
      let stalled = stalls.reduce(0) { $0 + $1.seconds }
      if index == setting.players.count - 1 {
        #expect(stalled > 5, "the newest, \(stalled) s")
      } else {
        #expect(stalled < 0.1, "player \(index), \(stalls)")
      }
    }
  }

  @Test(
    "Players that begin within seconds of each other, on a line with 15 % to spare, cost each other no stall",
    arguments: [
      Setting(rate: 2.3e6, roundTrip: 0.08, players: [1e6, 1e6]),
      Setting(rate: 2.3e6, roundTrip: 0.08, players: [1e6, 1e6], copies: 1),
      Setting(rate: 2.3e6, roundTrip: 0.08, players: [1e6, 1e6], copies: 3, httpVersion: 20),
      Setting(rate: 3.45e6, roundTrip: 0.08, players: [1e6, 1e6, 1e6]),
      Setting(rate: 3.45e6, roundTrip: 0.08, players: [0.5e6, 1e6, 1.5e6], jumps: true, copies: 3),
      Setting(rate: 6.9e6, roundTrip: 0.04, players: Array(repeating: 1e6, count: 6), spacing: 2),
    ])
  func playersTogether(setting: Setting) throws {
    let outcome = try DeadlineScenarios.run(setting, seconds: 24)
    for stalls in outcome.stalls.map({ $0.filter { $0.seconds > 0.1 } }) { #expect(stalls.isEmpty, "\(stalls)") }
  }

  /// Stats 400 files, beside a film if `plays`.
  private func list(
    beside plays: Bool
  ) throws -> (seconds: Double, sizes: Int, player: SimulatedPlayer) {
    let clips = (0..<400).map { "clip\($0).bin" }
    let names = ["film.bin"] + clips
    var resources: [String: FakeResource] = [:]
    for name in names {
      resources["http://origin/" + name] = FakeResource(name: name, size: 1 << 30, latency: 0.04)
    }
    let bench = try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources)
    bench.service.line = 1.15e6
    let film = try bench.inode("film.bin")
    let ticket = bench.open(film)
    bench.run(0.5)
    #expect(bench.port.reply(to: ticket) != nil)
    let handle = SimulatedHandle(bench, film, size: 1 << 30, process: getpid())
    let player = SimulatedPlayer(handle, rate: 1e6, line: 1.15e6, roundTrip: 0.04, jumps: [], now: bench.now)
    func move(_ seconds: Double) {
      let end = bench.now.adding(seconds: seconds)
      while bench.now < end {
        bench.move(0.004)
        if plays { player.move(bench.now) }
      }
    }
    move(4)
    let begun = bench.now
    for name in clips {
      let stat = bench.stat(try bench.inode(name), process: 7)
      while bench.port.reply(to: stat) == nil { move(0.004) }
    }
    let seconds = bench.now.seconds(since: begun)
    move(5)
    return (seconds, bench.service.requests.count { $0.range?.count == Generations.glance }, player)
  }

  @Test("A listing beside a film costs it no stall")
  func listingBesideFilm() throws {
    let (seconds, sizes, player) = try list(beside: true)
    #expect(player.started != nil && player.waits.filter { $0.seconds > 0.1 }.isEmpty, "\(player.waits)")
    // Nearly each size was wanted before its stat came, so the stat asked for 4 KiB.
    #expect(sizes > 350 && seconds < 20, "\(sizes) in \(seconds) s")
  }

  @Test("The sizes that a listing wants next do not stand back for the listing itself")
  func listingAlone() throws {
    let (seconds, sizes, _) = try list(beside: false)
    #expect(sizes > 350 && seconds < 4, "\(sizes) in \(seconds) s")
  }
}
