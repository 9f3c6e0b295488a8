import Base
import Fetching
import Glibc

/// From what is wanted to transfers.
extension Engine {
  /// Plans every resource whose state changed, then starts what they want, the most urgent first.
  func planDirty(_ now: Instant) {
    if dirty.isEmpty { return }
    let keys = dirty.sorted()  // a plan may change what the next one may do
    dirty.removeAll(keepingCapacity: true)
    starts.removeAll(keepingCapacity: true)
    for key in keys {
      if let source = sources[key] { plan(source, now) }
    }
    for start in inTurn(starts) { admit(start, now) }
  }

  /// By purpose; within one each file in turn, and in it who has waited longest: so that each comes to its place also
  /// where connections are few.
  private func inTurn(_ starts: [PendingStart]) -> [PendingStart] {
    if starts.count < 2 { return starts }
    let turns = starts.enumerated().map { (order: $0.offset, start: $0.element, last: $0.element.source.lastStart) }
    return turns.sorted {
      ($0.start.purpose, $0.last, $0.start.waitsSince, $0.order)
        < ($1.start.purpose, $1.last, $1.start.waitsSince, $1.order)
    }.map(\.start)
  }

  private func plan(_ source: Source, _ now: Instant) {
    let content = source.content
    let (length, stored, available, parked, hasProbes, runs, isFrozen, phase) = content.guarded.withLock { guarded in
      (
        guarded.state.length, guarded.state.stored, guarded.state.available, guarded.state.parkedReads,
        !guarded.state.parkedProbes.isEmpty, guarded.state.runs, guarded.isFrozen, guarded.phase
      )
    }
    let reads = parked.map(\.range)
    let waits = !reads.isEmpty || hasProbes
    defer {
      // A redirect that was learned meanwhile moves the wait to another line.
      let isHungry = waits || source.isBehind
      let line = isHungry ? HostState.key(of: source.target.url) : nil
      if line != source.waitsOn { setWaits(source, isHungry) }
    }
    source.isBehind = false
    guard !isFrozen, phase == .partial, source.failure == nil else { return }
    let continues = mayContinue(source)
    if source.suspect != nil {
      if waits || continues { want(source, range: confirmation(source, reads, stored), .confirm, waits, now) }
      return
    }
    switch length {
    case .unknown:
      guard waits || source.wantsHead || continues else { return }
      let head = ByteRange(0, source.wantsHead ? Self.glance : Planner.headLength)
      want(source, range: source.asksForRanges(now) ? head : nil, .head, waits, now)
    case .growing:
      if waits || continues { want(source, range: nil, .window, waits, now) }
    case .known(let size):
      if stored.contains(ByteRange(0, size)) { return finish(source) }
      if source.knowsNoRanges {
        let first = reads.min { $0.start < $1.start } ?? ByteRange(0, size)
        let gap = available.firstGap(in: first) ?? available.firstGap(in: ByteRange(0, size))
        let probe = gap.map { ByteRange($0.start, min(size, $0.start + Planner.headLength)) }
        if waits || continues { want(source, range: source.asksForRanges(now) ? probe : nil, .window, waits, now) }
        return
      }
      guard source.retry.permits(now, readerWaits: waits) else { return }
      let host = hosts[HostState.key(of: source.target.url)] ?? newHost
      var input = PlanInput(size: size, roundTrip: host.line.roundTrip, lineRate: host.line.rate)
      input.waiting = host.waiting
      input.openConnections = host.openConnections(now: now)
      input.backgroundLanes = host.backgroundLanes
      input.usualLanes = host.usualLanes(isQuiet: openFiles == 0)
      input.available = available
      for read in parked.sorted(by: { $0.range.start < $1.range.start }) {
        if isLeft(read, runs, now) { input.left.append(read.range) } else { input.demands.append(read.range) }
      }
      input.spareBytes = source.spareBytes(of: size)
      input.readers = runs.runs.filter { now.seconds(since: $0.lastRead) < ReaderRuns.longestPause }.map { run in
        let seconds = max(0.1, run.lastRead.seconds(since: run.firstRead))
        return ReaderView(
          position: run.position, length: run.length, rate: Double(run.length) / seconds,
          isFresh: now.seconds(since: run.lastRead) < 2, isElsewhere: isElsewhere(run, runs, parked),
          isLooker: isLooker(run.process, source))
      }
      input.transfers = source.transfers.filter { !$0.isCancelled }.map { running in
        var active = running.active
        active.rate = running.meter.rate
        return active
      }
      input.lanes = source.lanes.lanes
      input.isQuiet = openFiles == 0
      input.continues = continues
      input.continuationStart = runs.latest
      input.wantsTail = wantsTail(source, input)
      source.isBehind = input.readers.contains { Planner.isBehind($0, input) }
      for step in Planner.plan(input) {
        switch step {
        case .start(var range, let purpose):
          if isUnstored(source) {
            // No more than the window in memory takes, and only for who waits: it would be gone before it is read.
            guard purpose == .demand else { continue }
            range = ByteRange(range.start, min(range.end, range.start + MemoryWindow.most / 2))
          }
          var start = PendingStart(source: source, range: range, kind: .window, purpose: purpose)
          if purpose == .demand {
            for read in parked where read.range.overlaps(range) { start.waitsSince = min(start.waitsSince, read.since) }
          }
          starts.append(start)
        case .cancel(let id):
          source.noteCut(id, input)
          cancel(id, of: source)
        }
      }
    }
  }

