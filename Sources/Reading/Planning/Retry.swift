import Base
import Fetching

/// When to send the next request after failures. Pure.
///
/// Exponential backoff. The jitter takes between half of the step and all of it, so that clients that failed together
/// do not come back together. Progress resets the count. Retry-After is obeyed up to an hour.
struct Retry: Sendable, Equatable {
  /// The first backoff, in seconds.
  static let firstPause = 0.25
  /// The longest backoff while a reader waits, in seconds, without Retry-After: an origin that is back is noticed soon.
  static let longestWithReader = 1.0
  /// The longest backoff when no reader waits, in seconds.
  static let longest = 300.0
  /// The longest Retry-After that is obeyed, in seconds.
  static let longestAsked = 3600.0

  /// How many attempts in a row failed without a byte.
  private(set) var failures = 0
  /// When the first of them failed.
  private var firstFailure: Instant?
  /// As ``notBefore``, while a reader waits.
  private var notBeforeWithReader: Instant?
  /// When the backoff ends; nil: now.
  private var notBefore: Instant?
  /// The time that the origin named (Retry-After), which holds in place of the backoff; nil: it named none.
  private var named: Instant?
  /// Whether the origin named the time of the next attempt.
  var hasRetryAfter: Bool { named != nil }

  /// A byte arrived: the failures before it do not count any more.
  mutating func progressed() {
    failures = 0
    firstFailure = nil
    notBefore = nil
    notBeforeWithReader = nil
    named = nil
  }

  /// Another mirror is requested next, which named that `time`; nil: it named none. The time that the one before it
  /// named does not bind it.
  mutating func changed(toMirrorNaming time: Instant?) { named = time }

  /// Another mirror can be requested at once, unless it named a time. The count goes on, so that mirrors that all fail
  /// do not get a storm of requests.
  mutating func skipPause() {
    notBefore = nil
    notBeforeWithReader = nil
  }

  /// A new reader wants the file: an attempt is worth making now, unless the origin named a time.
  mutating func hurry() {
    if !hasRetryAfter { progressed() }
  }

  /// An attempt failed. `random` is in 0..<1.
  mutating func failed(_ failure: TransferFailure, now: Instant, random: Double) {
    failures += 1
    named = Self.time(namedBy: failure, now: now)
    let begun = firstFailure ?? now
    firstFailure = begun
    // At most twice the time since the first failure: a waiting reader's many attempts must not keep the background
    // download from an origin that was down for some seconds.
    let lasted = max(Self.longestWithReader, 2 * now.seconds(since: begun))
    let step = min(Self.firstPause * Double(1 << min(failures - 1, 16)), Self.longest, lasted)
    let jitter = 0.5 + random / 2
    notBefore = now.adding(seconds: step * jitter)
    notBeforeWithReader = now.adding(seconds: min(step, Self.longestWithReader) * jitter)
  }

  /// The time before which the origin is not to be requested again (Retry-After); nil: it named none.
  static func time(namedBy failure: TransferFailure, now: Instant) -> Instant? {
    failure.retryAfter.map { now.adding(seconds: min(max($0, 0), longestAsked)) }
  }

  /// Whether an attempt may be made now.
  func permits(_ now: Instant, readerWaits: Bool) -> Bool { due(readerWaits: readerWaits).map { $0 <= now } ?? true }

  /// The earliest time of the next attempt; nil: now. A waiting reader has at most `longestWithReader` of backoff, but
  /// Retry-After is obeyed.
  func due(readerWaits: Bool) -> Instant? { named ?? (readerWaits ? notBeforeWithReader : notBefore) }
}
