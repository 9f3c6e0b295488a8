import Base
import Fetching
import Manifest

/// A transfer that is under way, with all that the engine keeps of it.
struct Running {
  /// Why it was started.
  enum Kind { case window, head, confirm }
  var active: ActiveTransfer
  let kind: Kind
  let mirror: Int
  /// Whose line it uses: scheme, host and port of the URL that was asked.
  let host: String
  /// Whether the remembered target of a redirect was asked instead of the entry's own URL.
  let isResolved: Bool
  let started: Instant
  var lastByte: Instant
  var meter = RateMeter()
  var bytes: Int64 = 0
  /// Of those, the ones that were not stored yet.
  var fresh: Int64 = 0
  /// Bytes that are counted as a continuation's on its line until they come.
  var continuing: Int64 = 0
  var responded = false
  /// Whether the answer is the whole where another version would be.
  var sentIfRange = false
  /// Why the rest of the body was not taken; nil: it was.
  var misfit: String?
  /// Why it was cancelled, when it was for being too slow: then it counts as a failed attempt.
  var stalled = false
  var isCancelled = false
}

/// A URL of an entry.
struct Mirror {
  let url: String
  /// What it was redirected to the last time.
  var resolved: String?
  /// Why it cannot be used, for a person; nil while it can.
  var refusal: TransferFailure?
}

/// Bytes that came in each of the last seconds: what a trickle is judged by.
struct ProgressRing {
  private var seconds: [Int64]
  private var current: Int64 = 0
  init(length: Int) { seconds = [Int64](repeating: 0, count: max(1, length)) }

  private mutating func advance(to now: Instant) {
    let second = now.nanoseconds / 1_000_000_000
    if second - current >= Int64(seconds.count) {
      for index in seconds.indices { seconds[index] = 0 }
      current = second
    }
    while current < second {
      current += 1
      seconds[Int(current % Int64(seconds.count))] = 0
    }
  }

  mutating func add(_ bytes: Int64, now: Instant) {
    advance(to: now)
    seconds[Int(current % Int64(seconds.count))] += bytes
  }

  /// The bytes of as many seconds as the ring is long.
  mutating func total(now: Instant) -> Int64 {
    advance(to: now)
    return seconds.reduce(0, +)
  }
}

/// Whether an origin gives ranges.
enum RangeSupport: Equatable {
  /// It does, as far as is known.
  case assumed
  /// It answered with the whole. It is asked for a range all the same, one at a time: a range that comes after all is
  /// worth much, and the whole comes no later.
  case ignored
  /// It answered with what cannot be used. Until that time it is asked for the whole.
  case unusable(until: Instant)
}