  /// What to ask for a second opinion: what is missing, so that one answer of an origin with two minds is of use; every
  /// second time the head, which a shorter generation has too.
  private func confirmation(_ source: Source, _ reads: [ByteRange], _ stored: ByteRangeSet) -> ByteRange? {
    if source.knowsNoRanges { return nil }
    let head = ByteRange(0, Planner.headLength)
    guard let size = source.content.guarded.withLock({ $0.state.size }), source.confirmations % 2 == 0 else {
      return head
    }
    let start = reads.map(\.start).min() ?? 0
    guard let gap = stored.firstGap(in: ByteRange(min(start, size), size)) else { return head }
    return ByteRange(gap.start, min(gap.end, gap.start + Planner.headLength))
  }

  /// Whether the end of a file is worth asking for, once: it was opened by something that is no looker, and has an end
  /// of the kind that players look at.
  private func wantsTail(_ source: Source, _ input: PlanInput) -> Bool {
    guard !source.tailDone else { return false }
    guard let reader = input.readers.first, input.readers.allSatisfy({ !$0.isLooker }) else { return false }
    // Once the head is read, or found not to be one: whoever starts in the middle knows its way.
    guard reader.position <= Planner.headLength else {
      source.tailDone = true
      return false
    }
    guard options.continuation != .never, input.demands.isEmpty, input.transfers.isEmpty else { return false }
    source.tailDone = true
    return MediaKind.hasTail(source.content.path)
  }

  /// Whether the reader of a run waits at another place of the file, or went on at one: it jumped, and what it read
  /// before is not to be read ahead in its way.
  private func isElsewhere(_ run: ReaderRuns.Run, _ runs: ReaderRuns, _ parked: [ParkedRead]) -> Bool {
    if runs.wentOn(from: run) { return true }
    var isParked = false
    for read in parked where read.process == run.process && run.process != 0 {
      if read.range.start <= run.position + ReaderRuns.slack, read.range.end >= run.position - ReaderRuns.slack {
        return false
      }
      isParked = true
    }
    return isParked
  }

  /// Whether nobody waits for a parked read: its reader went on at another place, so that it is the kernel's read-ahead
  /// from before. Not for long: another program may want the same pages, and the kernel does not tell.
  private func isLeft(_ read: ParkedRead, _ runs: ReaderRuns, _ now: Instant) -> Bool {
    guard now.seconds(since: read.asked) < Self.longestLeft, let run = runs.run(of: read.range) else { return false }
    return runs.wentOn(from: run)
  }
  private static let longestLeft = 1.0

  /// What a stat among many asks for: enough to know the type by.
  static let glance: Int64 = 4 << 10

  /// Wants one request of a kind of which there is never a second.
  private func want(
    _ source: Source, range: ByteRange?, _ kind: Running.Kind, _ waits: Bool, _ now: Instant
  ) {
    guard source.transfers.isEmpty, source.retry.permits(now, readerWaits: waits) else { return }
    let purpose: Purpose = waits ? .demand : (source.wantsHead ? .index : .continuation)
    starts.append(PendingStart(source: source, range: range, kind: kind, purpose: purpose))
  }

  /// Whether the rest of the file is to be fetched now.
  private func mayContinue(_ source: Source) -> Bool {
    guard source.continues, !isAtLimit, !source.isRefused else { return false }
    let isOpen = source.content.guarded.withLock { $0.state.opens > 0 }
    return options.continuation.goesOn(isRequested: source.isRequested, isOpen: isOpen)
  }

