@testable import Sharing

/// A node at one segment of four blocks, to which a test sends what happens.
struct SegmentPlayer {
  var share = SegmentShare()
  var setup: ShareSetup
  /// What the last event led to, without timers, and the timers that are set.
  var actions: [ShareAction] = []
  var timers: [ShareTimer: Int] = [:]

  init(nodes: Int = 8, rank: Int = 0, hasLeases: Bool = true) {
    let times = ShareTimes(roundTrip: 0, nodes: nodes, rank: rank)
    setup = ShareSetup(node: 1, boot: 2, times: times, hasLeases: hasLeases)
  }

  mutating func send(_ event: ShareEvent) {
    if case .timer(let timer) = event { timers[timer] = nil }
    var all: [ShareAction] = []
    share.handle(event, setup, into: &all)
    actions = []
    for action in all {
      switch action {
      case .set(let timer, let time): timers[timer] = time
      case .cancel(let timer): timers[timer] = nil
      default: actions.append(action)
      }
    }
  }

  mutating func read(_ block: Int = 0, ahead: Int = 3) {
    send(.want(reader: block, foreground: BlockSet(block..<min(4, block + ahead + 1)), background: BlockSet()))
  }

  /// It has the lease and fetches block 0.
  mutating func hold() {
    read()
    for event in [ShareEvent.looked(0, .absent), .leaseRead(.absent), .leaseWritten(.done(Self.version(1)))] {
      send(event)
    }
  }

  /// It waits for block 0, which node 9 is to fetch.
  mutating func watch(have: BlockSet = BlockSet(), version: Int = 1) {
    read()
    send(.looked(0, .absent))
    saw(have: have, version: version)
  }

  mutating func saw(have: BlockSet = BlockSet(), at: UInt8 = 0, version: Int, isReleased: Bool = false) {
    var lease = Lease(node: 9, boot: 9)
    (lease.have, lease.at, lease.isReleased) = (have, at, isReleased)
    send(.leaseRead(.found(lease, Self.version(version))))
  }

  static func version(_ number: Int) -> ObjectVersion { ObjectVersion(etag: "\"\(number)\"") }

  /// The node's own lease.
  static func own(_ change: (inout Lease) -> Void = { _ in }) -> Lease {
    var lease = Lease(node: 1, boot: 2)
    change(&lease)
    return lease
  }
}
