import Base
import Fetching
import Manifest

/// The line to one origin: its connections, shared by all resources there, with their measured rate and round trip.
/// Owned by the transfer thread.
struct Line {
  /// The most transfers at once for background downloads.
  static let backgroundLimit = 6
  /// The most connections for requests for sizes that a listing is likely to ask for next: nearly a demand, and a few
  /// bytes each.
  static let indexLimit = 16
  /// The most connections in all, unless the user sets another number.
  static let demandLimit = 32
  /// The most streams on the one connection of HTTP/2.
  static let streamLimit = 64

  var estimate = LineEstimate()
  /// What each connection brings; not used over HTTP/2.
  private(set) var flights = Flights()
  /// Transfers in flight.
  private(set) var active = 0
  /// At index n: when n + 1 transfers were last in flight at once. That many connections are probably still open.
  private var lastWith: [Instant] = []
  /// Those of the transfers in flight that no reader waits for.
  private(set) var background = 0
  /// Those of the background transfers whose response has not begun.
  private(set) var asking = 0
  /// Bytes of background downloads that are requested and have not arrived.
  private(set) var continued: Int64 = 0
  /// When the next background window may be requested beside a reader. They are requested one after the other, at the
  /// rate of the line: windows requested together would arrive together, and a reader who jumps would wait behind all
  /// of them.
  private(set) var nextContinuation = Instant(nanoseconds: 0)
  /// Who waits and who plays.
  var readers = LineReaders()
  /// What it brings now, whether or not bytes are due.
  private(set) var received = RecentRate(slice: 1)
  /// The transfers that failed.
  var failures = LineFailures()
  /// What those may request that are not to keep others waiting.
  var rations = Rations()
  /// How many transfers the origin takes at once.
  private var capacity: LineCapacity
  /// Counts requests in a row, for any file, that got no answer. A hundred files that wait for an origin to come back
  /// share one backoff.
  private(set) var outage = Retry()
  private var lastAnswer: Instant?
  /// The version of HTTP in which the origin answered last: 11, 20.
  private(set) var httpVersion: Int?
  /// By how many seconds the clock here was ahead of the origin's at its last answer; nil where it does not tell.
  var clockAhead: Int64?
  /// Whether the stats of its files get the placeholder at once.
  private(set) var silence = Silence()

  /// `connections` is the most connections that the line may use.
  init(connections: Int) {
    capacity = LineCapacity(connections: connections)
  }

  /// The line may use so many connections from now on.
  mutating func allow(connections: Int) { capacity.allow(connections: connections) }

  /// The most transfers at once.
  var most: Int { capacity.most }
  /// ``most``, reduced by the origin's 429 and 503.
  var limit: Int { capacity.limit }
  private var isMultiplexed: Bool { capacity.isMultiplexed }
  /// Whether its requests go over connections of their own, although the origin speaks HTTP/2: losses keep the
  /// congestion window of the one connection small, and several bring more.
  private(set) var separates = false
  /// Whether the origin does not answer such requests.
  private var mustShare = false
  /// The packets that are lost on its connections.
  private var losses = PacketLosses()

  /// A transfer starts. `isFresh`: on a connection of its own, though another is idle.
  mutating func began(_ transfer: TransferID, isBackground: Bool, isFresh: Bool = false, now: Instant) {
    active += 1
    flights.began(transfer, isFresh: isFresh, roundTrip: estimate.roundTrip, now: now)
    if isBackground {
      background += 1
      asking += 1
    }
    let open = active + (isFresh ? 1 : 0)
    // The one that stays idle is no warmer for that.
    let seen = isFresh ? now.adding(seconds: -Self.warmSeconds) : now
    if open > lastWith.count {
      lastWith.append(seen)
    } else if isFresh {
      lastWith[open - 1] = max(lastWith[open - 1], seen)
    }
  }

  /// Whether a single connection is idle, and another may be made.
  func hasOneIdle(_ now: Instant) -> Bool {
    !isMultiplexed && active + 2 <= limit && flights.idleCount(now) == 1
  }

