import Base

/// What is known of the length of a resource.
enum Length: Sendable, Equatable {
  /// Not asked yet.
  case unknown
  /// So many bytes.
  case known(Int64)
  /// The origin does not tell; so many bytes came so far. The end is where the body ends.
  case growing(Int64)
}

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

/// One generation of a resource: what is stored, who reads, who waits. Pure: events in, decisions out; ``Content``
/// holds the lock.
///
/// Lifecycle: unknown length -> (identified) known or growing -> growing ends as known -> complete. A failure or a
/// newer generation can come at any time; what is stored stays readable through both.
struct ContentState: Sendable {
  /// What becomes of a read.
  enum ReadDecision: Sendable, Equatable {
    /// Stored: so many bytes from the file.
    case hit(Int)
    /// Parked; the planner must hear of it.
    case park
    /// Answer with this error.
    case fail(Errno)
  }

  var length = Length.unknown
  var stored = ByteRangeSet()
  /// Bytes that could not be stored.
  var memory = MemoryWindow()
  private(set) var parkedReads: [ParkedRead] = []
  private(set) var parkedProbes: [ParkedProbe] = []
  var runs = ReaderRuns()
  /// Opens without their release yet.
  var opens = 0
  /// A newer generation took its place: what is not stored never will be.
  var isSuperseded = false
  /// The error for whoever would have to wait, until the time: the origin failed for good, or did not even tell the
  /// size.
  private(set) var refusal: (error: Errno, until: Instant)?
  /// Where a stall just ended in an error: the kernel asks again, for one page of what it had asked for, and is told at
  /// once.
  private var stalled: (ranges: ByteRangeSet, until: Instant)?
  /// Stored ranges that the catalog has not heard of.
  var isDirty = false

  /// Bytes, when known.
  var size: Int64? {
    if case .known(let size) = length { return size }
    return nil
  }
  /// What a read can be answered from now: what is stored, and what is kept in memory.
  var available: ByteRangeSet {
    if memory.isEmpty { return stored }
    var both = stored
    both.formUnion(memory.ranges)
    return both
  }
  /// Whether all of `range` is there.
  func has(_ range: ByteRange) -> Bool {
    stored.contains(range) || (!memory.isEmpty && available.contains(range))
  }
  /// Whether every byte is stored.
  var isWhole: Bool { size.map { stored.contains(ByteRange(0, $0)) } ?? false }
  /// Whether somebody waits.
  var hasWaiters: Bool { !parkedReads.isEmpty || !parkedProbes.isEmpty }

  /// A read of `count` bytes at `offset`.
  mutating func read(at offset: Int64, count: Int, ticket: Ticket, process: Int32, now: Instant) -> ReadDecision {
    let wanted: ByteRange
    switch length {
    case .known(let size):
      if offset >= size || count == 0 { return .hit(0) }
      wanted = ByteRange(offset, min(offset + Int64(count), size))
    case .growing, .unknown:
      if count == 0 { return .hit(0) }
      wanted = ByteRange(offset, offset + Int64(count))
    }
    runs.note(offset: offset, count: wanted.count, process: process, now: now)
    if has(wanted) { return .hit(Int(wanted.count)) }
    if isSuperseded { return .fail(.stale) }
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

  /// `range` is in the file now: the reads that are whole with it.
  mutating func landed(_ range: ByteRange) -> [ParkedRead] {
    stored.insert(range)
    isDirty = true
    if case .growing(let size) = length, range.end > size { length = .growing(range.end) }
    return releaseWhole()
  }

  /// A read that was released, and whose bytes are gone before it was answered.
  mutating func parkAgain(_ read: ParkedRead) { parkedReads.append(read) }

  /// `bytes` came and cannot be stored: they are kept in memory for a while, `most` of them. nil when there is no room
  /// even there.
  mutating func kept(_ bytes: UnsafeRawBufferPointer, at offset: Int64, most: Int64) -> [ParkedRead]? {
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    let waited = parkedReads.map(\.range)
    guard memory.makeRoom(for: range.count, keeping: waited, before: range.end, most: most) else { return nil }
    memory.insert(bytes, at: offset)
    if case .growing(let size) = length, range.end > size { length = .growing(range.end) }
    return releaseWhole()
  }

  /// Takes out the reads that can be answered now.
  mutating func releaseWhole() -> [ParkedRead] {
    guard parkedReads.contains(where: { has($0.range) }) else { return [] }
    var released: [ParkedRead] = []
    let available = available
    parkedReads.removeAll { read in
      let whole = available.contains(read.range)
      if whole { released.append(read) }
      return whole
    }
    return released
  }

  /// The length became known (or known to be untold): the probes it answers. Reads that now end at the size are
  /// released too.
  mutating func identified(_ length: Length) -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    self.length = length
    refusal = nil
    let probes = parkedProbes
    parkedProbes = []
    return (probes, clampReads())
  }

  /// A growing body ended at `size`.
  mutating func ended(at size: Int64) -> [ParkedRead] {
    length = .known(size)
    isDirty = true
    return clampReads()
  }

  private mutating func clampReads() -> [ParkedRead] {
    guard let size else { return [] }
    for index in parkedReads.indices where parkedReads[index].range.end > size {
      let range = parkedReads[index].range
      parkedReads[index].range = ByteRange(min(range.start, size), size)
    }
    return releaseWhole()
  }

  /// Everyone who waits is to be told `error`; whoever comes until `until` is told at once.
  mutating func refuse(_ error: Errno, until: Instant) -> (probes: [ParkedProbe], reads: [ParkedRead]) {
    refusal = (error, until)
    return takeAll()
  }

  /// Everyone who waits, taken out.
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
