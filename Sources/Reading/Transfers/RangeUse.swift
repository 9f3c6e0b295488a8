import Base
import Fetching

/// How an origin takes requests for ranges of one resource. Pure.
struct RangeUse {
  private enum Support: Equatable {
    /// It gives ranges, as far as is known.
    case assumed
    /// It answered with the whole. It is asked for a range all the same, one at a time: a range that comes after all is
    /// worth much, and the whole comes no later.
    case ignored
    /// It answered with what cannot be used. Until that time it is asked for the whole.
    case unusable(until: Instant)
  }

  private var support = Support.assumed
  /// It answers If-Range with the whole of the very version that was named: the answer's own validators must do.
  var omitsIfRange = false
  /// Answers in a row that could not be used.
  var unusableAnswers = 0
  /// Transfers in a row that brought bytes and none that was missing: an origin without ranges that breaks off at the
  /// same place each time. What they bring is no progress.
  var fruitless = 0
  /// Answers in a row that were far shorter than what was asked for.
  private var shortAnswers = 0

  /// Whether it is asked for everything at once.
  var wantsWhole: Bool { support != .assumed }

  /// Whether a request may have a Range.
  func isAsked(_ now: Instant) -> Bool {
    if case .unusable(let until) = support { return now >= until }
    return true
  }

  /// A range came, or another server is asked.
  mutating func foundWorking() { support = .assumed }
  /// The whole came instead of a range.
  mutating func foundIgnored() { support = .ignored }
  /// Ranges do not work: not tried again for a while.
  mutating func foundUnusable(_ now: Instant) { support = .unusable(until: now.adding(seconds: 60)) }

  /// An origin may send less than was asked for. One that sends next to nothing each time is asked for the whole.
  mutating func came(_ range: ByteRange, asked: ByteRange?, now: Instant) {
    guard let asked, range.end < asked.end, range.count < Planner.smallestWindow / 2 else {
      shortAnswers = 0
      return
    }
    shortAnswers += 1
    if shortAnswers >= 4 { foundUnusable(now) }
  }
}
