/// What follows from what is known. Each rule may be asked again after any event: it begins nothing twice.
extension Steps {
  mutating func go() {
    guard share.ending == nil else { return }
    let missing = share.missing
    guard !missing.isEmpty else { return rest() }
    guard share.isUp else {
      fetchNext(missing)
      return countPatience()
    }
    countPatience()
    lookAtStored()
    for wait in share.waits where isImpatient(wait.block) && wait.block != share.need { fetchNow(wait.block) }
    if let need = share.need, !share.fetching.contains(need) {
      // Nobody else was seen today, and the store has no such block.
      let isAlone = times.nodes <= 1 && share.absent.contains(need)
      if isAlone || isImpatient(need) { return fetchNow(need) }
    }
    guard setup.hasLeases else { return takeTurns() }
    switch share.role {
    case .outside: findLease()
    case .watching: watch()
    case .holding: work()
    // Neither the write nor the read after it had an answer.
    case .taking: if !share.isAsking, !isArmed(.poll) { readLease() }
    case .releasing: break
    }
  }

  /// Nothing is wanted any more.
  private mutating func rest() {
    for timer in [ShareTimer.jitter, .poll, .standing, .claim] { disarm(timer) }
    endWaits()
    share.mayTake = false
    share.claim = nil
    // Its time ends without this node, if it was written.
    if share.role == .taking, !share.isAsking { forget() }
    if share.role == .holding {
      if !share.fetching.isEmpty || !share.uploading.isEmpty { return renewIfNew() }
      release()
    }
  }

  /// A reader's wait for others is counted for each block, from when it is needed until this node fetches it. Readers
  /// that go on elsewhere in the segment change nothing in it.
  private mutating func countPatience() {
    let missing = share.foreground - share.here
    var waited = BlockSet()
    if let need = share.need { waited.insert(need) }
    for block in 0..<BlockSet.most where share.others.contains(block) {
      if let next = BlockSet(bits: missing.bits & (~0 << UInt64(block))).first { waited.insert(next) }
    }
    waited = waited - share.fetching
    if let claim = share.claim, claim.block != share.need || !waited.contains(claim.block) {
      share.claim = nil
      disarm(.claim)
    }
    for wait in share.waits where !waited.contains(wait.block) { actions.append(.cancel(.patience(wait.block))) }
    share.waits.removeAll { !waited.contains($0.block) }
    for wait in share.waits { waited.remove(wait.block) }
    while let block = waited.first {
      waited.remove(block)
      share.waits.append(SegmentShare.Wait(block: block))
      actions.append(.set(.patience(block), after: times.patience))
    }
  }

  private func isImpatient(_ block: Int) -> Bool {
    share.overdue.contains(block) && share.waits.contains { $0.block == block }
  }

  /// What the store has is taken from there, two blocks at a time, and the readers' at once: a background download, to
  /// which the others may belong, asks for nothing while a reader waits. One that failed is asked for again later.
  private mutating func lookAtStored() {
    let known = (share.missing & share.known) - share.fetching
    if !(known & share.failed).isEmpty, !isArmed(.poll) { arm(.poll, after: times.poll(rate: 0, blocks: 0)) }
    var open = known - share.looking - share.failed
    for wait in share.waits where open.contains(wait.block) {
      look(wait.block)
      open.remove(wait.block)
    }
    while share.looking.count < 2, let block = open.first(from: share.reader ?? 0) {
      look(block)
      open.remove(block)
    }
  }

  mutating func look(_ block: Int) {
    guard !share.looking.contains(block) else { return }
    share.looking.insert(block)
    actions.append(.look(block))
  }

  mutating func fetch(_ block: Int) {
    guard !share.fetching.contains(block) else { return }
    share.fetching.insert(block)
    share.nearlyHere.remove(block)
    share.asked.remove(block)
    if share.role == .holding {
      share.own?.at = UInt8(block)
      share.own?.arrived = 0
    }
    actions.append(.fetch(block))
  }

  /// Whatever others do; but the store is asked first.
  private mutating func fetchNow(_ block: Int) {
    if share.isBarred { return }
    if share.absent.contains(block) || share.failed.contains(block) || share.distrusted.contains(block) {
      if isImpatient(block) { share.isSlow = true }
      fetch(block)
      countPatience()
      if setup.hasLeases, share.role == .outside { findLease() }
    } else {
      look(block)
    }
  }

  /// Whether no fetch keeps the next one from starting.
  private var isNearlyHere: Bool { (share.fetching - share.nearlyHere - share.asked).isEmpty }

