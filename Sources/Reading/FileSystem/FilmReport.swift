import Base
import Media

/// What is known of a file as a film, from which a ``FilmReport`` is derived.
struct FilmFacts: Sendable {
  /// How a program reads it.
  struct Reading: Sendable {
    /// The run of its reads, where they began, and up to where they have been answered.
    var run: UInt64
    var start: Int64
    var position: Int64
    /// When they began.
    var began: Instant
    /// The bytes of its largest read.
    var unit: Int64
    /// What it showed when the transfer thread looked last; nil: the index was not known then.
    var clock: FilmClock?
  }

  var index: FilmIndex
  /// What its line brings; nil: not known, or it brings none.
  var supply: FilmSupply?
  /// nil: no program reads it.
  var reading: Reading?
}

/// When a file plays, and whether it stalls: a file is a film here also when it is music.
package struct FilmReport: Sendable {
  /// Bytes of each second, against what is stored and what the line brings.
  package let forecast: FilmForecast
  /// Where a program reads it, in seconds of the film; nil: none does.
  package let readAt: Double?
  /// What that program shows, in seconds of the film, if it plays.
  let shown: Double?

  /// How long it plays, in seconds.
  package var duration: Double { forecast.index.duration }
  /// Up to when all of it is stored without a hole, from where it is read, or from its start.
  package var holdsTo: Double { forecast.holds(from: readAt ?? 0) }
  /// The earliest time from which it never stalls if it is played now; nil: it may stall wherever it begins.
  package var playsFrom: Double? { forecast.playsFrom }

  init(_ facts: FilmFacts, stored: ByteRangeSet, now: Instant) {
    var supply = facts.supply
    if let unit = facts.reading?.unit { supply?.unit = unit }
    forecast = FilmForecast(index: facts.index, stored: stored, supply: supply)
    let index = facts.index
    let answered = facts.reading.map { index.time(at: $0.position) }
    readAt = answered
    guard let reading = facts.reading, let answered else {
      shown = nil
      return
    }
    var clock =
      reading.clock
      ?? FilmClock(
        run: reading.run, start: index.time(at: reading.start), began: reading.began, answered: answered, now: now)
    clock.look(answered: answered, now: now)
    shown = clock.shown
  }

  /// What becomes of a play from `time` on; nil: from where it is read, or from its start.
  package func verdict(from time: Double?) -> FilmForecast.Verdict {
    if time == nil, let shown { return forecast.verdict(from: shown, readTo: readAt) }
    return forecast.verdict(from: time ?? 0)
  }
}

extension Waiters {
  /// A program that is away for longer does not play, in seconds.
  static let longestPause = 60.0

  /// How the program reads that read last; nil: none has the file open.
  func reading(_ clock: FilmClock?, _ now: Instant) -> FilmFacts.Reading? {
    guard opens > 0, let run = runs.runs.max(by: { $0.lastRead < $1.lastRead }),
      now.seconds(since: run.lastRead) < Self.longestPause
    else { return nil }
    return FilmFacts.Reading(
      run: run.number, start: run.start, position: runs.answered(run, parked: parkedReads), began: run.began,
      unit: run.largest, clock: clock?.run == run.number ? clock : nil)
  }
}
