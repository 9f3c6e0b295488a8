import Base
import Fetching

/// When to ask again after failures: pure.
///
/// Exponential backoff with full jitter between half and all of the step, so that clients that failed together do not
/// come back together. Progress resets the count. Retry-After is honoured up to an hour.
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
  /// When the first of them failed.
  private var firstFailure: Instant?
  /// As ``notBefore``, while a reader waits.
  private var notBeforeWithReader: Instant?
  /// Not before this.
  private(set) var notBefore: Instant?
  /// Whether the origin itself named that time.
  private(set) var isAsked = false

  /// A byte came: whatever went wrong before is over.
  mutating func progressed() {
    failures = 0
    firstFailure = nil
    notBefore = nil
    notBeforeWithReader = nil
    isAsked = false
  }

  /// Another mirror is there to be asked at once; the count goes on, so that mirrors that all fail are not asked in a
  /// storm.
  mutating func skipPause() {
    if isAsked { return }
    notBefore = nil
    notBeforeWithReader = nil
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
    let begun = firstFailure ?? now
    firstFailure = begun
    // No longer than twice what it has lasted so far: the many attempts of a waiting reader must not keep the
    // continuation from an origin that was away for some seconds.
    let lasted = max(Self.longestWithReader, 2 * now.seconds(since: begun))
    let step = min(Self.firstPause * Double(1 << min(failures - 1, 16)), Self.longest, lasted)
    let jitter = 0.5 + random / 2
    notBefore = now.adding(seconds: step * jitter)
    notBeforeWithReader = now.adding(seconds: min(step, Self.longestWithReader) * jitter)
    isAsked = false
  }

  /// Whether an attempt may be made now, for a waiting reader or for nobody in particular.
  func permits(_ now: Instant, readerWaits: Bool) -> Bool { due(readerWaits: readerWaits).map { $0 <= now } ?? true }

  /// When the next attempt may be made; nil: now. A reader waits no longer than `longestWithReader` of backoff, but the
  /// origin's own word is kept.
  func due(readerWaits: Bool) -> Instant? { readerWaits && !isAsked ? notBeforeWithReader : notBefore }
}
