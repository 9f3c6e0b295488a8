import Base
import Media

/// The virtual playout clock of one run of reads: when the reader needs which byte, and how certain that is. Pure.
///
/// A run that starts at byte `s` at the time `t`, and plays at `r` bytes a second, needs byte `b` at `t + (b - s) / r`.
/// A reader that took ten seconds of film in its first second needs its next byte nine seconds later, whatever program
/// it is. So a player that fills its cache and a copy are the same until there is evidence.
///
/// Evidence of a pace is time in which the reader asks for nothing. A reader that takes all that comes always waits for
/// more: behind its credit and its trial it shares what others leave.
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
  /// A reader stays on trial until one of these, counted from its start. A player needs that long to buffer a second of
  /// film on a line with little to spare (docs/decisions/0029-on-trial.md).
  static let trialBytes: Int64 = 128 << 20
  static let trialSeconds = 20.0
  /// The least part of a slice in which a reader that shows a pace asks for nothing, and how many such slices, less
  /// half of the others, prove it. One pause proves nothing.
  private static let leisurePart = 0.1
  private static let proof = 2.0
  private static let mostProof = 4.0
  /// The least seconds over which the pace is measured.
  private static let sliceSeconds = 1.0
  /// A reader without leisure that takes so many times its pace, and what the kernel reads ahead, is no player.
  private static let fastPart = 1.1
  private static let readAhead: Int64 = 512 << 10
  /// The farthest time, in seconds, at which the clock shows a byte.
  static let farthest = 1e8
  /// Who uses up the credit in bytes more slowly than this, in seconds, has it for the whole time.
  private static let fast = 5.0

  /// The run that it belongs to.
  let run: UInt64
  private(set) var evidence = Evidence.starting
  /// Bytes a second, once there is evidence.
  private(set) var rate: Double
  /// A byte, and the time at which the clock shows it or the reader was there.
  private struct Mark: Equatable {
    var byte: Int64
    var time: Instant
    /// Whether the reader went on there after it had asked for nothing: what it keeps ahead of itself was full. Between
    /// two such marks it reads what it plays.
    var isFull = false
  }
  /// What the clock counts from.
  private var clock: Mark
  private let start: Mark
  /// For how many seconds it has waited until now.
  private(set) var stall = 0.0
  /// Bytes a second in the last slice with leisure.
  private var formerPace: Double
  /// Whether the rate comes from slices between full marks. What it read to fill its buffer does not count then.
  private(set) var isExact: Bool
  /// The slices with leisure, less half of the others.
  private var score = 0.0
  /// Where the current slice began, and for how many seconds of it the reader asked for nothing.
  private var slice: Mark
  private var leisure = 0.0
  /// Where the last slice ended that was with leisure, or too fast for a player.
  private var judged: Mark
  /// For how many seconds it has asked for nothing since it read last, and where it was.
  private var pause = 0.0
  private var lastPosition: Int64
  /// What is shown; nil while the file's index is not known.
  private(set) var film: FilmClock?

  /// `rate`: the pace that the same file was seen to have before, 0 when none was.
  init(run: ReaderRuns.Run, rate: Double, isExact: Bool = true, now: Instant) {
    self.run = run.number
    (self.rate, formerPace) = (rate, rate)
    evidence = rate > 0 ? .paced : .starting
    self.isExact = isExact && rate > 0
    score = rate > 0 ? Self.proof : 0
    start = Mark(byte: run.start, time: run.firstRead)
    clock = start
    slice = Mark(byte: run.position, time: now)
    judged = slice
    lastPosition = run.position
  }

  /// `seconds` have passed. `waits`: whether a read of the run is parked.
  mutating func look(position: Int64, waits: Bool, seconds: Double, now: Instant) {
    stall = waits ? stall + seconds : 0
    // Who read and stopped shows no pace: leisure counts once the reader goes on.
    let resumes = position != lastPosition && pause > 0
    if resumes { leisure += pause }
    let goesOn = position != lastPosition || waits
    if goesOn { pause = 0 }
    if !waits { pause = min(pause + seconds, Self.sliceSeconds) }
    lastPosition = position
    // A slice ends with a read: who stops before a jump has not become slower.
    let length = now.seconds(since: slice.time)
    let isOver = resumes || leisure == 0 || length >= 2 * Self.sliceSeconds
    if goesOn, length >= Self.sliceSeconds, isOver {
      endSlice(Mark(byte: position, time: now, isFull: resumes))
    }
    let age = age(now)
    let hasTakenAll = position - start.byte >= Self.creditBytes && age < Self.fast
    if evidence == .starting, age >= Self.creditSeconds || hasTakenAll { evidence = .hungry }
    // A reader that is late plays on from here: it has no claim to what it missed.
    if evidence == .paced, due(position) < now { clock = Mark(byte: position, time: now) }
  }

  /// The reads of `run` have been answered up to the offset `answered` of a film.
  mutating func look(at index: FilmIndex, _ run: ReaderRuns.Run, answered: Int64, now: Instant) {
    let answered = index.time(at: answered)
    film?.look(answered: answered, now: now)
    if film == nil {
      film = FilmClock(
        run: run.number, start: index.time(at: run.start), began: run.began, answered: answered, now: now)
    }
  }

  /// A slice is over: the reader is at `here`.
  private mutating func endSlice(_ here: Mark) {
    let seconds = here.time.seconds(since: slice.time)
    let pace = Double(here.byte - slice.byte) / seconds
    if leisure >= Self.leisurePart * seconds, pace > 0 {
      score = min(score + 1, Self.mostProof)
      // A single slow slice may have a pause in it, of the program or its user. So a film of a variable rate seems a
      // little faster than it is.
      let isFull = slice.isFull && here.isFull
      if evidence == .paced, isFull || !isExact {
        rate = isFull && !isExact ? pace : 0.5 * rate + 0.5 * max(pace, formerPace)
      }
      if isFull || !isExact { formerPace = pace }
      if isFull { isExact = true }
      judged = here
    } else if evidence != .paced || isFast(here) {
      score = max(score - 0.5, 0)
      // A player that fills its buffer after a jump does so once.
      judged = here
    }
    if evidence != .paced, score >= Self.proof {
      evidence = .paced
      rate = pace
      clock = here
    } else if evidence == .paced, score == 0 {
      evidence = .hungry
    }
    slice = here
    leisure = 0
  }

  /// Whether the reader, which had no leisure of late, took more than it plays and the kernel reads ahead. One that
  /// waits and takes no more may well be a player that is kept waiting.
  private func isFast(_ here: Mark) -> Bool {
    let played = Self.fastPart * rate * here.time.seconds(since: judged.time)
    return Double(here.byte - judged.byte) > played + Double(Self.readAhead)
  }

  /// Whether it has used up its credit, and its trial is not over. A short look has none.
  func isOnTrial(position: Int64, now: Instant) -> Bool {
    evidence == .hungry && (Planner.provenLength..<Self.trialBytes).contains(position - start.byte)
      && age(now) < Self.trialSeconds
  }

  /// For how many seconds it has been reading.
  func age(_ now: Instant) -> Double { now.seconds(since: start.time) }

  /// When the reader needs `byte`, by its clock.
  private func due(_ byte: Int64) -> Instant {
    clock.time.adding(seconds: min(max(Double(byte - clock.byte) / max(rate, 1), -Self.farthest), Self.farthest))
  }

  /// How many seconds before the reader needs `byte`: it reads there from `position` at its pace, and not before its
  /// clock is there. 0 without evidence.
  func seconds(before byte: Int64, position: Int64, now: Instant) -> Double {
    guard evidence == .paced else { return 0 }
    return max(due(byte).seconds(since: now), Double(byte - position) / max(rate, 1))
  }
}
