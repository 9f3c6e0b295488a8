import Base

/// Whether an origin holds each connection to a part of the line, and how many connections bring more. Pure.
///
/// The evidence is the sum: on a full line several answers bring together what one brings alone. Where each connection
/// is slow, the sum grows with their number. So rates are measured apart for each number of answers that come at once,
/// and a rate that is not steady (TCP still gains speed) says nothing.
///
/// Once several connections have shown the rate of one, four times as many are worth a trial. Where they bring much
/// less than that rate each, the line is full: the number is halved until it is about what the bytes that come need.
struct SlowConnections: Sendable, Equatable {
  /// What is known: bytes a second of one connection, and how many at once were of use.
  struct Known: Sendable, Equatable {
    var rate: Double
    var count: Int
  }

  /// Rates of one connection outside of this are measured wrongly, or noted wrongly.
  static let rates = 16e3...1e9
  /// The most connections of which a note is believed.
  static let mostNoted = 64
  /// By how much the number grows.
  private static let leap = 4
  /// The least part of the rate of one that each of several must bring, and below which the line is full.
  private static let leastKept = 0.8
  private static let leastUsed = 0.7
  /// How many times as many as what comes needs are used then.
  private static let spareShare = 1.15
  /// The seconds, of a number of connections, over which a rate is measured, and for how long it is compared.
  private static let slice = 0.08
  private static let memory = 5.0
  /// For how many seconds no more than the line was found to take are tried: few at first, because the machine may
  /// have had other work, and twice as many each time.
  private static let shortestRest = 2.0
  private static let longestRest = 8.0
  /// For how many seconds no more are tried after a refusal.
  private static let refusedRest = 60.0
  /// Refusals within so many seconds are one.
  private static let burst = 1.0
  /// Seconds of bytes that agree with nothing, after which nothing is known.
  private static let longestDoubt = 10.0

  /// What came over one number of connections, or over numbers near each other.
  private struct Slot: Equatable {
    var bytes: Int64 = 0
    var seconds = 0.0
    /// Seconds by connections.
    var each = 0.0
    /// The last two rates of one connection, and their mean number.
    var newest: Known?
    var former: Known?
    var measuredAt = Instant(nanoseconds: 0)
  }

  /// What one response brought at most: where that is much more, the origin holds no connection back. After a loss or a
  /// pause each is slow for a while, and more of them would only lose more.
  private struct Swiftest: Equatable {
    /// The least part of it that connections bring which the origin holds back.
    static let leastPart = 0.6
    /// What is shorter may have waited in a buffer.
    private static let leastBytes: Int64 = 128 << 10
    private static let leastSeconds = 0.08
    private static let memory = 30.0
    private var rate = 0.0
    private var measuredAt = Instant(nanoseconds: 0)

    mutating func ended(_ bytes: Int64, after seconds: Double, now: Instant) {
      guard bytes >= Self.leastBytes, seconds >= Self.leastSeconds else { return }
      let mean = Double(bytes) / seconds
      if mean >= rate || now.seconds(since: measuredAt) >= Self.memory {
        rate = mean
        measuredAt = now
      }
    }

    /// Bytes a second, of late.
    func rate(_ now: Instant) -> Double { now.seconds(since: measuredAt) < Self.memory ? rate : 0 }
  }

  private var swiftest = Swiftest()
  private var slots = [Slot](repeating: Slot(), count: 8)
  /// Bytes a second of one connection; nil: it is not known that they are slow.
  private var rate: Double?
  /// How many at once have each brought that.
  private var proven = 1
  /// Whether this mount has seen it, and whether it has found out anything, be it that a note is wrong.
  private var isConfirmed = false
  private(set) var hasFound = false
  /// The most that bring more, until when.
  private var full = Int.max
  private var fullUntil = Instant(nanoseconds: 0)
  private var pause = SlowConnections.shortestRest
  private var refusedAt: Instant?
  private var doubt = 0.0
  private var hasChanged = true

  /// How many connections are worth their while for a reader that takes all that comes; nil: it is not known that they
  /// are slow.
  func known(_ now: Instant) -> Known? {
    guard let rate else { return nil }
    return Known(rate: rate, count: min(proven * Self.leap, now < fullUntil ? full : .max))
  }

  /// What is worth a note: the connections that were of use.
  var noted: Known? { rate.map { Known(rate: $0, count: proven) } }

  /// A note was made of it: only what is found from now on counts.
  mutating func wasNoted() { hasFound = false }

