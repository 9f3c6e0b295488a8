import Base

/// Decides whether responses of another version are believed (P8). Pure.
///
/// One odd response is not a change: a new version needs a second response that agrees. A version that was replaced
/// within the last ten minutes needs six: two servers behind one name may differ, and each change costs all stored
/// bytes.
struct SecondOpinion {
  /// What follows from a response of another version.
  enum Verdict: Equatable {
    /// The scheduler requests a second opinion.
    case ask
    /// More answers must agree.
    case wait
    /// The version is believed.
    case believe
    /// The origin gives another version with each response: a failure.
    case fickle
  }

  /// After how many responses of other versions without progress the origin counts as fickle.
  private static let mostSuspects = 6
  /// How long a replaced version is remembered, in seconds.
  private static let formerSeconds = 600.0
  /// How many responses must agree on a version that was replaced recently.
  private static let agreeingWhenFormer = 6

  /// The version that a response spoke of and that is not believed yet.
  private(set) var suspect: GenerationCheck.Identity?
  /// Responses of another generation since the last missing byte arrived.
  private var oddAnswers = 0
  /// How many more responses must agree in a row.
  private var agreeing = 0
  /// Replaced versions, and when they were replaced.
  private var former: [GenerationCheck.Identity: Instant] = [:]
  /// Where the next one is requested: the target to which the entry's URL led the last one, if that spoke of a third
  /// version. A redirect may lead to another host each time. nil: by the entry's own URL.
  private(set) var target: String?
  /// How many second opinions were requested.
  private(set) var requests = 0
  /// The bytes decide where an origin sends no validators.
  var comparison = Comparison()

  /// A response speaks of `found`. `isConfirmation`: it was requested as a second opinion. A request from before the
  /// doubt is none. `redirect`: where a redirect led it; nil: nowhere.
  mutating func heard(
    _ found: GenerationCheck.Identity, isConfirmation: Bool, redirect: String? = nil, now: Instant
  ) -> Verdict {
    oddAnswers += 1
    if suspect == found {
      guard isConfirmation else { return .wait }
      agreeing -= 1
      return agreeing > 0 ? .wait : .believe
    }
    if oddAnswers > Self.mostSuspects {
      // The retry that follows begins the count anew: an origin that is stable again is believed.
      (suspect, target) = (nil, nil)
      oddAnswers = 0
      return .fickle
    }
    (suspect, target) = (found, isConfirmation ? redirect : nil)
    let isFormer = former[found].map { now.seconds(since: $0) < Self.formerSeconds } ?? false
    agreeing = isFormer ? Self.agreeingWhenFormer : 1
    return .ask
  }

  /// A second opinion was requested.
  mutating func wasAsked() { requests += 1 }
  /// A response was of the known version.
  mutating func agreed() { (suspect, target) = (nil, nil) }
  /// Missing bytes arrived.
  mutating func progressed() { oddAnswers = 0 }

  /// A new generation begins.
  mutating func superseded() {
    (suspect, target) = (nil, nil)
    oddAnswers = 0
    comparison = Comparison()
  }

  /// The version `known` was replaced.
  mutating func replaced(_ known: GenerationCheck.Identity, now: Instant) {
    former = former.filter { now.seconds(since: $0.value) < Self.formerSeconds }
    former[known] = now
  }
}
