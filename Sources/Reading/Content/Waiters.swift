import Base

/// A read that waits for its bytes.
struct ParkedRead: Sendable {
  var ticket: Ticket
  var range: ByteRange
  /// When its stall began.
  var since: Instant
  let process: Int32
  /// When it came.
  let asked: Instant

  init(ticket: Ticket, range: ByteRange, since: Instant, process: Int32) {
    self.ticket = ticket
    self.range = range
    self.since = since
    self.process = process
    asked = since
  }
}

/// A stat or an open that waits for the size.
struct ParkedProbe: Sendable {
  enum Kind: Sendable { case attributes, open }
  var ticket: Ticket
  var kind: Kind
  /// The inode it asked by: entries that share a resource each have their own.
  var inode: Inode
  var since: Instant
  var process: Int32
  /// The folder that it is in, for a stat.
  var folder: Inode = 0

  /// Whose patience it uses.
  var looker: StatPatience.Looker { StatPatience.Looker(process: process, folder: folder) }
}

/// Who reads a file and who waits for it. Pure: events in, decisions out. ``Content`` holds the lock, under which what
/// is held of the file (``FileState``) changes too, so that no wake-up is lost between a read and what lands for it.
struct Waiters: Sendable {
  /// What becomes of a read.
  enum ReadDecision: Sendable, Equatable {
    /// Stored: so many bytes from the file.
    case hit(Int)
    /// Parked; the planner must hear of it.
    case park
    /// Answer with this error.
    case fail(Errno)
  }

  private(set) var parkedReads: [ParkedRead] = []
  private(set) var parkedProbes: [ParkedProbe] = []
  var runs = ReaderRuns()
  /// Opens without their release yet.
  var opens = 0
  /// The error for whoever would have to wait, until the time: the origin failed for good, or did not even tell the
  /// size.
  private(set) var refusal: (error: Errno, until: Instant)?
  /// Where a stall just ended in an error: the kernel asks again, for one page of what it had asked for, and is told at
  /// once.
  private var stalled: (ranges: ByteRangeSet, until: Instant)?

  /// Whether somebody waits.
  var isEmpty: Bool { parkedReads.isEmpty && parkedProbes.isEmpty }

  /// A read of what is missing: it is parked, unless it is answered with an error at once.
  mutating func wait(for wanted: ByteRange, ticket: Ticket, process: Int32, now: Instant) -> ReadDecision {
    if let refusal = currentRefusal(now) { return .fail(refusal) }
    if let stalled {
      if now >= stalled.until {
        self.stalled = nil
      } else if stalled.ranges.count(in: wanted) > 0 {
        return .fail(.timedOut)
      }
    }
    parkedReads.append(ParkedRead(ticket: ticket, range: wanted, since: now, process: process))
    return .park
  }

  /// A stat or an open of a file whose length is not known.
  mutating func probe(_ probe: ParkedProbe) -> ReadDecision {
    if let refusal = currentRefusal(probe.since) { return .fail(refusal) }
    parkedProbes.append(probe)
    return .park
  }

  private mutating func currentRefusal(_ now: Instant) -> Errno? {
    guard let refusal else { return nil }
    if now < refusal.until { return refusal.error }
    self.refusal = nil
    return nil
  }

  /// A read that was released, and whose bytes are gone before it was answered.
  mutating func parkAgain(_ read: ParkedRead) { parkedReads.append(read) }

  /// Takes out the reads that can be answered from what is `held` now.
  mutating func releaseWhole(_ held: borrowing FileState) -> [ParkedRead] {
    var isAnyWhole = false
    for read in parkedReads where held.has(read.range) { isAnyWhole = true }
    guard isAnyWhole else { return [] }
    var released: [ParkedRead] = []
    let available = held.available
    parkedReads.removeAll { read in
      let whole = available.contains(read.range)
      if whole { released.append(read) }
      return whole
    }
    return released
  }

