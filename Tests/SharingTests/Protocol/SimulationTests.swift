import Base
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// Fleets in virtual time, with the protocol's own code. Each run prints its seed; MEDIAFS_SEED repeats it.
@Suite("Simulated fleets") struct SimulationTests {
  typealias Options = FleetSimulation.Options

  private static func options(_ change: (inout Options) -> Void) -> Options {
    var options = Options()
    change(&options)
    return options
  }

  private static func run(_ name: String, _ options: Options, seed: UInt64) -> FleetReport {
    let report = FleetSimulation(options, seed: seed).run()
    print("\(name), MEDIAFS_SEED=\(seed): \(report)")
    #expect(report.wrongBytes == 0, "\(name), seed \(seed)")
    #expect(report.unfinished == 0, "\(name), seed \(seed)")
    return report
  }

  /// What a read waits for at most on a single node.
  private static func alone(seed: UInt64) -> Double {
    run("a single node", options { $0.nodes = 1 }, seed: seed).longestWait
  }

  @Test func eachByteComesOnce() {
    let seed = SeededRandom.fromEnvironment(for: "SimulationTests.eachByteComesOnce").seed
    for (name, change) in [
      ("eight nodes", { _ in }), ("with queues of writers", { $0.writersQueue = true }),
      ("far from the store", { $0.storeTrip = 100 }), ("with a fast origin", { $0.origin = 150 }),
      ("players", { $0.player = 1 }),
    ] as [(String, (inout Options) -> Void)] {
      let report = Self.run(name, Self.options(change), seed: seed)
      #expect(report.origin <= 1.02, "\(name), seed \(seed)")
      #expect(report.requests <= 600, "\(name), seed \(seed)")
      #expect(report.longestWait <= Self.alone(seed: seed) + 3, "\(name), seed \(seed)")
    }
  }

  @Test func aNodeIsKilledOrStoppedEachFiveSeconds() {
    var random = SeededRandom.fromEnvironment(for: "SimulationTests.aNodeIsKilledOrStoppedEachFiveSeconds")
    for (name, change) in [
      ("kills", { $0.killsEach = 5 }), ("stops", { $0.stopsEach = 5 }),
      ("kills and stops", { ($0.killsEach, $0.stopsEach) = (10, 10) }),
      ("kills with queues of writers", { ($0.killsEach, $0.writersQueue) = (5, true) }),
    ] as [(String, (inout Options) -> Void)] {
      let seed = random.next()
      let alone = Self.alone(seed: seed)
      // One run says little: the mean of eight is judged, and of each the wait.
      var sum = 0.0
      for turn in 0..<UInt64(8) {
        let report = Self.run(name, Self.options(change), seed: seed &+ turn)
        sum += report.origin
        #expect(report.origin <= 1.07, "\(name), seed \(seed &+ turn)")
        #expect(report.longestWait <= alone + 3.3, "\(name), seed \(seed &+ turn)")
      }
      #expect(sum / 8 <= 1.05, "\(name), seed \(seed)")
    }
  }

  @Test func withoutLeasesAFleetSharesAsWell() {
    let seed = SeededRandom.fromEnvironment(for: "SimulationTests.withoutLeasesAFleetSharesAsWell").seed
    let report = Self.run("best effort", Self.options { $0.hasLeases = false }, seed: seed)
    #expect(report.origin <= 1.1, "seed \(seed)")
    #expect(report.longestWait <= Self.alone(seed: seed) + 3, "seed \(seed)")
  }

  /// While the store is away each node goes on with the origin: it costs what the origin brings in that time.
  @Test func aStoreThatIsGoneCostsItsAbsence() {
    let seed = SeededRandom.fromEnvironment(for: "SimulationTests.aStoreThatIsGoneCostsItsAbsence").seed
    for (name, change) in [
      ("the store is gone for 10 s", { $0.isGone = (10, 10) }),
      ("half of the nodes are cut off", { $0.split = (10, 10) }),
    ] as [(String, (inout Options) -> Void)] {
      let options = Self.options(change)
      let report = Self.run(name, options, seed: seed)
      let absence = 16 * options.origin / (Double(options.files * options.blocks) * 4)
      #expect(report.origin <= 1 + absence + 0.05, "\(name), seed \(seed)")
      #expect(report.longestWait <= Self.alone(seed: seed) + 4, "\(name), seed \(seed)")
    }
  }

