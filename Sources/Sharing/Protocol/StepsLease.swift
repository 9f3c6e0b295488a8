/// The lease: reading it, taking it, renewing it, giving it up.
extension Steps {
  mutating func readLease() {
    guard !share.isAsking else { return }
    share.isAsking = true
    share.isStale = false
    disarm(.poll)
    actions.append(.readLease)
  }

  mutating func leaseRead(_ result: LeaseResult) {
    share.isAsking = false
    switch result {
    case .failed: share.role == .holding ? renewSoon() : arm(.poll, after: times.poll(rate: 0, blocks: 0))
    case .absent:
      // What was refused because it is there does not show yet: the store's reads lag.
      let isHidden = share.role == .taking
      if share.role != .outside { forget() }
      if isHidden { return arm(.poll, after: times.poll(rate: 0, blocks: 0)) }
      if !share.isUp || share.missing.isEmpty { return }
      share.mayTake ? takeLease(.absent) : waitForTurn()
    case .found(let lease, let version): judge(lease, version)
    }
  }

  private mutating func judge(_ lease: Lease, _ version: ObjectVersion) {
    if !share.isUp { return }
    if lease.node == setup.node, lease.boot == setup.boot, !lease.isReleased {
      // The write whose answer was lost, or a 412 of a store that was wrong.
      var own = share.own ?? lease
      own.counter = max(own.counter, lease.counter)
      share.own = own
      return hold(as: version)
    }
    if share.role == .holding { stop() }
    // The swap of this very version was refused: another one is there, and does not show yet.
    let isHidden = share.role == .taking && share.seenVersion == version
    share.role = .watching
    (share.own, share.ownVersion) = (nil, nil)
    let previous = share.seen
    if share.seenVersion != version {
      if !lease.isReleased, share.need != nil {
        let rest = (share.missing - lease.have).count
        arm(.poll, after: times.pollAfterNews(rate: Int(lease.rate), blocks: rest))
      }
      share.isExpired = false
      lease.isReleased ? disarm(.expiry) : arm(.expiry, after: times.expiry(rate: Int(lease.rate)))
    }
    if previous.map({ lease.hasProgress(since: $0) }) ?? true {
      share.isStanding = false
      if isArmed(.standing) { arm(.standing, after: times.standing(rate: Int(lease.rate))) }
    }
    if previous.map({ !lease.isSameHolder(as: $0) }) ?? true { share.isSlow = false }
    let before = share.known
    (share.seen, share.seenVersion) = (lease, version)
    leaveToStore(share.known - before)
    if (share.missing - share.known).isEmpty || share.isBarred { return }
    if isHidden { return arm(.poll, after: times.poll(rate: 0, blocks: 0)) }
    if lease.isReleased {
      share.mayTake ? takeLease(.version(version)) : waitForTurn()
    } else {
      share.mayTake = false
      if share.isExpired { takeLease(.version(version)) }
    }
  }

  /// Of those that come together each waits for its turn, and reads again.
  private mutating func waitForTurn() {
    if times.jitter > 0 {
      if !isArmed(.jitter) { arm(.jitter, after: times.jitter) }
    } else {
      share.mayTake = true
      takeLease(share.seenVersion.map { .version($0) } ?? .absent)
    }
  }

  private mutating func takeLease(_ condition: WriteCondition) {
    guard !share.isBarred else { return }
    var own = Lease(node: setup.node, boot: setup.boot)
    own.have = share.known
    own.at = UInt8(share.need ?? share.missing.first ?? 0)
    own.rate = share.rate
    share.own = own
    share.role = .taking
    share.isAsking = true
    actions.append(.writeLease(own, condition))
  }

  mutating func leaseWritten(_ result: WriteResult) {
    share.isAsking = false
    guard share.own != nil else { return }
    if case .done(let version) = result {
      share.role == .releasing ? forget() : hold(as: version)
    } else if share.role == .releasing {
      // Its time ends without this node, if the write was lost.
      forget()
    } else {
      readLease()
    }
  }

  /// The lease is this node's, at that version.
  private mutating func hold(as version: ObjectVersion) {
    if share.role != .holding {
      share.role = .holding
      share.stored |= share.own?.have ?? BlockSet()
      if share.seen != nil {
        // Helpers may have stored what was not there when this node looked last.
        share.looksFirst = true
        share.absent = BlockSet()
      }
      for timer in [ShareTimer.jitter, .poll, .expiry, .standing, .claim] { disarm(timer) }
      (share.seen, share.seenVersion) = (nil, nil)
      (share.mayTake, share.isExpired, share.isStanding, share.isSlow) = (false, false, false, false)
      share.claim = nil
    }
    share.ownVersion = version
    renewSoon()
  }

  /// The next renewal: half a second later if a block was stored, else after a renewal's time.
  private mutating func renewSoon() {
    share.isFresh = true
    arm(.renew, after: ShareTimes.news)
  }

  mutating func renewalIsDue() {
    guard share.role == .holding else { return }
    if share.isFresh, !share.isDirty {
      share.isFresh = false
      arm(.renew, after: times.renewal(rate: Int(share.rate)) - ShareTimes.news)
    } else {
      renew()
    }
  }

  mutating func renew() {
    guard share.role == .holding, !share.isAsking, var own = share.own, let version = share.ownVersion else { return }
    own.counter &+= 1
    own.rate = share.rate
    share.own = own
    share.isDirty = false
    share.isFresh = false
    share.isAsking = true
    disarm(.renew)
    actions.append(.writeLease(own, .version(version)))
  }

  mutating func release() {
    guard !share.isAsking, var own = share.own, let version = share.ownVersion else { return }
    own.counter &+= 1
    own.isReleased = true
    share.own = own
    share.role = .releasing
    share.isAsking = true
    disarm(.renew)
    actions.append(.writeLease(own, .version(version)))
  }

  /// Another node has the lease: what no reader waits for here is left to it.
  private mutating func stop() {
    disarm(.renew)
    for block in 0..<BlockSet.most where share.fetching.contains(block) && block != share.need {
      actions.append(.stopFetch(block))
    }
    share.looksFirst = false
  }

  mutating func forget() {
    disarm(.renew)
    share.role = .outside
    (share.own, share.ownVersion, share.seen, share.seenVersion) = (nil, nil, nil, nil)
    (share.looksFirst, share.isDirty) = (false, false)
  }
}
