import Testing

@testable import Sharing

/// One segment of four blocks at one node: what follows from each answer.
@Suite("A shared segment") struct SegmentTables {
  private struct Player {
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
  }

  private func own(_ change: (inout Lease) -> Void = { _ in }) -> Lease {
    var lease = Lease(node: 1, boot: 2)
    change(&lease)
    return lease
  }

  @Test func theFirstNodeTakesTheLeaseAndFetches() {
    var player = Player()
    player.read()
    #expect(player.actions == [.look(0)])
    player.send(.looked(0, .absent))
    #expect(player.actions == [.readLease])
    player.send(.leaseRead(.absent))
    #expect(player.actions == [.writeLease(own(), .absent)])
    player.send(.leaseWritten(.done(Player.version(1))))
    #expect(player.actions == [.fetch(0)] && player.timers[.renew] == 500)
    player.send(.arriving(0, kibibytes: 3072, rate: 9000))
    #expect(player.actions == [.fetch(1)], "the next block, when most of the last is here")
    player.send(.fetched(0, .whole))
    #expect(player.actions == [.upload(0)])
    player.send(.uploaded(0, .stored))
    #expect(player.actions.isEmpty, "not more than two renewals a second")
    player.send(.timer(.renew))
    guard case .writeLease(let lease, .version(Player.version(1))) = player.actions.first else {
      return #expect(Bool(false), "no renewal: \(player.actions)")
    }
    #expect(lease.have == BlockSet(0..<1) && lease.counter == 1 && lease.rate == 9000)
  }

  @Test func atTheEndTheLeaseIsGivenUp() {
    var player = Player()
    player.hold()
    for block in 0..<4 {
      player.send(.fetched(block, .whole))
      player.send(.uploaded(block, .stored))
      if case .writeLease = player.actions.first, block < 3 { player.send(.leaseWritten(.done(Player.version(2)))) }
    }
    guard case .writeLease(let lease, .version) = player.actions.last else {
      return #expect(Bool(false), "not given up: \(player.actions)")
    }
    #expect(lease.isReleased && lease.have == BlockSet(0..<4))
    player.send(.leaseWritten(.unknown))
    #expect(player.share.isIdle && player.actions.isEmpty)
  }

  @Test func nodesThatComeTogetherTakeTurns() {
    var player = Player(rank: 3)
    player.read()
    player.send(.looked(0, .absent))
    player.send(.leaseRead(.absent))
    #expect(player.actions.isEmpty && player.timers[.jitter] == 120)
    player.send(.timer(.jitter))
    #expect(player.actions == [.readLease], "it looks whether another was first")
    player.send(.leaseRead(.absent))
    #expect(player.actions == [.writeLease(own(), .absent)])
  }

  @Test func whoWaitsLooksAtTheLeaseAndNotAtTheBlock() {
    var player = Player()
    player.watch()
    #expect(player.actions.isEmpty && player.timers[.poll] == 500, "after news there is none for half a second")
    player.send(.timer(.poll))
    #expect(player.actions == [.readLease])
    player.saw(version: 1)
    #expect(player.actions.isEmpty && player.timers[.poll] == 200)
    player.send(.timer(.poll))
    player.saw(have: BlockSet(0..<3), at: 3, version: 2)
    #expect(player.actions == [.look(0), .look(1)])
    player.send(.looked(0, .found))
    #expect(player.actions == [.look(2)])
    player.send(.looked(1, .found))
    player.send(.looked(2, .found))
    player.read(3)
    #expect(player.actions.isEmpty && player.timers[.poll] == 500, "the lease says nothing more so soon")
    player.send(.timer(.poll))
    #expect(player.actions == [.readLease])
  }

