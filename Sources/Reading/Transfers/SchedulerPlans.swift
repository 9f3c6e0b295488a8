import Base
import Fetching

/// Plans one resource: shows its state to ``Planner``, and takes the planner's steps.
extension Scheduler {
  func plan(_ download: Download, _ now: Instant) {
    let view = download.content.guarded.withLock { View($0) }
    let waits = view.waits
    var readers: [ReaderView] = []
    defer {
      let standing = standing(of: download, view, readers, now)
      if standing != download.lineUse.standing { downloads.setStanding(download, standing) }
    }
    download.lineUse.isBehind = false
    var isRouted = false
    defer { if !isRouted { restSecond(download) } }
    guard view.isFetchable, !download.attempts.hasFailed else { return }
    let continues = mayContinue(download)
    let mayRunAhead = download.wish.mayRunAhead && !download.ownFile.isPaused && landing.intake == .everything
    let ahead = mayRunAhead ? download.wish.mayAhead : []
    if let window = download.seam.next, download.seam.subject?.mirror == download.mirrors.current, !download.isJoined,
      download.opinion.suspect == nil
    {
      if waits || continues || !ahead.isEmpty { want(download, range: window, .seam, waits, now) }
      return
    }
    if download.opinion.suspect != nil {
      if waits || continues || !ahead.isEmpty {
        want(download, range: confirmation(download, view), .confirm, waits, now)
      }
      return
    }
    switch view.length {
    case .unknown:
      guard waits || download.wish.head || continues || !ahead.isEmpty else { return }
      if isTold(download, now) { return }
      if !view.probing.isEmpty { download.wish.isLook = view.probing.allSatisfy { download.isLooker($0) } }
      let line = lineView(of: lines.line(of: download), for: download, now)
      let passes = line.hasOthers && !download.wish.isLook && passes(view, download, now)
      let most = passes && lines.line(of: download).readers.playing > 0 ? Planner.smallestFirstWindow : .max
      let first = Planner.firstRequest(line, learned: learned(of: download), isLook: download.wish.isLook)
      let head = ByteRange(0, download.wish.head ? Generations.glance : min(first, most))
      want(download, range: download.ranges.mayAskForRange(now) ? head : nil, .head, waits, passes: passes, now)
    case .growing:
      if waits || continues { want(download, range: nil, .window, waits, now) }
    case .known(let size):
      if view.stored.contains(ByteRange(0, size)) {
        // The second source hears of the last bytes too.
        if let file = secondFile(download, size: size) {
          let seen = SecondView(stored: view.stored, served: view.file, continues: false)
          _ = look(at: file, of: download, seen, now)
        }
        return finish(download)
      }
      if !view.hasValidators, download.transfers.isEmpty {
        download.opinion.comparison.look(stored: view.stored, size: size, now: now)
      }
      if download.ranges.wantsWhole {
        let first = view.parked.map(\.range).min { $0.start < $1.start } ?? ByteRange(0, size)
        let gap = view.available.firstGap(in: first) ?? view.available.firstGap(in: ByteRange(0, size))
        let probe = gap.map { ByteRange($0.start, min(size, $0.start + Planner.headLength)) }
        if waits || continues {
          want(download, range: download.ranges.mayAskForRange(now) ? probe : nil, .window, waits, now)
        }
        return
      }
      guard download.attempts.retry.permits(now, readerWaits: waits) else { return }
      // The end of a transfer that stalled decides which mirror is asked next.
      if download.mirrors.count > 1, download.transfers.contains(where: { $0.cancellation == .stalled }) { return }
      let checked = view.checked.flatMap { asksOrigin(download, now) ? $0 : nil }
      var input = input(download, view, size: size, checked: checked, now)
      input.continues = continues
      input.ahead = ahead
      input.tail = tail(of: download, input)
      readers = input.readers
      download.lineUse.isBehind = mayReadOn(download, view) && input.readers.contains { Planner.isBehind($0, input) }
      let file = secondFile(download, size: size)
      let seen = SecondView(stored: view.stored, served: view.file, continues: continues)
      if let file { input.bounds = look(at: file, of: download, seen, now) }
      let first = starts.count
      for step in Planner.plan(input) { take(step, download, input, view.parked, now) }
      if let file {
        isRouted = true
        let window = Planner.backgroundWindow(input, input.line.company(isReader: true))
        let parked = view.parked.map(\.range)
        route(from: first, of: file, download, parked: parked, checked: checked, seen, owedAtOnce: window, now)
      }
    }
  }

