import Base
import Fetching
import Glibc
import Storing

/// What becomes of failures, stalls and readers that go.
extension Engine {
  /// A file that failed for good is asked for again when it is read so many seconds later, or at once when it is
  /// opened.
  private static let refusalSeconds = 5.0
  /// The kernel asks again for one page after a failed read-ahead: such reads are answered at once for so long.
  private static let stallSeconds = 1.0
  /// Failures in a row after which a mirror is left although what is stored is its own.
  private static let patienceWithMirror = 4

  func failed(_ source: Source, _ running: Running, _ failure: TransferFailure, _ now: Instant) {
    note(failure.message, of: source)
    Log.debug("transfer \(running.active.id.rawValue) of \(source.content.path) failed: \(failure.message)")
    // A status of whatever kind is an answer: the host is there, though it may not give this file.
    if failure.status != nil { hosts[running.host]?.heard(now) }
    switch failure.kind {
    case .denied, .permanent:
      if running.isResolved {
        // A redirect's target expires; the entry's own URL gives a new one.
        source.mirrors[running.mirror].resolved = nil
        return
      }
      refuse(running.mirror, of: source, failure)
    case .transient:
      source.retry.failed(failure, now: now, random: jitter())
      if failure.status == 429 || failure.status == 503 {
        hosts[running.host]?.pushedBack()
        source.lanes.pushedBack(now: now)
      }
      if !running.responded {
        if failure.status == nil {
          hosts[running.host]?.missed(
            source.key, askedAt: running.started, failure, now: now, random: jitter())
        }
        source.mirrors[running.mirror].resolved = nil
      }
      showPlaceholder(source, now)  // stats do not wait for an origin that fails
      // Of several that fail together the first one leads to the next mirror, not each.
      if running.mirror == source.mirror, running.bytes == 0 || running.isTrickle(now) { tryOtherMirror(source) }
    case .unusable:
      // Asked for before ranges were given up: that says nothing new.
      if !source.asksForRanges(now), !running.active.isStream { return }
      source.unusable += 1
      // Twice a wrong answer to a range: ask for the whole instead. Twice more: this origin is of no use.
      if source.unusable == 2, !running.active.isStream {
        source.gaveUpRanges(now)
      } else if source.unusable >= 4 {
        source.unusable = 0
        refuse(running.mirror, of: source, failure)
      } else {
        source.retry.failed(failure, now: now, random: jitter())
      }
    case .unsatisfiable(let total):
      unsatisfiable(source, running, total: total, failure, now)
    }
  }

  /// 416: an empty file when nothing is known yet; otherwise another version, or nonsense.
  private func unsatisfiable(
    _ source: Source, _ running: Running, total: Int64?, _ failure: TransferFailure, _ now: Instant
  ) {
    let isUnknown = source.content.guarded.withLock { $0.generation == nil }
    if isUnknown, !running.active.isStream {
      source.gaveUpRanges(now)  // asked for the whole, an empty file answers well
      return
    }
    var nonsense = failure
    nonsense.kind = .unusable
    failed(source, running, nonsense, now)
  }

  /// The next mirror, at once, unless all of them have just been asked. Without a checksum another mirror's bytes are
  /// another version: what is stored of this one is not given up for a hiccup.
  private func tryOtherMirror(_ source: Source) {
    guard source.mirrors.count > 1 else { return }
    let sticks = source.content.source.checksum == nil && source.generationMirror != nil && hasStored(source)
    if sticks, source.mirror == source.generationMirror, source.retry.failures < Self.patienceWithMirror { return }
    guard source.nextMirror() else { return }
    if source.retry.failures % source.mirrors.count != 0 { source.retry.skipPause() }
  }

  /// A mirror says no for good: the next one, or the end.
  private func refuse(_ mirror: Int, of source: Source, _ failure: TransferFailure) {
    source.mirrors[mirror].refusal = failure
    if source.nextMirror() {
      source.ranges = .assumed
      return
    }
    fail(source, failure.kind == .denied ? .accessDenied : .io, failure.message)
  }

  /// Nothing more is asked for; who waits is told.
  func fail(_ source: Source, _ error: Errno, _ message: String) {
    let now = clock.now
    source.failure = (error, message)
    note(message, of: source)
    Log.warning("\(source.content.path): \(message)")
    for running in source.transfers { cancel(running.active.id, of: source) }
    let waiting = source.content.guarded.withLock {
      $0.state.refuse(error, until: now.adding(seconds: Self.refusalSeconds))
    }
    tell(waiting, error, source.content)
    keeper.record(.problem(source.key, message))
    publish(source, now)
  }

