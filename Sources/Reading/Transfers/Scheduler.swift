import Base
import Fetching
import Storing

/// Plans each resource whose state changed, then starts the transfers that the plans want, the most urgent first. Owned
/// by the transfer thread.
final class Scheduler {
  let room: ReadingRoom
  let service: any TransferService
  let lines: Lines
  let downloads: Downloads
  let landing: Landing
  private let stats: StatWaits
  let renewals: Renewals
  let second: (any SecondSource)?
  let generations: Generations
  let checks: OpenChecks
  /// Ends a download that gets no link.
  private let failed: (Download, String) -> Void
  /// The transfers that this turn's plans want.
  var starts: [PendingStart] = []
  private var lastTransfer: UInt64 = 0
  /// What `--limit-rate` still allows.
  private var allowance: RateAllowance
  /// What the limits of single hosts still allow.
  private var hostAllowances: [String: RateAllowance]
  /// What programs that look at files read of each kind.
  private(set) var probeSets = ProbeSets()
  /// Which processes were on trial of late.
  var trials = Trials()
  /// What is fetched of the files that follow those that are being played.
  let nextFiles: NextFiles
  /// When to plan again what waits for its turn on the line.
  private(set) var nextContinuation = Instant.never

  init(
    room: ReadingRoom, service: any TransferService, lines: Lines, downloads: Downloads, landing: Landing,
    stats: StatWaits, renewals: Renewals, second: (any SecondSource)?,
    generations: Generations, checks: OpenChecks, failed: @escaping (Download, String) -> Void
  ) {
    self.room = room
    self.second = second
    (self.generations, self.checks) = (generations, checks)
    self.service = service
    self.lines = lines
    self.downloads = downloads
    self.landing = landing
    self.stats = stats
    self.renewals = renewals
    self.failed = failed
    allowance = RateAllowance(limit: lines.limits.rates.all)
    hostAllowances = lines.limits.rates.hosts.mapValues { RateAllowance(limit: $0) }
    nextFiles = NextFiles(room: room, lines: lines, downloads: downloads)
    do throws(StoreError) {
      probeSets.load(try room.store.notes.kinds())
    } catch {
      Log.error("what earlier mounts learned of kinds of files cannot be read: \(error.message)")
    }
  }

  /// What this turn changed of a download is planned in the next one, which comes at once.
  func planAgain(_ now: Instant) { nextContinuation = min(nextContinuation, now) }

  /// Decides what is fetched of the files that follow those that are being played.
  func lookAhead(_ now: Instant) { nextFiles.look(probeSets, canStore: landing.intake == .everything, now) }

  /// `count` bytes arrived.
  func took(_ count: Int64, from host: String) {
    allowance.took(count)
    hostAllowances[host]?.took(count)
  }

  /// From now on these limits hold.
  func limit(_ rates: TransferRates) {
    allowance = RateAllowance(limit: rates.all)
    hostAllowances = rates.hosts.mapValues { RateAllowance(limit: $0) }
    service.limit(rates)
    downloads.replanBlocked()
  }

  /// A look at a file of `kind` ended. The store remembers what was learned.
  func looked(at kind: String, _ look: ProbeSet) {
    let former = probeSets[kind]
    guard probeSets.looked(at: kind, look), let note = probeSets.note(of: kind, at: room.clock.date) else { return }
    // A scan of a million files that shows nothing new is not worth a million writes.
    guard note.files < 8 || note.files % 64 == 0 || former != probeSets[kind] else { return }
    room.record(.kind(note))
  }

  /// A number that no transfer had.
  func nextID() -> TransferID {
    lastTransfer += 1
    return TransferID(lastTransfer)
  }

  /// Plans every resource whose state changed, then starts the transfers that the plans want.
  func turn(_ now: Instant) {
    if now >= nextContinuation {
      nextContinuation = .never
      downloads.replanBlocked()
    }
    starts.removeAll(keepingCapacity: true)
    for download in downloads.takeChanged() { plan(download, now) }
    for start in inTurn(starts) {
      if let generation = start.generation {
        admitSecond(start, generation, now)
        continue
      }
      let download = start.download
      let isGood = renewals.admits(download, start.purpose, fail: { failed(download, $0) }, now)
      if isGood { admit(start, now) }
    }
  }

