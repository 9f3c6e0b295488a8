import Base

/// Decides how many windows (lanes) a waiting reader's file may have in flight at once. Pure.
///
/// Two connections fill most lines. An origin that limits each connection needs more. While a reader takes all that
/// arrives, the number is doubled as long as that brings a fifth more; a step that does not is undone. Later another
/// trial begins, first with half as many lanes, which are kept if they bring the same. The reasons: lines change, a
/// rate says little while the line is just being filled, and every lane takes a share from other readers. For a film
/// whose pace is known, more are tried only after it has got clearly less than that for seconds. A 429 or 503 of the
/// origin halves the number.
struct LaneControl: Sendable, Equatable {
  static let least = 2
  /// Bytes that a reader must have read in sequence before more lanes are tried: a trial on a full line may stall a
  /// player that has just begun.
  static let provenLength: Int64 = 4 << 20
  static let most = 16
  /// By what factor the rate must rise for more lanes to be kept, and may fall for fewer.
  private static let leastGain = 1.2
  private static let leastLineGain = 1.1
  private static let leastKept = 0.93
  /// The least part of what players need that is enough.
  private static let leastPart = 0.9
  /// How long a step is measured, in seconds (at least three round trips).
  private static let watched = 0.4
  /// How long a number is kept after a step that brought nothing, in seconds.
  private static let rest = 5.0
  /// The longest such rest, to which it doubles when one trial after the other brings nothing.
  private static let longestRest = 60.0

  /// `draining`: fewer windows are requested and the former ones still arrive. What is measured meanwhile does not
  /// count.
  private enum Trial { case none, more, draining, fewer }
  /// Bytes a second of the file, and of the line that it shares with others.
  private struct Rates: Equatable {
    var file = 0.0
    var line = 0.0
  }

  /// The number to use now.
  private(set) var lanes = LaneControl.least
  /// The number without a trial.
  private(set) var settled = LaneControl.least
  private var settledRate = Rates()
  /// What the last step without a trial brought.
  private var lastRate: Rates?
  private var trial = Trial.none
  private var triedMore = false
  private var since: Instant?
  private var bytes: Int64 = 0
  private var lineBytes: Int64 = 0
  private var notBefore: Instant?
  /// Since when clearly less has come than players need; nil where others read, too.
  private var shortSince: Instant?
  private var pause = LaneControl.rest

  /// `count` bytes of the file arrived.
  mutating func received(_ count: Int) { bytes += Int64(count) }

  /// Called at each look, several times a second.
  ///
  /// - Parameters:
  ///   - isReaderLimited: Since the last look a reader took everything that arrived.
  ///   - enough: The bytes a second that the file's players need, where only they read. Then more lanes are tried only
  ///     when clearly less has come for ``rest``: a trial delays the window that a player needs first. On a line that
  ///     others use too, a little less comes now and then.
  ///   - lineBytes: The bytes that have arrived on the line so far, for all files.
  mutating func look(
    isReaderLimited: Bool, enough: Double = .infinity, lineBytes: Int64, roundTrip: Double, now: Instant
  ) {
    guard isReaderLimited else {
      since = nil
      shortSince = nil
      return
    }
    guard let start = since else {
      begin(at: now, lineBytes)
      return
    }
    let elapsed = now.seconds(since: start)
    // The first windows after a change take a round trip to arrive.
    guard elapsed >= max(Self.watched, 3 * roundTrip) else { return }
    let rates = Rates(file: Double(bytes) / elapsed, line: Double(lineBytes - self.lineBytes) / elapsed)
    begin(at: now, lineBytes)
    // Where nothing came, the number of lanes made no difference.
    if rates.file == 0, trial == .none { return }
    // More for this file and less for another is no gain; less for this file and more for another is no loss.
    let (file, line) = (rates.file / settledRate.file, rates.line / settledRate.line)
    let isMore = file >= Self.leastGain && line >= Self.leastLineGain
    let isSame = file >= Self.leastKept || line >= Self.leastKept
    switch trial {
    case .none:
      // A trial is compared with the better of two steps: one may have met an outage, beside which more lanes always
      // bring more.
      let former = lastRate
      lastRate = rates
      guard let former else { return }
      settledRate = Rates(file: max(former.file, rates.file), line: max(former.line, rates.line))
      let isShort = settledRate.file < Self.leastPart * enough
      shortSince = isShort && enough.isFinite ? shortSince ?? start : nil
      if let notBefore, now < notBefore { return }
      if settled > Self.least, triedMore || !isShort { return begin(.draining, now) }
      guard isShort, shortSince.map({ now.seconds(since: $0) >= Self.rest }) ?? true else { return }
      begin(.more, now)
    case .draining: trial = .fewer
    case .more where isMore, .fewer where isSame:
      settled = lanes
      settledRate = rates
      if trial == .more { pause = Self.rest }
      if trial == .more, rates.file >= Self.leastPart * enough { return settle(for: pause, now) }
      begin(trial == .more ? .more : .draining, now)
    case .more:
      // Too many lanes may have been kept while the line was just being filled: a trial with fewer begins soon.
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

  /// Keeps the best number for a while. The rest grows each time.
  private mutating func settle(for seconds: Double, _ now: Instant) {
    lanes = settled
    trial = .none
    notBefore = now.adding(seconds: seconds)
    if seconds == pause { pause = min(2 * pause, Self.longestRest) }
  }

  /// More lanes can bring nothing now: the control forgets what it measured and tried.
  mutating func rest() {
    if self != LaneControl() { self = LaneControl() }
  }

  /// The origin answered 429 or 503.
  mutating func pushedBack(now: Instant) {
    lanes = max(Self.least, lanes / 2)
    settled = lanes
    trial = .none
    notBefore = now.adding(seconds: 2 * Self.rest)
  }
}