  /// Whether a background request had better make a connection where windows are small: a reader has a file open, and
  /// the idle ones would bring less than it asks for at first where it jumps.
  func lacksSpare(_ now: Instant) -> Bool {
    httpVersion == 11 && readers.visits > 0 && active + 2 <= limit
      && flights.lackSpare(
        for: Planner.smallestFirstWindow, most: min(Self.largestPool, limit), now, roundTrip: estimate.roundTrip)
  }

  /// Whether a reader's request makes a second connection beside its own: the line has none, and what the reader asks
  /// for next would wait for a handshake. Of two that are allowed, none is for a request that may not come.
  func lacksSecond(_ now: Instant) -> Bool { openConnections(now: now) == 0 && limit >= 3 }

  /// A background download's window of `bytes` was requested.
  mutating func continues(_ bytes: Int64, now: Instant) {
    continued += bytes
    let seconds = Double(bytes) / estimate.rate
    // If the loop's turn came a little late, the next window comes earlier.
    let late = now.seconds(since: nextContinuation)
    nextContinuation = (late >= 0 && late < seconds ? nextContinuation : now).adding(seconds: seconds)
  }

  /// `bytes` of background downloads arrived, or will not arrive.
  mutating func settled(_ bytes: Int64) { continued -= bytes }

  /// A transfer's response began, over the connection with that number.
  mutating func responded(
    _ transfer: TransferID, over connection: Int?, isReused: Bool = true, isBackground: Bool
  ) {
    if isBackground { asking -= 1 }
    flights.responded(transfer, over: connection, isReused: isReused)
  }

  /// The kernel has counted so many packets out of order on a connection; nil: it does not tell.
  mutating func lost(_ count: Int?, over connection: Int?, now: Instant) {
    losses.counted(count, over: connection, bytes: estimate.bytes, now: now)
  }

  /// Whether a lost packet explains a silence that ends now: of the whole line, or of one response.
  struct Held {
    var line = false
    var response = false
  }

  /// Bytes of a response come, which was silent for `seconds`. `count` gives the packets out of order on its
  /// connection.
  mutating func held(after seconds: Double, over connection: Int?, now: Instant, count: () -> Int?) -> Held {
    let silence = estimate.silence(now)
    let least = CongestionWindows.leastSilence(roundTrip: estimate.roundTrip)
    guard max(seconds, silence) >= least else { return Held() }
    lost(count(), over: connection, now: now)
    return Held(
      line: losses.explain(silence, over: connection, now), response: losses.explain(seconds, over: connection, now))
  }

  /// Whether many more packets are lost than a full line drops.
  func losesPackets(_ now: Instant) -> Bool { losses.areFrequent(estimate.bytes, now) }

  /// `count` bytes of a transfer's body arrived. `held`: whether they waited for a lost packet.
  mutating func received(_ count: Int, of transfer: TransferID, held: Held = Held(), now: Instant) {
    received.note(Int64(count), now: now)
    flights.received(count, of: transfer, isHeld: held.response, roundTrip: estimate.roundTrip, now: now)
    let lasting = Self.flightTrips * estimate.roundTrip
    let areFlights = estimate.windows.areSmall(now) && !flights.haveLasted(lasting, now)
    estimate.received(count, areFlights: areFlights, isHeld: held.line, now: now)
    guard isMultiplexed, !mustShare, estimate.windows.areSmallForLong else { return }
    if losses.areLikely(roundTrip: estimate.roundTrip, now) { separate() }
  }

  /// In so many round trips a response may have come as one flight or two.
  private static let flightTrips = 2.0

  private mutating func separate() {
    separates = true
    capacity.speaks(isMultiplexed: false)
    // They say how many streams there were.
    flights = Flights()
    lastWith = []
  }

  /// A transfer ended. `isCut`: before the end of its body, which closes the connection (but not that of HTTP/2).
  mutating func ended(_ transfer: TransferID, now: Instant, isBackground: Bool, hadResponse: Bool, isCut: Bool) {
    guard active > 0 else { return }
    flights.ended(transfer, isCut: isCut, now: now)
    if isBackground {
      background -= 1
      if !hadResponse { asking -= 1 }
    }
    if active <= lastWith.count { lastWith[active - 1] = now }
    active -= 1
    if isCut, !isMultiplexed, let last = lastWith.indices.last, last >= active { lastWith.removeLast() }
  }