  /// Orders the starts by rank, then by deadline, then by purpose, then by the file whose last start is longest ago,
  /// then by the longest wait. So each file gets its turn even where connections are few.
  private func inTurn(_ starts: [PendingStart]) -> [PendingStart] {
    if starts.count < 2 { return starts }
    let turns = starts.enumerated().map { start in
      (order: start.offset, start: start.element, last: start.element.download.lineUse.lastStart)
    }
    return turns.sorted { first, second in
      let (claim, other) = (first.start.rank, second.start.rank)
      if claim != other { return claim < other }
      if first.start.order != second.start.order { return first.start.order < second.start.order }
      return (first.start.purpose, first.last, first.start.waitsSince, first.order)
        < (second.start.purpose, second.last, second.start.waitsSince, second.order)
    }.map(\.start)
  }

  /// Starts a transfer, or notes that its download wants one as soon as there is room.
  private func admit(_ start: PendingStart, _ now: Instant) {
    let download = start.download
    // A redirect may lead to the wrong place: the entry's own URL has the second opinion.
    let own = (url: download.mirrors.url, isResolved: false)
    let opinion = download.opinion.target.map { (url: $0, isResolved: true) } ?? own
    let (url, isResolved) = start.kind == .confirm ? opinion : download.mirrors.target
    let host = Line.key(of: url)
    let bytes = start.range?.count ?? 0
    var start = start
    var isRationed = start.isStarving && lines[host].isHeldBack(.share, now)
    if isRationed, !lines[host].mayFeed(bytes, timeout: room.options.timeout, now) {
      guard start.purpose == .shared else {
        // Until its turn comes, this start blocks no other.
        downloads.noteBlocked(download)
        nextContinuation = min(nextContinuation, now.adding(seconds: 0.1))
        return
      }
      // Until its turn comes, the reader gets what players leave. Otherwise the scheduler would request what follows
      // the hole first.
      (start.isStarving, isRationed) = (false, false)
    }
    guard start.purpose != .index || !stats.refuses(host, now), !lines.isBlocked(host, before: start.turn),
      !takesLastConnection(start, of: lines[host]),
      lines[host].admits(
        start.purpose, bytes: bytes, claim: start.claim, isStarving: start.isStarving, isQuiet: lines.isQuiet, now: now),
      allowance.admits(outstanding: lines.limits.rates.all == nil ? 0 : outstanding(now), now: now),
      hostAllowances[host]?.admits(outstanding: outstanding(now, on: host), now: now) ?? true
    else {
      makeWay(for: start, on: host, now)
      // Many sizes may be wanted: they are planned again at a look, not whenever a transfer ends.
      if start.purpose == .index, start.claim.shares, lines[host].rationsSizes { return }
      downloads.noteBlocked(download)
      let isShared = start.purpose == .shared
      // What nobody waits for keeps nobody from the line.
      if isShared || (start.purpose < .shared && lines[host].isContended(now)) {
        lines.block(host, start.turn)
        // Room comes with bytes, not only at a transfer's end, and those whose bytes come would take all of it.
        if isShared || start.rank <= PendingStart.newcomer, lines[host].active < lines[host].limit {
          let isHeldBack = isShared && lines[host].isHeldBack(start.claim, now)
          let pause = isHeldBack ? min(max(lines[host].estimate.roundTrip / 2, 0.005), 0.05) : 0.005
          nextContinuation = min(nextContinuation, now.adding(seconds: pause))
        }
      }
      if start.purpose >= .next, let next = lines.known(host)?.nextContinuation, next > now {
        nextContinuation = min(nextContinuation, next)
      }
      return
    }
    if waitsForConnection(start, host, now) {
      downloads.noteBlocked(download)
      nextContinuation = min(nextContinuation, now.adding(seconds: 0.005))
      return
    }
    let id = nextID()
    if start.purpose == .index { stats.began(host, now) }
    let audience = audience(of: start)
    var request = request(id, start, url: url)
    request.opensAnother = start.purpose == .demand && audience == .reader && lines[host].lacksSecond(now)
    request.isFresh = start.purpose >= .next && leavesLastIdle(lines[host], now)
    lines.update(host) { line in
      line.began(id, isBackground: start.purpose >= .index, isFresh: request.isFresh, now: now)
      if start.isArrival { line.readers.arrived(start.claim, now) }
      if start.purpose == .index, start.claim.shares { line.tookSize(bytes, now: now) }
      if start.purpose <= .shared {
        line.tookSpare(bytes, start.claim, due: start.due, now: now)
        if isRationed { line.noteFed(bytes, timeout: room.options.timeout, now) }
      }
    }
    download.lineUse.lastStart = lastTransfer
    let range = start.range ?? ByteRange(0, .max)
    var active = ActiveTransfer(id: id, position: range.start, end: range.end, purpose: start.purpose, rate: nil)
    active.isStream = start.range == nil
    var running = Running(
      active: active, kind: start.kind, mirror: download.mirrors.current, host: host, isResolved: isResolved,
      started: now, lastByte: now)
    running.isOwed = start.isOwed
    running.audience = audience
    room.counters.requested(for: running.audience)
    running.sentIfRange = request.ifRange != nil
    let yields = start.purpose == .shared || start.purpose >= .next
    let isBounded = start.purpose < .shared && start.claim != .urgent && lines[host].isContended(now)
    if start.range != nil, yields || isBounded {
      running.continuing = bytes
      lines.update(host) { $0.continues(bytes, now: now) }
    }
    download.transfers.append(running)
    download.isDormant = false
    if start.kind == .confirm { download.opinion.wasAsked() }
    download.wish.head = false
    downloads.began(id, of: download)
    Log.debug("transfer \(id.rawValue): \(start.purpose) \(range) of \(download.content.path)")
    service.start(request)
  }