  private func tell(
    _ waiting: (probes: [ParkedProbe], reads: [ParkedRead]), _ error: Errno, _ content: Content
  ) {
    for read in waiting.reads { port.reply(read.ticket, error: error) }
    for probe in waiting.probes {
      switch probe.kind {
      case .open: port.reply(probe.ticket, error: error)
      // Many programs take a failed stat for absence, and a media server then deletes the entry: show a placeholder.
      case .attributes: port.reply(probe.ticket, attributes: attributes(of: content, inode: probe.inode))
      }
    }
  }

  /// A file that had failed is tried again.
  func forgive(_ source: Source) {
    source.failure = nil
    source.retry.progressed()
    source.unusable = 0
    for index in source.mirrors.indices { source.mirrors[index].refusal = nil }
    source.content.guarded.withLock { $0.state.clearRefusal() }
  }

  /// A look at one resource: whether there is something going on.
  func watch(_ source: Source, _ now: Instant) -> Bool {
    let content = source.content
    watchStats(source, now)
    let (oldest, runs, size, hasWaiters, processes) = content.guarded.withLock { guarded in
      (
        guarded.state.oldestWait, guarded.state.runs, guarded.state.size, guarded.state.hasWaiters,
        guarded.state.parkedReads.map(\.process)
      )
    }
    if hasWaiters {
      expire(source, oldest, now)
      releaseGone(content, processes)
    }
    if let until = source.pausedUntil, until <= now { source.pausedUntil = nil }
    if !isUnstored(source) { storeWhatIsKept(source) }
    dropStalled(source, hasWaiters, now)
    let host = hosts[HostState.key(of: source.target.url)]
    let line = host?.line ?? LineEstimate()
    // One that has read so much in sequence and still waits is a copy, or a player whose origin holds it back.
    let isHungry = (hasWaiters || source.isBehind) && runs.runs.contains { $0.length >= LaneControl.provenLength }
    source.lanes.look(isHungry: isHungry, lineBytes: line.bytes, roundTrip: line.roundTrip, now: now)
    if !source.continues, !source.isWhole, let size, options.continuation == .playing || options.continuation == .open,
      let player = runs.player(size: size), !isLooker(player, source)
    {
      arm(source)
    }
    publish(source, now)
    let isRead = runs.runs.contains { now.seconds(since: $0.lastRead) < 2 }
    // One that is counted as waiting is looked at until it is not: the others on its line stand back meanwhile.
    let isBusy =
      hasWaiters || source.waitsOn != nil || !source.transfers.isEmpty
      || (isRead && !content.guarded.withLock { $0.state.isWhole })
    // While an origin is away for long, the sweep looks often enough.
    let isDue = [source.retry, host?.outage].allSatisfy { retry in
      retry?.due(readerWaits: false).map { $0.seconds(since: now) < 2 } ?? true
    }
    // What a stat did not wait for is asked as soon as its host may be asked; it is kept in memory no longer for that.
    let isAskable =
      source.wantsHead && source.transfers.isEmpty && source.failure == nil
      && source.retry.permits(now, readerWaits: false)
      && (host ?? newHost).admits(.index, bytes: 0, isQuiet: openFiles == 0, now: now)
      && (questions < Self.mostQuestions || !(host?.silence.holds(now) ?? false))
    return isBusy || isAskable
      || (source.continues && source.failure == nil && !isAtLimit && !source.isRefused && isDue && !source.isWhole)
  }

  /// P2: a stall that lasted the timeout ends the wait.
  private func expire(_ source: Source, _ oldest: Instant?, _ now: Instant) {
    guard let oldest, now.seconds(since: oldest) >= options.timeout else { return }
    let (waiting, isAnyoneLeft) = source.content.guarded.withLock { guarded in
      let waiting = guarded.state.expire(now, timeout: options.timeout, shunning: Self.stallSeconds)
      return (waiting, guarded.state.hasWaiters)
    }
    if waiting.probes.isEmpty && waiting.reads.isEmpty { return }
    // An error from before a success, or from before this wait, is not why this wait was in vain.
    let isOfThisWait = source.retry.failures > 0 || source.lastError.map { $0.at >= oldest } ?? false
    let message =
      (isOfThisWait ? source.lastError?.message : nil)
      ?? "the origin sent less than 1 KiB/s for \(Int(options.timeout)) s"
    note(message, of: source)
    for stat in waiting.probes where stat.kind == .attributes {
      patience.endedInVain(stat.looker, since: stat.since, now: now)
    }
    Log.warning("\(source.content.path): gave up waiting after \(Int(options.timeout)) s: \(message)")
    tell(waiting, .timedOut, source.content)
    for running in source.transfers {
      let isTheirs = waiting.reads.contains { running.active.rest.overlaps($0.range) }
      if !isAnyoneLeft || isTheirs { cancel(running.active.id, of: source) }
    }
    // A mirror that kept a reader waiting so long is not asked first when it asks again.
    if source.mirrors.count > 1 { _ = source.nextMirror() }
    publish(source, now)
  }

