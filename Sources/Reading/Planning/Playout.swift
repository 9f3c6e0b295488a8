import Base

/// The virtual playout clock of one run of reads: when the reader needs which byte, and how certain that is. Pure.
///
/// A run that starts at byte `s` at the time `t`, and plays at `r` bytes a second, needs byte `b` at `t + (b - s) / r`.
/// A reader that took ten seconds of film in its first second needs its next byte nine seconds later, whatever program
/// it is. So a player that fills its cache and a copy are the same until there is evidence.
///
/// Evidence of a pace is time in which the reader asks for nothing. A reader that takes all that comes always waits for
/// more: after its credit it shares what others leave.
struct Playout: Sendable, Equatable {
  /// What is known of the reader's pace.
  enum Evidence: Sendable, Equatable {
    /// It has just begun, or jumped: it has its credit.
    case starting
    /// It asked for nothing now and then, though it had all it had asked for: it reads at ``Playout/rate``.
    case paced
    /// It has used up its credit, and takes all that comes.
    case hungry
  }

  /// The credit of a start and of a jump, in bytes and seconds: who has used up one of them has none left.
  static let creditBytes: Int64 = 8 << 20
  static let creditSeconds = 10.0
  /// The least part of a slice in which a reader that shows a pace asks for nothing, and how many such slices, less
  /// half of the others, prove it. One pause proves nothing.
  private static let leisurePart = 0.1
  private static let proof = 2.0
  private static let mostProof = 4.0
  /// The seconds over which the pace is measured.
  private static let slice = 1.0
  /// The farthest time, in seconds, at which the clock shows a byte.
  private static let farthest = 1e8
  /// Who uses up the credit in bytes more slowly than this, in seconds, has it for the whole time.
  private static let fast = 5.0

  /// The run that it belongs to.
  let run: UInt64
  private(set) var evidence = Evidence.starting
  /// Bytes a second, once there is evidence.
  private(set) var rate: Double
  /// When the byte `origin` was, or would have been, due.
  private var epoch: Instant
  private var origin: Int64
  private let began: Instant
  private let start: Int64
  /// For how many seconds it has waited until now.
  private(set) var stall = 0.0
  /// The slices with leisure, less half of the others.
  private var score = 0.0
  /// Where and when the current slice began, and for how many seconds of it the reader asked for nothing.
  private var slicePosition: Int64
  private var sliceStart: Instant
  private var leisure = 0.0
  /// For how many seconds it has asked for nothing since it read last, and where it was.
  private var pause = 0.0
  private var lastPosition: Int64

  /// `rate`: the pace that the same file was seen to have before, 0 when none was.
  init(run: ReaderRuns.Run, rate: Double, now: Instant) {
    self.run = run.number
    self.rate = rate
    evidence = rate > 0 ? .paced : .starting
    score = rate > 0 ? Self.proof : 0
    epoch = run.firstRead
    origin = run.start
    began = run.firstRead
    start = run.start
    slicePosition = run.position
    sliceStart = now
    lastPosition = run.position
  }

  /// `seconds` have passed. `waits`: whether a read of the run is parked.
  mutating func look(position: Int64, waits: Bool, seconds: Double, now: Instant) {
    stall = waits ? stall + seconds : 0
    // Who read and stopped shows no pace: leisure counts once the reader goes on.
    if position != lastPosition { leisure += pause }
    if position != lastPosition || waits { pause = 0 }
    if !waits { pause = min(pause + seconds, Self.slice) }
    lastPosition = position
    let elapsed = now.seconds(since: sliceStart)
    if elapsed >= Self.slice { endSlice(Double(position - slicePosition) / elapsed, seconds: elapsed, position, now) }
    let age = now.seconds(since: began)
    let hasTakenAll = position - start >= Self.creditBytes && age < Self.fast
    if evidence == .starting, age >= Self.creditSeconds || hasTakenAll { evidence = .hungry }
    // A reader that is late plays on from here: it has no claim to what it missed.
    if evidence == .paced, due(position) < now { due(position, at: now) }
  }

  /// A slice of `seconds` is over, in which the reader took `pace` bytes a second.
  private mutating func endSlice(_ pace: Double, seconds: Double, _ position: Int64, _ now: Instant) {
    let isLeisurely = leisure >= Self.leisurePart * seconds && pace > 0
    if isLeisurely {
      score = min(score + 1, Self.mostProof)
      if evidence == .paced { rate = 0.5 * rate + 0.5 * pace }
    } else if evidence != .paced || pace > 0.9 * rate {
      // One that gets less than its pace may well be a player that is kept waiting.
      score = max(score - 0.5, 0)
    }
    if evidence != .paced, score >= Self.proof {
      evidence = .paced
      rate = pace
      due(position, at: now)
    } else if evidence == .paced, score == 0 {
      evidence = .hungry
    }
    slicePosition = position
    sliceStart = now
    leisure = 0
  }

  /// Sets the clock: `byte` is due at `time`.
  private mutating func due(_ byte: Int64, at time: Instant) {
    epoch = time
    origin = byte
  }

  /// When the reader needs `byte`, by its clock.
  private func due(_ byte: Int64) -> Instant {
    epoch.adding(seconds: min(max(Double(byte - origin) / max(rate, 1), -Self.farthest), Self.farthest))
  }

  /// How many seconds before the reader needs `byte`: it reads there from `position` at its pace, and not before its
  /// clock is there. 0 without evidence.
  func seconds(before byte: Int64, position: Int64, now: Instant) -> Double {
    guard evidence == .paced else { return 0 }
    return max(due(byte).seconds(since: now), Double(byte - position) / max(rate, 1))
  }
}
