import Base

/// A read that waits for its bytes.
struct ParkedRead: Sendable {
  var ticket: Ticket
  var range: ByteRange
  /// When its stall began: later than the read itself if bytes have arrived for it.
  var since: Instant
  let process: Int32
  /// When the read came.
  let arrivedAt: Instant
  /// Whether a program reads it that looks at files.
  var isScan = false

  init(ticket: Ticket, range: ByteRange, since: Instant, process: Int32) {
    self.ticket = ticket
    self.range = range
    self.since = since
    self.process = process
    arrivedAt = since
  }

  /// Whether it came later than `other`, from the same process, for a place that is far from that one.
  func leaves(_ other: ParkedRead) -> Bool {
    process != 0 && process == other.process && other.arrivedAt < arrivedAt && !isNear(other)
  }

  /// Whether `other` may be the kernel's read-ahead for the same reader.
  func isNear(_ other: ParkedRead) -> Bool {
    abs(range.start - other.range.start) <= Waiters.farthestReadAhead
  }
}

/// A stat or an open that waits for the file's length, or an open that waits for whether the file changed.
struct ParkedProbe: Sendable {
  enum Kind: Sendable {
    case attributes, open
    /// An open of a file whose length is known (``OpenChecks``).
    case check
  }
  var ticket: Ticket
  var kind: Kind
  /// The inode of the request: entries that share a resource have one each.
  var inode: Inode
  var since: Instant
  var process: Int32
  /// The folder of the file, for a stat.
  var folder: Inode = 0

  /// The process and folder whose patience it uses up.
  var listing: StatPatience.Listing { StatPatience.Listing(process: process, folder: folder) }
}

/// Who reads a file and who waits for it. Pure: events go in, decisions come out. ``Content`` guards it with the lock
/// of ``FileState``, so that no wake-up is lost between a read that parks and the bytes that land for it.
struct Waiters: Sendable {
  /// How a read is answered.
  enum ReadDecision: Sendable, Equatable {
    /// From the file: this many bytes.
    case hit(Int)
    /// It is parked; the transfer thread has to be told.
    case park
    /// With this error.
    case fail(Errno)
  }

  private(set) var parkedReads: [ParkedRead] = []
  private(set) var parkedProbes: [ParkedProbe] = []
  private(set) var runs = ReaderRuns()
  /// What was read at the ends of the file since it was opened.
  private var look = LookTrace()
  /// The last processes that opened the file to look at it: they may have ended when their name is asked for.
  private var lookers: [Int32] = []
  /// Opens that have not been released.
  private(set) var opens = 0
  /// Those of them whose handles are being closed.
  private var closing = 0
  /// By which name it was opened last: the files that follow are those of its folder.
  var lastOpened: Inode?
  /// The error for every request that would have to wait, until a time: the origin failed for good, or a wait for the
  /// length timed out.
  private(set) var refusal: (error: Errno, until: Instant)?
  /// Whether the list has the file no more: what is stored can be read, and nothing else is waited for.
  var isUnlisted = false
  /// Where a stall has just ended in an error, until a time. There the kernel asks again for one page, and gets the
  /// error at once.
  private var stalled: (ranges: ByteRangeSet, until: Instant)?
  /// Since when a read waits, as far as ``takeStall(_:)`` has not told it; nil while none does.
  private var waitsSince: Instant?

  /// Whether somebody waits.
  var isEmpty: Bool { parkedReads.isEmpty && parkedProbes.isEmpty }

  /// `count` handles were opened.
  mutating func opened(_ count: Int = 1) { opens += count }
  /// A handle is being closed, and counts as open until ``closed(wasClosing:)``. Returns whether no other one is open
  /// but those that are being closed.
  mutating func closes() -> Bool {
    closing += 1
    return closing == opens
  }
  /// A handle was closed, or its open failed. `wasClosing`: ``closes()`` was called for it.
  mutating func closed(wasClosing: Bool = false) {
    assert(opens > 0)
    opens -= 1
    if wasClosing { closing -= 1 }
  }
  /// A program that looks at files opens this one.
  mutating func looks(_ process: Int32) { lookers = lookers.suffix(15) + [process] }
  /// Whether `process` opened the file to look at it.
  func isLooking(_ process: Int32) -> Bool { lookers.contains(process) }

  /// The nanoseconds in which a read waited, since the last call.
  mutating func takeStall(_ now: Instant) -> UInt64 {
    guard let since = waitsSince else { return 0 }
    waitsSince = parkedReads.isEmpty ? nil : now
    return UInt64(max(0, now.nanoseconds - since.nanoseconds))
  }
  /// `process` read `count` bytes at `offset`. `size`: the file's, if it is known.
  mutating func noteRead(offset: Int64, count: Int64, size: Int64?, process: Int32, now: Instant) {
    runs.note(offset: offset, count: count, process: process, now: now)
    if let size { look.note(ByteRange(at: offset, count: count), size: size) }
  }
  /// A read that waited is answered.
  mutating func answered(_ read: ParkedRead, _ now: Instant) { runs.answered(read.range, now: now) }
  /// Ends the look at the last close: what it read, nil when that was no look.
  mutating func takeLook() -> ProbeSet? {
    defer { look = LookTrace() }
    return look.look
  }
  /// The file's bytes were removed: play-ahead and a background download for earlier reads would fetch them all again.
  mutating func forgetRuns() { runs.forget() }

