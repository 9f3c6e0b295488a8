import Base
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// Every state that a few nodes can come to, whatever is late, lost or killed: no block changes, no bytes of two
/// versions meet, and each node that lives gets through alone.
@Suite("Explored sharing") struct ExplorerTests {
  typealias Settings = ExploredWorld.Settings

  /// What was found.
  private struct Finding {
    var isExhausted: Bool
    var violation: String?
  }

  private static func explore(_ settings: Settings) -> Finding { explore(Explorer(settings)) }

  private static func explore(_ fresh: Explorer) -> Finding {
    var explorer = fresh
    let settings = fresh.settings
    let start = Instant.now
    explorer.run()
    Figures.add("states explored", explorer.states)
    print(
      "explored \(settings.nodes) nodes x \(settings.segments) segments\(settings.isInOrder ? "" : " in any order"), \(settings.crashes) crashes,"
        + " \(settings.losses) losses, \(settings.changes) changes, \(settings.timers) timers:"
        + " \(explorer.states) states,"
        + " \(explorer.edges) edges, \(explorer.isExhausted ? "exhausted" : "stopped"),"
        + " \(explorer.violation ?? "nothing found"), \(Instant.now.seconds(since: start)) s")
    return Finding(isExhausted: explorer.isExhausted, violation: explorer.violation)
  }

  @Test func twoNodesWhoseRequestsOvertakeEachOther() {
    for settings in [
      Settings(nodes: 2), Settings(nodes: 2, crashes: 1, timers: 1), Settings(nodes: 2, losses: 1, timers: 1),
    ] {
      let finding = Self.explore(settings)
      #expect(finding.violation == nil)
      #expect(finding.isExhausted)
    }
  }

  @Test(arguments: [
    Settings(timers: 2, isInOrder: true), Settings(crashes: 1, timers: 1, isInOrder: true),
    Settings(losses: 1, timers: 1, isInOrder: true), Settings(changes: 1, timers: 1, isInOrder: true),
  ])
  func threeNodes(_ settings: Settings) {
    let finding = Self.explore(settings)
    #expect(finding.violation == nil)
    #expect(finding.isExhausted)
  }

  @Test(arguments: [
    Settings(nodes: 2, segments: 2, blocks: 1, timers: 2, isInOrder: true),
    Settings(nodes: 2, segments: 2, blocks: 1, crashes: 1, timers: 1, isInOrder: true),
    Settings(nodes: 2, segments: 2, blocks: 1, losses: 1, timers: 1, isInOrder: true),
    Settings(nodes: 2, segments: 2, blocks: 1, changes: 1, timers: 1, isInOrder: true),
  ])
  func twoNodesWithTwoSegments(_ settings: Settings) {
    let finding = Self.explore(settings)
    #expect(finding.violation == nil)
    #expect(finding.isExhausted)
  }

  @Test func threeNodesWithoutLeases() {
    let finding = Self.explore(Settings(losses: 1, changes: 1, timers: 2, isInOrder: true, hasLeases: false))
    #expect(finding.violation == nil)
    #expect(finding.isExhausted)
  }

  /// All at once: 20,000 states of each, or as many as come in MEDIAFS_EXPLORE_SECONDS, which takes 1 GB for each hour.
  @Test(arguments: [
    Settings(nodes: 2, crashes: 1, losses: 1, changes: 1, timers: 3),
    Settings(crashes: 1, losses: 1, changes: 1, timers: 3, isInOrder: true),
    Settings(nodes: 2, segments: 2, crashes: 1, losses: 1, changes: 1, timers: 3, isInOrder: true),
    Settings(segments: 2, crashes: 1, losses: 1, changes: 1, timers: 3, isInOrder: true),
  ])
  func all(_ settings: Settings) throws {
    var explorer = Explorer(settings)
    if let seconds = getenv("MEDIAFS_EXPLORE_SECONDS").map({ String(cString: $0) }) {
      explorer.until = Instant.now.adding(seconds: try #require(Double(seconds)))
    } else {
      explorer.mostStates = 20_000
    }
    #expect(Self.explore(explorer).violation == nil)
  }

  @Test func bytesOfAnotherVersionAreFound() {
    let finding = Self.explore(Settings(nodes: 2, changes: 1, timers: 1, isInOrder: true, breakage: .noIfRange))
    #expect(finding.violation?.contains("bytes of another version") == true)
  }

  @Test func aBlockThatIsOverwrittenIsFound() {
    let finding = Self.explore(Settings(nodes: 2, timers: 2, isInOrder: true, breakage: .plainPut))
    #expect(finding.violation?.contains("is overwritten") == true)
  }

  @Test func aNodeThatWaitsForEverIsFound() {
    let finding = Self.explore(Settings(nodes: 2, crashes: 1, timers: 1, isInOrder: true, breakage: .noTakeover))
    #expect(finding.violation?.contains("cannot get through") == true)
  }
}
