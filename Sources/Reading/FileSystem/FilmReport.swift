import Base
import Media

/// What is known of a file as a film, from which a ``FilmReport`` is derived.
struct FilmFacts: Sendable {
  /// How a program reads it.
  struct Reading: Sendable {
    /// Where the reads began, and where they are now.
    var start: Int64
    var position: Int64
    /// Seconds since they began.
    var seconds: Double
  }

  var index: FilmIndex
  /// Bytes a second that its line brings; nil: not known, or it brings none.
  var rate: Double?
  /// nil: no program reads it.
  var reading: Reading?
}

/// When a file plays, and whether it stalls: a file is a film here also when it is music.
package struct FilmReport: Sendable {
  /// Bytes of each second, against what is stored and what the line brings.
  package let forecast: FilmForecast
  /// Where a program reads it, in seconds of the film; nil: none does.
  package let readAt: Double?
  /// By how many seconds that program is ahead of what it shows, if it has played since it began to read.
  let lead: Double

  /// How long it plays, in seconds.
  package var duration: Double { forecast.index.duration }
  /// Up to when all of it is stored without a hole, from where it is read, or from its start.
  package var holdsTo: Double { forecast.holds(from: readAt ?? 0) }
  /// The earliest time from which it never stalls if it is played now; nil: it may stall wherever it begins.
  package var playsFrom: Double? { forecast.playsFrom }

  init(_ facts: FilmFacts, stored: ByteRangeSet) {
    forecast = FilmForecast(index: facts.index, stored: stored, rate: facts.rate)
    let index = facts.index
    readAt = facts.reading.map { index.time(at: $0.position) }
    lead = facts.reading.map { max(0, index.time(at: $0.position) - index.time(at: $0.start) - $0.seconds) } ?? 0
  }

  /// What becomes of a play from `time` on; nil: from where it is read, or from its start.
  package func verdict(from time: Double?) -> FilmForecast.Verdict {
    if time == nil, let readAt { return forecast.verdict(from: readAt, lead: lead) }
    return forecast.verdict(from: time ?? 0)
  }
}

extension Waiters {
  /// A program that is away for longer does not play, in seconds.
  private static let longestPause = 60.0

  /// How the program reads that read last; nil: none has the file open.
  func reading(_ now: Instant) -> FilmFacts.Reading? {
    guard opens > 0, let run = runs.runs.max(by: { $0.lastRead < $1.lastRead }),
      now.seconds(since: run.lastRead) < Self.longestPause
    else { return nil }
    return FilmFacts.Reading(start: run.start, position: run.position, seconds: now.seconds(since: run.began))
  }
}
