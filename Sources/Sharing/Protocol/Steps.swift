/// One event of a segment: how it changes what is known (here), and what follows (`go`, in StepsRules.swift).
struct Steps {
  var share: SegmentShare
  let setup: ShareSetup
  var actions: [ShareAction]

  var times: ShareTimes { setup.times }

  mutating func take(_ event: ShareEvent) {
    guard share.ending == nil else { return takeAfterTheEnd(event) }
    switch event {
    case .want(let reader, let others, let foreground, let background):
      // The node does not read a lease again before the holder may have written more (`judge` sets the poll).
      if share.need == nil, !isArmed(.poll) { share.isStale = true }
      if foreground != share.foreground || background != share.background { share.isBarred = false }
      (share.reader, share.others, share.foreground, share.background) = (reader, others, foreground, background)
    case .held(let blocks): hold(blocks)
    case .listed(let blocks):
      share.stored |= blocks
      // Others may store more at any moment: for them, each block is looked at when its turn comes.
      if times.nodes <= 1 { share.absent = BlockSet(bits: ~blocks.bits) }
    case .looked(let block, let result): looked(block, result)
    case .leaseRead(let result): leaseRead(result)
    case .leaseWritten(let result): leaseWritten(result)
    case .claimed(let block, let result): claimed(block, result)
    case .arriving(let block, let kibibytes, let rate):
      if share.own?.at == UInt8(block) { share.own?.arrived = UInt32(kibibytes) }
      share.rate = UInt32(clamping: rate)
      if kibibytes * 4 >= times.block * 3 { share.nearlyHere.insert(block) }
    case .window(let block):
      if let index = share.waits.firstIndex(where: { $0.block == block }) { share.waits[index].isWindowOut = false }
    case .asked(let block): share.asked.insert(block)
    case .fetched(let block, let result): fetched(block, result)
    case .uploaded(let block, let result): uploaded(block, result)
    case .timer(let timer): fired(timer)
    case .tier(let isUp):
      guard isUp != share.isUp else { return }
      share.isUp = isUp
      forget()
      for timer in ShareTimer.single { disarm(timer) }
      endWaits()
      (share.absent, share.failed) = (BlockSet(), BlockSet())
    case .over(let reason): end(reason)
    case .leaves:
      (share.reader, share.others, share.foreground, share.background) = (nil, BlockSet(), BlockSet(), BlockSet())
      (share.looking, share.fetching, share.uploading) = (BlockSet(), BlockSet(), BlockSet())
    }
  }

  /// What was under way ends; nothing new begins.
  private mutating func takeAfterTheEnd(_ event: ShareEvent) {
    switch event {
    case .looked(let block, _): share.looking.remove(block)
    case .fetched(let block, _): share.fetching.remove(block)
    case .uploaded(let block, _): share.uploading.remove(block)
    case .leaseRead, .leaseWritten: share.isAsking = false
    default: break
    }
  }

  mutating func hold(_ blocks: BlockSet) {
    share.here |= blocks
    share.absent = share.absent - blocks
    share.failed = share.failed - blocks
    share.distrusted = share.distrusted - blocks
    share.overdue = share.overdue - blocks
  }

  private mutating func looked(_ block: Int, _ result: LookResult) {
    share.looking.remove(block)
    switch result {
    case .found:
      if !isArmed(.poll) { share.isStale = true }
      share.stored.insert(block)
      leaveToStore(BlockSet(block..<block + 1))
      hold(BlockSet(block..<block + 1))
      tellOfStored(block)
      if !setup.hasLeases {
        share.isStanding = false
        disarm(.standing)
      }
    case .absent, .rotten:
      if share.known.contains(block) || result == .rotten { share.distrusted.insert(block) }
      share.stored.remove(block)
      share.absent.insert(block)
      share.failed.remove(block)
    case .failed: share.failed.insert(block)
    }
  }

  private mutating func claimed(_ block: Int, _ result: WriteResult) {
    guard let claim = share.claim, claim.block == block, claim.isWaiting else { return }
    if case .done = result {
      share.claim = nil
      if share.need == block, !share.here.contains(block) { fetch(block) }
    } else {
      arm(.claim, after: times.claim(rate: Int(share.seen?.rate ?? 0)))
    }
  }

  private mutating func fetched(_ block: Int, _ result: FetchResult) {
    share.fetching.remove(block)
    share.nearlyHere.remove(block)
    share.asked.remove(block)
    switch result {
    case .whole:
      let isKnown = share.known.contains(block)
      hold(BlockSet(block..<block + 1))
      if isKnown || !share.isUp { return }
      share.uploading.insert(block)
      actions.append(.upload(block))
    case .changed: end(.originChanged)
    case .failed:
      share.isBarred = true
      endWaits()
    case .stopped: break
    }
  }

