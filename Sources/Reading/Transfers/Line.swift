import Base
import Fetching
import Manifest

/// The line to one origin, shared by all resources there. Owned by the transfer thread.
struct Line {
  /// Connections for what nobody waits for.
  static let backgroundLimit = 6
  /// Connections for the sizes of files that a listing will ask for next: nearly a demand, and a few bytes each.
  static let indexLimit = 16
  /// Connections in all, unless the user says otherwise.
  static let demandLimit = 32
  /// Streams on the one connection that HTTP/2 uses.
  static let streamLimit = 64

  var estimate = LineEstimate()
  /// Transfers under way.
  private(set) var active = 0
  /// When so many transfers and one more were last under way at once, by their number: as many connections are open
  /// still.
  private var lastWith: [Instant] = []
  /// Of those, the ones that nobody waits for.
  private(set) var background = 0
  /// And of these, the ones that got no answer yet.
  private var asking = 0
  /// Bytes of continuations that are still to come.
  private(set) var continued: Int64 = 0
  /// Windows of continuations beside a reader are asked for one after the other, as the line brings them: those that
  /// were asked for together would come together, and a reader who jumps would meet them all.
  private(set) var nextContinuation = Instant(nanoseconds: 0)
  /// Resources with a waiting reader.
  var waiting = 0
  /// When a reader waited last: what comes behind it is likely to be wanted next, so that continuations stand back a
  /// little longer than the wait itself.
  var lastWait: Instant?
  /// How many transfers it takes at once.
  private var capacity: LineCapacity
  /// Requests in a row, of whatever file, that nothing answered: a hundred files that wait for an origin to come back
  /// ask it with the pauses of one.
  private(set) var outage = Retry()
  private var lastAnswer: Instant?
  /// Whether stats of its files wait no more.
  private(set) var silence = Silence()

  /// A line that allows so many connections.
  init(connections: Int) {
    capacity = LineCapacity(connections: connections)
  }

  /// The most transfers at once.
  var most: Int { capacity.most }
  /// `most`, as the origin's 429 and 503 shrank it.
  var limit: Int { capacity.limit }
  private var isMultiplexed: Bool { capacity.isMultiplexed }

  /// A transfer starts.
  mutating func began(isBackground: Bool, now: Instant) {
    active += 1
    if isBackground {
      background += 1
      asking += 1
    }
    if active > lastWith.count { lastWith.append(now) }
  }

  /// A continuation of so many bytes begins.
  mutating func continues(_ bytes: Int64, now: Instant) {
    continued += bytes
    let seconds = Double(bytes) / estimate.rate
    // A turn of the loop that came a little late is made up for.
    let late = now.seconds(since: nextContinuation)
    nextContinuation = (late >= 0 && late < seconds ? nextContinuation : now).adding(seconds: seconds)
  }

  /// So many bytes of continuations came, or will not come.
  mutating func settled(_ bytes: Int64) { continued -= bytes }

  /// The head of what was asked for came.
  mutating func responded(isBackground: Bool) {
    if isBackground { asking -= 1 }
  }

  /// A transfer has ended. `isCut`: before its end, which costs its connection (but for one of HTTP/2).
  mutating func ended(now: Instant, isBackground: Bool, hadResponse: Bool, isCut: Bool) {
    guard active > 0 else { return }
    if isBackground {
      background -= 1
      if !hadResponse { asking -= 1 }
    }
    if active <= lastWith.count { lastWith[active - 1] = now }
    active -= 1
    if isCut, !isMultiplexed, let last = lastWith.indices.last, last >= active { lastWith.removeLast() }
  }

  /// How many connections are open: those in use, and those that were of late. Servers close idle ones, some after a
  /// few seconds (5 s is Apache's default).
  func openConnections(now: Instant) -> Int {
    if isMultiplexed { return .max }
    // A spare one is used now and then, so that it stays; right behind a reader's jump it is missed least.
    let hasJustWaited = lastWait.map { now.seconds(since: $0) < 4 * estimate.roundTrip } ?? false
    let kept = hasJustWaited ? Self.keptSeconds / 4 : Self.keptSeconds
    return max(active, lastWith.lastIndex { now.seconds(since: $0) < kept }.map { $0 + 1 } ?? 0)
  }
  private static let keptSeconds = 4.0

  /// Whether another transfer finds no free connection, or another file asks whether the origin is back.
  func lacksConnection(isBackground: Bool) -> Bool {
    active >= limit || (isBackground && (background >= backgroundLanes || isUnreachable))
  }

  /// How many transfers that nobody waits for there may be at once.
  var backgroundLanes: Int { min(Self.backgroundLimit, max(1, limit / 2)) }