  /// Whom a transfer is for: what only programs that look at files wait for, or read last, is a scan's.
  func audience(of start: PendingStart) -> Audience {
    switch start.purpose {
    case .index: return .scan
    case .next, .continuation: return .continuation
    case .demand, .playAhead, .shared: break
    }
    let download = start.download
    let (waiting, reading) = download.content.guarded.withLock { guarded in
      (
        guarded.waiters.parkedReads.map(\.process) + guarded.waiters.parkedProbes.map(\.process),
        guarded.waiters.runs.runs.max { $0.lastRead < $1.lastRead }?.process
      )
    }
    let programs = waiting.isEmpty ? reading.map { [$0] } ?? [] : waiting
    return !programs.isEmpty && programs.allSatisfy(download.isLooker) ? .scan : .reader
  }

  /// Whether one connection of `line` brings little in a round trip. With `--limit-rate` its silences are our own.
  func hasSmallWindows(_ line: Line, _ now: Instant) -> Bool {
    lines.limits.rates == TransferRates() && line.hasSmallWindows(now)
  }

  /// Whether a background request had better make a connection of its own. If it took the last idle one, a reader that
  /// jumps meanwhile would wait for a handshake. Where congestion windows are small, the jump needs several: an idle
  /// one forgets what it could bring.
  private func leavesLastIdle(_ line: Line, _ now: Instant) -> Bool {
    hasSmallWindows(line, now) ? line.lacksSpare(now) : !lines.isQuiet && line.hasOneIdle(now)
  }

  /// Whether a reader's request waits for a connection that is in use: it is free, and its congestion window is larger,
  /// before another would have brought as much.
  private func waitsForConnection(_ start: PendingStart, _ host: String, _ now: Instant) -> Bool {
    let line = lines[host]
    guard hasSmallWindows(line, now) else { return waitsForItsFile(start, line, host, now) }
    guard start.purpose <= .shared, line.lacksWarmConnection(now: now) else { return false }
    guard start.purpose == .demand || line.openConnections(now: now) >= Line.pool else { return false }
    if line.bringsInOneFlight(start.range, now) { return false }
    let trip = line.estimate.roundTrip
    let longest = host.hasPrefix("https:") ? 2 * trip : trip
    // What was expected to be free may never be.
    if start.waitsSince < now, now.seconds(since: start.waitsSince) > Self.longestWait * trip { return false }
    let rate = line.estimate.rate / Double(line.active)
    return downloads.all.contains { download in
      download.transfers.contains { running in
        guard running.host == host, !running.isCancelled, !running.active.isStream else { return false }
        let answer = running.responded ? 0 : max(0, trip - now.seconds(since: running.started))
        return answer + Double(running.active.rest.count) / rate < longest
      }
    }
  }

  /// The same where congestion windows are not known to be small: a demand, for which no connection is idle, waits for
  /// that of a response of its file. Where several reads of the file wait, each gets a connection.
  private func waitsForItsFile(_ start: PendingStart, _ line: Line, _ host: String, _ now: Instant) -> Bool {
    let trip = line.estimate.roundTrip
    guard start.purpose == .demand, line.httpVersion == 11, line.flights.idleCount(now) == 0, start.waitsSince <= now,
      now.seconds(since: start.waitsSince) <= Self.longestWait * trip,
      starts.count(where: { $0.purpose == .demand && $0.download === start.download }) == 1
    else { return false }
    // A new connection brings what a read waits for so many round trips later. TCP's handshake is left out: that of the
    // spare connection may be over.
    let trips = Flights.moreTrips(Planner.smallestFirstWindow) + (host.hasPrefix("https:") ? 1 : 0)
    return start.download.transfers.contains { running in
      guard running.host == host, running.responded, !running.isCancelled, !running.active.isStream,
        now.seconds(since: running.lastByte) <= 2 * trip
      else { return false }
      // One that has begun just now shows nothing of its rate: only its last bytes are waited for.
      guard let rate = running.meter.rate else {
        return Double(running.active.rest.count) / line.estimate.rate < Self.lastBytes * trip
      }
      return Double(running.active.rest.count) / rate < trips * trip
    }
  }

