import Base
import Fetching
import Glibc
import Manifest
import Storing

/// Handles failed transfers, stalls, expired waits and readers that exited. Owned by the transfer thread.
final class Failures {
  private let room: ReadingRoom
  private let lines: Lines
  private let downloads: Downloads
  private let answers: Answers
  private let stats: StatWaits
  private let generations: Generations
  private let renewals: Renewals
  /// Gives the jitter of a retry, in 0..<1.
  private let jitter: () -> Double
  /// Resources that failed their checksum and were fetched a second time. There is no third time before a user asks for
  /// the file by name.
  private var refetched: Set<ResourceKey> = []
  private static let mostRefetched = 4096

  init(
    room: ReadingRoom, lines: Lines, downloads: Downloads, answers: Answers, stats: StatWaits,
    generations: Generations, renewals: Renewals, jitter: @escaping () -> Double
  ) {
    self.room = room
    self.lines = lines
    self.downloads = downloads
    self.answers = answers
    self.stats = stats
    self.generations = generations
    self.renewals = renewals
    self.jitter = jitter
  }

  /// A user asked for the file by name: if its checksum is wrong, it may be fetched a second time again.
  func forgetRefetch(_ key: ResourceKey) { refetched.remove(key) }

  /// How long the reads of a file that failed for good get its error, in seconds. The first read after that tries
  /// again. An open tries again at once.
  private static let refusalSeconds = 5.0
  /// How long reads at a stalled place fail at once, in seconds: after a failed read-ahead the kernel asks again for
  /// one page.
  private static let stallSeconds = 1.0
  /// After how many failures in a row another mirror is tried although the stored bytes came from this one.
  private static let patienceWithMirror = 4
  /// A mirror whose stored bytes would be lost is waited for if the time that it names is at most so many seconds away.
  private static let longestWait = 10.0

  func failed(_ download: Download, _ running: Running, _ failure: TransferFailure, _ now: Instant) {
    let mirror = running.mirror
    // A newer link was given meanwhile, and nothing follows from the failure of the former one.
    if download.mirrors.isReplaced(mirror) { return }
    downloads.note(failure.message, of: download)
    lines.update(running.host) { $0.failures.note(failure.message, now: now) }
    room.counters.requestFailed(failure)
    Log.debug("transfer \(running.active.id.rawValue) of \(download.content.path) failed: \(failure.message)")
    // Any status is an answer: the host is there, even if it does not give this file.
    if failure.status != nil { lines.update(running.host) { $0.heard(now) } }
    switch failure.kind {
    case .denied, .permanent:
      if running.isResolved {
        // The target of a redirect expires; the entry's own URL leads to a new one.
        download.mirrors[mirror].resolved = nil
        return
      }
      refuse(mirror, of: download, failure)
    case .transient:
      if let time = Retry.time(namedBy: failure, now: now) { download.mirrors[mirror].notBefore = time }
      download.attempts.retry.failed(failure, now: now, random: jitter())
      download.obeysMirror(now)
      if failure.status == 429 || failure.status == 503 {
        lines.update(running.host) { $0.pushedBack(now: now) }
        download.lineUse.lanes.pushedBack(now: now)
      }
      if !running.responded {
        if failure.status == nil {
          let random = jitter()
          lines.update(running.host) { line in
            line.missed(download.key, askedAt: running.started, failure, now: now, random: random)
          }
        }
        download.mirrors[mirror].resolved = nil
      }
      stats.showPlaceholder(download, now)  // a stat does not wait for an origin that fails
      // When several transfers fail together, only the first failure changes the mirror.
      let isOfNoUse = running.bytes == 0 || running.isTrickle(now)
      if mirror == download.mirrors.current, isOfNoUse { tryOtherMirror(download, running, now) }
    case .unusable:
      if running.isResolved { download.mirrors[mirror].resolved = nil }
      // The request was made before ranges were found unusable: its failure says nothing new.
      if !download.ranges.mayAskForRange(now), !running.active.isStream { return }
      download.ranges.unusableAnswers += 1
      // After two unusable answers to a range the whole body is requested. After two more the mirror is refused.
      if download.ranges.unusableAnswers == 2, !running.active.isStream {
        download.ranges.foundUnusable(now)
      } else if download.ranges.unusableAnswers >= 4 {
        download.ranges.unusableAnswers = 0
        refuse(mirror, of: download, failure)
      } else {
        download.attempts.retry.failed(failure, now: now, random: jitter())
      }
    case .unsatisfiable(let total):
      unsatisfiable(download, running, total: total, failure, now)
    }
  }

