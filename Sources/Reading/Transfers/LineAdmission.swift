import Base

// Who may request what of a line, and when (docs/decisions/0013-deadlines.md, 0028-players-together.md).

extension Line {
  /// Whether another transfer for `purpose` may start. `bytes`: the size of its window, 0 if unknown. `isQuiet`: no
  /// file is open. `claim`: the reader's.
  func admits(
    _ purpose: Purpose, bytes: Int64, claim: ReaderView.Claim = .start, isStarving: Bool = false, isQuiet: Bool,
    now: Instant
  ) -> Bool {
    if active >= limit { return false }
    // A reader's request is made even so.
    if purpose >= .index, isUnreachable, asking > 0 || !outage.permits(now, readerWaits: false) { return false }
    switch purpose {
    case .demand: return claim == .urgent || isStarving || mayStart(bytes, claim, now)
    case .playAhead: return active < mostAhead && (claim == .urgent || mayStart(bytes, claim, now))
    case .shared where isStarving: return true
    case .shared:
      // Who has just come meets one window at most until its first bytes are there.
      if let arrival = readers.lastArrival, now.seconds(since: arrival) < 2 * estimate.roundTrip, continued > 0 {
        return false
      }
      // One connection is left for those who play.
      if readers.playing > 0, active >= max(1, limit - 1) { return false }
      let isHeldBack = isHeldBack(claim, now)
      if isHeldBack, !rations.spare.has(bytes, rate: spareRate(now), most: leastBurst, now) { return active == 0 }
      return continued == 0 || hasRoom(for: bytes, isHeldBack ? .players : .readers, now)
    case .index:
      if claim.shares, rationsSizes, !rations.sizes.has(bytes, rate: leastRate, most: leastBurst, now) {
        return active == 0
      }
      return background < min(Self.indexLimit, max(1, limit / 2))
    case .next where limit < most: return false  // the origin asks for fewer requests
    case .next, .continuation:
      if readers.waiting > 0 { return false }
      if let lastWait = readers.lastWait, now.seconds(since: lastWait) < 2 * estimate.roundTrip { return false }
      if background >= backgroundLanes { return false }
      if continued == 0 { return true }
      guard isQuiet || background < usualLanes(isQuiet: false) || openConnections(now: now) <= active else {
        return false
      }
      return hasRoom(for: bytes, isQuiet ? .nobody : .players, now)
    }
  }

  /// Whether a background window of `bytes` may be requested beside those of all files that are in flight. The limit of
  /// one file's holds for all together: a reader who comes has to wait for their sum.
  private func hasRoom(for bytes: Int64, _ company: Planner.Company, _ now: Instant) -> Bool {
    let inRoundTrip = estimate.rate * estimate.roundTrip
    let most = Planner.mostUnderWay(window: Double(bytes), of: inRoundTrip, company)
    guard Double(continued + bytes / 2) <= most else {
      // One more now and then keeps an extra connection open for a reader's jump. It counts as one more if the bytes
      // without it are within half a window of the limit.
      return company != .nobody && Double(continued - bytes / 2) <= most && openConnections(now: now) <= active
    }
    // Where a round trip holds few windows, their number already limits what a reader waits for. Pacing would add
    // nothing but the errors of the estimate.
    return company != .players || now >= nextContinuation || 2 * Double(bytes) > inRoundTrip
  }

  /// Whether a reader that goes before those who share the line waits, or did within the last two round trips.
  func isPressed(_ now: Instant) -> Bool { readers.isPressed(within: 2 * estimate.roundTrip, now) }

  /// Whether a reader with `claim`, one of those that share the line, gets only a little of what players leave.
  func isHeldBack(_ claim: ReaderView.Claim, _ now: Instant) -> Bool {
    isPressed(now) || (readers.leading > 0 && claim == .share)
  }

