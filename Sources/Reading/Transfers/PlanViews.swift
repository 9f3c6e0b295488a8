import Base
import Fetching

/// What a plan of a resource is made from: its file, its readers, its transfers and its line.
extension Scheduler {
  /// The parts of a content that its plan depends on, copied under one lock.
  struct View {
    let length: Length
    let stored: ByteRangeSet
    let available: ByteRangeSet
    let parked: [ParkedRead]
    /// The processes whose stats and opens wait.
    let probing: [Int32]
    let waits: Bool
    /// Whether only stats wait.
    let wantsSize: Bool
    let oldestWait: Instant?
    /// What an open asks for that asks whether the file changed.
    let checked: ByteRange?
    let runs: ReaderRuns
    /// Whether a program has the file open, opens it, or waits for its size.
    let isOpen: Bool
    /// The file that has the stored bytes.
    let file: ServedFile?
    /// Whether bytes may be missing, and new ones may be stored.
    let isFetchable: Bool
    let hasValidators: Bool

    init(_ guarded: Content.Guarded) {
      length = guarded.held.length
      stored = guarded.held.stored
      available = guarded.held.available
      parked = guarded.waiters.parkedReads
      probing = guarded.waiters.parkedProbes.map(\.process)
      waits = !guarded.waiters.isEmpty
      wantsSize =
        guarded.waiters.parkedReads.isEmpty && guarded.waiters.parkedProbes.allSatisfy { $0.kind == .attributes }
      oldestWait = guarded.waiters.oldestWait
      checked = guarded.waiters.parkedProbes.contains { $0.kind == .check } ? guarded.held.firstMissing : nil
      runs = guarded.waiters.runs
      isOpen = guarded.waiters.opens > 0 || !guarded.waiters.parkedProbes.isEmpty
      file = guarded.held.file
      isFetchable = guarded.held.isPartial && guarded.held.removal == .none
      hasValidators = guarded.held.generation?.validators.isEmpty == false
    }
  }

  /// Whether all whose stats and opens wait go from file to file, or one waits as long as a newcomer has its credit.
  func passes(_ view: View, _ download: Download, _ now: Instant) -> Bool {
    if let since = view.oldestWait, now.seconds(since: since) >= Playout.creditSeconds { return true }
    return downloads.passers.containsAll(view.probing.map(download.program), at: view.oldestWait ?? now)
  }

  /// Whether the reads of `run` are in passing: who shows a pace plays.
  private func passes(_ run: ReaderRuns.Run, _ view: View, _ download: Download, _ now: Instant) -> Bool {
    download.lineUse.playouts.pace(of: run) == nil
      && downloads.passers.contains(run, of: view.runs, now: now, program: download.program)
  }

  func learned(of download: Download) -> ProbeSet? { probeSets[download.content.kind] }

  func lineView(of line: Line, for download: Download, _ now: Instant) -> LineView {
    // What comes from a second source frees no connection to the origin: then no request waits for one.
    LineView(
      roundTrip: line.estimate.roundTrip, lateTrip: line.estimate.lateTrip, rate: line.estimate.rate,
      isMeasured: line.estimate.isMeasured, waiting: line.readers.new + line.readers.urgent,
      requestLimit: line.limit,
      openConnections: line.openConnections(now: now), backgroundLanes: line.backgroundLanes,
      usualLanes: line.usualLanes(isQuiet: lines.isQuiet), hasSmallWindows: hasSmallWindows(line, now),
      isLimited: lines.limits.rates != TransferRates(),
      hasRested: line.hasRested(now), fillsOneConnection: line.fillsOneConnection(now),
      hasHandshakes: line.httpVersion == 11 && download.mirrors.host.hasPrefix("https:")
        && !download.transfers.contains { $0.generation != nil },
      staysSmall: line.estimate.windows.areSmallForLong, losesPackets: line.losesPackets(now),
      hasPauses: line.estimate.windows.pause(now),
      flights: line.flights.idle(now, roundTrip: line.estimate.roundTrip),
      grownFlights: line.flights.idle(now, roundTrip: line.estimate.roundTrip, grows: true),
      isQuiet: lines.isQuiet, isPressed: line.isPressed(now), isContended: line.isContended(now),
      hasOthers: line.readers.present > (download.lineUse.standing == nil ? 0 : 1),
      hasVisits: line.readers.visits > (download.lineUse.isVisited ? 1 : 0))
  }

