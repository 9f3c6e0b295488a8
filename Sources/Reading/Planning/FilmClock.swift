import Base

/// What a program shows of a film, as far as its reads tell: no program shows what it has not read, and one that has
/// run out of bytes goes on when it has some again. Pure.
struct FilmClock: Sendable, Equatable {
  /// A player shows nothing until it has so many seconds of film (mpv after a stall, VLC at a start).
  static let buffer = 1.0

  /// The run of its reads.
  let run: UInt64
  /// The second of the film that is shown.
  private(set) var shown: Double
  private var isShowing: Bool
  private var last: Instant

  /// The program of `run` began to read at the second `start`, at the time `began`. At `now` it has been answered up to
  /// `answered`.
  init(run: UInt64, start: Double, began: Instant, answered: Double, now: Instant) {
    self.run = run
    shown = min(start + now.seconds(since: began), max(answered, start))
    isShowing = answered > shown
    last = now
  }

  /// Its reads have been answered up to the second `answered`.
  mutating func look(answered: Double, now: Instant) {
    let elapsed = now.seconds(since: last)
    last = now
    if isShowing {
      shown += elapsed
      // It has nothing more to show.
      if shown > answered { (shown, isShowing) = (answered, false) }
    } else {
      isShowing = answered >= shown + Self.buffer
    }
  }
}

extension ReaderRuns {
  /// The offset up to which the reads of `run` have been answered. `parked`: the reads of the file that wait.
  func answered(_ run: Run, parked: [ParkedRead]) -> Int64 {
    var answered = run.position
    for read in parked where read.range.start < answered {
      if self.run(of: read.range)?.number == run.number { answered = max(run.start, read.range.start) }
    }
    return answered
  }
}