  /// How many connections are open: those in use, and those used in the last few seconds. Servers close idle
  /// connections, some after a few seconds (5 s is Apache's default).
  func openConnections(now: Instant) -> Int {
    if isMultiplexed { return .max }
    // A spare connection stays open by being used now and then. Right after a reader's jump is the best time for that.
    let hasJustWaited = readers.lastWait.map { now.seconds(since: $0) < 4 * estimate.roundTrip } ?? false
    let kept = hasJustWaited ? Self.keptSeconds / 4 : Self.keptSeconds
    return max(active, lastWith.lastIndex { now.seconds(since: $0) < kept }.map { $0 + 1 } ?? 0)
  }
  private static let keptSeconds = 4.0

  /// Whether one connection brings little in a round trip, so that several bring short windows sooner. The streams of
  /// HTTP/2 share one.
  func hasSmallWindows(_ now: Instant) -> Bool { !isMultiplexed && estimate.windows.areSmall(now) }

  /// Whether nothing has come for so long that each connection brings little in its first round trip.
  func hasRested(_ now: Instant) -> Bool {
    guard httpVersion == 11, flights.forgetsWindows, let last = estimate.lastArrival else { return false }
    return now.seconds(since: last) > Flights.coldRest(roundTrip: estimate.roundTrip)
  }

  /// Whether all responses share one connection, that of HTTP/2, and nothing shows that a round trip's bytes in flight
  /// do not fill the line: no losses, no pauses, no idle line before its answers, no limit of each stream's rate. Where
  /// the kernel does not tell of losses, it is false.
  func fillsOneConnection(_ now: Instant) -> Bool {
    isMultiplexed && losses.areFew(estimate.bytes, now) && !estimate.windows.pauseNow
      && estimate.lateSilence <= estimate.roundTrip / 4 && estimate.connections.known(now) == nil
  }

  /// Whether a request had better wait until a connection in use is free: no other has been in use so lately that its
  /// congestion window is still as large. libcurl takes the connection that was made first.
  func lacksWarmConnection(now: Instant) -> Bool {
    active > 0 && !(lastWith.dropFirst(active).contains { now.seconds(since: $0) < Self.warmSeconds })
  }
  /// Linux lets the window of an idle connection shrink after a timeout of 0.2 s and more.
  private static let warmSeconds = 0.25

  /// Whether the next idle connection, if the server has not closed it, brings `range` in a round trip.
  func bringsInOneFlight(_ range: ByteRange?, _ now: Instant) -> Bool {
    guard let range, let flight = flights.idle(now, roundTrip: estimate.roundTrip).first else { return false }
    return range.count + Planner.overhead <= flight
  }

  /// How many connections a reader's requests make at any time where each brings little; then they wait for a warm one.
  static let pool = 6
  /// Up to how many background requests make, so that a jump finds idle ones.
  static let largestPool = 12

  /// Whether a response is stuck: it has brought nothing for longer than answers take, while others went on. Its
  /// connection repeats lost packets, after waits that double (RFC 6298), and another brings the bytes sooner.
  func isStuck(_ running: Running, _ now: Instant) -> Bool {
    guard running.responded, !isMultiplexed, let last = estimate.lastArrival, let first = estimate.arrivesSince,
      now.seconds(since: running.lastByte) > estimate.longSilence
    else { return false }
    // After a silence of the whole line, one response is the first that goes on, and mostly the others follow.
    let most = 1.5 * estimate.roundTrip
    return last.seconds(since: max(running.lastByte, first)) > most
      || estimate.arrivedUntil.map { $0.seconds(since: running.lastByte) > most } ?? false
  }

  /// Whether a transfer's connection is being made, and the line may have another beside it. Where that takes longer
  /// than handshakes do, the origin may be dead: then it does not count.
  func isConnecting(_ running: Running, _ now: Instant) -> Bool {
    running.host.hasPrefix("https:") && httpVersion == 11 && active < limit && !running.responded
      && now.seconds(since: running.started) < Self.handshakes * estimate.roundTrip
      && flights.isConnecting(running.active.id)
  }
  /// The round trips of a request on a new connection, with those of TCP and TLS 1.2 before it.
  private static let handshakes = 4.0