  /// Whether what is in flight for newcomers, and for players with less than their lead, is bounded: somebody plays
  /// beside a reader that takes all that comes, or beside newcomers of which one follows the other, or two players have
  /// less than their lead. Otherwise players, and newcomers that stay, take turns.
  func isContended(_ now: Instant) -> Bool {
    let isPassed = readers.lastPassing.map { now.seconds(since: $0) < Self.passingSeconds } ?? false
    let isBesideCopies = readers.playing > 0 && (readers.sharing > 0 || isPassed)
    return isBesideCopies || (readers.leading > 1 && readers.playing > 1)
  }
  /// For how many seconds after one has gone, another one is expected.
  private static let passingSeconds = 2.0

  /// Whether a newcomer, or a player that has less than its lead, may have `bytes` requested. Beside a player near its
  /// deadline newcomers have what players leave, and for some seconds other players with a lead, too. On a contended
  /// line what is in flight for all of them is bounded.
  private func mayStart(_ bytes: Int64, _ claim: ReaderView.Claim, _ now: Instant) -> Bool {
    if claim == .lead, isBesideOther(now),
      !rations.kept.has(bytes, rate: keptRate(now), most: isRushed(now) ? window(bytes) : burst, now)
    {
      return active == 0
    }
    if claim == .start, isBesideUrgent, !rations.left.has(bytes, rate: leftRate, most: window(bytes), now) {
      return active == 0
    }
    guard isContended(now) else { return true }
    return continued == 0 || Double(continued + bytes / 2) <= Planner.Company.nobody.share * burst
  }

  /// Whether programs read two files, and a newcomer waits or a player is near its deadline. Beside a newcomer a player
  /// with a lead gets what it needs, and half of that while it has more than ``fewSeconds`` ahead: the one that waits
  /// may be a player too, and shows that only once it gets more than it plays.
  private func isBesideOther(_ now: Instant) -> Bool { readers.present > 1 && isPressed(now) }
  var isBesideUrgent: Bool { readers.present > 1 && readers.urgent > 0 }
  private static let fewSeconds = 3.0

  /// Bytes a second that players do not need, and always a little (P2).
  private var leftRate: Double { max(estimate.rate - readers.need, leastRate) }
  private var leastRate: Double { estimate.rate * Self.leastSpare }
  /// Whether a player is near its deadline, and some player of the line began to be so, or jumped, less than
  /// ``longestRush`` ago. A player whose connections are too slow for it would keep others back for ever.
  private func isRushed(_ now: Instant) -> Bool {
    isBesideUrgent && readers.urgentSince.map { now.seconds(since: $0) < Self.longestRush } ?? false
  }
  private static let longestRush = 20.0
  /// Bytes a second for players with a lead while another reader waits: what they need. While a player is rushed, that
  /// goes first, and they save up one window at most: they have a second ahead of them at least. On a line that is too
  /// slow for all, they keep what they have until the newest gives way.
  private func keptRate(_ now: Instant) -> Double {
    isRushed(now) && readers.need < estimate.rate ? min(leftRate, readers.need) : readers.need
  }
  /// Bytes a second that those with a stronger claim leave: next to nothing while a newcomer waits, whose need nobody
  /// knows, while a player fills its lead, and while one is rushed or a reader on trial is behind.
  private func spareRate(_ now: Instant) -> Double {
    let fills = readers.new > 0 || readers.leading > 0 || isRushed(now)
    return fills ? leastRate : leftRate
  }
  /// What those that share the line save up at most: more would come together with what a player waits for.
  private var leastBurst: Double { Double(Planner.smallestFirstWindow) }
  /// What may be saved up beside a player near its deadline, for a window of `bytes`.
  private func window(_ bytes: Int64) -> Double { min(Double(bytes), burst) }
  static let leastSpare = 0.02

