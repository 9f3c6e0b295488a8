import Base
import Fetching
import Reading

/// The client of a mount's loop that shares: Reading's transfers and the store's, side by side on one thread.
package final class FleetClient: TransferClient {
  private let member: FleetMember
  private let reading: any TransferClient

  /// On the loop's thread. `makeReading` makes Reading's client.
  package init(
    _ setup: FleetMember.Setup, _ commands: TransferCommands, wake: @escaping @Sendable () -> Void,
    makeReading: (any TransferService, any SecondSource) -> any TransferClient
  ) {
    member = FleetMember(setup, commands, wake: wake)
    reading = makeReading(member, member)
    member.client = reading
  }

  deinit { member.stop() }

  /// How often a plan may change what others wait for, in one turn.
  private static let rounds = 4

  package func isFinishing(now: Instant) -> Bool { member.isLeaving(now) }

  package func turn(now: Instant) -> Instant {
    _ = member.turn(now: now)
    if let end = member.leavesAt { return min(end, member.turn(now: now)) }
    var next = Instant.never
    for _ in 0..<Self.rounds {
      member.hasChanged = false
      next = reading.turn(now: now)
      if !member.hasChanged { break }
    }
    next = min(next, member.hasChanged ? now : member.turn(now: now))
    return min(next, member.tell(now))
  }

  package func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool {
    StoreClient.owns(id)
      ? member.store.transfer(id, responded: head) : reading.transfer(id, responded: head)
  }

  package func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
    StoreClient.owns(id) ? member.store.transfer(id, received: bytes) : reading.transfer(id, received: bytes)
  }

  package func transfer(_ id: TransferID, ended end: TransferEnd) {
    StoreClient.owns(id) ? member.store.transfer(id, ended: end) : reading.transfer(id, ended: end)
  }
}

extension FleetMember {
  /// What is due: timers, answers that did not come, uploads. Returns when the next is.
  package func turn(now: Instant) -> Instant {
    _ = store.turn(now: now)
    let tells = !probeReads.isEmpty || !endings.isEmpty
    tellProbeReads()
    tellEndings()
    var next = goOnStarting(now)
    next = min(next, fireTimers(now))
    next = min(next, dropSilentReads(now))
    next = min(next, askForWaitingProbes(now))
    next = min(next, offerOwed(now))
    next = min(next, sendUploads(now))
    next = min(next, writePointers(now))
    next = min(next, writeDigests(now))
    next = min(next, endDigestWaits(now))
    if offers.nextRound > now { next = min(next, offers.nextRound) }
    next = min(next, readAgain(now))
    next = min(next, askWhetherBack(now))
    if now >= nextSweep {
      nextSweep = now.adding(seconds: 5)
      sweep(now)
      sweepPointers(now)
    }
    // Reading plans again with what it was told.
    if tells || !endings.isEmpty { return now }
    return min(next, store.deadline)
  }

  /// Gives the leases in hand up, so that nobody waits for them to expire. Whether an answer is still awaited.
  func isLeaving(_ now: Instant) -> Bool {
    if leavesAt == nil {
      leavesAt = now.adding(seconds: Self.longestLeave)
      for (place, _) in fleet.leases { tell(.leaves, at: place) }
    }
    return leavesAt.map { now < $0 } == true
      && asked.values.contains { if case .writeLease = $0.what { true } else { false } }
  }
  private static let longestLeave = 0.5

  /// The loop is over.
  func stop() {
    store.giveUp()
    uploads.stop()
  }
}