  /// How many of them there are but for the one that leaves a connection to spare. Where only a few may be, as many
  /// more are the readers' anyhow; and streams of HTTP/2 need no connection.
  func usualLanes(isQuiet: Bool) -> Int {
    let lanes = backgroundLanes
    return isQuiet || isMultiplexed || lanes < Self.backgroundLimit ? lanes : lanes - 1
  }

  /// Whether another transfer for `purpose` may start.
  /// `bytes`: of its window, 0 where they are not known; `isQuiet`: no file is open.
  func admits(_ purpose: Purpose, bytes: Int64, isQuiet: Bool, now: Instant) -> Bool {
    if active >= limit { return false }
    // Who waits asks all the same.
    if purpose >= .index, isUnreachable, asking > 0 || !outage.permits(now, readerWaits: false) { return false }
    switch purpose {
    case .demand: return true
    case .playAhead: return active < max(1, limit * 3 / 4)
    case .index: return background < min(Self.indexLimit, max(1, limit / 2))
    case .continuation:
      if waiting > 0 { return false }
      if let lastWait, now.seconds(since: lastWait) < 2 * estimate.roundTrip { return false }
      if background >= backgroundLanes { return false }
      // What one file may have under way all of them may: a reader who comes meets the sum.
      let inRoundTrip = estimate.rate * estimate.roundTrip
      let most = Planner.mostUnderWay(window: Double(bytes), of: inRoundTrip, isQuiet: isQuiet)
      if continued == 0 { return true }
      guard background < usualLanes(isQuiet: isQuiet), Double(continued + bytes / 2) <= most else {
        // One more now and then, which leaves a connection behind for a reader's jump. By the bytes it is one: what is
        // there without it is within half a window of the bound.
        return !isQuiet && Double(continued - bytes / 2) <= most && openConnections(now: now) <= active
      }
      // Where a round trip holds few windows, their number bounds what a reader meets, and the estimate is all that
      // pacing would follow.
      return isQuiet || now >= nextContinuation || 2 * Double(bytes) > inRoundTrip
    }
  }

  /// The origin said that it is too much.
  mutating func pushedBack() { capacity.pushedBack(active: active) }
  /// It answered well: the limit grows back, slowly.
  mutating func answered(_ now: Instant) {
    heard(now)
    capacity.answered()
  }

  /// It answered, well or not: it is there.
  mutating func heard(_ now: Instant) {
    lastAnswer = now
    outage.progressed()
    silence.end(now)
  }

  /// Whether it is known to answer.
  var answers: Bool { lastAnswer != nil && !isUnreachable }

  /// Whether nothing there answers at the moment.
  var isUnreachable: Bool { outage.failures > 0 }
  /// Whether that is more than a hiccup.
  var isUnreachableForLong: Bool { outage.failures >= 3 }

  /// A request for `file` that was made at `asked` got no answer that can be used. What others got since then says
  /// more, and one that was made over another network says nothing.
  mutating func missed(
    _ file: ResourceKey, askedAt asked: Instant, _ failure: TransferFailure, now: Instant, random: Double
  ) {
    if silence.endedAt >= asked { return }
    var failure = failure
    failure.retryAfter = nil  // that is about the one file
    outage.failed(failure, now: now, random: random)
    silence.waitedInVain(on: file, askedAt: asked, inARow: outage.failures, now: now)
  }

  /// A stat that waited since `since` was told that nothing is known.
  mutating func waitedInVain(since: Instant, now: Instant) {
    if answers { return }
    if let lastAnswer, lastAnswer >= since { return }
    silence.begin(now)
  }

  /// The network changed: what was away may be there.
  mutating func forgetOutage(_ now: Instant) {
    outage.progressed()
    silence.end(now)
  }

  /// Of HTTP/2 the streams of one connection are counted, else connections. What answers under one name may change;
  /// what it said of too much stays.
  mutating func speaks(httpVersion: Int) {
    capacity.speaks(isMultiplexed: httpVersion == 20)
  }

  /// The key of a URL's line: its scheme, host and port.
  static func key(of url: String) -> String {
    guard let scheme = url.firstRange(of: "://") else { return url }
    let rest = url[scheme.upperBound...]
    let authority = rest[..<(rest.firstIndex { $0 == "/" || $0 == "?" || $0 == "#" } ?? rest.endIndex)]
    let host = authority.lastIndex(of: "@").map { authority[authority.index(after: $0)...] } ?? authority
    return url[..<scheme.lowerBound].lowercased() + "://" + host.lowercased()
  }
}