  func input(
    _ download: Download, _ view: View, size: Int64, checked: ByteRange?, _ now: Instant
  ) -> PlanInput {
    let line = lines.line(of: download)
    var input = PlanInput(size: size, line: lineView(of: line, for: download, now))
    input.learned = learned(of: download)
    input.available = view.available
    if let checked { input.demands.append(checked) }
    for read in view.parked.sorted(by: { $0.range.start < $1.range.start }) {
      if isAbandoned(read, view.runs, now) {
        input.abandonedReads.append(read.range)
      } else {
        input.demands.append(read.range)
      }
    }
    input.isCompared = download.opinion.comparison.isDue
    input.spareBytes = download.pace.spareBytes(of: size)
    // Only a player's claim depends on what is in flight.
    let plays = download.lineUse.playouts.playsSince != nil
    var requested = view.available
    if plays { for running in download.transfers where !running.isCancelled { requested.insert(running.active.rest) } }
    input.readers = view.runs.runs.compactMap { run in
      let parked = view.parked.filter { view.runs.run(of: $0.range)?.number == run.number }
      if parked.isEmpty, now.seconds(since: run.lastRead) >= ReaderRuns.longestPause { return nil }
      // Who has read little and closed the file has seen enough. A media server opens it again for each chunk.
      if !view.isOpen, parked.isEmpty, run.length < Planner.provenLength { return nil }
      let seconds = max(0.1, run.lastRead.seconds(since: run.firstRead))
      let isLooker = download.isLooker(run.process)
      // The kernel's read-ahead is behind what the reader needs next: the first byte that it asked for and has not got.
      let next = parked.lazy.map(\.range.start).min().map { min($0, run.position) } ?? run.position
      let there = view.available.runEnd(from: next)
      let asked = plays ? requested.runEnd(from: next) : there
      let (claim, due, pace) = download.lineUse.playouts.claim(
        of: run, stored: there, requested: asked, size: size,
        isLooker: isLooker || passes(run, view, download, now), hasTrial: trials.has(run.process, download.key, now),
        fits: download.lineUse.fits,
        line: line.estimate, now: now)
      let last = parked.isEmpty ? run.lastRead : now
      trials.note(run.process, download.key, isOnTrial: claim == .trial, last: last, now)
      if pace != nil { trials.passed(run.process) }
      let stalled = parked.map { now.seconds(since: $0.since) }.max()
      return ReaderView(
        position: run.position, length: run.length, rate: pace ?? Double(run.length) / seconds,
        isFresh: now.seconds(since: run.lastRead) < 2, mayBeOver: run.mayBeOver(isParked: !parked.isEmpty, now),
        isElsewhere: isElsewhere(run, view.runs, view.parked),
        isLooker: isLooker, claim: claim,
        isPaced: pace != nil, due: due, isServed: stalled != nil || asked > there,
        isResting: claim != .urgent && rests(run, parked, there, pace: pace, now), stalled: stalled,
        takes: view.runs.taken(besides: run))
    }
    input.transfers = download.transfers.filter { !$0.isCancelled }.map { running in
      var active = running.active
      active.rate = running.meter.rate
      active.hasBegun = running.bytes > 0
      active.age = now.seconds(since: running.started)
      active.isConnecting = line.isConnecting(running, now)
      let isSlow = input.line.hasSmallWindows && line.isSlow(running, now)
      active.isStuck =
        running.generation == nil && (isSlow || line.isStuck(running, now)) && download.pace.mayCut(now)
      return active
    }
    input.lanes = Lanes(now: download.lineUse.lanes.lanes, settled: download.lineUse.lanes.settled)
    input.slowConnections = lines.slowConnections(of: download, now)
    input.continuationStart = view.runs.latest
    return input
  }

  /// Whether the reader of `run` leaves bytes unread that are stored up to `there`, enough of them for its pace.
  private func rests(
    _ run: ReaderRuns.Run, _ parked: [ParkedRead], _ there: Int64, pace: Double?, _ now: Instant
  ) -> Bool {
    let enough = pace.map { $0 * Planner.behindSeconds } ?? Double(Planner.smallestWindow)
    return parked.isEmpty && run.length >= Planner.provenLength && Double(there - run.position) >= enough
      && now.seconds(since: run.lastRead) >= ReaderRuns.rest
  }

  /// Whether the reader of a run waits at another place of the file, or went on there. It jumped, and play-ahead for
  /// its old place would be in its way.
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

  /// Whether a parked read is the kernel's read-ahead for a reader that has gone on elsewhere, so that nobody waits for
  /// it. Only during its first second: another program may want the same pages, and the kernel does not tell.
  private func isAbandoned(_ read: ParkedRead, _ runs: ReaderRuns, _ now: Instant) -> Bool {
    guard now.seconds(since: read.arrivedAt) < Self.longestLeft, let run = runs.run(of: read.range) else {
      return false
    }
    return runs.wentOn(from: run)
  }
  private static let longestLeft = 1.0
}