  /// Handles 416: it may mean an empty file while nothing is known; otherwise another version, or nonsense.
  private func unsatisfiable(
    _ download: Download, _ running: Running, total: Int64?, _ failure: TransferFailure, _ now: Instant
  ) {
    let (isUnknown, size) = download.content.guarded.withLock { ($0.held.generation == nil, $0.held.size) }
    // An empty file answers a request for the whole body well. So does a version of another length, which the answer
    // tells apart: a range of this one says nothing of it, however often it is asked for.
    let isOther = total != nil && total != size
    if isUnknown || isOther, !running.active.isStream {
      download.ranges.foundUnusable(now)
      return
    }
    var nonsense = failure
    nonsense.kind = .unusable
    failed(download, running, nonsense, now)
  }

  /// Changes to the next mirror without a pause, unless all of them have just failed. Without a checksum the bytes of
  /// another mirror count as another version, so a short failure does not cost the stored bytes. A mirror that was
  /// silent for a whole attempt, or names a time that is far, would keep a reader waiting for longer than it may.
  private func tryOtherMirror(_ download: Download, _ running: Running, _ now: Instant) {
    guard download.mirrors.count > 1 else { return }
    let former = download.mirrors.current
    let sticks = download.content.entry.checksum == nil && download.mirrors.ofGeneration != nil && download.hasStored
    let isItsOwn = former == download.mirrors.ofGeneration
    let isSilent = running.cancellation == .stalled && !running.responded
    let isFar = download.mirrors.asksToWait(former, now.adding(seconds: Self.longestWait))
    if sticks, isItsOwn, !isSilent, !isFar, download.attempts.retry.failures < Self.patienceWithMirror { return }
    guard download.nextMirror(now), download.mirrors.current != former else { return }
    if download.attempts.retry.failures % download.mirrors.count != 0 { download.attempts.retry.skipPause() }
  }

  /// A mirror refused for good: changes to the next one, or fails when there is none.
  private func refuse(_ mirror: Int, of download: Download, _ failure: TransferFailure) {
    download.mirrors[mirror].refusal = failure
    if download.nextMirror(room.clock.now) {
      download.ranges.foundWorking()
      return
    }
    if let why = failure.status.flatMap(ResolverAsk.Reason.init(status:)),
      renewals.died(download, why, failure.message)
    {
      return
    }
    fail(download, failure.kind == .denied ? .accessDenied : .io, failure.message)
  }

  /// Fails the download: no more requests, and everyone who waits gets `error`.
  func fail(_ download: Download, _ error: Errno, _ message: String) {
    let now = room.clock.now
    download.attempts.hasFailed = true
    downloads.note(message, of: download)
    log(message, of: download, now)
    download.cancelAll()
    let waiting = download.content.guarded.withLock {
      $0.waiters.refuse(error, until: now.adding(seconds: Self.refusalSeconds))
    }
    answers.tell(waiting, error, download.content)
    room.record(.problem(download.key, message))
    downloads.publish(download)
  }

  private func log(_ message: String, of download: Download, _ now: Instant) {
    guard room.table.withLock({ $0.errors.isNews(message, of: download.key, now) }) else { return }
    Log.warning("\(download.content.path): \(message)" + room.explanation(of: download.content.path))
  }

  /// Ends the waits whose stall lasted the timeout (P2).
  func expire(_ download: Download, _ oldest: Instant?, _ now: Instant) {
    guard let oldest, now.seconds(since: oldest) >= room.options.timeout else { return }
    let (waiting, isAnyoneLeft) = download.content.guarded.withLock { guarded in
      let waiting = guarded.waiters.expire(now, timeout: room.options.timeout, shunning: Self.stallSeconds)
      return (waiting, !guarded.waiters.isEmpty)
    }
    if waiting.probes.isEmpty && waiting.reads.isEmpty { return }
    let seconds = Int(room.options.timeout)
    // An error from before a success, or from before this wait, is not the reason for this wait.
    let last = download.attempts.lastError
    let isOfThisWait = download.attempts.retry.failures > 0 || last.map { $0.at >= oldest } ?? false
    let plain =
      download.waitsForLink
      ? "its resolver gave no link within \(seconds) s" : "the origin sent less than 1 KiB/s for \(seconds) s"
    let message = (isOfThisWait ? last?.message : nil) ?? plain
    downloads.note(message, of: download)
    stats.endedInVain(waiting.probes, now: now)
    log("gave up waiting after \(seconds) s: \(message)", of: download, now)
    answers.tell(waiting, .timedOut, download.content)
    for running in download.transfers {
      let isTheirs = waiting.reads.contains { running.active.rest.overlaps($0.range) }
      if !isAnyoneLeft || isTheirs { download.cancel(running.active.id) }
    }
    // A mirror that let a reader wait so long is not asked first the next time.
    if download.mirrors.count > 1 { _ = download.nextMirror(now) }
    downloads.publish(download)
  }

  /// Releases the reads of killed processes. Such a process is gone at once, but the kernel reports it only with the
  /// reply: nobody needs those bytes.
  func releaseGone(_ content: Content, _ processes: [Int32]) {
    var gone: Set<Int32> = []
    for process in Set(processes) where process > 0 && hasEnded(process) { gone.insert(process) }
    if gone.isEmpty { return }
    let reads = content.guarded.withLock { $0.waiters.takeReads { gone.contains($0) } }
    for read in reads { answers.fail(read, .interrupted) }
  }

