import Testing

@testable import Sharing

/// One segment of four blocks at one node that waits for others: what follows from each answer.
@Suite("A shared segment that others fetch") struct SegmentWaitTables {
  @Test func whoWaitsLooksAtTheLeaseAndNotAtTheBlock() {
    var player = SegmentPlayer()
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
    var player = SegmentPlayer()
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

  @Test func aHolderThatStandsIsHelpedByOne() {
    var player = SegmentPlayer()
    player.watch()
    #expect(player.timers[.standing] == 1200 && player.timers[.expiry] == 3000 && player.timers[.patience(0)] == 2000)
    player.send(.timer(.standing))
    #expect(player.actions == [.readLease], "the lease may have changed since")
    player.saw(version: 1)
    #expect(player.actions == [.look(0)])
    player.send(.looked(0, .absent))
    #expect(player.actions == [.claim(0, round: 0)])
    var other = player
    player.send(.claimed(0, .done(SegmentPlayer.version(1))))
    #expect(player.actions == [.fetch(0)] && player.timers[.patience(0)] == nil)
    // The other one waits, and looks at the block.
    other.send(.claimed(0, .refused))
    #expect(other.actions.isEmpty && other.timers[.claim] == 925)
    other.send(.timer(.claim))
    #expect(other.actions == [.look(0)])
    other.send(.looked(0, .absent))
    #expect(other.actions == [.claim(0, round: 1)])
  }

  /// Its swap was refused, so another version is there: a store whose reads lag shows that some seconds later.
  @Test(arguments: [false, true]) func aLeaseThatIsReplacedAndStillShowsIsAwaited(isReleased: Bool) throws {
    var player = SegmentPlayer()
    player.watch()
    let version = isReleased ? 2 : 1
    player.send(.timer(isReleased ? .poll : .expiry))
    for _ in 0..<3 {
      try #require(player.actions == [.readLease])
      player.saw(version: version, isReleased: isReleased)
      guard case .writeLease(_, .version(SegmentPlayer.version(version))) = player.actions.first else {
        Issue.record("\(player.actions)")
        return
      }
      player.send(.leaseWritten(.refused))
      #expect(player.actions == [.readLease])
      player.saw(version: version, isReleased: isReleased)
      #expect(player.actions.isEmpty && player.timers[.poll] == 200)
      player.send(.timer(.poll))
    }
  }

  @Test func aStoreThatFailsIsAskedLaterForALeaseWhoseTimeIsOver() {
    var player = SegmentPlayer()
    player.watch()
    player.send(.timer(.expiry))
    player.send(.leaseRead(.failed))
    #expect(player.actions.isEmpty && player.timers[.poll] == 200)
    player.send(.timer(.poll))
    #expect(player.actions == [.readLease])
  }

  @Test func nobodyWaitsLongerThanTwoSeconds() {
    var player = SegmentPlayer()
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
    var player = SegmentPlayer()
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
    #expect(player.share.overdue.contains(3) && player.actions == [.look(3)])
    player.send(.looked(3, .absent))
    #expect(player.actions.contains(.fetch(3)) && player.timers[.patience(3)] == nil)
    #expect(player.timers[.patience(2)] == 2000)
  }

  @Test func nobodyWaitsLongerForASlowStoreEither() {
    var player = SegmentPlayer()
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
    var player = SegmentPlayer()
    player.watch(have: BlockSet(1..<2))
    player.send(.timer(.expiry))
    #expect(player.actions == [.readLease])
    player.saw(have: BlockSet(1..<2), version: 1)
    guard case .writeLease(let lease, .version(SegmentPlayer.version(1))) = player.actions.first else {
      return #expect(Bool(false), "not taken: \(player.actions)")
    }
    #expect(lease.have == BlockSet(1..<2))
    player.send(.looked(1, .found))
    player.send(.leaseWritten(.done(SegmentPlayer.version(2))))
    #expect(player.actions == [.look(0)], "a helper may have stored it since it was seen to be absent")
    player.send(.looked(0, .absent))
    #expect(player.actions == [.fetch(0)])
    // One that lives is not.
    var other = SegmentPlayer()
    other.watch()
    other.send(.timer(.expiry))
    other.saw(version: 2)
    #expect(!other.actions.contains { if case .writeLease = $0 { true } else { false } })
  }

  @Test func whatTheStoreDoesNotGiveIsFetchedAnew() {
    for result in [LookResult.absent, .rotten] {
      var player = SegmentPlayer()
      player.watch(have: BlockSet(0..<4))
      #expect(player.actions == [.look(0), .look(1)])
      player.send(.timer(.poll))
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
    var player = SegmentPlayer()
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

  @Test func whatAListDidNotNameIsLookedAtWhereOthersStore() {
    var player = SegmentPlayer()
    player.read()
    player.send(.listed(BlockSet(1..<2)))
    // The list may be old: the reader's block is looked at before anybody is asked for it.
    #expect(player.share.looking.contains(0) && player.share.looking.contains(1))
    player.send(.looked(0, .absent))
    #expect(player.actions.contains(.readLease))
  }
}
