import Base
import Fetching

/// When to ask again after failures: pure.
///
/// Exponential backoff with full jitter between half and all of the step, so that clients that failed together do not come
/// back together. Progress resets the count. Retry-After is honoured up to an hour.
struct Retry: Sendable, Equatable {
  /// The first pause, in seconds.
  static let firstPause = 0.25
  /// The longest pause without Retry-After while a reader waits: an origin that is back is noticed soon.
  static let longestWithReader = 1.0
  /// The longest without one.
  static let longest = 300.0
  /// The longest Retry-After that is believed.
  static let longestAsked = 3600.0

  /// How many attempts in a row failed without a byte.
  private(set) var failures = 0
  /// Not before this.
  private(set) var notBefore: Instant?
  /// Whether the origin itself named that time.
  private(set) var isAsked = false

  /// A byte came: whatever went wrong before is over.
  mutating func progressed() {
    failures = 0
    notBefore = nil
    isAsked = false
  }

  /// Someone new wants it: an attempt is worth making now, unless the origin itself named a time.
  mutating func hurry() {
    if !isAsked { progressed() }
  }

  /// An attempt failed. `random` is in 0..<1.
  mutating func failed(_ failure: TransferFailure, now: Instant, random: Double) {
    failures += 1
    if let asked = failure.retryAfter {
      notBefore = now.adding(seconds: min(max(asked, 0), Self.longestAsked))
      isAsked = true
      return
    }
    let step = min(Self.firstPause * Double(1 << min(failures - 1, 16)), Self.longest)
    notBefore = now.adding(seconds: step * (0.5 + random / 2))
    isAsked = false
  }

  /// Whether an attempt may be made now, for a waiting reader or for nobody in particular.
  func permits(_ now: Instant, readerWaits: Bool) -> Bool { due(readerWaits: readerWaits).map { $0 <= now } ?? true }

  /// When the next attempt may be made; nil: now. A reader waits no longer than `longestWithReader` of backoff, counted from
  /// the end of the pause, but the origin's own word is kept.
  func due(readerWaits: Bool) -> Instant? {
    guard let notBefore else { return nil }
    if !readerWaits || isAsked { return notBefore }
    let step = min(Self.firstPause * Double(1 << min(max(failures - 1, 0), 16)), Self.longest)
    let excess = max(0, step - Self.longestWithReader)
    return notBefore.adding(seconds: -excess)
  }
}
