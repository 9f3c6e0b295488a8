import TestSupport
import Testing

@testable import Sharing

/// Many nodes want the same at once: what keeps them from the origin, which brings none of them anything then.
@Suite("Herds of nodes") struct HerdTests {
  /// A node of a thousand that waits for block 0, which another one is to fetch.
  private static func waiting(rank: Int = 900) -> SegmentPlayer {
    var node = SegmentPlayer(nodes: 1000, rank: rank)
    node.watch()
    return node
  }

  /// It has waited so long that it fetches the block itself.
  private static func fetching() -> SegmentPlayer {
    var node = waiting()
    while node.timers[.patience(0)] != nil, !node.actions.contains(.look(0)) { node.send(.timer(.patience(0))) }
    node.send(.looked(0, .absent))
    return node
  }

  @Test func theLastOfThemLooksAtAFreeLeaseWithinItsPatience() throws {
    var node = SegmentPlayer(nodes: 1000, rank: 999)
    node.read()
    for event in [ShareEvent.looked(0, .absent), .leaseRead(.absent)] { node.send(event) }
    #expect(try #require(node.timers[.jitter]) <= 1000)
  }

  @Test func theFirstOneThatStoresABlockEndsTheOthersFetches() {
    var node = Self.fetching()
    #expect(node.actions.contains(.fetch(0)) && node.share.fetching == BlockSet(0..<1))
    // It looks at the lease meanwhile.
    node.send(.timer(.poll))
    #expect(node.actions == [.readLease])
    node.saw(have: BlockSet(0..<1), version: 2)
    #expect(node.actions == [.stopFetch(0)])
    node.send(.fetched(0, .stopped))
    #expect(node.actions.contains(.look(0)) && node.share.fetching.isEmpty)
  }

  @Test func whatIsNearlyHereIsFetched() {
    var node = Self.fetching()
    node.send(.arriving(0, kibibytes: 3500, rate: 0))
    node.send(.timer(.poll))
    node.saw(have: BlockSet(0..<1), version: 2)
    #expect(!node.actions.contains(.stopFetch(0)))
  }

  @Test func whoHasTheBlockFromTheStoreFetchesItNoMore() {
    var node = Self.fetching()
    node.send(.looked(0, .found))
    #expect(node.actions.contains(.stopFetch(0)))
  }

  /// All of it may be asked for, and none of it is here: at an origin that many ask it does not come soon.
  @Test func whatWasOnlyAskedForIsLeft() {
    var node = Self.fetching()
    node.send(.asked(0))
    node.send(.timer(.poll))
    node.saw(have: BlockSet(0..<1), version: 2)
    #expect(node.actions == [.stopFetch(0)])
  }

  /// Its reader has waited for as long as it has to: there is no second wait for a block that the store does not give.
  @Test func whoLeftItToTheStoreInVainFetchesAtOnce() {
    var node = Self.fetching()
    node.send(.timer(.poll))
    node.saw(have: BlockSet(0..<1), version: 2)
    node.send(.fetched(0, .stopped))
    #expect(node.actions.contains(.look(0)))
    node.send(.looked(0, .absent))
    #expect(node.actions.contains(.fetch(0)))
  }

  /// A window that has not come says that the origin is crowded: nothing more is asked from it meanwhile.
  @Test func atACrowdedOriginWindowsAreRare() {
    var node = Self.waiting()
    node.send(.timer(.patience(0)))
    #expect(node.actions == [.bypass(0)] && node.timers[.patience(0)] == 1000)
    node.send(.timer(.patience(0)))
    #expect(node.actions.isEmpty && node.timers[.patience(0)] == 10_000)
    node.send(.window(0))
    node.send(.timer(.patience(0)))
    #expect(node.actions == [.bypass(0)] && node.timers[.patience(0)] == 1000)
  }

  /// Half of the nodes lose the store for 5 s, and all of them want the same blocks of a slow origin after that. It
  /// did not end: each asked for so much that none got it.
  @Test func aHerdEnds() {
    var options = FleetSimulation.Options()
    (options.nodes, options.files, options.blocks, options.origin) = (200, 2, 32, 8)
    (options.split, options.limit) = ((4, 5), 400)
    let seed = SeededRandom.fromEnvironment(for: "HerdTests.aHerdEnds").seed
    let report = FleetSimulation(options, seed: seed).run()
    print("a herd, MEDIAFS_SEED=\(seed): \(report)")
    #expect(report.unfinished == 0 && report.wrongBytes == 0, "seed \(seed)")
    #expect(report.origin <= 6, "seed \(seed)")
  }
}