  /// An earlier mount noted this.
  mutating func expect(_ note: Known) {
    guard rate == nil, Self.rates.contains(note.rate) else { return }
    rate = note.rate
    proven = max(1, min(note.count, Self.mostNoted) / Self.leap)
  }

  /// An answer began: what comes next cannot be counted to either number.
  mutating func changed() { hasChanged = true }

  /// An answer ended that brought `bytes` within `seconds`.
  mutating func ended(_ bytes: Int64, after seconds: Double, now: Instant) {
    swiftest.ended(bytes, after: seconds, now: now)
    hasChanged = true
  }

  /// `count` bytes came over `flowing` connections, `seconds` after the last.
  mutating func received(_ count: Int, over flowing: Int, after seconds: Double, roundTrip: Double, now: Instant) {
    defer { hasChanged = false }
    guard !hasChanged, flowing > 0 else { return }
    // 1, 2, 3 and 4, 5 to 8 and so on: many connections are seldom the same number for long.
    let index = min(Int.bitWidth - (flowing - 1).leadingZeroBitCount, slots.count - 1)
    slots[index].bytes += Int64(count)
    slots[index].seconds += seconds
    slots[index].each += seconds * Double(flowing)
    let slot = slots[index]
    guard slot.seconds >= max(Self.slice, min(roundTrip, 0.5)) else { return }
    let mean = Known(rate: Double(slot.bytes) / slot.each, count: Int((slot.each / slot.seconds).rounded()))
    let isRecent = now.seconds(since: slot.measuredAt) < Self.memory
    slots[index] = Slot(newest: mean, former: isRecent ? slot.newest : nil, measuredAt: now)
    if rate == nil { find(index, now) } else { check(index, slot.seconds, now) }
  }

  /// Compares with fewer connections.
  private mutating func find(_ index: Int, _ now: Instant) {
    guard let (least, _, count) = rates(index, now) else { return }
    for fewer in 0..<index {
      guard let (low, high, reference) = rates(fewer, now), low >= Self.leastKept * high, 2 * count >= 3 * reference,
        least >= Self.leastKept * high, Self.rates.contains(high),
        high >= Swiftest.leastPart * swiftest.rate(now)
      else { continue }
      rate = (low + high) / 2
      proven = count
      isConfirmed = true
      hasFound = true
      doubt = 0
      return
    }
  }

  /// Compares with what is known.
  private mutating func check(_ index: Int, _ seconds: Double, _ now: Instant) {
    guard let known = rate, let (low, high, count) = rates(index, now) else { return }
    if low > known / Self.leastKept {
      // They are faster than before, or what waited in the machine's buffers came at once.
      rate = min(known * 0.8 + known / Self.leastKept * 0.2, Self.rates.upperBound)
      doubt = 0
    } else if low >= Self.leastKept * known {
      doubt = 0
      // Less than known may be a part of a line that is just full.
      rate = known + max(0, low - known) * 0.1
      if count > 1 {
        isConfirmed = true
        hasFound = true
        proven = max(proven, count)
        if count > full { pause = Self.shortestRest }
      }
    } else if high < Self.leastUsed * known, count > 1 {
      // A note that is wrong is forgotten; what this mount has seen says how many fill the line.
      guard isConfirmed else { return forget() }
      doubt += seconds
      let isResting = now < fullUntil
      // Those that are too many still end.
      if isResting, count > full { return }
      full = max(1, count / 2, Int((Double(count) * high / known * Self.spareShare).rounded(.up)))
      if isResting { return }
      fullUntil = now.adding(seconds: pause)
      pause = min(2 * pause, Self.longestRest)
    } else {
      doubt += seconds
    }
    if doubt > Self.longestDoubt { forget() }
  }

  /// The least and the greatest of the last two rates of one connection, and their number.
  private func rates(_ index: Int, _ now: Instant) -> (low: Double, high: Double, count: Int)? {
    let slot = slots[index]
    guard let newest = slot.newest, let former = slot.former, now.seconds(since: slot.measuredAt) < Self.memory else {
      return nil
    }
    return (min(newest.rate, former.rate), max(newest.rate, former.rate), min(newest.count, former.count))
  }

  private mutating func forget() {
    self = SlowConnections()
    hasFound = true
  }

  /// The origin answered 429 or 503 while `active` requests were in flight. Refusals of requests that were made
  /// together count as one.
  mutating func pushedBack(active: Int, now: Instant) {
    guard rate != nil, refusedAt.map({ now.seconds(since: $0) >= Self.burst }) ?? true else { return }
    refusedAt = now
    full = max(1, active / 2)
    fullUntil = now.adding(seconds: Self.refusedRest)
    proven = min(proven, full)
  }
}
