import Base

/// The judge of a second opinion: whether answers of another version are believed (P8). Pure.
///
/// One odd answer is no change: a new version needs a second answer that agrees, and one that was given up of late more
/// of them, as two servers behind one name may differ and each change costs all that is stored.
struct SecondOpinion {
  /// What becomes of an answer of another version.
  enum Verdict: Equatable {
    /// It is asked once more.
    case ask
    /// More answers must agree.
    case wait
    /// The version is believed.
    case believe
    /// The origin gives a new answer each time: a failure.
    case fickle
  }

  /// How often a resource may give a new answer each time before it counts as a failure.
  private static let mostSuspects = 6
  /// How long a version that was given up is remembered, in seconds.
  private static let formerSeconds = 600.0
  /// How many answers must agree on a version that was given up of late.
  private static let agreeingWhenFormer = 6

  /// A generation that one response spoke of.
  private(set) var suspect: GenerationCheck.Identity?
  /// Answers of another generation since the last byte that was missing.
  private var answers = 0
  /// How many more answers must agree in a row.
  private var agreeing = 0
  /// Versions that were given up, and when.
  private var former: [GenerationCheck.Identity: Instant] = [:]
  /// How often a second opinion was asked for.
  private(set) var asked = 0
  /// How often a body came back with other bytes, from an origin that gives no validators to tell that from.
  var mismatches = 0

  /// An answer speaks of `found`. `isConfirmation`: it was asked for as a second opinion; what was asked for before the
  /// doubt is none.
  mutating func heard(_ found: GenerationCheck.Identity, isConfirmation: Bool, now: Instant) -> Verdict {
    answers += 1
    if suspect == found {
      guard isConfirmation else { return .wait }
      agreeing -= 1
      return agreeing > 0 ? .wait : .believe
    }
    if answers > Self.mostSuspects {
      suspect = nil
      return .fickle
    }
    suspect = found
    let isFormer = former[found].map { now.seconds(since: $0) < Self.formerSeconds } ?? false
    agreeing = isFormer ? Self.agreeingWhenFormer : 1
    return .ask
  }

  /// A request for a second opinion was made.
  mutating func wasAsked() { asked += 1 }
  /// The known version answered.
  mutating func agreed() { suspect = nil }
  /// Bytes came that were missing.
  mutating func progressed() { answers = 0 }

  /// A new generation begins.
  mutating func superseded() {
    suspect = nil
    answers = 0
    mismatches = 0
  }

  /// The version `known` was given up for another one.
  mutating func replaced(_ known: GenerationCheck.Identity, now: Instant) {
    former = former.filter { now.seconds(since: $0.value) < Self.formerSeconds }
    former[known] = now
  }
}
