import Base
import Fetching
import Glibc
import Storing

/// Handles what transfers bring: the head of a response, pieces of its body, its end.
extension TransferThread: TransferClient {
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool {
    if questions.isAsked(id) {
      questions.responded(id, head)
      return false
    }
    let now = room.clock.now
    guard let download = downloads.download(of: id), let index = download.index(of: id) else {
      return false
    }
    if download.transfers[index].isCancelled { return false }
    downloads.changed(download)
    if download.transfers[index].generation != nil { return secondResponded(head, download, index, now) }
    download.transfers[index].responded = true
    download.transfers[index].connection = head.connection
    download.transfers[index].lastByte = now
    let running = download.transfers[index]
    room.counters.responded(after: head.firstByteSeconds)
    lines.update(running.host) { line in
      line.estimate.responded(after: head.firstByteSeconds, now: now)
      line.answered(now)
      // After a redirect too: the bytes count for this line, so the losses do.
      line.lost(service.misorderedPackets(of: id), over: head.connection, now: now)
      // After a redirect another host answered, which says nothing about this line.
      if Line.key(of: head.url) == running.host {
        line.speaks(httpVersion: head.httpVersion)
        line.clockAhead = head.date.map { room.clock.date - $0 }
      }
      line.responded(
        id, over: head.connection, isReused: head.reusedConnection, isBackground: running.isBackground)
    }
    if let name = head.suggestedName { download.suggestedName = name }
    let asked = running.active.isStream ? nil : running.active.rest
    let judgement = generations.judge(head, of: download, running, now)
    if case .accepted = judgement {
      if head.isRedirected || running.isResolved { download.mirrors[running.mirror].resolved = head.url }
    } else if running.isResolved {
      // Maybe only the target of a redirect leads elsewhere: the entry's own URL is requested next.
      download.mirrors[running.mirror].resolved = nil
    }
    switch judgement {
    case .accepted: renewals.accepted(download)
    case .refused: return false
    case .failed(let failure):
      failures.failed(download, running, failure, now)
      return false
    case .dead(let why, let failure):
      if download.mirrors.isReplaced(running.mirror) { return false }
      downloads.note(failure.message, of: download)
      if !renewals.died(download, why, failure.message) { failures.failed(download, running, failure, now) }
      return false
    case .broken(let message):
      failures.fail(download, .io, message)
      return false
    }
    // Without validators the head says nothing: the bytes that it repeats do.
    if !download.opinion.comparison.isDue { checks.confirmed(download, now) }
    tellSecond(download, now)
    guard let index = download.index(of: id) else { return false }
    switch head.body {
    case .part(let range, _):
      download.ranges.foundWorking()
      download.ranges.came(range, asked: asked, now: now)
      download.transfers[index].active.position = range.start
      download.transfers[index].active.end = range.end
      download.transfers[index].active.isStream = false
    case .whole(let length):
      // The origin ignores ranges: the whole body, from its start, is the only way to get any of it.
      if let asked {
        if running.sentIfRange, !download.ranges.omitsIfRange, asked.start > 0 {
          // The version is the same, so If-Range should have given the range. Some origins never do.
          download.ranges.omitsIfRange = true
          return false
        }
        download.ranges.foundIgnored()
      }
      download.transfers[index].active.position = 0
      download.transfers[index].active.end = length ?? .max
      download.transfers[index].active.isStream = true
      // The other transfers requested parts of what now comes as a whole.
      download.cancelAll(except: id)
    }
    return true
  }

  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
    guard let download = downloads.download(of: id), let index = download.index(of: id) else {
      return false
    }
    if download.transfers[index].isCancelled { return false }
    let now = room.clock.now
    if download.transfers[index].generation != nil { return secondReceived(bytes, download, index, now) }
    let count = bytes.count
    let start = download.transfers[index].active.position
    let silence = now.seconds(since: download.transfers[index].lastByte)
    download.transfers[index].active.position = start + Int64(count)
    download.transfers[index].bytes += Int64(count)
    download.transfers[index].lastByte = now
    download.transfers[index].meter.received(count, now: now)
    download.pace.received(count, now: now)
    download.lineUse.lanes.received(count)
    room.counters.received(count, for: download.transfers[index].audience)
    download.fetched.add(
      Int64(count), for: download.transfers[index].audience, from: download.transfers[index].host)
    scheduler.took(Int64(count), from: download.transfers[index].host)
    let continued = min(download.transfers[index].continuing, Int64(count))
    download.transfers[index].continuing -= continued
    let connection = download.transfers[index].connection
    lines.update(download.transfers[index].host) { line in
      let held = line.held(after: silence, over: connection, now: now) { service.misorderedPackets(of: id) }
      line.received(count, of: id, held: held, now: now)
      line.settled(continued)
    }
    downloads.changed(download)
    if download.transfers[index].kind == .seam { return repeats(bytes, at: start, download) }
    let (size, before, hasValidators) = download.content.guarded.withLock { guarded in
      let range = ByteRange(at: start, count: Int64(count))
      return (
        guarded.held.size, guarded.held.stored.count(in: range),
        guarded.held.generation?.validators.isEmpty == false
      )
    }
    var wanted = bytes
    if let size, start + Int64(count) > size {
      // A body of unknown length goes on behind the known end: it is something else.
      download.transfers[index].misfit = "the origin sent more bytes than the file has"
      wanted = UnsafeRawBufferPointer(rebasing: bytes[..<Int(max(0, size - start))])
    }
    let running = download.transfers[index]
    if !hasValidators, running.active.isStream || running.kind == .compare {
      guard before == 0 || agrees(wanted, at: start, download, running) else { return false }
      if before < wanted.count || running.active.rest.isEmpty {
        if download.opinion.comparison.isDue { checks.confirmed(download, now) }
        download.opinion.comparison.ended()
      }
    }
    // A stream repeats the whole file up to its hole, whatever was requested.
    let isComparing = running.kind == .compare && !running.active.isStream
    download.opinion.comparison.agreed(repeating: isComparing ? before : 0, now: now)
    let stored = download.pace.fresh
    guard landing.land(wanted, at: start, download) else { return false }
    let fresh = download.pace.fresh - stored
    if fresh < wanted.count { room.counters.add(UInt64(Int64(wanted.count) - fresh), to: .duplicateBytes) }
    if fresh > 0 {
      download.transfers[index].fresh += fresh
      download.ranges.fruitless = 0
      download.opinion.progressed()
    }
    // A stream passes over stored bytes before it reaches missing ones. That is progress, unless it never gets there.
    if fresh > 0 || download.ranges.fruitless < 2 {
      download.pace.progressed(Int64(count), now: now)
      let rest = running.active.rest
      download.content.guarded.withLock {
        $0.waiters.progressed(Int64(count), from: rest.start, to: rest.end, now: now)
      }
    }
    if running.misfit != nil { return false }
    // When nobody goes on reading, only the head is taken from an origin without ranges.
    return !running.active.isStream || running.active.position < Planner.headLength || isWorthGoingOn(download, now)
  }

  /// Whether a stream should go on. If it is cancelled, the next read starts it again from the first byte.
  func isWorthGoingOn(_ download: Download, _ now: Instant) -> Bool {
    download.wish.rest && download.wish.mayRunAhead || download.isRead(now)
  }

  /// Without validators, an answer may be of another version: it must agree with the stored bytes (P1).
  private func agrees(
    _ bytes: UnsafeRawBufferPointer, at start: Int64, _ download: Download, _ running: Running
  ) -> Bool {
    let content = download.content
    let (file, stored) = content.guarded.withLock { ($0.held.file, $0.held.stored) }
    guard let file else { return true }
    let whole = ByteRange(at: start, count: Int64(bytes.count))
    for range in stored.ranges {
      guard let both = range.intersection(whole) else { continue }
      var position = both.start
      while position < both.end {
        let count = min(answers.scratch.count, Int(both.end - position))
        let part = UnsafeMutableRawBufferPointer(rebasing: answers.scratch[..<count])
        guard file.fill(part, at: position), let there = part.baseAddress, let came = bytes.baseAddress else {
          return true
        }
        if memcmp(there, came + Int(position - start), part.count) != 0 {
          let same = zip(part, bytes[Int(position - start)...]).prefix { $0 == $1 }.count
          position += Int64(same)
          differs(from: position, UnsafeRawBufferPointer(rebasing: bytes[Int(position - start)...]), download, running)
          return false
        }
        position += Int64(part.count)
      }
    }
    return true
  }

  /// Whether a new link leads to the bytes that are stored at `start`.
  private func repeats(
    _ bytes: UnsafeRawBufferPointer, at start: Int64, _ download: Download
  ) -> Bool {
    room.counters.add(UInt64(bytes.count), to: .duplicateBytes)
    let file = download.content.guarded.withLock { $0.held.file }
    var done = 0
    while done < bytes.count {
      let count = min(answers.scratch.count, bytes.count - done)
      let stored = UnsafeMutableRawBufferPointer(rebasing: answers.scratch[..<count])
      let came = UnsafeRawBufferPointer(rebasing: bytes[done..<done + count])
      guard let file, file.fill(stored, at: start + Int64(done)), stored.elementsEqual(came) else {
        Log.info("\(download.content.path): a new link leads to other bytes")
        download.seam.differed()
        return false
      }
      done += count
    }
    return true
  }

  /// A window of the file came again by a new link, and has the stored bytes.
  private func repeated(_ download: Download, _ running: Running) {
    let position = running.active.position
    let isLast = download.seam.agreed(ByteRange(position - running.bytes, position))
    guard let subject = download.seam.subject, isLast, subject.mirror == download.mirrors.current else { return }
    Log.debug("\(download.content.path): a new link leads to the same bytes")
    download.joins(subject.found)
    renewals.accepted(download)
  }

  /// An answer has other bytes than the file from `position` on: `bytes`.
  private func differs(
    from position: Int64, _ bytes: UnsafeRawBufferPointer, _ download: Download, _ running: Running
  ) {
    Log.info("\(download.content.path): the origin sent other bytes than before, at \(position)")
    switch download.opinion.comparison.differed(at: position, bytes) {
    case .odd: break
    case .fickle:
      guard let index = download.index(of: running.active.id) else { return }
      download.transfers[index].misfit = "the origin sends other bytes of the file with each response"
    case .another:
      guard let found = download.identity else { return }
      do throws(StoreError) {
        try generations.supersede(download, by: found, running)
      } catch {
        failures.fail(download, .io, error.message)
      }
    }
  }

  func transfer(_ id: TransferID, ended end: TransferEnd) {
    if questions.isAsked(id) { return questions.ended(id, end) }
    let now = room.clock.now
    guard let download = downloads.ended(id), let index = download.index(of: id) else { return }
    let running = download.transfers.remove(at: index)
    var isCut = true
    if case .finished = end { isCut = false }
    let isWhole = !isCut
    // The connection of a refusal is kept: its short body was read.
    if case .failed(let failure) = end, failure.status != nil, !running.responded { isCut = false }
    if running.generation != nil { return secondEnded(running, download, isWhole: isWhole, now) }
    room.counters.requestEnded()
    lines.update(running.host) { line in
      line.ended(id, now: now, isBackground: running.isBackground, hadResponse: running.responded, isCut: isCut)
      line.settled(running.continuing)
      if running.responded {
        line.estimate.ended(running.bytes, after: now.seconds(since: running.started), now: now)
      }
    }
    downloads.changed(download)
    downloads.replanBlocked()
    if running.fresh > 0 {
      if !running.isTrickle(now) {
        download.progressed(at: running.mirror)
        download.mirrors[running.mirror].notBefore = nil
      }
      download.ranges.unusableAnswers = 0
      if !download.mirrors.isReplaced(running.mirror) { renewals.brought(download) }
    } else if running.bytes > 0, running.kind != .compare || running.active.isStream, running.kind != .seam,
      running.cancellation != .yielded
    {
      download.ranges.fruitless += 1
    }
    if running.kind == .head || running.active.isStream { generations.learnExtension(download) }
    switch end {
    case .finished:
      if running.active.isStream { streamEnded(download, running) }
      let size = download.content.guarded.withLock { $0.held.size }
      if running.active.isStream, let size, running.active.position < size {
        let message = "the origin ended its response after \(running.active.position) of \(size) bytes"
        return failures.failed(download, running, TransferFailure(kind: .transient, message: message), now)
      }
      download.progressed(at: running.mirror)
      if running.bytes > 0 { downloads.forgetError(of: download) }
      if running.kind == .seam, running.active.rest.isEmpty, !download.seam.isDifferent { repeated(download, running) }
    case .cancelled:
      if let misfit = running.misfit, !download.isWhole {
        failures.failed(download, running, TransferFailure(kind: .transient, message: misfit), now)
      } else if running.cancellation == .stalled {
        let failure = TransferFailure(kind: .transient, message: "the origin sent nothing for a while")
        failures.failed(download, running, failure, now)
      }
    case .failed(let failure): failures.failed(download, running, failure, now)
    }
    downloads.publish(download)
  }

  /// Ends a stream. If nobody named the length, the end of its body is the resource's.
  private func streamEnded(_ download: Download, _ running: Running) {
    let content = download.content
    let (released, record) = content.guarded.withLock { guarded -> ([ParkedRead], GenerationRecord?) in
      guard let record = guarded.held.ended(at: running.active.position) else { return ([], nil) }
      return (guarded.waiters.clampReads(guarded.held), record)
    }
    if let record {
      room.record(.learned(record))
      room.keeper.post(.grew(content))
    }
    for read in released { answers.answer(read, content) }
  }
}
