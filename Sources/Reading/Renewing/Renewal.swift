import Base
import Fetching
import Manifest

/// The link of one entry that has a resolver: whether it may be requested, and when the resolver is asked for another.
/// Pure.
///
/// One ask at a time. A link that brought bytes may be replaced a second after it was given; one that brought none, 30
/// seconds after. Each failure in a row doubles the pause before the next ask.
struct Renewal {
  /// What the next request of the entry waits for.
  enum Step: Equatable {
    /// For nothing: the link is good.
    case request
    /// For nothing; but the link ends soon, and the resolver is asked meanwhile.
    case requestAndAsk(ResolverAsk.Reason)
    /// For the answer to an ask that is to be made now.
    case ask(ResolverAsk.Reason)
    /// For an answer, or for the time of the next ask.
    case wait
    /// The last ask failed with that, and it is too early for another.
    case fail(String)
  }

  /// The pause after a link that brought bytes, and after one that brought none, in seconds.
  static let (shortPause, pause) = (1.0, 30.0)
  /// The longest pause after failures, in seconds.
  static let longestPause = 600.0
  /// How long before its end a link is replaced: a fifth of its life, within these bounds, in seconds.
  private static let margins: ClosedRange<Int64> = 1...60

  private(set) var link: ResolvedLink?
  /// Which link it is: 1 for the first.
  private(set) var number = 0
  /// The version whose bytes the link is known to lead to, and how it describes that.
  var joined: (generation: Int64, identity: GenerationCheck.Identity)?
  private(set) var isAsked = false
  /// When the link was given, in seconds since 1970.
  private var givenAt: Int64 = 0
  /// Why the link is of no use any more.
  private var death: ResolverAsk.Reason?
  private var hasBrought = false
  private var lastAsk: Instant?
  private var failures = 0
  private var failure: String?
  private var retryAt = Instant(nanoseconds: 0)

  /// `date`: of now, in seconds since 1970.
  func step(_ now: Instant, date: Int64) -> Step {
    if let link, death == nil, date < link.end ?? .max {
      if date < link.begin ?? .min { return .wait }
      guard let end = link.end, !isAsked, mayAsk(now) else { return .request }
      let margin = min(max((end - givenAt) / 5, Self.margins.lowerBound), Self.margins.upperBound)
      return end - date <= margin ? .requestAndAsk(.soon) : .request
    }
    if isAsked { return .wait }
    if mayAsk(now) { return .ask(death ?? (link == nil ? .first : .soon)) }
    return failure.map { .fail($0) } ?? .wait
  }

  private func mayAsk(_ now: Instant) -> Bool {
    if failures > 0 { return now >= retryAt }
    return lastAsk.map { now.seconds(since: $0) >= (hasBrought ? Self.shortPause : Self.pause) } ?? true
  }

  /// How many seconds it takes until the resolver may be asked again.
  func pause(_ now: Instant) -> Double { max(0, retryAt.seconds(since: now)) }

  mutating func asked(_ now: Instant) {
    isAsked = true
    lastAsk = now
  }

  mutating func answered(_ link: ResolvedLink, _ now: Instant, date: Int64) {
    if let end = link.end, end <= date { return failed("its link has ended already", now) }
    isAsked = false
    self.link = link
    number += 1
    givenAt = date
    (joined, death, hasBrought, failures, failure) = (nil, nil, false, 0, nil)
  }

  /// `isAccident`: the program ended, perhaps for another entry's sake. Twice, the readers wait for the next ask.
  mutating func failed(_ words: String, isAccident: Bool = false, _ now: Instant) {
    isAsked = false
    failures += 1
    let isFirst = isAccident && failures < 3
    failure = isFirst ? nil : words
    let doubled = Double(1 << min(failures - 1, 8))
    retryAt = now.adding(seconds: isFirst ? doubled : min(Self.longestPause, Self.pause * doubled))
  }

  /// The link is of no use any more.
  mutating func died(_ why: ResolverAsk.Reason) { death = death ?? why }

  /// The link brought bytes that were missing.
  mutating func brought() { hasBrought = true }
}