  private func take(_ step: PlanStep, _ download: Download, _ input: PlanInput, _ parked: [ParkedRead], _ now: Instant)
  {
    switch step {
    case .start(var range, let purpose):
      if landing.isUnstored(download) {
        // At most half of the memory window, and only for a waiting reader: more would be gone before it is read.
        guard purpose == .demand || purpose == .shared && parked.contains(where: { $0.range.overlaps(range) }) else {
          return
        }
        range = ByteRange(range.start, min(range.end, range.start + MemoryWindow.most / 2))
      }
      var start = PendingStart(download: download, range: range, kind: .window, purpose: purpose)
      if purpose <= .shared {
        let isShared = purpose == .shared
        let reader = input.readers.filter { isShared ? $0.claim.shares : $0.claim < .share }.min {
          abs($0.position - range.start) < abs($1.position - range.start)
        }
        start.claim = reader?.claim ?? (isShared ? .share : .start)
        start.due = start.claim == .share ? 0 : reader?.due ?? 0
        start.isArrival = purpose == .demand && reader.map { $0.length <= Planner.lookAhead } ?? false
      }
      start.isProven =
        purpose == .continuation
        || input.readers.contains { reader in
          reader.length >= Planner.provenLength && !reader.isLooker && reader.takes == nil
            && reader.position <= range.end + Planner.lookAhead && range.start <= reader.position + Planner.largestAhead
        }
      if purpose == .shared {
        start.isStarving = isStarving(download, range, parked, now)
        // Many may starve at once, beside one who plays.
        if start.isStarving { start.starves() }
      }
      if purpose == .demand {
        for read in parked where read.range.overlaps(range) { start.waitsSince = min(start.waitsSince, read.since) }
      }
      add(start)
    case .cancel(let id):
      if let index = download.index(of: id) {
        download.pace.lost(Planner.lost(byCutting: download.transfers[index].active, input))
        if input.transfers.contains(where: { $0.id == id && $0.isStuck }) { download.pace.cutStuck(now) }
      }
      download.cancel(id)
    }
  }

  /// Whether a reader that shares the line waits for `range`, and has got next to nothing for long. It gets one small
  /// window now and then, whoever plays: a read's time without bytes goes by at 1 KiB/s (``ParkedRead/since``).
  private func isStarving(_ download: Download, _ range: ByteRange, _ parked: [ParkedRead], _ now: Instant) -> Bool {
    if starts.reversed().prefix(while: { $0.download === download }).contains(where: \.isStarving) { return false }
    return parked.contains { read in
      guard read.range.overlaps(range), isLong(now.seconds(since: read.since)) else { return false }
      // The kernel's read-ahead for a place that its reader has left would take what the reader waits for.
      if parked.contains(where: { $0.leaves(read) }) { return false }
      // The kernel does not tell which process of another PID namespace reads.
      let own = read.process == 0 ? [read] : parked.filter { $0.process == read.process && $0.isNear(read) }
      return !download.transfers.contains { running in
        !running.isCancelled && own.contains { $0.range.overlaps(running.active.rest) }
      }
    }
  }
  private func isLong(_ seconds: Double) -> Bool { seconds > room.options.timeout / 6 }

  /// What the readers of a download count for on its line. After a redirect it may use another line than before.
  private func standing(of download: Download, _ view: View, _ readers: [ReaderView], _ now: Instant) -> LineStanding? {
    guard mayReadOn(download, view) else { return nil }
    var standing = LineStanding(host: download.mirrors.host)
    let isBehind = download.lineUse.isBehind
    standing.waits = view.waits || isBehind
    // A reader that waits for long waits for its origin, not for the line.
    let urgent = readers.contains { $0.claim == .urgent && $0.isServed && ($0.stalled ?? 0) < Self.longestUrgency }
    standing.isUrgent = urgent && view.isFetchable
    standing.leads = readers.contains { reader in
      let waits = reader.stalled.map { $0 < Self.longestUrgency } ?? isBehind
      return reader.claim == .lead || (reader.claim == .trial && waits)
    }
    standing.plays = download.lineUse.fits && download.lineUse.playouts.need > 0
    // One that waits for long still takes all that comes.
    standing.shares = readers.contains { $0.claim.shares && !$0.isPaced && ($0.isFresh || $0.stalled != nil) }
    // A stat or an open waits as a newcomer. Who waits for long waits for its origin, not for the line.
    let wait = view.oldestWait.map { now.seconds(since: $0) } ?? 0
    let isNew =
      readers.isEmpty
      ? view.waits && !passes(view, download, now)
      : readers.contains { $0.claim == .start && ($0.stalled != nil || isBehind) }
    standing.isNew = isNew && wait < Self.longestUrgency
    standing.wantsSize = readers.isEmpty && view.wantsSize
    return standing.waits || standing.plays ? standing : nil
  }

  /// Whether a reader of the file is expected to read on. One that has closed it, and for which nothing is under way,
  /// may never come back: other readers and downloads do not stand back for it.
  private func mayReadOn(_ download: Download, _ view: View) -> Bool {
    view.isOpen || view.waits || download.transfers.contains { $0.active.purpose <= .shared }
      || starts.reversed().prefix { $0.download === download }.contains { $0.purpose <= .shared }
  }

  /// For how many seconds a player or a newcomer that waits keeps others from the line.
  private static let longestUrgency = 3.0

