import Base
import Fetching
import Manifest

/// The link of one entry that has a resolver: whether it may be requested, and when the resolver is asked for another.
/// Pure.
///
/// One ask at a time. A link that brought bytes may be replaced a second after it was asked for; one that brought none,
/// 30 seconds after, and counts as a failure. Each failure in a row doubles that pause, during which the readers get
/// the error at once.
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
    /// The last ask failed with that, or its link did, and it is too early for another.
    case fail(String)
  }

  /// The pause after a link that brought bytes, and after one that brought none, in seconds.
  static let (shortPause, pause) = (1.0, 30.0)
  /// The longest pause after failures, in seconds.
  static let longestPause = 600.0
  /// How long before its end a link is replaced: a fifth of its life, within these bounds, in seconds.
  private static let margins: ClosedRange<Int64> = 1...60
  /// How long a reader waits for a link to begin, and how far ahead that is told, in seconds.
  private static let (longestWait, day): (Int64, Int64) = (10, 86400)

  private(set) var link: ResolvedLink?
  /// Which link it is: 1 for the first.
  private(set) var number = 0
  /// The version whose bytes the link is known to lead to, and how it describes that.
  private(set) var joined: (generation: Int64, identity: GenerationCheck.Identity)?
  /// The digest that the newest link told of that was known to lead to a version, and that version.
  private var told: (generation: Int64, checksum: Checksum)?
  private(set) var isAsked = false
  /// When the link was given, and when the first part of it ends, in seconds since 1970.
  private var (givenAt, firstEnd): (Int64, Int64?) = (0, nil)
  private var beginsAt = Instant(nanoseconds: 0)
  /// Why the link is of no use any more.
  private var death: ResolverAsk.Reason?
  private var hasBrought = false
  private var isUsed = false
  /// Whether a link was replaced for its length since one brought bytes.
  private var hadOtherSize = false
  private var lastAsk = Instant(nanoseconds: 0)
  /// When the resolver may be asked again.
  private var mayAskAt = Instant(nanoseconds: 0)
  private var failures = 0
  /// What readers are told who have no link until then; nil: they wait.
  private var failure: String?

  /// `date`: of now, in seconds since 1970.
  func step(_ now: Instant, date: Int64) -> Step {
    if let link, death == nil, date < link.end ?? .max {
      if now < beginsAt { return .wait }
      guard let end = firstEnd, !isAsked, now >= mayAskAt else { return .request }
      let margin = min(max((end - givenAt) / 5, Self.margins.lowerBound), Self.margins.upperBound)
      return end - date <= margin ? .requestAndAsk(.soon) : .request
    }
    if isAsked { return .wait }
    if now >= mayAskAt { return .ask(death ?? (link == nil ? .first : .soon)) }
    return failure.map { .fail($0) } ?? .wait
  }

  mutating func asked(_ now: Instant) {
    isAsked = true
    lastAsk = now
  }

  mutating func answered(_ link: ResolvedLink, _ now: Instant, date: Int64) {
    if let end = link.end, end <= date { return failed("its link has ended already", now) }
    let begin = max(date, link.begin ?? date)
    if begin - date > Self.longestWait { return beginsLate(begin, now, date: date) }
    isAsked = false
    self.link = link
    number += 1
    (givenAt, firstEnd) = (date, link.firstEnd(after: date))
    beginsAt = now.adding(seconds: Double(begin - date))
    (joined, death, hasBrought) = (nil, nil, false)
    mayAskAt = lastAsk.adding(seconds: Self.shortPause)
    (isUsed, failure) = (false, nil)
  }

  /// The link is known to lead to a version, which its answers describe so.
  mutating func joins(_ generation: Int64, _ identity: GenerationCheck.Identity) {
    joined = (generation, identity)
    if let checksum = link?.checksum { told = (generation, checksum) }
  }

  /// What a version is compared with when it is complete. A link that no answer came by may lead to another one, and
  /// its digest counts for nothing.
  func checksum(of generation: Int64?) -> Checksum? { told?.generation == generation ? told?.checksum : nil }

  /// A request goes over the link. Until it brings bytes, it counts as one that does not; a link that nobody used may
  /// be as good as any.
  mutating func used() {
    if isUsed { return }
    isUsed = true
    mayAskAt = lastAsk.adding(seconds: Self.pause)
    failure = "its last link ended before it brought anything"
  }

  /// The link begins later than a reader waits for.
  private mutating func beginsLate(_ begin: Int64, _ now: Instant, date: Int64) {
    let pause = min(Double(begin - date), Self.longestPause)
    let time = begin - date <= Self.day ? HTTPDate.format(begin) : nil
    failed("its link is good only " + (time.map { "from \($0) on" } ?? "in more than a day"), again: pause, now)
  }

  /// `isAccident`: the program ended, perhaps for another entry's sake. Twice, the readers wait for the next ask.
  /// `again`: the pause before that, where the failure itself says it, in seconds.
  mutating func failed(_ words: String, isAccident: Bool = false, again: Double? = nil, _ now: Instant) {
    isAsked = false
    failures += 1
    let isFirst = isAccident && failures < 3
    failure = isFirst ? nil : words
    mayAskAt = now.adding(seconds: isFirst ? Double(1 << (failures - 1)) : max(again ?? doubledPause, Self.pause))
  }

  /// The pause after so many failures in a row, in seconds.
  private var doubledPause: Double { min(Self.longestPause, Self.pause * Double(1 << min(failures - 1, 8))) }

  /// The link is of no use any more, as `message` says.
  mutating func died(_ why: ResolverAsk.Reason, _ message: String) {
    guard death == nil else { return }
    death = why
    if hasBrought { return }
    if why == .size, !hadOtherSize {
      // The resolver may be wrong only about the length. It is asked at once, and then the origin is believed.
      (hadOtherSize, failure) = (true, nil)
      mayAskAt = lastAsk.adding(seconds: Self.shortPause)
    } else {
      failures += 1
      failure = "its last one brought nothing: \(message)"
      mayAskAt = lastAsk.adding(seconds: doubledPause)
    }
  }

  /// The link brought bytes that were missing.
  mutating func brought() {
    // An ask for the next link may have failed since: that failure stands.
    if hasBrought { return }
    (hasBrought, hadOtherSize, failures, failure) = (true, false, 0, nil)
    mayAskAt = lastAsk.adding(seconds: Self.shortPause)
  }
}