  @Test func aReaderThatGoesOnBlockByBlockReadsTheLeaseAsRarely() {
    var player = Player()
    func want(_ block: Int) -> ShareEvent {
      .want(reader: block, foreground: BlockSet(block..<block + 1), background: BlockSet(0..<4))
    }
    player.send(want(0))
    player.send(.looked(0, .absent))
    player.saw(version: 1)
    player.send(.timer(.poll))
    player.saw(have: BlockSet(0..<1), at: 1, version: 2)
    #expect(player.actions == [.look(0)])
    player.send(.looked(0, .found))
    #expect(player.share.need == nil)
    player.send(want(1))
    #expect(player.actions.isEmpty && player.timers[.poll] == 500, "the lease says nothing more so soon")
    player.send(.timer(.poll))
    #expect(player.actions == [.readLease])
  }

  @Test func afterAWriteWithoutAnswerARead() {
    var player = Player()
    player.read()
    player.send(.looked(0, .absent))
    player.send(.leaseRead(.absent))
    player.send(.leaseWritten(.unknown))
    #expect(player.actions == [.readLease])
    player.send(.leaseRead(.found(own(), Player.version(5))))
    #expect(player.actions == [.fetch(0)], "the write had come through")
    // A 412 to the renewal though nothing changed.
    player.send(.timer(.renew))
    player.send(.timer(.renew))
    player.send(.leaseWritten(.refused))
    #expect(player.actions == [.readLease])
    player.send(.leaseRead(.found(own(), Player.version(5))))
    #expect(player.actions.isEmpty && player.share.lease != nil)
  }

  @Test func whoLostTheLeaseStops() {
    var player = Player()
    player.hold()
    player.send(.arriving(0, kibibytes: 3500, rate: 0))
    player.send(.timer(.renew))
    player.send(.timer(.renew))
    player.send(.leaseWritten(.refused))
    player.saw(version: 7)
    #expect(player.actions == [.stopFetch(1)], "the block that its reader waits for goes on")
    #expect(player.share.lease == nil)
  }

  @Test func whoWasHelpedLooksBeforeItFetches() {
    var player = Player()
    player.hold()
    player.send(.fetched(0, .whole))
    #expect(player.actions.contains(.fetch(1)))
    player.send(.uploaded(0, .existed))
    player.send(.arriving(1, kibibytes: 4000, rate: 0))
    #expect(player.actions.contains(.look(2)) && !player.actions.contains(.fetch(2)))
    player.send(.looked(2, .absent))
    #expect(player.actions.contains(.fetch(2)))
  }

  @Test func whatEndsSharing() {
    for (event, reason) in [
      (ShareEvent.fetched(0, .changed), EndOfSharing.originChanged), (.uploaded(0, .differs), .unstable),
      (.over(.originChanged), .originChanged),
    ] {
      var player = Player()
      player.hold()
      player.send(.arriving(0, kibibytes: 4000, rate: 0))
      player.send(event)
      #expect(player.actions.contains(.end(reason)) && player.actions.contains(.stopFetch(1)))
      #expect(player.timers.isEmpty)
      player.read()
      #expect(player.actions.isEmpty)
    }
  }

  @Test func aHolderThatStandsIsHelpedByOne() {
    var player = Player()
    player.watch()
    #expect(player.timers[.standing] == 1200 && player.timers[.expiry] == 3000 && player.timers[.patience(0)] == 2000)
    player.send(.timer(.standing))
    #expect(player.actions == [.readLease], "the lease may have changed since")
    player.saw(version: 1)
    #expect(player.actions == [.look(0)])
    player.send(.looked(0, .absent))
    #expect(player.actions == [.claim(0, round: 0)])
    var other = player
    player.send(.claimed(0, .done(Player.version(1))))
    #expect(player.actions == [.fetch(0)] && player.timers[.patience(0)] == nil)
    // The other one waits, and looks at the block.
    other.send(.claimed(0, .refused))
    #expect(other.actions.isEmpty && other.timers[.claim] == 925)
    other.send(.timer(.claim))
    #expect(other.actions == [.look(0)])
    other.send(.looked(0, .absent))
    #expect(other.actions == [.claim(0, round: 1)])
  }

