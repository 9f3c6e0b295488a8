import Base
import Fetching

/// How an origin answers requests for ranges of one resource. Pure.
struct RangeUse {
  private enum Support: Equatable {
    /// It answers with ranges, as far as is known.
    case assumed
    /// It answered with the whole body. Requests keep their range, one at a time: a range that comes after all saves
    /// much, and the whole body comes no later.
    case ignored
    /// It answered with something unusable. Until that time the whole body is requested.
    case unusable(until: Instant)
  }

  private var support = Support.assumed
  /// Whether the last answer that told was a range; nil before it.
  private(set) var works: Bool?
  /// The origin answers If-Range with the whole body of the very version that was named: requests omit the header, and
  /// the answer's own validators are compared.
  var omitsIfRange = false
  /// Unusable answers in a row.
  var unusableAnswers = 0
  /// Transfers in a row that brought bytes but none that was missing: an origin without ranges that breaks off at the
  /// same place each time. Such bytes are no progress.
  var fruitless = 0
  /// Answers in a row that were far shorter than the requested range.
  private var shortAnswers = 0

  /// Whether the plan requests the whole body instead of windows.
  var wantsWhole: Bool { support != .assumed }

  /// Whether a request may carry a Range header.
  func mayAskForRange(_ now: Instant) -> Bool {
    if case .unusable(let until) = support { return now >= until }
    return true
  }

  /// The origin answered with a range, or another mirror is requested now.
  mutating func foundWorking() { support = .assumed }
  /// The origin answered a range with the whole body.
  mutating func foundIgnored() {
    support = .ignored
    works = false
  }
  /// Ranges do not work: they are not tried again for 60 s.
  mutating func foundUnusable(_ now: Instant) {
    support = .unusable(until: now.adding(seconds: 60))
    works = false
  }

  /// Notes an answer's range. An origin may send less than the requested range. After four tiny answers in a row the
  /// whole body is requested.
  mutating func came(_ range: ByteRange, asked: ByteRange?, now: Instant) {
    works = true
    guard let asked, range.end < asked.end, range.count < Planner.smallestWindow / 2 else {
      shortAnswers = 0
      return
    }
    shortAnswers += 1
    if shortAnswers >= 4 { foundUnusable(now) }
  }
}