  /// Whether `bytes` may be requested now for a starving reader. Every waiting file gets a window within half of
  /// `timeout`, in seconds, and ``Waiters/leastRate``. Those of files that began to wait together are spread.
  func mayFeed(_ bytes: Int64, timeout: Double, _ now: Instant) -> Bool {
    rations.least.has(bytes, rate: leastRate(timeout), most: mostAtOnce(timeout), now)
  }
  /// `bytes` were requested for a starving reader.
  mutating func noteFed(_ bytes: Int64, timeout: Double, _ now: Instant) {
    rations.least.took(bytes, rate: leastRate(timeout), most: mostAtOnce(timeout), now: now)
  }
  private func leastRate(_ timeout: Double) -> Double {
    Double(readers.waiting) * max(Double(PendingStart.starvingWindow) * 2 / timeout, Waiters.leastRate)
  }
  /// The scheduler looks every tenth of a second at least.
  private func mostAtOnce(_ timeout: Double) -> Double {
    max(Double(PendingStart.starvingWindow), 0.1 * leastRate(timeout))
  }

  /// A round trip's bytes: what others may request at once of what players leave.
  private var burst: Double { max(estimate.rate * estimate.roundTrip, Double(Planner.smallestWindow)) }

  /// The size of a file is requested with `bytes` of its head, and nobody waits for it.
  mutating func tookSize(_ bytes: Int64, now: Instant) {
    if rationsSizes { rations.sizes.took(bytes, rate: leastRate, most: leastBurst, now: now) }
  }

  /// Whether sizes for which nobody waits get only a little of the line: a player fills its lead or is near its
  /// deadline, or a newcomer waits for more than a size. What a listing wants next does not stand back for its stat.
  var rationsSizes: Bool { readers.urgent > 0 || readers.leading > 0 || readers.new > readers.newSizes }

  /// A transfer of `bytes` starts for a reader with `claim` that needs more in `due` seconds. They count while others
  /// wait, or have a stronger claim.
  mutating func tookSpare(_ bytes: Int64, _ claim: ReaderView.Claim, due: Double, now: Instant) {
    if claim.shares, isHeldBack(claim, now) {
      rations.spare.took(bytes, rate: spareRate(now), most: leastBurst, debt: burst, now: now)
    }
    if claim == .start, isBesideUrgent {
      rations.left.took(bytes, rate: leftRate, most: window(bytes), now: now)
    }
    if claim <= .lead, isBesideOther(now) {
      let isRushed = isRushed(now)
      let isFar = due > Self.fewSeconds && !isRushed
      rations.kept.took(
        isFar ? 2 * bytes : bytes, rate: keptRate(now), most: isRushed ? window(bytes) : burst, now: now)
    }
  }
}

/// What readers may request of a line that are not to keep others waiting.
struct Rations {
  /// Those that share the line, of what players leave.
  var spare = SpareBytes()
  /// Newcomers, beside a player near its deadline.
  var left = SpareBytes()
  /// Starving readers.
  var least = SpareBytes()
  /// Sizes for which nobody waits.
  var sizes = SpareBytes()
  /// Players with a lead, while another waits: what one near its deadline requests counts too.
  var kept = SpareBytes()
}

/// What may be requested at a rate: a token bucket, full at first. Pure.
struct SpareBytes {
  private var bytes = 0.0
  private var since: Instant?

  /// How many bytes may be requested now, at `rate` bytes a second, and at most `most` at once.
  func level(rate: Double, most: Double, _ now: Instant) -> Double {
    guard let since else { return most }
    return min(bytes + rate * now.seconds(since: since), most)
  }

  /// Whether `count` bytes may be requested now: half of them are there, or all that may be at once.
  func has(_ count: Int64, rate: Double, most: Double, _ now: Instant) -> Bool {
    level(rate: rate, most: most, now) >= min(Double(count) / 2, most)
  }

  /// `count` bytes were requested. What was requested beyond what there was counts up to `debt`; nil stands for
  /// `most`.
  mutating func took(_ count: Int64, rate: Double, most: Double, debt: Double? = nil, now: Instant) {
    let level = level(rate: rate, most: most, now)
    bytes = max(level - Double(count), min(level, -(debt ?? most)))
    since = now
  }
}
