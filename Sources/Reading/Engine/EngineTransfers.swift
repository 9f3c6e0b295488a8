import Base
import Fetching
import Glibc
import Storing

/// What transfers bring: from a response's head to stored bytes and answered reads.
extension Engine: TransferClient {
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool {
    let now = clock.now
    guard let source = owners[id], let index = source.transfers.firstIndex(where: { $0.active.id == id }) else {
      return false
    }
    if source.transfers[index].isCancelled { return false }
    dirty.insert(source.key)
    source.transfers[index].responded = true
    source.transfers[index].lastByte = now
    let running = source.transfers[index]
    hosts[running.host, default: newHost].line.responded(after: head.firstByteSeconds)
    hosts[running.host, default: newHost].answered(now)
    // Behind a redirect another host answered: that says nothing of this one's line.
    if HostState.key(of: head.url) == running.host { hosts[running.host]?.speaks(httpVersion: head.httpVersion) }
    hosts[running.host]?.responded(isBackground: running.isBackground)
    if let name = head.suggestedName { source.suggestedName = name }
    if head.isRedirected { source.mirrors[running.mirror].resolved = head.url }
    let asked = running.active.isStream ? nil : running.active.rest
    switch judge(head, of: source, running, now) {
    case .refused: return false
    case .accepted: break
    }
    guard let index = source.transfers.firstIndex(where: { $0.active.id == id }) else { return false }
    switch head.body {
    case .part(let range, _):
      source.ranges = .assumed
      noteLength(range, asked: asked, source)
      source.transfers[index].active.position = range.start
      source.transfers[index].active.end = range.end
      source.transfers[index].active.isStream = false
    case .whole(let length):
      // The origin ignores ranges: this is all of it, from its start, and the only way to get at any of it.
      if let asked {
        if running.sentIfRange, !source.omitsIfRange, asked.start > 0 {
          // Of the same version, so that If-Range should have given the range: some origins never do.
          source.omitsIfRange = true
          return false
        }
        source.ranges = .ignored
      }
      source.transfers[index].active.position = 0
      source.transfers[index].active.end = length ?? .max
      source.transfers[index].active.isStream = true
      // The others asked for parts of what now comes as a whole.
      for other in source.transfers where other.active.id != id { cancel(other.active.id, of: source) }
    }
    return true
  }