  @Test func nobodyWaitsLongerThanTwoSeconds() {
    var player = Player()
    player.watch()
    player.send(.timer(.patience(0)))
    #expect(player.actions == [.bypass(0)] && player.timers[.patience(0)] == 1000)
    player.send(.window(0))
    player.send(.timer(.patience(0)))
    #expect(player.actions == [.bypass(0)])
    player.send(.window(0))
    player.send(.timer(.patience(0)))
    #expect(player.actions == [.look(0)], "then the whole block, if it is not there by now")
    player.send(.looked(0, .absent))
    #expect(player.actions.contains(.fetch(0)))
  }

  /// A holder brings one block after the other, and a reader walks along; another one waits for the last block.
  @Test func eachWaitingReaderHasItsPatience() {
    var player = Player()
    func want(_ block: Int) -> ShareEvent {
      .want(
        reader: block, others: BlockSet(3..<4), foreground: BlockSet(block..<block + 1) | BlockSet(3..<4),
        background: BlockSet())
    }
    player.send(want(0))
    player.send(.looked(0, .absent))
    player.saw(version: 1)
    #expect(player.timers[.patience(0)] == 2000 && player.timers[.patience(3)] == 2000)
    // As much of it has not passed yet: setting it anew would show.
    player.timers[.patience(3)] = 700
    for block in 0..<2 {
      player.saw(have: BlockSet(0..<block + 1), at: UInt8(block + 1), version: block + 2)
      player.send(.looked(block, .found))
      player.send(want(block + 1))
      #expect(player.timers[.patience(block)] == nil && player.timers[.patience(block + 1)] == 2000)
    }
    #expect(player.timers[.patience(3)] == 700)
    player.send(.timer(.patience(3)))
    #expect(player.actions == [.bypass(3)] && player.timers[.patience(3)] == 1000)
    for _ in 0..<2 { for event in [ShareEvent.window(3), .timer(.patience(3))] { player.send(event) } }
    #expect(player.share.waits.contains { $0.block == 3 && $0.isImpatient } && player.actions == [.look(3)])
    player.send(.looked(3, .absent))
    #expect(player.actions.contains(.fetch(3)) && player.timers[.patience(3)] == nil)
    #expect(player.timers[.patience(2)] == 2000)
  }

  @Test func nobodyWaitsLongerForASlowStoreEither() {
    var player = Player()
    player.read()
    player.send(.listed(BlockSet(0..<1)))
    #expect(player.share.looking == BlockSet(0..<1) && player.timers[.patience(0)] == 2000)
    for _ in 0..<3 {
      player.send(.timer(.patience(0)))
      #expect(player.actions == [.bypass(0)] && player.timers[.patience(0)] == 1000, "its GET is slow")
      player.send(.window(0))
    }
    // It has ended, and the reader has waited for so long that the whole block is fetched.
    player.send(.looked(0, .failed))
    #expect(player.actions == [.fetch(0)] && player.timers[.patience(0)] == nil)
  }

  @Test func aDeadHoldersLeaseIsTaken() {
    var player = Player()
    player.watch(have: BlockSet(1..<2))
    player.send(.timer(.expiry))
    #expect(player.actions == [.readLease])
    player.saw(have: BlockSet(1..<2), version: 1)
    guard case .writeLease(let lease, .version(Player.version(1))) = player.actions.first else {
      return #expect(Bool(false), "not taken: \(player.actions)")
    }
    #expect(lease.have == BlockSet(1..<2))
    player.send(.looked(1, .found))
    player.send(.leaseWritten(.done(Player.version(2))))
    #expect(player.actions == [.look(0)], "a helper may have stored it since it was seen to be absent")
    player.send(.looked(0, .absent))
    #expect(player.actions == [.fetch(0)])
    // One that lives is not.
    var other = Player()
    other.watch()
    other.send(.timer(.expiry))
    other.saw(version: 2)
    #expect(!other.actions.contains { if case .writeLease = $0 { true } else { false } })
  }

