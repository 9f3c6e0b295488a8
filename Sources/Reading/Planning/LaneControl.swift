import Base

/// How many windows a waiting reader's file has under way at once: pure.
///
/// Most lines are filled by two connections. An origin that holds each connection back needs more: while a reader takes
/// all that comes, the number is doubled as long as that brings a fifth more, and goes back to the last number that did
/// when it does not. After a while it is tried again, first with half as many, which are kept if they bring the same:
/// lines change, what a line brings while it is just being filled says little, and every lane takes its share from
/// other readers. An origin that says "too many" halves the number.
struct LaneControl: Sendable, Equatable {
  static let least = 2
  /// Bytes in sequence that a reader must have read before more lanes are tried: a trial on a full line is a risk to a
  /// player that has just begun.
  static let provenLength: Int64 = 4 << 20
  static let most = 16
  /// What a step up must bring to be kept, and what one down must leave.
  private static let worthwhile = 1.2
  private static let lineWorthwhile = 1.1
  private static let same = 0.93
  /// How long a step is watched, in seconds (and two round trips at least).
  private static let watched = 0.4
  /// How long a number is kept after a step that brought nothing, in seconds.
  private static let rest = 5.0
  /// The longest it grows to when one trial after the other brings nothing.
  private static let longestRest = 60.0

  /// `draining`: fewer are asked for, and the windows of more are still coming; what comes meanwhile tells nothing.
  private enum Trial { case none, more, draining, fewer }
  /// Bytes a second of the file, and of the line that it shares with others.
  private struct Rates: Equatable {
    var file = 0.0
    var line = 0.0
  }

  /// The number to use.
  private(set) var lanes = LaneControl.least
  private var settled = LaneControl.least
  private var settledRate = Rates()
  private var trial = Trial.none
  private var triedMore = false
  private var since: Instant?
  private var bytes: Int64 = 0
  private var lineBytes: Int64 = 0
  private var notBefore: Instant?
  private var pause = LaneControl.rest

  /// `count` bytes came for the file.
  mutating func received(_ count: Int) { bytes += Int64(count) }

  /// A look, several times a second. `isHungry`: a reader took all there was, in all the time since the last look.
  /// `lineBytes`: what the line brought so far, for all its files.
  mutating func look(isHungry: Bool, lineBytes: Int64, roundTrip: Double, now: Instant) {
    guard isHungry else {
      since = nil
      return
    }
    guard let start = since else {
      begin(at: now, lineBytes)
      return
    }
    let elapsed = now.seconds(since: start)
    // The first windows after a change are still on their way for a round trip.
    guard elapsed >= max(Self.watched, 3 * roundTrip) else { return }
    let rates = Rates(file: Double(bytes) / elapsed, line: Double(lineBytes - self.lineBytes) / elapsed)
    begin(at: now, lineBytes)
    // More for one file that is less for another is no gain; less for it that another has is no loss.
    let (file, line) = (rates.file / settledRate.file, rates.line / settledRate.line)
    let isMore = file >= Self.worthwhile && line >= Self.lineWorthwhile
    let isSame = file >= Self.same || line >= Self.same
    switch trial {
    case .none:
      settledRate = rates
      if let notBefore, now < notBefore { return }
      begin(triedMore && settled > Self.least ? .draining : .more, now)
    case .draining: trial = .fewer
    case .more where isMore, .fewer where isSame:
      settled = lanes
      settledRate = rates
      if trial == .more { pause = Self.rest }
      begin(trial == .more ? .more : .draining, now)
    case .more:
      // Too many may have been kept while the line was just being filled: that is looked at soon.
      settle(for: settled > Self.least ? Self.rest / 5 : pause, now)
      triedMore = true
    case .fewer:
      settle(for: pause, now)
      triedMore = false
    }
  }

  private mutating func begin(at now: Instant, _ lineBytes: Int64) {
    since = now
    bytes = 0
    self.lineBytes = lineBytes
  }

  private mutating func begin(_ next: Trial, _ now: Instant) {
    let count = next == .more ? min(settled * 2, Self.most) : max(settled / 2, Self.least)
    guard count != settled else {
      settle(for: Self.rest, now)
      triedMore = next == .more
      return
    }
    trial = next
    lanes = count
  }

  /// Stays with what was best for a while, the longer the more often it was.
  private mutating func settle(for seconds: Double, _ now: Instant) {
    lanes = settled
    trial = .none
    notBefore = now.adding(seconds: seconds)
    if seconds == pause { pause = min(2 * pause, Self.longestRest) }
  }

  /// The origin said that it is too much.
  mutating func pushedBack(now: Instant) {
    lanes = max(Self.least, lanes / 2)
    settled = lanes
    trial = .none
    notBefore = now.adding(seconds: 2 * Self.rest)
  }
}
