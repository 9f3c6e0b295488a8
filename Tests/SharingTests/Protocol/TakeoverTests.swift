import Testing

@testable import Sharing

/// A holder is gone: how its readers come to the blocks that others stored meanwhile, and who goes on in its place.
@Suite("After a holder's death") struct TakeoverTests {
  private static let place = FleetNode.Place(generation: 1, segment: 0)
  private static func version(_ number: Int) -> ObjectVersion { ObjectVersion(etag: "\"\(number)\"") }
  private static var dead: Lease { Lease(node: 9, boot: 9) }

  /// A node with one file of eight blocks, of which it wants what it is told to.
  private struct Node {
    var fleet: FleetNode
    /// What the last event led to, without timers, and the timers that are set.
    var actions: [ShareAction] = []
    var timers: [ShareTimer: Int] = [:]

    init() {
      fleet = FleetNode(FleetIdentity(node: 1, boot: 2), nodes: Array(1...8))
      fleet.open(1, id: 1, blocks: 8)
    }

    mutating func change(_ body: (inout FleetNode, inout [FleetNode.Action]) -> Void) {
      var all: [FleetNode.Action] = []
      body(&fleet, &all)
      actions = []
      for case .share(_, let action) in all {
        switch action {
        case .set(let timer, let time): timers[timer] = time
        case .cancel(let timer): timers[timer] = nil
        default: actions.append(action)
        }
      }
    }

    mutating func read(_ block: Int?) { change { $0.read(1, 1, block: block, into: &$1) } }

    mutating func send(_ event: ShareEvent) {
      if case .timer(let timer) = event { timers[timer] = nil }
      change { $0.handle(event, at: TakeoverTests.place, into: &$1) }
    }

    /// Sees the dead node's lease, which stands.
    mutating func see(_ change: (inout Lease) -> Void = { _ in }, version: Int = 1) {
      var lease = TakeoverTests.dead
      change(&lease)
      send(.leaseRead(.found(lease, TakeoverTests.version(version))))
    }

    /// A reader waits for the first block, and nobody fetches it.
    mutating func watch() {
      read(0)
      send(.looked(0, .absent))
      see()
    }

    /// The lease's time is over: this node takes it.
    mutating func takeOver() {
      send(.timer(.expiry))
      see()
      send(.leaseWritten(.done(TakeoverTests.version(2))))
    }
  }

  @Test func eachReaderOfANodeHasItsPatience() {
    var node = Node()
    node.watch()
    node.change { $0.read(2, 1, block: 5, into: &$1) }
    #expect(node.timers[.patience(0)] == 2000 && node.timers[.patience(5)] == 2000)
    node.send(.timer(.patience(5)))
    #expect(node.actions == [.bypass(5)])
  }

  @Test func whoTakesOverTellsWhatHelpersStored() {
    var node = Node()
    node.watch()
    node.takeOver()
    #expect(node.actions == [.look(0)])
    node.send(.looked(0, .found))
    // Nothing more is wanted: the lease is given up, and those who wait learn of the block from it.
    guard case .writeLease(let lease, .version(Self.version(2)))? = node.actions.last else {
      return #expect(Bool(false), "not given up: \(node.actions)")
    }
    #expect(lease.isReleased && lease.have == BlockSet(0..<1))
  }

  @Test func whoLostAClaimLooksThoughTheLeaseMovesOn() {
    var node = Node()
    node.watch()
    node.send(.timer(.standing))
    node.see()
    node.send(.looked(0, .absent))
    node.send(.claimed(0, .refused))
    // Another node takes the lease over: it does not stand any more, and does not name the block that a helper stored.
    node.see({ ($0.node, $0.at) = (7, 3) }, version: 2)
    node.send(.timer(.claim))
    #expect(node.actions == [.look(0)])
  }

  @Test func whoLostAClaimLooksAtTheBlockMeanwhile() {
    var node = Node()
    node.watch()
    node.send(.timer(.standing))
    node.see()
    node.send(.looked(0, .absent))
    node.send(.claimed(0, .refused))
    #expect(node.timers[.poll] == 400)
    node.send(.timer(.poll))
    #expect(node.actions.contains(.look(0)))
  }

  @Test func aReaderDoesNotWaitForBlocksOfTheBackground() {
    var share = SegmentShare()
    let setup = ShareSetup(node: 1, boot: 2, times: ShareTimes(roundTrip: 0, nodes: 8, rank: 0))
    var actions: [ShareAction] = []
    func send(_ event: ShareEvent) {
      actions = []
      share.handle(event, setup, into: &actions)
    }
    // The background download is to ask for two blocks, and does not while a reader waits.
    send(.listed(BlockSet(0..<8)))
    send(.want(reader: nil, foreground: BlockSet(), background: BlockSet(0..<8)))
    #expect(share.looking == BlockSet(0..<2))
    send(.want(reader: 5, foreground: BlockSet(5..<6), background: BlockSet(0..<8)))
    #expect(actions.contains(.look(5)))
  }

  @Test func aReaderDoesNotWaitForTheBackgroundsFetches() {
    var share = SegmentShare()
    let setup = ShareSetup(node: 1, boot: 2, times: ShareTimes(roundTrip: 0, nodes: 8, rank: 0))
    var actions: [ShareAction] = []
    func send(_ event: ShareEvent) {
      actions = []
      share.handle(event, setup, into: &actions)
    }
    send(.want(reader: nil, foreground: BlockSet(), background: BlockSet(0..<8)))
    for event in [ShareEvent.looked(0, .absent), .leaseRead(.absent), .leaseWritten(.done(Self.version(1))), .asked(0)]
    {
      send(event)
    }
    #expect(share.fetching == BlockSet(0..<2))
    send(.want(reader: 5, foreground: BlockSet(5..<6), background: BlockSet(0..<8)))
    #expect(actions.contains(.fetch(5)))
  }

  @Test func aReaderThatGoesOnTakesTheLeaseOver() {
    var node = Node()
    node.watch()
    // A helper stored the block, and the reader comes back for the next one.
    node.send(.looked(0, .found))
    node.read(nil)
    node.read(1)
    node.send(.looked(1, .absent))
    node.send(.timer(.expiry))
    if node.actions == [.readLease] || node.fleet.lease(at: Self.place) == nil { node.see() }
    guard case .writeLease(_, .version(Self.version(1)))? = node.actions.last else {
      return #expect(Bool(false), "the lease was not taken: \(node.actions)")
    }
  }
}
