import Base
import Fetching
import Storing

/// The turn of the transfer thread: takes messages, looks at what is in flight, plans, and sleeps until it is woken or
/// something is due. All that it owns is made on its thread, and no other thread can reach it.
///
/// Its decisions lie in the types that it owns: ``Scheduler`` (which transfers start), ``Lines`` (hosts, pace, turns),
/// ``Landing`` (bytes), ``Generations`` (versions), ``Failures`` (failures, stalls, deadlines), ``StatWaits`` (stats of
/// unknown sizes), ``OpenChecks`` (opens of files that may have changed), ``Answers`` (replies). A ``Download`` is its
/// state of one resource; ``Downloads`` has them all.
final class TransferThread {
  let room: ReadingRoom
  let service: any TransferService
  let lines: Lines
  let downloads: Downloads
  let answers: Answers
  let stats: StatWaits
  let landing: Landing
  let generations: Generations
  let checks: OpenChecks
  let failures: Failures
  let scheduler: Scheduler
  let questions: VersionQuestions
  let renewals: Renewals
  /// The position in the list of unfinished files.
  var resuming = Resuming()
  var storedOffers = StoredOffers()
  private var nextTick = Instant.never
  private var lastTurn: Instant?
  private var nextSweep = Instant(nanoseconds: 0)

  /// Called on the transfer thread. `jitter` gives the jitter of a retry, in 0..<1.
  init(
    room: ReadingRoom, port: any ReplyPort, service: any TransferService, second: (any SecondSource)? = nil,
    jitter: @escaping () -> Double = { Double.random(in: 0..<1) }
  ) {
    self.room = room
    self.service = service
    lines = Lines(limits: room.limits.withLock { $0 }, clock: room.clock)
    downloads = Downloads(room: room, service: service, lines: lines, second: second)
    answers = Answers(room: room, port: port, downloads: downloads)
    stats = StatWaits(room: room, lines: lines, downloads: downloads, answers: answers)
    landing = Landing(room: room, answers: answers, downloads: downloads, jitter: jitter)
    generations = Generations(room: room, answers: answers, landing: landing, second: second)
    questions = VersionQuestions(service: service, lines: lines, clock: room.clock)
    checks = OpenChecks(lines: lines, answers: answers)
    renewals = Renewals(room: room, downloads: downloads)
    failures = Failures(
      room: room, lines: lines, downloads: downloads, answers: answers, stats: stats, generations: generations,
      renewals: renewals, jitter: jitter)
    scheduler = Scheduler(
      room: room, service: service, lines: lines, downloads: downloads, landing: landing, stats: stats,
      renewals: renewals, second: second, generations: generations, checks: checks,
      failed: { [failures] download, message in failures.fail(download, .io, message) })
    second?.onChange = { [downloads] key in downloads.changed(key) }
  }

  /// How often the thread looks at its downloads while one of them is active, in seconds: often enough for play-ahead
  /// to follow a reader.
  private static let tick = 0.05
  /// How often idle downloads are put away, in seconds.
  private static let sweep = 5.0

  func turn(now: Instant) -> Instant {
    noticeGap(now)
    landing.intake = room.health.intake
    let messages = room.transfers.takeAll()
    var isLookDue = now >= nextTick || (nextTick == .never && storedOffersDue(now) <= now)
    for message in messages {
      // Otherwise each stat in a listing of a silent host's files would cost a look at all downloads.
      if case .changed(let content) = message, stats.answersAll(of: downloads.download(of: content), now) { continue }
      handle(message, now)
      // A scan of complete files must not cost a look at all downloads for each.
      if case .held = message { continue }
      isLookDue = true
    }
    if isLookDue { look(now) } else if nextTick == .never, !messages.isEmpty { nextTick = nextSweep }
    questions.turn { scheduler.nextID() }
    scheduler.turn(now)
    return min(nextTick, scheduler.nextContinuation)
  }

  /// After the machine slept or the process was stopped, no wait and no transfer is judged by that time. The server
  /// drops the connections a little later, when it hears of the network (``reconnect(_:)``).
  private func noticeGap(_ now: Instant) {
    defer { lastTurn = now }
    guard let lastTurn, nextTick != .never, now.seconds(since: max(lastTurn, nextTick)) > 5 else { return }
    stats.restart()
    for download in downloads.all {
      download.content.guarded.withLock { $0.waiters.restartWaits(now) }
      for index in download.transfers.indices { download.transfers[index].lastByte = now }
    }
  }

  // MARK: Looking at the downloads

  /// Looks at every download: deadlines, stalls, evidence of playing. Puts idle ones away.
  private func look(_ now: Instant) {
    var isLively = questions.isBusy || renewals.isBusy
    renewals.look(now)
    let isSweeping = now >= nextSweep
    if isSweeping { nextSweep = now.adding(seconds: Self.sweep) }
    stats.beginLook(now)
    lines.isQuiet = !downloads.all.contains { $0.content.guarded.withLock { $0.waiters.opens > 0 } }
    for download in downloads.inOrder where isSweeping || !download.isDormant {
      if watch(download, now) {
        isLively = true
        downloads.changed(download)
      } else if isSweeping, !stats.keeps(download), download.wish.ahead == nil,
        !download.wish.rest || !download.wish.mayRunAhead || download.attempts.hasFailed
          || download.ownFile.isUnwritable
      {
        downloads.putAway(download)
      }
    }
    lines.countVisits(downloads.inOrder)
    lines.settlePlayers(downloads.inOrder, now)
    scheduler.lookAhead(now)
    if isSweeping {
      resumeNext(now)
      offerStored(now)
      lines.describe()
      for note in lines.takeNotes() { room.record(.host(note)) }
      lines.prune(now)
    }
    room.lines.publish(lines.reports(now))
    if isSweeping || isLively {
      let supplies = lines.supplies
      room.supplies.withLock { $0 = supplies }
    }
    if isLively {
      nextTick = now.adding(seconds: Self.tick)
    } else {
      let isIdle = downloads.all.isEmpty && !resuming.goesOn && storedOffersDue(now) == .never
      nextTick = isIdle ? .never : nextSweep
    }
  }