  /// The length became known (or known to be untold): the probes it answers, and the reads that end at it.
  mutating func identified(_ held: borrowing FileState) -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    refusal = nil
    let probes = parkedProbes
    parkedProbes = []
    return (probes, clampReads(held))
  }

  /// No read goes beyond the end, once it is known. Those that can be answered now.
  mutating func clampReads(_ held: borrowing FileState) -> [ParkedRead] {
    guard let size = held.size else { return [] }
    for index in parkedReads.indices where parkedReads[index].range.end > size {
      let range = parkedReads[index].range
      parkedReads[index].range = ByteRange(min(range.start, size), size)
    }
    return releaseWhole(held)
  }

  /// Everyone who waits is to be told `error`; whoever comes until `until` is told at once.
  mutating func refuse(_ error: Errno, until: Instant) -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    refusal = (error, until)
    return takeAll()
  }

  /// Removes and returns every waiter.
  mutating func takeAll() -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    let result = (parkedProbes, parkedReads)
    parkedProbes = []
    parkedReads = []
    return result
  }

  /// A new attempt is to be made although the last failed.
  mutating func clearRefusal() {
    refusal = nil
    stalled = nil
  }

  /// What a second of waiting must bring, or it is a stall (P2).
  static let leastRate = 1024.0

  /// `count` bytes came to a transfer that goes on from `position` to `end`: for reads there, as much of the wait is
  /// forgiven as an honest line may take for so much. What stalls is judged for each read: another reader's bytes are
  /// no comfort.
  mutating func progressed(_ count: Int64, from position: Int64, to end: Int64, now: Instant) {
    for index in parkedReads.indices {
      let read = parkedReads[index]
      guard read.range.start < end, read.range.end > position, read.since < now else { continue }
      parkedReads[index].since = min(now, read.since.adding(seconds: Double(count) / Self.leastRate))
    }
  }

  /// Takes out those whose stall lasted `timeout` seconds, with what waits right behind them: one reader's read-ahead.
  mutating func expire(
    _ now: Instant, timeout: Double, shunning seconds: Double
  ) -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    let probes = takeProbes { now.seconds(since: $0.since) >= timeout }
    if !probes.isEmpty { refusal = (.timedOut, now.adding(seconds: seconds)) }
    var late: [ParkedRead] = []
    if parkedReads.contains(where: { now.seconds(since: $0.since) >= timeout }) {
      var kept: [ParkedRead] = []
      var end: Int64?
      for read in parkedReads.sorted(by: { $0.range.start < $1.range.start }) {
        let follows = end.map { read.range.start <= $0 + Planner.lookAhead } ?? false
        if follows || now.seconds(since: read.since) >= timeout {
          late.append(read)
          end = max(end ?? 0, read.range.end)
        } else {
          kept.append(read)
        }
      }
      parkedReads = kept
      var ranges = ByteRangeSet()
      for read in late { ranges.insert(read.range) }
      stalled = (ranges, now.adding(seconds: seconds))
    }
    return (probes, late)
  }

  /// Takes out the stats and opens that `isTaken` picks.
  mutating func takeProbes(where isTaken: (ParkedProbe) -> Bool) -> [ParkedProbe] {
    let taken = parkedProbes.filter(isTaken)
    if !taken.isEmpty { parkedProbes.removeAll(where: isTaken) }
    return taken
  }

  /// Takes out one ticket; false when it is not parked here (any more).
  mutating func take(_ ticket: Ticket) -> Bool {
    if let index = parkedProbes.firstIndex(where: { $0.ticket == ticket }) {
      parkedProbes.remove(at: index)
      return true
    }
    if let index = parkedReads.firstIndex(where: { $0.ticket == ticket }) {
      parkedReads.remove(at: index)
      return true
    }
    return false
  }

  /// Takes out the reads of processes that are gone.
  mutating func takeReads(where isGone: (Int32) -> Bool) -> [ParkedRead] {
    var taken: [ParkedRead] = []
    parkedReads.removeAll { read in
      let gone = isGone(read.process)
      if gone { taken.append(read) }
      return gone
    }
    return taken
  }

  /// Every wait begins anew: the machine slept, or the network changed.
  mutating func restartWaits(_ now: Instant) {
    for index in parkedReads.indices { parkedReads[index].since = now }
    for index in parkedProbes.indices { parkedProbes[index].since = now }
  }

  /// When the longest wait began; nil when nobody waits.
  var oldestWait: Instant? {
    var oldest: Instant?
    for read in parkedReads { oldest = min(oldest ?? read.since, read.since) }
    for probe in parkedProbes { oldest = min(oldest ?? probe.since, probe.since) }
    return oldest
  }
}