  /// The range to request for a second opinion. Missing bytes, so that the answer is of use if the origin has two
  /// versions; every second time the head, which a shorter generation has too.
  private func confirmation(_ download: Download, _ view: View) -> ByteRange? {
    if download.ranges.wantsWhole { return nil }
    let head = ByteRange(0, Planner.headLength)
    // The open of the new version is followed by a read of its head.
    if view.checked != nil { return head }
    guard case .known(let size) = view.length, download.opinion.requests % 2 == 0 else { return head }
    let start = view.parked.map(\.range.start).min() ?? 0
    guard let gap = view.stored.firstGap(in: ByteRange(min(start, size), size)) else { return head }
    return ByteRange(gap.start, min(gap.end, gap.start + Planner.headLength))
  }

  /// How many bytes to request at the end of a file for a player, which happens once: where its kind has an index, or
  /// looks at its kind read. Whoever looks shows by itself where in the tail it begins, hardly later.
  private func tail(of download: Download, _ input: PlanInput) -> Int64 {
    guard !download.wish.tailDone else { return 0 }
    guard let reader = input.readers.first, input.readers.allSatisfy({ !$0.isLooker }) else { return 0 }
    // Only while the first reader is at the head: one that starts in the middle already knows its way.
    // So does one that has jumped to the index and comes back to the head. The bytes that it needs there next would
    // come over another connection.
    guard !input.readers.contains(where: { $0.position > max($0.length, Planner.headLength) }),
      reader.position <= Planner.headLength
    else {
      download.wish.tailDone = true
      return 0
    }
    guard room.options.continuation != .never, input.demands.isEmpty, input.transfers.isEmpty,
      !Planner.mayBeOver(reader)
    else { return 0 }
    download.wish.tailDone = true
    let length = max(input.learned?.tail ?? 0, MediaKind.hasTail(download.content.kind) ? Planner.tailLength : 0)
    return input.size > length + Planner.headLength ? length : 0
  }

  /// Adds a request if the resource has no transfer in flight and no backoff. `passes`: those who wait pass by.
  private func want(
    _ download: Download, range: ByteRange?, _ kind: Running.Kind, _ waits: Bool, passes: Bool = false, _ now: Instant
  ) {
    guard download.transfers.isEmpty, download.attempts.retry.permits(now, readerWaits: waits) else { return }
    // What is to be completed anyway does not wait until the origin takes more requests at once again.
    let unasked: Purpose = download.wish.mayAhead.isEmpty || download.wish.isRequested ? .continuation : .next
    // Without a range it has no small window that it could get while it starves.
    let isShared = passes && range != nil
    let purpose = waits ? (isShared ? .shared : .demand) : (download.wish.head ? .index : unasked)
    var start = PendingStart(download: download, range: range, kind: kind, purpose: purpose)
    // Nobody waits for a size that is requested in the background.
    if isShared || purpose == .index { start.claim = .share }
    start.isArrival = purpose == .demand
    // Of those that have just come, the one that waits longest comes first.
    if waits { start.waitsSince = download.content.guarded.withLock { $0.waiters.oldestWait } ?? .never }
    let mayStarve = purpose == .shared || purpose == .demand && lines.line(of: download).isBesideUrgent
    if mayStarve, range != nil, start.waitsSince < now, isLong(now.seconds(since: start.waitsSince)) {
      start.starves()
    }
    add(start)
  }

  /// Adds a request. While an origin without validators may have other bytes than those that are stored, there is one
  /// request at a time, and it begins with stored bytes.
  private func add(_ start: PendingStart) {
    let download = start.download
    guard download.opinion.comparison.isDue, start.kind == .window, let hole = start.range else {
      return starts.append(start)
    }
    guard download.transfers.isEmpty, !starts.contains(where: { $0.download === download }) else { return }
    let (stored, size) = download.content.guarded.withLock { ($0.held.stored, $0.held.size ?? 0) }
    var comparing = start
    comparing.range = download.opinion.comparison.range(before: hole, stored: stored, size: size)
    comparing.kind = .compare
    starts.append(comparing)
  }

  /// Whether the rest of the file may be fetched now.
  private func mayContinue(_ download: Download) -> Bool {
    guard download.wish.rest, download.wish.mayRunAhead, landing.intake == .everything, !download.ownFile.isPaused
    else { return false }
    let isOpen = download.content.guarded.withLock { $0.waiters.opens > 0 }
    return room.options.continuation.goesOn(isRequested: download.wish.isRequested, isOpen: isOpen)
  }

  /// Every byte is stored: gives the file to the finisher.
  private func finish(_ download: Download) {
    let content = download.content
    if download.ownFile.pausedUntil != nil { return }
    let checksum = renewals.checksum(of: download)
    let shared = download.distrustsSecond ? nil : download.second.flatMap { second?.digest(of: $0) }
    if case .wait? = shared { return }
    let (isTaken, isModified) = content.guarded.withLock { guarded in
      (guarded.linkChecksum, guarded.shared) = (checksum, shared ?? .none)
      return (guarded.held.becameWhole(), guarded.held.holding == .modified)
    }
    if isTaken { room.finisher.post(content) }
    // The next open or fetch gives the file another inode. Under this one it never completes.
    if isModified { download.wish.rest = false }
  }
}
