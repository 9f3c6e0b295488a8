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
  private let service: any TransferService
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
  /// The position in the list of unfinished files.
  var resuming = Resuming()
  private var nextTick = Instant.never
  private var lastTurn: Instant?
  private var nextSweep = Instant(nanoseconds: 0)

  /// Called on the transfer thread. `jitter` gives the jitter of a retry, in 0..<1.
  init(
    room: ReadingRoom, port: any ReplyPort, service: any TransferService,
    jitter: @escaping () -> Double = { Double.random(in: 0..<1) }
  ) {
    self.room = room
    self.service = service
    lines = Lines(limits: room.limits.withLock { $0 }, clock: room.clock)
    downloads = Downloads(room: room, service: service, lines: lines)
    answers = Answers(room: room, port: port, downloads: downloads)
    stats = StatWaits(room: room, lines: lines, downloads: downloads, answers: answers)
    landing = Landing(room: room, answers: answers, downloads: downloads, jitter: jitter)
    generations = Generations(room: room, answers: answers, landing: landing)
    questions = VersionQuestions(service: service, lines: lines, clock: room.clock)
    checks = OpenChecks(lines: lines, answers: answers)
    failures = Failures(
      room: room, lines: lines, downloads: downloads, answers: answers, stats: stats, generations: generations,
      jitter: jitter)
    scheduler = Scheduler(
      room: room, service: service, lines: lines, downloads: downloads, landing: landing, stats: stats)
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
    var isLookDue = now >= nextTick
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

  /// Drops the dead connections. No wait is judged by the time that was lost.
  private func reconnect(_ now: Instant) {
    stats.restart()
    for download in downloads.all {
      download.content.guarded.withLock { $0.waiters.restartWaits(now) }
      download.attempts.retry.progressed()
      downloads.changed(download)
    }
    service.dropConnections()
    lines.forgetOutages(now)
  }

  // MARK: Messages

  private func handle(_ message: TransferMessage, _ now: Instant) {
    switch message {
    case .changed(let content):
      let download = downloads.download(of: content)
      if download.attempts.failure != nil, content.guarded.withLock({ !$0.waiters.isEmpty }) { download.forgive() }
      downloads.changed(download)
    case .opened(let content): opened(content)
    case .closed(let content):
      let look = content.guarded.withLock { $0.waiters.takeLook() }
      if let look, let kind = content.kind { scheduler.looked(at: kind, look) }
    case .fetch(let content): fetch(content)
    case .resume(let content):
      // It was put away after the keeper looked it up: a later round finds it again.
      if content.guarded.withLock({ $0.held.isPutAway }) { return resuming.hasLeftOut = true }
      let download = downloads.download(of: content)
      guard leavesModifiedInode(download) else { return }
      download.wish.rest = true
      downloads.changed(download)
    case .lookAhead(let contents):
      for content in contents {
        let download = downloads.download(of: content)
        download.wish.head = true
        downloads.changed(download)
      }
    case .held(let content): _ = downloads.download(of: content)
    case .next(let content, let files): scheduler.nextFiles.found(files, after: content)
    case .ruled(let content): ruled(downloads.download(of: content), now)
    case .cancelled(let content):
      let download = downloads.download(of: content)
      download.wish.cancelledAt = now
      downloads.unpin(download)
      if let id = download.content.guarded.withLock({ $0.held.continues(false) }) {
        room.record(.continues(generation: id, false))  // it may have been played on meanwhile
      }
      ruled(download, now)
    case .ask(let question): questions.ask(question)
    case .limitsChanged:
      lines.limit(room.limits.withLock { $0 })
      scheduler.limit(lines.limits.rates)
    case .rulesChanged: resuming.startOver()
    case .clear(let content, let then): clear(content, then)
    case .evict(let content, let ranges, let bytes, let endsDownload, let isCopy):
      evict(content, ranges, bytes, endsDownload: endsDownload, isCopy: isCopy)
    case .thaw(let content):
      content.guarded.withLock { $0.held.thawed() }
      room.keeper.post(.grew(content))  // if its bytes could not be removed, they still need a commit
      let download = downloads.download(of: content)
      download.ownFile.isUnwritable = false
      downloads.changed(download)
      carryOutPostponed(download)
    case .renew(let content, let inode, let ticket): renew(content, inode, ticket)
    case .completed(let content, let copy):
      let download = downloads.download(of: content)
      download.wish.rest = false
      downloads.unpin(download)
      downloads.forgetError(of: download)
      room.completed(content, as: copy)
      downloads.publish(download, now)
      carryOutPostponed(download)
      // Small files make room often, and would pile up until the next sweep.
      if downloads.all.count > Self.mostUnfinished / 2 { downloads.putAway(download) }
      resumeNext(now)
    case .waitsForRoom(let content):
      let download = downloads.download(of: content)
      if download.content === content { failures.waitsForRoom(download, now) }
      carryOutPostponed(download)
    case .rejected(let content, let message, let isWrong):
      let download = downloads.download(of: content)
      failures.rejected(download, message: message, isWrong: isWrong, now)
      carryOutPostponed(download)
    case .syncFailed(let content, let message, let lost, let pausedUntil):
      let download = downloads.download(of: content)
      downloads.note(message, of: download)
      download.ownFile.pausedUntil = pausedUntil
      if let lost { answers.forgetPages(of: content, lost) }
      answers.answerParked(content)
      downloads.changed(download)
      carryOutPostponed(download)
    case .resumedUntil(let place):
      resuming.reached(place, now)
      // A part of the list that has nothing to fetch does not make the next one wait.
      if case .kept? = place { resumeNext(now) }
    case .hosts(let notes): lines.remember(notes)
    case .reconnect: reconnect(now)
    }
  }

  private func opened(_ content: Content) {
    let download = downloads.download(of: content)
    if download.attempts.failure != nil { download.forgive() }
    download.attempts.retry.hurry()
    download.ownFile.isUnwritable = false
    // A file that was played or pinned may have been put away after a failure.
    let goesOn = content.guarded.withLock { guarded in
      guarded.held.isPartial
        && (guarded.held.generation?.continues == true || guarded.held.isPinned
          || guarded.rules.storage == .keep)
    }
    if goesOn { download.wish.rest = true }
    if room.options.continuation == .always { downloads.wantRest(download) }
    downloads.changed(download)
  }

  private func fetch(_ content: Content) {
    // The sender counted the file as open, so that it was not put away in between.
    defer { room.uncount(content) }
    let download = downloads.download(of: content)
    guard leavesModifiedInode(download) else { return }
    if download.attempts.failure != nil { download.forgive() }
    download.attempts.retry.hurry()
    download.ownFile.isUnwritable = false
    downloads.pin(download)
    failures.forgetRefetch(download.key)
    downloads.wantRest(download)
    downloads.changed(download)
  }

  /// The user wants something else of the file than before.
  private func ruled(_ download: Download, _ now: Instant) {
    let continues = download.content.guarded.withLock { $0.held.generation?.continues == true }
    download.wish.rest = download.wish.isRequested || continues
    // Windows are short and come to their end. A body that the origin sends whole would not.
    let streams = download.transfers.filter(\.active.isStream)
    if !streams.isEmpty, !isWorthGoingOn(download, now) { for stream in streams { download.cancel(stream.active.id) } }
    downloads.changed(download)
  }

  /// Gives a file whose copy a user changed or deleted a new inode, under which it is fetched again: under the old one
  /// it never completes. False when that fails.
  private func leavesModifiedInode(_ download: Download) -> Bool {
    let isModified = download.content.guarded.withLock { $0.held.holding == .modified && !$0.held.isSuperseded }
    guard isModified, let same = download.identity else { return true }
    do throws(StoreError) {
      try generations.supersede(download, by: same, nil)
      return true
    } catch {
      failures.fail(download, .io, error.message)
      return false
    }
  }

  private func clear(_ content: Content, _ then: @escaping @Sendable () -> Void) {
    let download = downloads.download(of: content)
    // The finisher or the keeper is working on the file: the message is posted again afterwards.
    guard content.guarded.withLock({ $0.held.frozen() }) else {
      return download.postponed.append(.clear(content, then: then))
    }
    download.cancelAll()
    download.wish.rest = false
    scheduler.nextFiles.removed(download.key)
    downloads.unpin(download)
    room.keeper.post(
      .job { keeper in
        keeper.discard(content, keepsCopy: false)
        then()
      })
  }

  /// `isCopy`: what the keeper chose is a complete copy. A file that was completed since is another matter.
  private func evict(
    _ content: Content, _ ranges: ByteRangeSet, _ bytes: Int64, endsDownload: Bool, isCopy: Bool
  ) {
    let download = downloads[content.key]
    let isUsed =
      download.map { download in
        // As the keeper judges it: a file that was played is not wanted under every policy once it is closed.
        let goesOn = room.options.continuation.goesOn(isRequested: download.wish.isRequested, isOpen: false)
        let isWanted = download.wish.rest && goesOn && (!endsDownload || download.wish.isRequested)
        return download.content !== content || !download.transfers.isEmpty || isWanted
      } ?? false
    let isFrozen =
      !isUsed
      && (isCopy
        ? content.isUnusedCopy
        : content.guarded.withLock { $0.isIdle && !$0.held.isCopy && $0.rules.storage != .keep })
      && content.guarded.withLock { $0.held.frozen() }
    guard isFrozen else {
      return room.keeper.post(.job { keeper in keeper.space.answered(bytes, isGone: false, keeper.room.clock.now) })
    }
    if let download, download.wish.rest {
      download.wish.rest = false
      if let id = content.guarded.withLock({ $0.held.continues(false) }) {
        room.record(.continues(generation: id, false))
      }
    }
    scheduler.nextFiles.removed(content.key)
    room.keeper.post(.job { keeper in keeper.evict(content, ranges, bytes: bytes) })
  }

  private func renew(_ content: Content, _ inode: Inode, _ ticket: Ticket) {
    let download = downloads.download(of: content)
    do throws(StoreError) {
      try generations.renew(download, content, inode)
    } catch {
      failures.fail(download, .io, error.message)  // the open fails in any case
    }
    answers.reply(ticket, error: .stale)
  }

  private func carryOutPostponed(_ download: Download) {
    let postponed = download.postponed
    download.postponed = []
    for message in postponed { room.transfers.post(message) }
  }

  // MARK: Looking at the downloads

  /// Looks at every download: deadlines, stalls, evidence of playing. Puts idle ones away.
  private func look(_ now: Instant) {
    var isLively = questions.isBusy
    let isSweeping = now >= nextSweep
    if isSweeping { nextSweep = now.adding(seconds: Self.sweep) }
    stats.countQuestions(now)
    lines.isQuiet = !downloads.all.contains { $0.content.guarded.withLock { $0.waiters.opens > 0 } }
    for download in downloads.inOrder {
      if watch(download, now) {
        isLively = true
        downloads.changed(download)
      } else if isSweeping, download.wish.ahead == nil,
        !download.wish.rest || !download.wish.mayRunAhead || download.attempts.failure != nil
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
      lines.describe()
      for note in lines.takeNotes() { room.record(.host(note)) }
    }
    room.lines.publish(lines.reports(now))
    if isSweeping || isLively {
      let supplies = lines.supplies
      room.supplies.withLock { $0 = supplies }
    }
    if isLively {
      nextTick = now.adding(seconds: Self.tick)
    } else {
      nextTick = downloads.all.isEmpty && !resuming.goesOn ? .never : nextSweep
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
      isOpen && download.attempts.failure == nil && !download.isWhole
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
    let estimate = lines.line(of: download).estimate
    // A reader that has read so much in sequence and still waits is a copy, or a player whose origin limits each
    // connection. Where each connection is known to be slow, there is nothing to try.
    let isReaderLimited =
      (hasWaiters || download.lineUse.isBehind) && runs.runs.contains { $0.length >= LaneControl.provenLength }
      && lines.slowConnections(of: download, now) == nil
    download.lineUse.lanes.look(
      isReaderLimited: isReaderLimited, lineBytes: estimate.bytes, roundTrip: estimate.roundTrip, now: now)
    let followsPlayers = room.options.continuation == .playing || room.options.continuation == .open
    if followsPlayers, !download.wish.rest, !download.isWhole, let size,
      let player = runs.player(size: size, after: download.wish.cancelledAt, now: now), !download.isLooker(player)
    {
      downloads.wantRest(download)
    }
    downloads.publish(download, now)
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
      download.wish.rest && download.wish.mayRunAhead && download.attempts.failure == nil
      && landing.intake == .everything
      && !download.ownFile.isPaused
    // The size that a stat did not wait for is requested as soon as the host allows. It keeps the download in memory no
    // longer than that.
    return isBusy || stats.isAskable(download, now) || (isContinuing && isDue && !download.isWhole)
  }
}