  /// One block at a time, the next one when most of the last is here; a reader's block at once.
  private mutating func fetchNext(_ open: BlockSet) {
    let open = open - share.fetching - share.looking
    let reader = share.need.flatMap { open.contains($0) ? $0 : nil }
    let count = share.fetching.count
    guard count == 0 || (count == 1 && isNearlyHere) || reader != nil else { return }
    guard !share.isBarred, let block = reader ?? open.first(from: share.reader ?? Int(share.own?.at ?? 0)) else {
      return
    }
    if share.isUp, share.looksFirst, !share.absent.contains(block), !share.failed.contains(block) { return look(block) }
    fetch(block)
  }

  private mutating func findLease() {
    guard let block = share.need ?? (share.missing - share.known).first else { return }
    if share.known.contains(block), !share.failed.contains(block) { return }
    guard share.absent.contains(block) else {
      if !share.failed.contains(block) { return look(block) }
      if !isArmed(.poll) { arm(.poll, after: times.poll(rate: 0, blocks: 0)) }
      return
    }
    if !share.isAsking, !isArmed(.jitter), !isArmed(.poll), !share.isBarred { readLease() }
  }

  private mutating func work() {
    // Others may have an origin that answers.
    if share.isBarred, share.fetching.isEmpty, share.uploading.isEmpty { return release() }
    fetchNext(share.missing - share.known)
    renewIfNew()
  }

  /// A renewal brings what was stored to those who wait, but not more than two a second (``ShareTimes/news``).
  private mutating func renewIfNew() {
    if share.isDirty, !share.isFresh { renew() }
  }

  private mutating func watch() {
    guard let seen = share.seen, !share.isAsking else { return }
    guard let need = share.need else {
      disarm(.standing)
      if share.isStale, share.isExpired || share.mayTake || seen.isReleased, !isArmed(.jitter), !share.isBarred {
        if !(share.missing - share.known).isEmpty { readLease() }
      }
      return
    }
    if share.known.contains(need) { return disarm(.standing) }
    if share.fetching.contains(need) {
      if share.isExpired || seen.isReleased { return }
      // Whoever stores the block first ends this fetch.
      if share.isStale { return readLease() }
      if !isArmed(.poll) { arm(.poll, after: times.poll(rate: Int(seen.rate), blocks: 0)) }
      return
    }
    let blocks = distance(from: Int(seen.at), to: need, without: seen.have)
    if share.isStale { return readLease() }
    // An armed poll waits for what does not show yet, or for a store that failed.
    if share.isExpired || (seen.isReleased && !isArmed(.jitter)), !isArmed(.poll), !share.isBarred {
      return readLease()
    }
    if !isArmed(.poll) {
      let wait = times.poll(rate: Int(seen.rate), blocks: blocks)
      // One that stands has nothing to tell: the block that a helper fetches is looked at instead.
      arm(.poll, after: share.isStanding ? max(wait, 400) : wait)
    }
    if seen.isReleased { return }
    if share.isStanding || (share.isSlow && blocks > 0) { return help(need) }
    if !isArmed(.standing) { arm(.standing, after: times.standing(rate: Int(seen.rate))) }
  }

  /// How many blocks a holder at `place` fetches before `block`.
  private func distance(from place: Int, to block: Int, without have: BlockSet) -> Int {
    let place = min(place, BlockSet.most - 1)
    if block >= place { return (BlockSet(place..<block) - have).count }
    return (BlockSet(place..<BlockSet.most) - have).count
  }

  /// Of those whose holder stands, one fetches the block for all.
  private mutating func help(_ need: Int) {
    if share.claim?.isWaiting == true { return }
    guard share.absent.contains(need) || share.failed.contains(need) else { return look(need) }
    var claim = share.claim ?? SegmentShare.Claim(block: need)
    claim.isWaiting = true
    share.claim = claim
    actions.append(.claim(need, round: claim.round))
  }

  /// Best effort: the first by hash fetches, the others look at the block, and each has its turn later.
  private mutating func takeTurns() {
    guard let block = share.need ?? (share.missing - share.known).first, !share.looking.contains(block) else { return }
    if share.fetching.contains(block) {
      return fetchNext(isNearlyHere ? share.missing - share.known : BlockSet())
    }
    guard share.absent.contains(block) || share.failed.contains(block) else { return look(block) }
    if times.rank == 0 || share.isStanding { return fetchNext(BlockSet(block..<block + 1)) }
    if !isArmed(.poll) { arm(.poll, after: times.blockPoll) }
    if !isArmed(.standing), share.need != nil { arm(.standing, after: times.turn) }
  }
}