/// One resource on the transfer thread: where its bytes come from and what is under way. Owned by that thread alone.
final class Source {
  let key: ResourceKey
  var content: Content
  var mirrors: [Mirror]
  /// The mirror that is asked.
  var mirror = 0
  /// The mirror that the current generation came from; nil before the first response of this mount.
  var generationMirror: Int?
  var ranges = RangeSupport.assumed
  /// It answers If-Range with the whole of the very version that was named: the answer's own validators must do.
  var omitsIfRange = false
  /// Answers in a row that could not be used.
  var unusable = 0
  /// Transfers in a row that brought bytes and none that was missing: an origin without ranges that breaks off at the
  /// same place each time. What they bring is no progress.
  var fruitless = 0
  /// Bytes that were stored so far in this mount.
  var freshBytes: Int64 = 0
  /// Answers in a row that were far shorter than what was asked for.
  var shortAnswers = 0
  var transfers: [Running] = []
  /// The number of the transfer that was started last.
  var lastStart: UInt64 = 0
  var retry = Retry()
  var progress: ProgressRing
  var meter = RateMeter()
  var lastBytes = Instant(nanoseconds: 0)
  /// Why nothing more is asked for, until someone opens the file again.
  var failure: (error: Errno, message: String)?
  /// Its own file takes no more, though the disk may: it goes on in memory until it is opened again.
  var cannotBeStored = false
  /// Until when nothing of it is stored, though the disk may take others: its syncs fail, or the system was short of
  /// something.
  var pausedUntil: Instant?
  /// Whether its own file takes nothing now.
  var isRefused: Bool { cannotBeStored || pausedUntil != nil }
  /// What went wrong last, also when it is tried again, until bytes come.
  var lastError: LastError?
  /// A generation that one response spoke of; a second must agree before it is believed.
  var suspect: GenerationCheck.Identity?
  /// Answers of another generation since the last byte that was missing.
  var suspectAnswers = 0
  /// How many more answers must agree in a row.
  var agreeing = 0
  /// Versions that were given up of late: two servers that take turns are not to be followed back and forth.
  var former: [GenerationCheck.Identity: Instant] = [:]
  /// How often a body came back with other bytes, from an origin that gives no validators to tell that from.
  var mismatches = 0
  /// Commands that wait until the finisher is through with it.
  var postponed: [Engine.Command] = []
  /// How often a second opinion was asked for.
  var confirmations = 0
  /// The rest of the file is wanted: it was played, or the policy or a user says so.
  var continues = false
  /// A user asked for it by name: policies do not stop it.
  var isRequested = false
  /// A sibling was looked at: its size is wanted, though nobody waits.
  var wantsHead = false
  /// Processes whose reads were judged: looker or not.
  var judged: [Int32: Bool] = [:]
  /// The line on which its readers wait or are behind, as counted there; nil while none does.
  var waitsOn: String?
  /// Whether a reader is behind: counted with those that wait.
  var isBehind = false
  var lanes = LaneControl()
  /// Its tail was asked for, or is not worth it.
  var tailDone = false
  /// The file name that Content-Disposition gave.
  var suggestedName: String?

  init(content: Content, timeout: Double) {
    key = content.key
    self.content = content
    mirrors = content.source.urls.map { Mirror(url: $0) }
    progress = ProgressRing(length: Int(timeout.rounded(.up)))
  }

  /// Bytes that were on their way when a transfer was ended before its end, as far as can be told.
  private var cutBytes: Int64 = 0

  /// How many bytes on their way may be thrown away yet: half a percent of the file's in all (P4).
  func spareBytes(of size: Int64) -> Int64 { max(0, size / 200 - cutBytes) }

  /// A transfer is ended before its end.
  func noteCut(_ id: TransferID, _ input: PlanInput) {
    guard let running = transfers.first(where: { $0.active.id == id }) else { return }
    cutBytes += Planner.lost(byCutting: running.active, input)
  }

  /// Bytes that were asked for in windows and have not come yet. What is silent for longer than `patience` seconds may
  /// never come: it takes nothing from others.
  func outstanding(_ now: Instant, patience: Double) -> Int64 {
    transfers.reduce(0) { sum, running in
      if running.active.isStream || running.active.end == .max { return sum }
      return now.seconds(since: running.lastByte) > patience ? sum : sum + running.active.rest.count
    }
  }

  /// Whether it is asked for everything at once.
  var knowsNoRanges: Bool { ranges != .assumed }

  /// Whether a request may have a Range.
  func asksForRanges(_ now: Instant) -> Bool {
    if case .unusable(let until) = ranges { return now >= until }
    return true
  }

  /// Ranges do not work: not tried again for a while.
  func gaveUpRanges(_ now: Instant) { ranges = .unusable(until: now.adding(seconds: 60)) }

  /// The URL to ask now.
  var target: (url: String, isResolved: Bool) {
    let mirror = mirrors[self.mirror]
    return mirror.resolved.map { ($0, true) } ?? (mirror.url, false)
  }

  /// Goes to the next mirror that was not refused; false when there is none.
  func nextMirror() -> Bool {
    for step in 1...mirrors.count {
      let next = (mirror + step) % mirrors.count
      if mirrors[next].refusal == nil {
        mirror = next
        return true
      }
    }
    return false
  }
}
