import Testing

@testable import Sharing

/// One segment of four blocks at one node that fetches: what follows from each answer.
@Suite("A shared segment") struct SegmentTables {
  @Test func theFirstNodeTakesTheLeaseAndFetches() {
    var player = SegmentPlayer()
    player.read()
    #expect(player.actions == [.look(0)])
    player.send(.looked(0, .absent))
    #expect(player.actions == [.readLease])
    player.send(.leaseRead(.absent))
    #expect(player.actions == [.writeLease(SegmentPlayer.own(), .absent)])
    player.send(.leaseWritten(.done(SegmentPlayer.version(1))))
    #expect(player.actions == [.fetch(0)] && player.timers[.renew] == 500)
    player.send(.arriving(0, kibibytes: 3072, rate: 9000))
    #expect(player.actions == [.fetch(1)], "the next block, when most of the last is here")
    player.send(.fetched(0, .whole))
    #expect(player.actions == [.upload(0)])
    player.send(.uploaded(0, .stored))
    #expect(player.actions.isEmpty, "not more than two renewals a second")
    player.send(.timer(.renew))
    guard case .writeLease(let lease, .version(SegmentPlayer.version(1))) = player.actions.first else {
      return #expect(Bool(false), "no renewal: \(player.actions)")
    }
    #expect(lease.have == BlockSet(0..<1) && lease.counter == 1 && lease.rate == 9000)
  }

  @Test func atTheEndTheLeaseIsGivenUp() {
    var player = SegmentPlayer()
    player.hold()
    for block in 0..<4 {
      player.send(.fetched(block, .whole))
      player.send(.uploaded(block, .stored))
      if case .writeLease = player.actions.first, block < 3 {
        player.send(.leaseWritten(.done(SegmentPlayer.version(2))))
      }
    }
    guard case .writeLease(let lease, .version) = player.actions.last else {
      return #expect(Bool(false), "not given up: \(player.actions)")
    }
    #expect(lease.isReleased && lease.have == BlockSet(0..<4))
    player.send(.leaseWritten(.unknown))
    #expect(player.share.isIdle && player.actions.isEmpty)
  }

  @Test func nodesThatComeTogetherTakeTurns() {
    var player = SegmentPlayer(rank: 3)
    player.read()
    player.send(.looked(0, .absent))
    player.send(.leaseRead(.absent))
    #expect(player.actions.isEmpty && player.timers[.jitter] == 120)
    player.send(.timer(.jitter))
    #expect(player.actions == [.readLease], "it looks whether another was first")
    player.send(.leaseRead(.absent))
    #expect(player.actions == [.writeLease(SegmentPlayer.own(), .absent)])
  }

  @Test func afterAWriteWithoutAnswerARead() {
    var player = SegmentPlayer()
    player.read()
    player.send(.looked(0, .absent))
    player.send(.leaseRead(.absent))
    player.send(.leaseWritten(.unknown))
    #expect(player.actions == [.readLease])
    player.send(.leaseRead(.found(SegmentPlayer.own(), SegmentPlayer.version(5))))
    #expect(player.actions == [.fetch(0)], "the write had come through")
    // A 412 to the renewal though nothing changed.
    player.send(.timer(.renew))
    player.send(.timer(.renew))
    player.send(.leaseWritten(.refused))
    #expect(player.actions == [.readLease])
    player.send(.leaseRead(.found(SegmentPlayer.own(), SegmentPlayer.version(5))))
    #expect(player.actions.isEmpty && player.share.lease != nil)
  }

  @Test("A stranger sets the counter of a held lease to the greatest number: the next renewal begins at 0")
  func counterIsAtItsEnd() {
    var player = SegmentPlayer()
    player.hold()
    player.send(.timer(.renew))
    player.send(.timer(.renew))
    player.send(.leaseWritten(.refused))
    player.send(.leaseRead(.found(SegmentPlayer.own { $0.counter = .max }, SegmentPlayer.version(5))))
    player.send(.timer(.renew))
    player.send(.timer(.renew))
    guard case .writeLease(let lease, .version(SegmentPlayer.version(5))) = player.actions.first else {
      return #expect(Bool(false), "no renewal: \(player.actions)")
    }
    #expect(lease.counter == 0)
  }

  @Test func whoLostTheLeaseStops() {
    var player = SegmentPlayer()
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
    var player = SegmentPlayer()
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
      var player = SegmentPlayer()
      player.hold()
      player.send(.arriving(0, kibibytes: 4000, rate: 0))
      player.send(event)
      #expect(player.actions.contains(.end(reason)) && player.actions.contains(.stopFetch(1)))
      #expect(player.timers.isEmpty)
      player.read()
      #expect(player.actions.isEmpty)
    }
  }

  @Test func withoutTheStoreANodeIsAlone() {
    var player = SegmentPlayer()
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
    var player = SegmentPlayer(nodes: 1)
    player.send(.listed(BlockSet()))
    player.read()
    #expect(player.actions == [.fetch(0), .readLease])
  }

  @Test func allThatIsAskedForLetsTheNextBlockBegin() {
    var player = SegmentPlayer()
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
    var player = SegmentPlayer()
    player.hold()
    player.send(.fetched(0, .failed))
    guard case .writeLease(let lease, _) = player.actions.last else {
      return #expect(Bool(false), "not given up: \(player.actions)")
    }
    #expect(lease.isReleased && player.timers[.patience(0)] != nil)
  }

  @Test func withoutLeasesTheFirstByHashFetches() {
    var first = SegmentPlayer(hasLeases: false)
    first.read()
    first.send(.looked(0, .absent))
    #expect(first.actions == [.fetch(0)])
    var second = SegmentPlayer(rank: 1, hasLeases: false)
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