  /// Cancels transfers without data, so that the next plan starts new ones: sooner when a reader waits. A slow origin
  /// gets more time for its first byte at each attempt, and three of its known round trips.
  func dropStalled(_ download: Download, _ hasWaiters: Bool, _ now: Instant) {
    let most = max(10, room.options.timeout)
    let patience = hasWaiters ? max(2, min(10, room.options.timeout / 3)) : most
    // When nobody waits, no reader's deadline ends a trickle: less than 1 KiB/s is a stall here too.
    let trickles = !hasWaiters && download.pace.recentProgress(now: now) < Int64(room.options.timeout * 1024)
    for index in download.transfers.indices where !download.transfers[index].isCancelled {
      let running = download.transfers[index]
      var longest = patience
      if !running.responded {
        let trip = lines.known(running.host)?.estimate.roundTrip ?? 0
        longest = min(most, max(patience * Double(1 << min(download.attempts.retry.failures, 4)), 3 * trip))
      }
      let isSilent = now.seconds(since: running.lastByte) > longest
      guard isSilent || (trickles && now.seconds(since: running.started) > longest) else { continue }
      download.cancel(running.active.id, .stalled)
    }
  }

  /// Cancels requests that readers made who have gone, when the answer is overdue: an origin that hangs must not keep
  /// the connections of its line from those who come. While none is free, also those whose body stopped coming.
  func dropForsaken(_ download: Download, _ now: Instant) {
    let isForReader = { (running: Running) in running.active.purpose == .demand || running.active.purpose == .shared }
    guard download.transfers.contains(where: { isForReader($0) && !$0.isCancelled }) else { return }
    let waited = download.content.guarded.withLock { $0.waiters.parkedReads.map(\.range) }
    for running in download.transfers where isForReader(running) && running.kind == .window && !running.isOwed {
      guard !running.isCancelled, let line = lines.known(running.host) else { continue }
      let isOverdue = now.seconds(since: running.lastByte) > max(Self.overdueSeconds, 3 * line.estimate.roundTrip)
      guard isOverdue, !running.responded || line.lacksConnection(isBackground: false) else { continue }
      if waited.contains(where: { $0.overlaps(running.active.rest) }) { continue }
      download.cancel(running.active.id)
    }
  }
  private static let overdueSeconds = 0.3

  /// The finisher found no room for the copy: it gets the file again in a while.
  func waitsForRoom(_ download: Download, _ now: Instant) {
    let message = "complete, but --max-size has no room for its copy on the library's filesystem: it waits for room"
    if download.attempts.lastError?.message != message { Log.warning("\(download.content.path): \(message)") }
    downloads.note(message, of: download)
    downloads.wantRest(download)
    download.ownFile.pausedUntil = now.adding(seconds: StoreHealth.refusedSeconds)
    downloads.changed(download)
  }

  /// The finisher did not accept the file. `isWrong`: its bytes do not match the manifest's checksum.
  func rejected(_ download: Download, message: String, isWrong: Bool) {
    download.wish.rest = false
    if let id = download.content.guarded.withLock({ $0.held.continues(false) }) {
      room.record(.continues(generation: id, false))
    }
    if isWrong { download.distrustsSecond = true }
    if refetched.count >= Self.mostRefetched { refetched = [] }
    if isWrong, refetched.insert(download.key).inserted {
      Log.warning("\(download.content.path): \(message); fetching it once more")
      _ = download.nextMirror(room.clock.now)
      // Under a new inode: the kernel's page cache and the open handles still have the wrong bytes of the old one.
      if let known = download.identity {
        do {
          try generations.supersede(download, by: known, nil)
        } catch {
          return fail(download, .io, error.message)
        }
        download.wish.isByName = true
        downloads.wantRest(download)
        downloads.changed(download)
      }
      return
    }
    downloads.unpin(download)
    fail(download, .io, message)
  }
}

/// Whether the thread `process` has ended, even if its parent has not yet reaped it (proc(5): state Z or X). False when
/// that cannot be found out.
private func hasEnded(_ process: Int32) -> Bool {
  if kill(process, 0) != 0 { return errno == ESRCH }
  guard let file = try? FileDescriptor.open("/proc/\(process)/stat", O_RDONLY) else { return false }  // another user's
  return withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) { buffer in
    guard let count = try? file.read(at: 0, into: buffer) else { return true }  // it ended in between
    // The name in front of the state may contain any character, but the last parenthesis ends it.
    guard let end = buffer[..<count].lastIndex(of: UInt8(ascii: ")")), end + 2 < count else { return false }
    return buffer[end + 2] == UInt8(ascii: "Z") || buffer[end + 2] == UInt8(ascii: "X")
  }
}