  /// An origin may send less than was asked for. One that sends next to nothing each time is asked for the whole.
  private func noteLength(_ range: ByteRange, asked: ByteRange?, _ source: Source) {
    guard let asked, range.end < asked.end, range.count < Planner.smallestWindow / 2 else {
      source.shortAnswers = 0
      return
    }
    source.shortAnswers += 1
    if source.shortAnswers >= 4 { source.gaveUpRanges(clock.now) }
  }

  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
    guard let source = owners[id], let index = source.transfers.firstIndex(where: { $0.active.id == id }) else {
      return false
    }
    if source.transfers[index].isCancelled { return false }
    let now = clock.now
    let count = bytes.count
    let start = source.transfers[index].active.position
    source.transfers[index].active.position = start + Int64(count)
    source.transfers[index].bytes += Int64(count)
    source.transfers[index].lastByte = now
    source.transfers[index].meter.received(count, now: now)
    source.meter.received(count, now: now)
    source.lanes.received(count)
    allowance.took(Int64(count))
    source.lastBytes = now
    hosts[source.transfers[index].host]?.line.received(count, now: now)
    if source.transfers[index].continuing > 0 {
      let came = min(source.transfers[index].continuing, Int64(count))
      source.transfers[index].continuing -= came
      hosts[source.transfers[index].host]?.settled(came)
    }
    dirty.insert(source.key)
    let (size, before, hasValidators) = source.content.guarded.withLock { guarded in
      let range = ByteRange(at: start, count: Int64(count))
      return (
        guarded.state.size, guarded.state.stored.count(in: range), guarded.generation?.validators.isEmpty == false
      )
    }
    var wanted = bytes
    if let size, start + Int64(count) > size {
      // A body of untold length that goes on behind the end: the end is known, so this is something else.
      source.transfers[index].misfit = "the origin sent more than the file has"
      wanted = UnsafeRawBufferPointer(rebasing: bytes[..<Int(max(0, size - start))])
    }
    let running = source.transfers[index]
    if running.active.isStream, !hasValidators, before > 0, !agrees(wanted, at: start, source, running) { return false }
    let stored = source.freshBytes
    guard land(wanted, at: start, source) else { return false }
    let fresh = source.freshBytes - stored
    if fresh > 0 {
      source.transfers[index].fresh += fresh
      source.fruitless = 0
      source.suspectAnswers = 0
    }
    // A stream runs over what is stored before it comes to what is missing: progress, unless it never gets there.
    if fresh > 0 || source.fruitless < 2 {
      source.progress.add(Int64(count), now: now)
      let rest = running.active.rest
      source.content.guarded.withLock {
        $0.state.progressed(Int64(count), from: rest.start, to: rest.end, now: now)
      }
    }
    if running.misfit != nil { return false }
    // A look at an origin without ranges takes the head and no more.
    return !running.active.isStream || running.active.position < Planner.headLength || isWorthGoingOn(source, now)
  }

  /// Whether a body that can only be had from its start is to go on. Breaking it off means all of it anew for the next
  /// read, and a reader waits only now and then: whoever has it open, or read of it just now, is still reading.
  private func isWorthGoingOn(_ source: Source, _ now: Instant) -> Bool {
    if source.continues { return true }
    let (waits, readers) = source.content.guarded.withLock { guarded in
      let recent = guarded.state.runs.runs.filter {
        guarded.state.opens > 0 || now.seconds(since: $0.lastRead) < ReaderRuns.longestPause
      }
      return (guarded.state.hasWaiters, recent.map(\.process))
    }
    return waits || readers.contains { !isLooker($0, source) }
  }

  /// Without validators a body that begins anew may be another one: where it was stored before, it must be the same
  /// (P1).
  private func agrees(
    _ bytes: UnsafeRawBufferPointer, at start: Int64, _ source: Source, _ running: Running
  ) -> Bool {
    let content = source.content
    let (file, stored) = content.guarded.withLock { ($0.file, $0.state.stored) }
    guard let file else { return true }
    let whole = ByteRange(at: start, count: Int64(bytes.count))
    for range in stored.ranges {
      guard let both = range.intersection(whole) else { continue }
      var position = both.start
      while position < both.end {
        let part = UnsafeMutableRawBufferPointer(rebasing: scratch[..<min(scratch.count, Int(both.end - position))])
        guard file.fill(part, at: position), let there = part.baseAddress, let came = bytes.baseAddress else {
          return true
        }
        if memcmp(there, came + Int(position - start), part.count) != 0 {
          source.mismatches += 1
          Log.info("\(content.path): the body came back with other bytes")
          if source.mismatches > 1, let generation = content.guarded.withLock({ $0.generation }) {
            let found = GenerationCheck.Identity(
              validators: generation.validators, size: generation.size, mediaType: generation.mediaType)
            _ = supersede(source, by: found, running)  // where it fails it has told why
          }
          return false
        }
        position += Int64(part.count)
      }
    }
    return true
  }

  func transfer(_ id: TransferID, ended end: TransferEnd) {
    let now = clock.now
    guard let source = owners.removeValue(forKey: id),
      let index = source.transfers.firstIndex(where: { $0.active.id == id })
    else { return }
    let running = source.transfers.remove(at: index)
    var isCut = true
    if case .finished = end { isCut = false }
    hosts[running.host]?.ended(
      now: now, isBackground: running.isBackground, hadResponse: running.responded, isCut: isCut)
    hosts[running.host]?.settled(running.continuing)
    if running.responded { hosts[running.host]?.line.ended() }
    dirty.insert(source.key)
    feedHungry()
    if running.fresh > 0 {
      if !running.isTrickle(now) { source.retry.progressed() }
      source.unusable = 0
    } else if running.bytes > 0 {
      source.fruitless += 1
    }
    if running.kind == .head || running.active.isStream { learnExtension(source) }
    switch end {
    case .finished:
      if running.active.isStream { streamEnded(source, running) }
      let size = source.content.guarded.withLock { $0.state.size }
      if running.active.isStream, let size, running.active.position < size {
        let message = "the origin sent \(running.active.position) of \(size) bytes as if that were all"
        return failed(source, running, TransferFailure(kind: .transient, message: message), now)
      }
      source.retry.progressed()
      if running.bytes > 0 { forgetError(of: source) }
    case .cancelled:
      if let misfit = running.misfit, !source.isWhole {
        failed(source, running, TransferFailure(kind: .transient, message: misfit), now)
      } else if running.stalled {
        failed(source, running, TransferFailure(kind: .transient, message: "the origin sent nothing for a while"), now)
      }
    case .failed(let failure): failed(source, running, failure, now)
    }
    publish(source, now)
  }

  /// A body that came whole: its end is the resource's, when nobody had told the length.
  private func streamEnded(_ source: Source, _ running: Running) {
    let content = source.content
    let (released, record) = content.guarded.withLock { guarded -> ([ParkedRead], GenerationRecord?) in
      guard case .growing = guarded.state.length else { return ([], nil) }
      let released = guarded.state.ended(at: running.active.position)
      guarded.generation?.size = running.active.position
      return (released, guarded.generation)
    }
    if let record {
      keeper.record(.learned(record))
      keeper.markDirty(content)
    }
    for read in released { answer(read, content) }
  }
}

extension Running {
  /// Whether it was ended as it brought next to nothing: its bytes are no progress that calls for more of the same.
  func isTrickle(_ now: Instant) -> Bool {
    stalled && Double(fresh) < 1024 * now.seconds(since: started)
  }

  /// Whether it counted against the background's places when it began.
  var isBackground: Bool { active.purpose >= .index }
}