  /// Parks a read of missing bytes, unless it gets an error at once.
  mutating func wait(for wanted: ByteRange, ticket: Ticket, process: Int32, now: Instant) -> ReadDecision {
    if let refusal = currentRefusal(now) { return .fail(refusal) }
    if let stalled {
      if now >= stalled.until {
        self.stalled = nil
      } else if stalled.ranges.count(in: wanted) > 0 {
        return .fail(.timedOut)
      }
    }
    var read = ParkedRead(ticket: ticket, range: wanted, since: now, process: process)
    read.isScan = isLooking(process)
    parkedReads.append(read)
    if waitsSince == nil { waitsSince = now }
    return .park
  }

  /// Parks a stat or an open of a file whose length is unknown, unless it gets an error at once.
  mutating func probe(_ probe: ParkedProbe) -> ReadDecision {
    if let refusal = currentRefusal(probe.since) { return .fail(refusal) }
    parkedProbes.append(probe)
    return .park
  }

  private mutating func currentRefusal(_ now: Instant) -> Errno? {
    if isUnlisted { return .stale }
    guard let refusal else { return nil }
    if now < refusal.until { return refusal.error }
    self.refusal = nil
    return nil
  }

  /// Parks a released read again, whose bytes were lost before it was answered.
  mutating func parkAgain(_ read: ParkedRead) {
    parkedReads.append(read)
    if waitsSince == nil { waitsSince = read.since }
  }

  /// Removes and returns the reads that `held` can answer now.
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

  /// The origin answered, with or without a length. Returns the probes that this answers, and the reads that end there.
  mutating func identified(_ held: borrowing FileState) -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    refusal = nil
    let probes = parkedProbes
    parkedProbes = []
    return (probes, clampReads(held))
  }

  /// Cuts the reads at the end, once it is known. Returns those that can be answered now.
  mutating func clampReads(_ held: borrowing FileState) -> [ParkedRead] {
    guard let size = held.size else { return [] }
    for index in parkedReads.indices where parkedReads[index].range.end > size {
      let range = parkedReads[index].range
      parkedReads[index].range = ByteRange(min(range.start, size), size)
    }
    return releaseWhole(held)
  }

  /// Refuses every waiter, and until `until` every request that would have to wait. Returns the waiters.
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

  /// A new attempt begins after a failure.
  mutating func clearRefusal() {
    refusal = nil
    stalled = nil
  }

  /// The bytes a second below which a wait counts as a stall (P2).
  static let leastRate = 1024.0
  /// The farthest that the kernel reads ahead of the byte that a program waits for, in bytes: two windows of the
  /// largest read-ahead that INIT allows (MountOptions.maxReadahead).
  static let farthestReadAhead: Int64 = 2 << 20

  /// `count` bytes arrived for a transfer that covers `position` to `end`. The stall of each read in that range, and
  /// of its reader's read-ahead behind it, is moved on by the seconds that so many bytes take at ``leastRate``. Each
  /// read is judged by the bytes of its own reader, not by another's.
  mutating func progressed(_ count: Int64, from position: Int64, to end: Int64, now: Instant) {
    let isIn = { (read: ParkedRead) in read.range.start < end && read.range.end > position }
    for index in parkedReads.indices {
      let read = parkedReads[index]
      let isNear = read.range.start - Self.farthestReadAhead < end && read.range.end > position
      guard isNear, read.since < now else { continue }
      if !isIn(read), read.process == 0 || !parkedReads.contains(where: { $0.process == read.process && isIn($0) }) {
        continue
      }
      parkedReads[index].since = min(now, read.since.adding(seconds: Double(count) / Self.leastRate))
    }
  }

  /// Removes and returns the waits whose stall lasted `timeout` seconds, with the reads right behind them, which are
  /// one reader's read-ahead.
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

  /// Removes and returns the stats and opens that `isTaken` selects.
  mutating func takeProbes(where isTaken: (ParkedProbe) -> Bool) -> [ParkedProbe] {
    let taken = parkedProbes.filter(isTaken)
    if !taken.isEmpty { parkedProbes.removeAll(where: isTaken) }
    return taken
  }

  /// Removes a ticket; false when it is not parked here.
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

  /// Removes and returns the reads of processes that have ended. Nobody reads on from there.
  mutating func takeReads(where isGone: (Int32) -> Bool) -> [ParkedRead] {
    var taken: [ParkedRead] = []
    parkedReads.removeAll { read in
      let gone = isGone(read.process)
      if gone { taken.append(read) }
      return gone
    }
    for read in taken { runs.ended(read.process) }
    return taken
  }

  /// Restarts every wait: the machine slept, or the network changed.
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

extension Waiters {
  /// Those of the generation that replaces the one of `old`. The numbers of its runs go on: a clock of an old run
  /// (``Playouts``) is not a new one's.
  init(replacing old: Waiters) {
    self.init()
    runs = old.runs
    runs.forget()
    isUnlisted = old.isUnlisted
  }
}