  /// The first table of docs/FLEET.md: median and worst of MEDIAFS_FLEET_RUNS runs, else of one each.
  @Test func eightNodes() {
    let seed = SeededRandom.fromEnvironment(for: "SimulationTests.eightNodes").seed
    let runs = getenv("MEDIAFS_FLEET_RUNS").flatMap { Int(String(cString: $0)) } ?? 1
    for (name, most, change) in [
      ("cold, within 0.5 s", 60, { _ in }), ("a node killed each 5 s", 60, { $0.killsEach = 5 }),
      ("a node stopped for 5 s each 5 s", 60, { $0.stopsEach = 5 }), ("killed each 2.5 s", 60, { $0.killsEach = 2.5 }),
      ("killed each 5 s, writers that queue for 1 s", 60, { ($0.killsEach, $0.writersQueue) = (5, true) }),
      ("killed each 5 s, the store 100 ms away", 60, { ($0.killsEach, $0.storeTrip) = (5, 100) }),
      ("an origin of 15 MiB/s", 60, { $0.origin = 15 }), ("an origin of 10 MiB/s", 60, { $0.origin = 10 }),
      ("an origin of 4 MiB/s, 2 files", 8, { ($0.origin, $0.files) = (4, 2) }),
      ("an origin of 1 MiB/s, 1 file", 8, { ($0.origin, $0.files) = (1, 1) }),
      ("half of the nodes cut off for 10 s", 60, { $0.split = (10, 10) }),
      ("best effort, a node killed each 5 s", 60, { ($0.hasLeases, $0.killsEach) = (false, 5) }),
    ] as [(String, Int, (inout Options) -> Void)] {
      let reports = (0..<min(runs, most)).map { Self.run(name, Self.options(change), seed: seed &+ UInt64($0)) }
      let columns = [(reports.map(\.origin), 3), (reports.map(\.longestWait), 2), (reports.map(\.requests), 0)]
      let cells = columns.map { values, digits in
        let sorted = values.sorted()
        return [sorted[sorted.count / 2], sorted[sorted.count - 1]].map { FleetReport.text($0, digits) }
          .joined(separator: "; ")
      }
      print("| \(name) | \(cells.joined(separator: " | ")) |")
    }
  }

  /// The second table of docs/FLEET.md. A thousand nodes take a minute: MEDIAFS_FLEET_NODES says how many, with commas.
  @Test func manyNodes() async {
    let seed = SeededRandom.fromEnvironment(for: "SimulationTests.manyNodes").seed
    let cold = { @Sendable (count: Int) in
      Self.run("cold", Self.options { ($0.nodes, $0.spread) = (count, count > 100 ? 60 : 0.5) }, seed: seed)
    }
    let kills = { @Sendable (count: Int) in
      Self.run("a kill each 5 s", Self.options { ($0.nodes, $0.killsEach) = (count, 5) }, seed: seed)
    }
    guard let counts = getenv("MEDIAFS_FLEET_NODES") else {
      let (begun, killed) = (cold(100), kills(100))
      #expect(begun.origin <= 1.02 && killed.origin <= 1.05, "seed \(seed)")
      #expect(begun.hottest < 5500, "seed \(seed)")
      return
    }
    // For the table, on all processors.
    await withTaskGroup(of: Void.self) { group in
      for count in String(cString: counts).split(separator: ",").compactMap({ Int($0) }) {
        group.addTask { _ = cold(count) }
        group.addTask { _ = kills(count) }
        group.addTask { _ = Self.run("at once", Self.options { ($0.nodes, $0.spread) = (count, 0.5) }, seed: seed) }
        group.addTask {
          _ = Self.run("half cut off", Self.options { ($0.nodes, $0.split) = (count, (10, 10)) }, seed: seed)
        }
      }
    }
  }
}
