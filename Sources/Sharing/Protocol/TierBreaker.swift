import Base

/// Whether the store is used. Once it does not answer, the node goes on alone, asks it now and then, and comes back
/// when it answers. Pure: the caller says when what happened.
package struct TierBreaker: Hashable, Sendable {
  /// What went wrong with a request.
  package enum Failure: Hashable, Sendable {
    /// No answer within ``detection(now:)``, or no connection.
    case silent
    /// 500 and the like, a cut body.
    case error
    /// 503 SlowDown, 429: the store wants to be asked less.
    case slowDown
    /// 403, or a format that this program does not know: a person has to do something.
    case denied
    /// No room: reading goes on.
    case full
  }

  /// How long a request may go unanswered, in seconds: twice as long as the slowest answer of late took, 0.3 s at least
  /// and 1.0 s at most. On a busy machine answers come late, and a store that is slow for a moment is not gone: who
  /// leaves it asks the origin for what another node fetches.
  package func detection(now: Instant) -> Double { min(max(Self.shortest, 2 * slowest(now)), Self.longest) }
  /// The shortest detection, and the longest, in seconds.
  package static let shortest = 0.3
  package static let longest = 1.0
  /// What an answer took counts for half as much so many seconds later.
  private static let halfLife = 10.0

  /// Whether blocks and leases are asked for.
  package private(set) var isUp = true
  /// When the store is asked next while it is not used; nil while a question is under way.
  package private(set) var asksAt: Instant?
  /// Until when nothing is uploaded.
  package private(set) var fullUntil: Instant?

  private struct Slowest: Hashable, Sendable { var seconds = 0.0, at = Instant(nanoseconds: 0) }

  /// The last eight requests, a bit each: 1 is a failure.
  private var failures: UInt8 = 0
  private var lastAnswer: Instant?
  /// What the slowest answer took, in seconds, and when it came.
  private var slowest = Slowest()

  /// How long the request that opened the breaker had no answer, in seconds.
  private var silence = 0.0
  /// When the breaker last gave the store up, and when a request last found it away.
  private var gone: Instant?
  private var lastOpened: Instant?
  /// How long the store is left alone, in seconds.
  private var pause = 0.0
  private var pauseOfUploads = 0.0

  /// A store that is believed to be there.
  package init() {}

  /// Whether blocks are uploaded.
  package func takesUploads(now: Instant) -> Bool { isUp && fullUntil.map { now >= $0 } ?? true }

  /// Whether the caller is to ask the store now whether it is back: one question at a time.
  package mutating func asks(now: Instant) -> Bool {
    guard !isUp, let asksAt, now >= asksAt else { return false }
    self.asksAt = nil
    return true
  }

  private func slowest(_ now: Instant) -> Double {
    guard slowest.seconds > 0 else { return 0 }
    let halvings = max(0, now.seconds(since: slowest.at)) / Self.halfLife
    guard halvings < 20 else { return 0 }
    let whole = halvings.rounded(.down)
    return slowest.seconds * (1 - (halvings - whole) / 2) / Double(1 << Int(whole))
  }

  /// Whether the store had no room when it was last offered something.
  package var isFull: Bool { pauseOfUploads > 0 }

  private mutating func took(_ seconds: Double, now: Instant) {
    if seconds >= slowest(now) { slowest = Slowest(seconds: seconds, at: now) }
  }

  /// The store answered, also with 404 or 412. `seconds`: what that took, if its time is that of a small answer.
  package mutating func answered(now: Instant, after seconds: Double? = nil, isUpload: Bool = false) {
    failures <<= 1
    lastAnswer = now
    if isUpload { pauseOfUploads = 0 }
    if let seconds { took(seconds, now: now) }
    // An answer to a request that was sent before says nothing of now: only the question's own closes it.
    if !isUp, asksAt == nil {
      isUp = true
      failures = 0
      // It was slow, not gone.
      took(silence, now: now)
      silence = 0
    }
  }

  /// A request failed.
  package mutating func failed(_ failure: Failure, now: Instant) {
    if failure == .full {
      pauseOfUploads = min(max(2 * pauseOfUploads, 30), 600)
      fullUntil = now.adding(seconds: pauseOfUploads)
      return
    }
    guard isUp else {
      if asksAt == nil { open(now: now, atLeast: Self.least(failure)) }
      return
    }
    failures = failures << 1 | 1
    silence = failure == .silent ? detection(now: now) : 0
    // While others are answered, one request without an answer says little.
    let isQuiet = lastAnswer.map { now.seconds(since: $0) >= 0.3 } ?? true
    switch failure {
    case .silent where isQuiet || failures.nonzeroBitCount >= 3: open(now: now, atLeast: Self.least(failure))
    case .error where failures.nonzeroBitCount >= 3: open(now: now, atLeast: Self.least(failure))
    case .slowDown, .denied: open(now: now, atLeast: Self.least(failure))
    // Others are answered: it is slow.
    case .silent: took(silence, now: now)
    default: break
    }
  }

  /// The shortest pause after a failure, in seconds.
  private static func least(_ failure: Failure) -> Double {
    switch failure {
    // While the store is away, this node fetches from the origin what another node fetches too. A restart of the store
    // takes seconds: the node notices soon that it is back.
    case .silent: 0.5
    case .denied: 30
    default: 1
    }
  }

  /// The store is left alone: at first for a moment, and then for a quarter of the time that it has been away.
  private mutating func open(now: Instant, atLeast least: Double) {
    if isUp {
      // One that fails again soon after it came back is left alone for longer.
      let isAgain = lastOpened.map { now.seconds(since: $0) < 2 * pause + 10 } ?? false
      pause = isAgain ? 2 * pause : 0
      gone = now
    } else if let gone {
      pause = max(pause, now.seconds(since: gone) / 4)
    }
    pause = max(min(pause, 5), least)
    lastOpened = now
    isUp = false
    failures = 0
    asksAt = now.adding(seconds: pause)
  }
}