  /// A killed reader leaves at once, but the kernel says so only with the answer: its reads are nobody's demand.
  private func releaseGone(_ content: Content, _ processes: [Int32]) {
    var gone: Set<Int32> = []
    for process in Set(processes) where process > 0 && hasEnded(process) { gone.insert(process) }
    if gone.isEmpty { return }
    let reads = content.guarded.withLock { $0.state.takeReads { gone.contains($0) } }
    for read in reads { port.reply(read.ticket, error: .interrupted) }
  }

  /// A transfer that brings nothing is ended and made anew: sooner when somebody waits. An origin that thinks long
  /// before its first byte is given more time at each attempt, and as much as it is known to need.
  private func dropStalled(_ source: Source, _ hasWaiters: Bool, _ now: Instant) {
    let most = max(10, options.timeout)
    let patience = hasWaiters ? max(2, min(10, options.timeout / 3)) : most
    // With nobody waiting nobody's deadline ends a trickle: less than 1 KiB/s is a stall here too.
    let trickles = !hasWaiters && source.progress.total(now: now) < Int64(options.timeout * 1024)
    for index in source.transfers.indices where !source.transfers[index].isCancelled {
      let running = source.transfers[index]
      var longest = patience
      if !running.responded {
        let trip = hosts[running.host]?.line.roundTrip ?? 0
        longest = min(most, max(patience * Double(1 << min(source.retry.failures, 4)), 3 * trip))
      }
      let isSilent = now.seconds(since: running.lastByte) > longest
      guard isSilent || (trickles && now.seconds(since: running.started) > longest) else { continue }
      source.transfers[index].stalled = true
      cancel(running.active.id, of: source)
    }
  }

  /// What the finisher could not accept. `isWrong`: the bytes are not what the manifest's checksum says.
  func rejected(_ source: Source, message: String, isWrong: Bool, _ now: Instant) {
    source.continues = false
    if let id = source.content.guarded.withLock({ $0.generation?.id }) {
      keeper.record(.continues(generation: id, false))
    }
    if isWrong, refetched.insert(source.key).inserted {
      Log.warning("\(source.content.path): \(message); fetching it once more")
      _ = source.nextMirror()
      // Under a new inode: the kernel's page cache, and who has it open, still have the wrong bytes of the old one.
      let known = source.content.guarded.withLock { guarded in
        guarded.generation.map {
          GenerationCheck.Identity(validators: $0.validators, size: $0.size, mediaType: $0.mediaType)
        }
      }
      if let known, supersede(source, by: known, nil) {
        source.isRequested = true
        arm(source)
        dirty.insert(source.key)
      }
      return
    }
    unpin(source)
    fail(source, .io, message)
  }
}

extension Source {
  /// Whether every byte is stored.
  var isWhole: Bool { content.guarded.withLock { $0.state.isWhole } }
}

/// Whether the thread `process` has ended: also when nobody has asked for its end yet (proc(5): state Z or X). False
/// when it cannot be looked at.
private func hasEnded(_ process: Int32) -> Bool {
  if kill(process, 0) != 0 { return errno == ESRCH }
  guard let file = try? FileDescriptor.open("/proc/\(process)/stat", O_RDONLY) else { return false }  // another user's
  return withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) { buffer in
    guard let count = try? file.read(at: 0, into: buffer) else { return true }  // it ended in between
    // The name before the state may have any character in it, but the last parenthesis ends it.
    guard let end = buffer[..<count].lastIndex(of: UInt8(ascii: ")")), end + 2 < count else { return false }
    return buffer[end + 2] == UInt8(ascii: "Z") || buffer[end + 2] == UInt8(ascii: "X")
  }
}