  /// Starts a transfer, or remembers that its resource wants one when there is room.
  private func admit(_ start: PendingStart, _ now: Instant) {
    let (url, isResolved) = start.source.target
    let host = HostState.key(of: url)
    let outstanding =
      options.rateLimit == nil
      ? 0
      : sources.values.reduce(Int64(0)) { sum, source in
        let trip = source.transfers.first.flatMap { hosts[$0.host]?.line.roundTrip } ?? 0
        return sum + source.outstanding(now, patience: max(1, 2 * trip))
      }
    let bytes = start.range?.count ?? 0
    let isQuestion = start.purpose == .index && hosts[host]?.silence.holds(now) ?? false
    guard !isQuestion || questions < Self.mostQuestions,
      hosts[host, default: newHost].admits(start.purpose, bytes: bytes, isQuiet: openFiles == 0, now: now),
      allowance.admits(outstanding: outstanding, now: now)
    else {
      hungry.insert(start.source.key)
      if start.purpose == .continuation, let turn = hosts[host]?.nextContinuation, turn > now {
        nextTurn = min(nextTurn, turn)
      }
      return
    }
    if isQuestion { questions += 1 }
    let isBackground = start.purpose >= .index
    hosts[host, default: newHost].began(isBackground: isBackground, now: now)
    lastTransfer += 1
    let id = TransferID(lastTransfer)
    let source = start.source
    source.lastStart = lastTransfer
    var request = TransferRequest(
      id: id, url: url, homeURL: source.mirrors[source.mirror].url, range: start.range)
    if start.kind != .confirm, start.range != nil, !source.omitsIfRange {
      request.ifRange = source.content.guarded.withLock { guarded in
        guarded.generation.flatMap { GenerationCheck.ifRange(for: $0.validators) }
      }
    }
    let entry = source.content.source
    request.headers = entry.headers
    request.userAgent = entry.userAgent
    request.referer = entry.referer
    let range = start.range ?? ByteRange(0, .max)
    var active = ActiveTransfer(id: id, position: range.start, end: range.end, purpose: start.purpose, rate: nil)
    active.isStream = start.range == nil
    var running = Running(
      active: active, kind: start.kind, mirror: source.mirror, host: host, isResolved: isResolved, started: now,
      lastByte: now)
    running.sentIfRange = request.ifRange != nil
    if start.purpose == .continuation, start.range != nil {
      running.continuing = bytes
      hosts[host]?.continues(bytes, now: now)
    }
    source.transfers.append(running)
    if start.kind == .confirm { source.confirmations += 1 }
    source.wantsHead = false
    owners[id] = source
    Log.debug("transfer \(id.rawValue): \(start.purpose) \(range) of \(source.content.path)")
    service.start(request)
  }

  /// Ends a transfer; it stays in the list until its end is reported.
  func cancel(_ id: TransferID, of source: Source) {
    guard let index = source.transfers.firstIndex(where: { $0.active.id == id }) else { return }
    if source.transfers[index].isCancelled { return }
    source.transfers[index].isCancelled = true
    service.cancel(id)
  }

  /// Notes whether readers of a resource wait: continuations of the same line stand back meanwhile.
  func setWaits(_ source: Source, _ waits: Bool) {
    if let host = source.waitsOn {
      hosts[host, default: newHost].waiting -= 1
      hosts[host]?.lastWait = clock.now
      source.waitsOn = nil
    }
    if waits {
      let host = HostState.key(of: source.target.url)
      hosts[host, default: newHost].waiting += 1
      source.waitsOn = host
    } else {
      feedHungry()
    }
  }

  /// There may be room for what had to stand back.
  func feedHungry() {
    dirty.formUnion(hungry)
    hungry.removeAll(keepingCapacity: true)
  }

  /// The rest of the file is wanted from now on, also at the next mount.
  func arm(_ source: Source) {
    if source.continues { return }
    source.continues = true
    let id = source.content.guarded.withLock { guarded -> Int64? in
      guarded.generation?.continues = true
      return guarded.generation?.id
    }
    if let id { keeper.record(.continues(generation: id, true)) }
  }

  /// A user asked for the file by name: it is completed whatever the policy, also at the next mount.
  func pin(_ source: Source) {
    source.isRequested = true
    let isNew = source.content.guarded.withLock { guarded -> Bool in
      defer { guarded.isPinned = true }
      return !guarded.isPinned
    }
    if isNew { keeper.record(.pinned(source.key, true)) }
  }

  /// It is whole, a user cleared it, or it cannot become whole.
  func unpin(_ source: Source) {
    source.isRequested = false
    let was = source.content.guarded.withLock { guarded -> Bool in
      defer { guarded.isPinned = false }
      return guarded.isPinned
    }
    if was { keeper.record(.pinned(source.key, false)) }
  }

  func isLooker(_ process: Int32, _ source: Source) -> Bool {
    if let known = source.judged[process] { return known }
    let isLooker = Lookers.contains(process: process)
    if source.judged.count > 64 { source.judged.removeAll() }
    source.judged[process] = isLooker
    return isLooker
  }

  /// Everything is stored: to be verified and placed.
  private func finish(_ source: Source) {
    let content = source.content
    let isMine = content.guarded.withLock { guarded -> Bool in
      guard guarded.phase == .partial, guarded.generation != nil else { return false }
      guarded.phase = .completing
      return true
    }
    if isMine { finisher.submit(content) }
  }
}