  @Test func whatTheStoreDoesNotGiveIsFetchedAnew() {
    for result in [LookResult.absent, .rotten] {
      var player = Player()
      player.watch(have: BlockSet(0..<4))
      #expect(player.actions == [.look(0), .look(1)])
      player.saw(have: BlockSet(0..<4), version: 3, isReleased: true)
      player.send(.looked(0, result))
      #expect(player.actions.contains(.readLease), "\(result)")
      player.saw(have: BlockSet(0..<4), version: 3, isReleased: true)
      guard case .writeLease(let lease, _) = player.actions.last else {
        return #expect(Bool(false), "the lease was not taken: \(player.actions)")
      }
      #expect(lease.have == BlockSet(1..<4), "\(result)")
    }
  }

  @Test func aBackgroundDownloadGoesElsewhere() {
    var player = Player()
    player.send(.want(reader: nil, foreground: BlockSet(), background: BlockSet(0..<4)))
    player.send(.looked(0, .absent))
    player.saw(version: 1)
    #expect(player.actions.isEmpty && player.timers[.poll] == nil && player.timers[.standing] == nil)
    #expect(player.share.isElsewhere)
    // When the lease's time has passed, it looks the next time it comes by.
    player.send(.timer(.expiry))
    #expect(player.actions.isEmpty)
    player.send(.timer(.poll))
    #expect(player.actions == [.readLease])
  }

  @Test func withoutTheStoreANodeIsAlone() {
    var player = Player()
    player.watch()
    player.send(.tier(isUp: false))
    #expect(player.actions == [.fetch(0)] && player.timers.isEmpty)
    player.send(.fetched(0, .whole))
    #expect(player.actions == [.fetch(1)], "nothing is uploaded")
    player.send(.tier(isUp: true))
    player.send(.fetched(1, .whole))
    #expect(player.actions.contains(.upload(1)))
  }

  @Test func aLoneNodeDoesNotWaitForALease() {
    var player = Player(nodes: 1)
    player.send(.listed(BlockSet()))
    player.read()
    #expect(player.actions == [.fetch(0), .readLease])
  }

  @Test func whatAListDidNotNameIsLookedAtWhereOthersStore() {
    var player = Player()
    player.read()
    player.send(.listed(BlockSet(1..<2)))
    // The list may be old: the reader's block is looked at before anybody is asked for it.
    #expect(player.share.looking.contains(0) && player.share.looking.contains(1))
    player.send(.looked(0, .absent))
    #expect(player.actions.contains(.readLease))
  }

  @Test func allThatIsAskedForLetsTheNextBlockBegin() {
    var player = Player()
    player.hold()
    #expect(player.share.fetching == BlockSet(0..<1))
    player.send(.arriving(0, kibibytes: 1000, rate: 9000))
    #expect(player.actions.isEmpty)
    player.send(.asked(0))
    #expect(player.actions == [.fetch(1)])
    // Two at a time, also when the first one ends.
    player.send(.asked(1))
    #expect(player.actions.isEmpty)
    player.send(.fetched(0, .whole))
    #expect(player.actions.contains(.fetch(2)))
  }

  @Test func whoseOriginFailsGivesTheLeaseUp() {
    var player = Player()
    player.hold()
    player.send(.fetched(0, .failed))
    guard case .writeLease(let lease, _) = player.actions.last else {
      return #expect(Bool(false), "not given up: \(player.actions)")
    }
    #expect(lease.isReleased && player.timers[.patience(0)] != nil)
  }

  @Test func withoutLeasesTheFirstByHashFetches() {
    var first = Player(hasLeases: false)
    first.read()
    first.send(.looked(0, .absent))
    #expect(first.actions == [.fetch(0)])
    var second = Player(rank: 1, hasLeases: false)
    second.read()
    second.send(.looked(0, .absent))
    #expect(second.actions.isEmpty && second.timers[.standing] == 1500)
    second.send(.timer(.poll))
    #expect(second.actions == [.look(0)])
    second.send(.looked(0, .absent))
    second.send(.timer(.standing))
    second.send(.looked(0, .absent))
    #expect(second.actions == [.fetch(0)])
  }
}
