import TestSupport
import Testing

@testable import Sharing

/// Many nodes want the same at once: what keeps them from the origin, which brings none of them anything then.
@Suite("Herds of nodes") struct HerdTests {
  /// A node of a thousand that reads block 0 of four.
  private struct Node {
    var share = SegmentShare()
    let setup: ShareSetup
    var actions: [ShareAction] = []
    var timers: [ShareTimer: Int] = [:]

    init(rank: Int = 900) {
      setup = ShareSetup(node: 1, boot: 2, times: ShareTimes(roundTrip: 2, nodes: 1000, rank: rank))
      send(.want(reader: 0, foreground: BlockSet(0..<4), background: BlockSet()))
      send(.looked(0, .absent))
    }

    mutating func send(_ event: ShareEvent) {
      if case .timer(let timer) = event { timers[timer] = nil }
      var all: [ShareAction] = []
      share.handle(event, setup, into: &all)
      actions = all.filter {
        switch $0 {
        case .set(let timer, let time): timers[timer] = time
        case .cancel(let timer): timers[timer] = nil
        default: return true
        }
        return false
      }
    }

    /// Sees the lease of node 9, which has stored `have` and got `rate` KiB a second.
    mutating func see(have: BlockSet = BlockSet(), version: Int, rate: UInt32 = 40 * 1024) {
      var lease = Lease(node: 9, boot: 9)
      (lease.have, lease.rate) = (have, rate)
      send(.leaseRead(.found(lease, ObjectVersion(etag: "\"\(version)\""))))
    }

    /// It waits so long for the other node that it fetches the block itself.
    mutating func fetch() {
      see(version: 1)
      while timers[.patience(0)] != nil, !actions.contains(.look(0)) { send(.timer(.patience(0))) }
      send(.looked(0, .absent))
    }
  }

  @Test func theLastOfThemLooksAtAFreeLeaseWithinItsPatience() throws {
    var node = Node(rank: 999)
    node.send(.leaseRead(.absent))
    #expect(try #require(node.timers[.jitter]) <= 1000)
  }

  @Test func theFirstOneThatStoresABlockEndsTheOthersFetches() {
    var node = Node()
    node.fetch()
    #expect(node.actions.contains(.fetch(0)) && node.share.fetching == BlockSet(0..<1))
    // It looks at the lease meanwhile.
    node.send(.timer(.poll))
    #expect(node.actions == [.readLease])
    node.see(have: BlockSet(0..<1), version: 2)
    #expect(node.actions == [.stopFetch(0)])
    node.send(.fetched(0, .stopped))
    #expect(node.actions.contains(.look(0)) && node.share.fetching.isEmpty)
  }

  @Test func whatIsNearlyHereIsFetched() {
    var node = Node()
    node.fetch()
    node.send(.arriving(0, kibibytes: 3500, rate: 0))
    node.send(.timer(.poll))
    node.see(have: BlockSet(0..<1), version: 2)
    #expect(!node.actions.contains(.stopFetch(0)))
  }

  @Test func whoHasTheBlockFromTheStoreFetchesItNoMore() {
    var node = Node()
    node.fetch()
    node.send(.looked(0, .found))
    #expect(node.actions.contains(.stopFetch(0)))
  }

  /// A few go on with what they began alone: they may have most of it.
  @Test(arguments: [(7, false), (8, true)])
  func whenTheStoreIsBackMostLeaveTheOrigin(_ rank: Int, _ leaves: Bool) {
    var node = Node(rank: rank)
    node.send(.tier(isUp: false))
    #expect(node.actions.contains(.fetch(0)))
    node.send(.tier(isUp: true))
    #expect(node.actions.contains(.stopFetch(0)) == leaves)
  }

  /// A window that has not come says that the origin is crowded: nothing more is asked from it meanwhile.
  @Test func atACrowdedOriginWindowsAreRare() {
    var node = Node()
    node.see(version: 1)
    node.send(.timer(.patience(0)))
    #expect(node.actions == [.bypass(0)] && node.timers[.patience(0)] == 1000)
    node.send(.timer(.patience(0)))
    #expect(node.actions.isEmpty && node.timers[.patience(0)] == 10_000)
    node.send(.window(0))
    node.send(.timer(.patience(0)))
    #expect(node.actions == [.bypass(0)] && node.timers[.patience(0)] == 1000)
  }

  /// Half of the nodes lose the store for 10 s, and all of them want the same blocks of a slow origin after that. It
  /// did not end: each asked for so much that none got it.
  @Test func aHerdEnds() {
    var options = FleetSimulation.Options()
    (options.nodes, options.files, options.blocks, options.origin) = (200, 2, 32, 8)
    (options.split, options.limit) = ((4, 5), 200)
    let seed = SeededRandom.fromEnvironment(for: "HerdTests.aHerdEnds").seed
    let report = FleetSimulation(options, seed: seed).run()
    print("a herd, MEDIAFS_SEED=\(seed): \(report)")
    #expect(report.unfinished == 0 && report.wrongBytes == 0, "seed \(seed)")
    #expect(report.origin <= 2, "seed \(seed)")
  }
}
