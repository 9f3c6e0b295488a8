import Base

/// How many windows a waiting reader's file has under way at once: pure.
///
/// Most lines are filled by two connections. An origin that holds each connection back needs more: while a reader takes
/// all that comes, the number is doubled as long as that brings a fifth more, and goes back to the last number that did when
/// it does not. After a while it is tried again: lines change. An origin that says "too many" halves it.
struct LaneControl: Sendable, Equatable {
  static let least = 2
  /// Bytes in sequence that a reader must have read before more lanes are tried: a trial on a full line is a risk to a player
  /// that has just begun.
  static let provenLength: Int64 = 4 << 20
  static let most = 16
  /// What a step must bring to be kept.
  private static let worthwhile = 1.2
  /// How long a step is watched, in seconds (and two round trips at least).
  private static let watched = 0.4
  /// How long a number is kept after a step that brought nothing, in seconds.
  private static let rest = 5.0
  /// The longest it grows to when one trial after the other brings nothing.
  private static let longestRest = 60.0

  /// The number to use.
  private(set) var lanes = LaneControl.least
  private var settled = LaneControl.least
  private var settledRate = 0.0
  private var since: Instant?
  private var bytes: Int64 = 0
  private var notBefore: Instant?
  private var pause = LaneControl.rest

  /// `count` bytes came for the file.
  mutating func received(_ count: Int) { bytes += Int64(count) }

  /// A look, several times a second. `isHungry`: a reader took all there was, in all the time since the last look.
  mutating func look(isHungry: Bool, roundTrip: Double, now: Instant) {
    guard isHungry else {
      since = nil
      return
    }
    guard let start = since else {
      since = now
      bytes = 0
      return
    }
    let elapsed = now.seconds(since: start)
    // The first windows after a change are still on their way for a round trip.
    guard elapsed >= max(Self.watched, 3 * roundTrip) else { return }
    let rate = Double(bytes) / elapsed
    since = now
    bytes = 0
    if let notBefore, now < notBefore {
      settledRate = rate
      return
    }
    if lanes == settled || rate >= settledRate * Self.worthwhile {
      if lanes > settled { pause = Self.rest }
      settled = lanes
      settledRate = rate
      lanes = min(lanes * 2, Self.most)
      if lanes == settled { notBefore = now.adding(seconds: Self.rest) }
    } else {
      lanes = settled
      notBefore = now.adding(seconds: pause)
      pause = min(2 * pause, Self.longestRest)
    }
  }

  /// The origin said that it is too much.
  mutating func pushedBack(now: Instant) {
    lanes = max(Self.least, lanes / 2)
    settled = lanes
    notBefore = now.adding(seconds: 2 * Self.rest)
  }
}
