import Base
import Storing

// What the transfer thread does with each message.

extension TransferThread {
  /// Drops the dead connections. No wait is judged by the time that was lost.
  private func reconnect(_ now: Instant) {
    stats.restart()
    for download in downloads.all {
      download.content.guarded.withLock { $0.waiters.restartWaits(now) }
      download.attempts.retry.progressed()
      downloads.changed(download)
    }
    service.dropConnections()
    lines.reconnect(now)
  }

  func handle(_ message: TransferMessage, _ now: Instant) {
    switch message {
    case .changed(let content):
      let download = downloads.download(of: content)
      if download.attempts.hasFailed, content.guarded.withLock({ !$0.waiters.isEmpty }) { download.forgive() }
      downloads.changed(download)
    case .opened(let content): opened(content)
    case .closed(let content):
      downloads.closed(content, now)
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
    case .held(let content): scheduler.showHeld(downloads.download(of: content), now)
    case .stored(let content): scheduler.offerStored(downloads.download(of: content), now)
    case .storedUntil(let last): offeredStored(until: last, now)
    case .storedUnread(let last): storedOffers.failed(after: last, now)
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
    case .listed(let content): listed(content)
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
    case .completed(let content, let copy): completed(content, as: copy, now)
    case .waitsForRoom(let content):
      let download = downloads.download(of: content)
      if rejects(content) { failures.waitsForRoom(download, now) }
      carryOutPostponed(download)
    case .rejected(let content, let message, let isWrong):
      let download = downloads.download(of: content)
      if rejects(content) { failures.rejected(download, message: message, isWrong: isWrong) }
      carryOutPostponed(download)
    case .syncFailed(let content, let message, let lost, let pausedUntil):
      let download = downloads.download(of: content)
      // Nothing more of a version that was replaced is stored. A second report of one failure may come after its pause.
      if !content.guarded.withLock({ $0.held.isSuperseded }) {
        downloads.note(message, of: download)
        download.ownFile.pausedUntil = max(download.ownFile.pausedUntil ?? pausedUntil, pausedUntil)
      }
      if let lost { answers.forgetPages(of: content, lost) }
      answers.answerParked(content)
      downloads.changed(download)
      carryOutPostponed(download)
    case .resumedUntil(let place):
      resuming.reached(place, now)
      // A part of the list that has nothing to fetch does not make the next one wait.
      if case .kept? = place { resumeNext(now) }
    case .resumedUnread(let place): resuming.failed(after: place, now)
    case .hosts(let notes): lines.remember(notes)
    case .resolver(let news): renewals.heard(news, now)
    case .reconnect: reconnect(now)
    }
  }

  private func opened(_ content: Content) {
    // The open of a version that was replaced fails: it says nothing of the one that replaced it.
    guard room.table.withLock({ $0.current[content.key] === content }) else { return }
    let download = downloads.download(of: content)
    if download.attempts.hasFailed { download.forgive() }
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
    if download.attempts.hasFailed { download.forgive() }
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

  /// The finisher placed the file. Nothing follows for a version that replaced it meanwhile: that one is still wanted.
  private func completed(_ content: Content, as copy: LibraryCopy, _ now: Instant) {
    let download = downloads.download(of: content)
    room.completed(content, as: copy)
    if !content.guarded.withLock({ $0.held.isSuperseded }) {
      download.wish.rest = false
      downloads.unpin(download)
      downloads.forgetError(of: download)
      scheduler.showHeld(download, now, isNew: true)
      downloads.publish(download)
    }
    carryOutPostponed(download)
    // Small files make room often, and would pile up until the next sweep.
    if downloads.all.count > Self.mostUnfinished / 2 { downloads.putAway(download) }
    resumeNext(now)
  }

  /// Notes that the finisher refused the file. Returns whether the file is still the current version: nothing follows
  /// for the version that replaced it.
  private func rejects(_ content: Content) -> Bool {
    content.guarded.withLock { guarded in
      guarded.held.rejected()
      return !guarded.held.isSuperseded
    }
  }

  private func clear(_ content: Content, _ then: @escaping @Sendable () -> Void) {
    let download = downloads.download(of: content)
    // The finisher or the keeper is working on the file: the message is posted again afterwards.
    guard content.guarded.withLock({ $0.held.frozen() }) else {
      return download.postponed.append(.clear(content, then: then))
    }
    let current = download.content
    guard current === content else {
      // Another version replaced it while the message waited. What is stored of that one goes too. It counts as open
      // until then, so that it is not put away before.
      removesBytes(of: content)
      room.keeper.post(.job { keeper in keeper.discard(content) })
      current.guarded.withLock { $0.waiters.opened() }
      return clear(current) { [room] in
        then()
        room.uncount(current)
      }
    }
    download.cancelAll()
    download.wish.rest = false
    removesBytes(of: content)
    scheduler.nextFiles.removed(download.key)
    downloads.unpin(download)
    room.keeper.post(
      .job { keeper in
        keeper.discard(content)
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
    removesBytes(of: content)
    download?.wish.rest = false
    // Also of a file whose turn to be resumed has not come: it would be fetched again.
    let ended = content.guarded.withLock { guarded in
      guarded.held.generation?.continues == true ? guarded.held.continues(false) : nil
    }
    if let ended { room.record(.continues(generation: ended, false)) }
    scheduler.nextFiles.removed(content.key)
    room.keeper.post(.job { keeper in keeper.evict(content, ranges, bytes: bytes) })
  }

  private func removesBytes(of content: Content) {
    guard let second = scheduler.second else { return }
    if let id = content.guarded.withLock({ $0.held.generation?.id }) { second.removes(id) }
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
}