  /// Tells of a read that has waited for long, once until no read of the file waits any more.
  private func noteStall(_ download: Download, _ parked: [ParkedRead], _ now: Instant) {
    if parked.isEmpty { return download.hasToldStall = false }
    guard !download.hasToldStall, parked.contains(where: { now.seconds(since: $0.arrivedAt) >= Happenings.stall })
    else { return }
    download.hasToldStall = true
    room.happened(.stalled, to: download.content, download.attempts.lastError?.message)
  }

  /// Looks at one download. True while it needs frequent looks.
  private func watch(_ download: Download, _ now: Instant) -> Bool {
    let content = download.content
    stats.look(at: download, now)
    checks.look(at: download, now)
    let (oldest, runs, size, hasWaiters, parked, generation, isOpen, stalled) = content.guarded.withLock { guarded in
      (
        guarded.waiters.oldestWait, guarded.waiters.runs, guarded.held.size, !guarded.waiters.isEmpty,
        guarded.waiters.parkedReads, guarded.held.generation?.id, guarded.waiters.opens > 0,
        guarded.waiters.takeStall(now)
      )
    }
    room.counters.add(stalled, to: .stalledNanoseconds)
    noteStall(download, parked, now)
    download.lineUse.isVisited =
      isOpen && !download.attempts.hasFailed && !download.isWhole
      && runs.runs.contains {
        now.seconds(since: $0.lastRead) < ReaderRuns.longestVisit && !download.isLooker($0.process)
      }
    let film = generation.flatMap { room.films.known(of: $0) }
    download.lineUse.playouts.look(runs, parked: parked, film: film, now: now)
    if hasWaiters {
      failures.expire(download, oldest, now)
      failures.releaseGone(content, parked.map(\.process))
    }
    if let until = download.ownFile.pausedUntil, until <= now {
      download.ownFile.pausedUntil = nil
      downloads.changed(download)
    }
    if !landing.isUnstored(download) { landing.storeWhatIsKept(download) }
    failures.dropStalled(download, hasWaiters, now)
    failures.dropForsaken(download, now)
    let line = lines.line(of: download)
    // This newcomer may be a player. A trial of more lanes would use up its buffer.
    let own = download.lineUse.standing
    let others = line.readers.sharing + line.readers.playing - (own?.plays ?? false ? 1 : 0)
    let othersStandBack = others > 0 && own?.isNew ?? false
    // A reader that has read so much in sequence and still waits is a copy, or a player whose origin limits each
    // connection. Where each connection is known to be slow, there is nothing to try; nor where one carries
    // all responses.
    let isOne = line.fillsOneConnection(now)
    if isOne { download.lineUse.lanes.rest() }
    let isReaderLimited =
      (hasWaiters || download.lineUse.isBehind) && runs.runs.contains { $0.length >= LaneControl.provenLength }
      && lines.slowConnections(of: download, now) == nil && !othersStandBack && !isOne
    download.lineUse.lanes.look(
      isReaderLimited: isReaderLimited, enough: download.lineUse.playouts.enough, lineBytes: line.estimate.bytes,
      roundTrip: line.estimate.roundTrip, now: now)
    let followsPlayers = room.options.continuation == .playing || room.options.continuation == .open
    if followsPlayers, !download.wish.rest, !download.isWhole, let size,
      let player = runs.player(size: size, after: download.wish.cancelledAt, now: now), !download.isLooker(player)
    {
      downloads.wantRest(download)
    }
    downloads.publish(download)
    // Whether a reader plays may show only while it reads nothing.
    let mayPlay = followsPlayers && !download.wish.rest && isOpen
    let isRead = runs.runs.contains { now.seconds(since: $0.lastRead) < (mayPlay ? ReaderRuns.longestPause : 2) }
    // The look goes on until the download no longer counts as waiting: others on its line stand back meanwhile.
    let isBusy =
      hasWaiters || download.lineUse.standing != nil || !download.transfers.isEmpty || (isRead && !download.isWhole)
    // While an origin is unreachable for long, the sweep looks often enough.
    let isDue = [download.attempts.retry, lines.line(of: download).outage].allSatisfy { retry in
      retry.due(readerWaits: false).map { $0.seconds(since: now) < 2 } ?? true
    }
    let isContinuing =
      download.wish.rest && download.wish.mayRunAhead && !download.attempts.hasFailed
      && landing.intake == .everything
      && !download.ownFile.isPaused
    // The size that a stat did not wait for is requested as soon as the host allows. It keeps the download in memory no
    // longer than that.
    let isLively = isBusy || stats.isAskable(download, now) || (isContinuing && isDue && !download.isWhole)
    // A scan leaves hundreds of files behind, and its next file would wait for a look at each of them.
    download.isDormant =
      !isLively && !isOpen && !download.wish.head && download.lineUse.playouts.playsSince == nil
    return isLively
  }
}