  /// Whether a response goes on for several round trips in which an idle connection would bring much more.
  func isSlow(_ running: Running, _ now: Instant) -> Bool {
    guard let rate = running.meter.rate else { return false }
    let flight = rate * estimate.roundTrip
    guard Double(running.active.rest.count) > Self.slowTrips * flight else { return false }
    let idle = flights.idle(now, roundTrip: estimate.roundTrip).max() ?? 0
    return Double(idle) > Self.slowTrips * flight
  }
  private static let slowTrips = 4.0

  /// Whether another transfer would find no free connection, or another background request would find the origin
  /// unreachable.
  func lacksConnection(isBackground: Bool) -> Bool {
    active >= limit || (isBackground && (background >= backgroundLanes || isUnreachable))
  }

  /// The most transfers at once for what readers will ask for next.
  var mostAhead: Int { max(1, limit * 3 / 4) }

  /// The most background transfers at once.
  var backgroundLanes: Int { min(Self.backgroundLimit, max(1, limit / 2)) }

  /// How many background transfers run when one connection is left spare. Where only a few are allowed, readers have as
  /// many for themselves, and streams of HTTP/2 need no spare connection.
  func usualLanes(isQuiet: Bool) -> Int {
    let lanes = backgroundLanes
    return isQuiet || isMultiplexed || lanes < Self.backgroundLimit ? lanes : lanes - 1
  }

  /// The origin answered with 429 or 503.
  mutating func pushedBack(now: Instant) {
    estimate.connections.pushedBack(active: active, now: now)
    capacity.pushedBack(active: active)
  }
  /// The origin answered well: the limit grows back, one transfer at each answer.
  mutating func answered(_ now: Instant) {
    heard(now)
    capacity.answered()
  }

  /// The origin answered, whatever the status: it is reachable.
  mutating func heard(_ now: Instant) {
    lastAnswer = now
    outage.progressed()
    silence.end(now)
  }

  /// Whether the origin is known to answer.
  var isKnownToAnswer: Bool { lastAnswer != nil && !isUnreachable }

  /// Whether the last request got no answer.
  var isUnreachable: Bool { outage.failures > 0 }
  /// Whether three or more in a row got none.
  var isUnreachableForLong: Bool { outage.failures >= 3 }

  /// A request for `file` that was made at `asked` got no usable answer. It does not count if it was made before the
  /// last answer to another request, or over another network.
  mutating func missed(
    _ file: ResourceKey, askedAt asked: Instant, _ failure: TransferFailure, now: Instant, random: Double
  ) {
    if silence.endedAt >= asked { return }
    var failure = failure
    failure.retryAfter = nil  // that applies to the one file
    outage.failed(failure, now: now, random: random)
    if separates, httpVersion == 20 {
      // None of them was answered yet: the origin may speak nothing but HTTP/2.
      (separates, mustShare) = (false, true)
      capacity.speaks(isMultiplexed: true)
    }
    silence.waitedInVain(on: file, askedAt: asked, inARow: outage.failures, now: now)
  }

  /// A stat that waited since `since` got the placeholder.
  mutating func waitedInVain(since: Instant, now: Instant) {
    if isKnownToAnswer { return }
    if let lastAnswer, lastAnswer >= since { return }
    silence.begin(now)
  }

  /// The network changed: an unreachable origin may be reachable again, and the connections are gone.
  mutating func reconnect(_ now: Instant) {
    outage.progressed()
    silence.end(now)
    flights = Flights()
    losses = PacketLosses()
    lastWith = []
  }

  /// Takes note of the HTTP version, which decides whether streams or connections are counted. Another server may
  /// answer under the same name; a limit from 429 or 503 stays.
  mutating func speaks(httpVersion: Int) {
    // What was requested before over HTTP/2 still comes.
    if separates, httpVersion == 20 { return }
    self.httpVersion = httpVersion
    capacity.speaks(isMultiplexed: httpVersion == 20)
  }

  /// The key of a URL's line: its scheme, host and port, in lower case.
  static func key(of url: String) -> String {
    TransferRates.host(of: url)
  }
}