  private mutating func uploaded(_ block: Int, _ result: UploadResult) {
    share.uploading.remove(block)
    switch result {
    case .stored: share.stored.insert(block)
    case .existed:
      share.stored.insert(block)
      // Another node helps: it may have stored more.
      share.looksFirst = true
      share.absent = BlockSet()
    case .differs: return end(.unstable)
    case .dropped: return
    }
    tellOfStored(block)
  }

  /// Other nodes stored blocks that this one fetches as well. When many nodes ask the origin for one block, it brings
  /// none of them soon: the first one that is stored ends all other fetches.
  mutating func leaveToStore(_ blocks: BlockSet) {
    let left = (blocks & share.fetching) - share.nearlyHere
    share.absent = share.absent - left
    for block in 0..<BlockSet.most where left.contains(block) { actions.append(.stopFetch(block)) }
  }

  /// Those who wait for the holder learn that a block is in the store, whoever stored it.
  private mutating func tellOfStored(_ block: Int) {
    guard share.role == .holding, share.own?.have.contains(block) == false else { return }
    share.own?.have.insert(block)
    share.isDirty = true
  }

  private mutating func fired(_ timer: ShareTimer) {
    if case .patience(let block) = timer { return patienceIsOver(block) }
    guard share.armed & timer.bit != 0 || timer == .poll else { return }
    share.armed &= ~timer.bit
    switch timer {
    case .jitter:
      share.mayTake = true
      share.isStale = true
    case .poll:
      share.isStale = true
      share.failed = BlockSet()
      if !setup.hasLeases { share.absent = BlockSet() }
      if share.claim?.isWaiting == true { lookAtNeed() }
    case .renew: renewalIsDue()
    case .expiry:
      share.isExpired = true
      if share.need != nil { disarm(.poll) }  // for a reader, the node looks at once
    case .standing:
      share.isStanding = true
      share.isStale = true
      lookAgain()
    case .patience: break
    case .claim:
      share.claim?.isWaiting = false
      share.claim?.round += 1
      lookAtNeed()
    }
  }

  private mutating func patienceIsOver(_ block: Int) {
    guard let index = share.waits.firstIndex(where: { $0.block == block }) else { return }
    let rate = Int(share.seen?.rate ?? 0)
    let isCrowded = share.waits[index].isWindowOut
    var next = times.nextWindow(rate: rate, isCrowded: isCrowded)
    let isTurn = share.waits[index].late >= times.resort(rate: rate, isCrowded: isCrowded)
    if !isTurn, !share.overdue.contains(block) {
      share.waits[index].late += next
      share.waits[index].isWindowOut = true
      if !isCrowded { actions.append(.bypass(block)) }
    } else {
      next = 1000
      share.overdue.insert(block)
      share.isBarred = false
      // Nor does the reader wait longer for a store that brings the block too slowly.
      share.looking.contains(block) ? actions.append(.bypass(block)) : lookAgain(at: block)
    }
    actions.append(.set(.patience(block), after: next))
  }

  /// A helper may have stored the reader's block, and the holder does not tell: the lease may even move on since.
  private mutating func lookAtNeed() {
    guard let need = share.need, !share.fetching.contains(need) else { return }
    lookAgain()
    look(need)
  }

  /// Before this node does what others may have done, it looks at the block once more.
  mutating func lookAgain() {
    if let need = share.need { lookAgain(at: need) }
  }

  private mutating func lookAgain(at block: Int) {
    share.absent.remove(block)
    share.failed.remove(block)
  }

  mutating func endWaits() {
    for wait in share.waits { actions.append(.cancel(.patience(wait.block))) }
    (share.waits, share.overdue) = ([], BlockSet())
  }

  mutating func end(_ reason: EndOfSharing) {
    guard share.ending == nil else { return }
    share.ending = reason
    for timer in ShareTimer.single { disarm(timer) }
    endWaits()
    for block in 0..<BlockSet.most where share.fetching.contains(block) { actions.append(.stopFetch(block)) }
    actions.append(.end(reason))
  }

  mutating func arm(_ timer: ShareTimer, after milliseconds: Int) {
    share.armed |= timer.bit
    actions.append(.set(timer, after: milliseconds))
  }

  mutating func disarm(_ timer: ShareTimer) {
    guard isArmed(timer) else { return }
    share.armed &= ~timer.bit
    actions.append(.cancel(timer))
  }

  func isArmed(_ timer: ShareTimer) -> Bool { share.armed & timer.bit != 0 }
}