  /// For how many round trips of a read's wait its request may wait for a connection in use.
  private static let longestWait = 10.0
  /// For the bytes of which part of a round trip a read waits where the response's rate is unknown.
  private static let lastBytes = 0.25

  /// Bytes in flight for all files, or for those that come from `host`: a limit on the rate counts them.
  private func outstanding(_ now: Instant, on host: String? = nil) -> Int64 {
    downloads.all.reduce(Int64(0)) { sum, download in
      if let host, !download.transfers.contains(where: { $0.host == host }) { return sum }
      let trip = download.transfers.first.flatMap { lines.known($0.host)?.estimate.roundTrip } ?? 0
      return sum + download.outstanding(now, patience: max(1, 2 * trip))
    }
  }

  private func request(_ id: TransferID, _ start: PendingStart, url: String) -> TransferRequest {
    let download = start.download
    var request = TransferRequest(id: id, url: url, homeURL: download.mirrors.url, range: start.range)
    request.isAlone = lines.known(Line.key(of: url))?.separates ?? false
    // A new link may lead to another host, and another mirror be one, with tags of its own.
    let (mirrors, mirror) = (download.mirrors, download.mirrors.ofGeneration)
    if start.kind != .confirm, start.range != nil, !download.ranges.omitsIfRange, download.isJoined,
      mirror ?? mirrors.current == mirrors.current
    {
      request.ifRange = download.identity.flatMap { known in
        GenerationCheck.ifRange(for: (download.joined ?? known).validators)
      }
    }
    // That of the URL: the list may have another one by now, for another host.
    let entry = download.entry
    guard entry.resolver != nil else {
      request.headers = entry.headers
      request.userAgent = entry.userAgent
      request.referer = entry.referer
      return request
    }
    request.isSecret = true
    request.headers = download.link?.headers ?? []
    request.userAgent = download.link?.userAgent
    request.referer = download.link?.referer
    return request
  }
}

/// A transfer that a plan wants. The scheduler starts the most urgent ones first.
struct PendingStart {
  let download: Download
  var range: ByteRange?
  var kind: Running.Kind
  let purpose: Purpose
  /// Since when a read waits for these bytes.
  var waitsSince = Instant.never
  /// The claim of the reader for which it is, and in how many seconds that needs bytes.
  var claim = ReaderView.Claim.start
  var due = 0.0
  /// Whether its reader has just come, or jumped.
  var isArrival = false
  /// Whether its reader shares the line, and has got nothing for long.
  var isStarving = false
  /// Whether whoever wants it takes what follows too.
  var isProven = false
  /// Whether its bytes are for other machines alone.
  var isOwed = false
  /// The version whose bytes are asked of the second source; nil: the origin is asked.
  var generation: Int64?

  /// Its turn on the line: one that starves goes before newcomers.
  var turn: Lines.Turn {
    if purpose == .shared, claim == .trial, !isStarving { return Lines.Turn(rank: rank, last: UInt64(due)) }
    let last = rank <= Self.newcomer ? UInt64.max : 0
    return Lines.Turn(rank: rank, last: purpose == .shared ? download.lineUse.lastStart : last)
  }

  /// It gets a little, before newcomers: many may starve at once, beside one who plays.
  mutating func starves() {
    isStarving = true
    // Otherwise the few bytes that are left of a window would be the next window.
    guard let whole = range, whole.count >= 2 * Self.starvingWindow else { return }
    range = ByteRange(at: whole.start, count: Self.starvingWindow)
  }
  static let starvingWindow: Int64 = 16 << 10

  /// Among starts of one rank the lowest comes first.
  var order: Double { isStarving ? -1 : due }

  static let newcomer = 1
  /// Players near their deadlines come first, then newcomers, then players with less than their lead and, behind them
  /// by ``due``, readers on trial, then the rest.
  var rank: Int {
    if isStarving { return Self.newcomer }
    guard purpose <= .playAhead || claim == .trial else { return Self.newcomer + 2 }
    switch claim {
    case .urgent: return 0
    case .start: return Self.newcomer
    case .lead, .trial, .share: return Self.newcomer + 1
    }
  }
}
