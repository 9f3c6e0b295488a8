import Base
import Media

/// The playout clocks of all runs of one file, and what its readers may claim of the line. Pure.
struct Playouts: Sendable {
  /// A player with fewer seconds than this ahead of it (and than a few round trips) needs the line for itself.
  static let criticalSeconds = 1.0
  static let criticalRoundTrips = 4.0
  /// A player's bytes are requested before others' until it has this many seconds ahead of it.
  static let leadSeconds = 8.0
  /// A reader that is so many times as fast as the line is no player.
  static let copyRate = 2.0
  /// Readers on trial that began within about so many seconds take turns.
  private static let turnSeconds = 3.0
  /// A reader that has not read for so many seconds claims nothing.
  static let idleSeconds = 4.0

  /// A wait of a player that is longer than so many seconds says that the line is short, and for how long it says so.
  private static let noticed = 0.5
  private static let memory = 10.0

  private var clocks: [Playout] = []
  /// Which process showed the pace of the file last, the pace in bytes a second, and whether that is exact.
  private var seen: (process: Int32, rate: Double, isExact: Bool)?
  private var lastLook: Instant?
  /// When the file's first run began of which a pace is known.
  private(set) var playsSince: Instant?
  /// Bytes a second that the players of the file need together; 0 while nobody plays.
  private(set) var need = 0.0
  /// What is enough for the file, in bytes a second: what its players need, while only they read it; else infinite.
  private(set) var enough = Double.infinity
  /// What the program shows that read last; nil while the file's index is not known.
  private(set) var film: FilmClock?
  /// When a player waited last, long enough to notice.
  private var lastStall: Instant?

  /// Called at each look. `parked`: the reads of the file that wait. `film`: the file's index, where it is known.
  mutating func look(_ runs: ReaderRuns, parked: [ParkedRead], film: FilmIndex?, now: Instant) {
    let seconds = min(now.seconds(since: lastLook ?? now), 0.2)
    lastLook = now
    clocks.removeAll { clock in !runs.runs.contains { $0.number == clock.run } }
    need = 0
    var onlyPlays = true
    self.film = nil
    var lastRead: Instant?
    for run in runs.runs {
      let place: Int
      if let known = clocks.firstIndex(where: { $0.run == run.number }) {
        place = known
      } else {
        // Who jumps within a film plays on at the same pace.
        let own = seen.flatMap { $0.process == run.process ? $0 : nil }
        clocks.append(Playout(run: run, rate: own?.rate ?? 0, isExact: own?.isExact ?? false, now: now))
        place = clocks.count - 1
      }
      clocks[place].look(
        position: run.position, waits: parked.contains { runs.run(of: $0.range)?.number == run.number },
        seconds: seconds, now: now)
      if let index = film { clocks[place].look(at: index, run, answered: runs.answered(run, parked: parked), now: now) }
      if lastRead.map({ $0 < run.lastRead }) ?? true { (self.film, lastRead) = (clocks[place].film, run.lastRead) }
      let isRead = now.seconds(since: run.lastRead) < Self.idleSeconds && !runs.wentOn(from: run)
      if isRead, clocks[place].evidence != .paced { onlyPlays = false }
      if clocks[place].evidence == .paced {
        seen = (run.process, clocks[place].rate, clocks[place].isExact)
        playsSince = playsSince ?? run.firstRead
        if clocks[place].stall > Self.noticed { lastStall = now }
        if isRead { need += clocks[place].rate }
      }
    }
    enough = onlyPlays && need > 0 ? need : .infinity
    if !clocks.contains(where: { $0.evidence == .paced }) { playsSince = nil }
  }

  /// The pace at which the reader of `run` plays, in bytes a second; nil while it shows none.
  func pace(of run: ReaderRuns.Run) -> Double? {
    clocks.first { $0.run == run.number && $0.evidence == .paced }?.rate
  }

  /// Whether a player of the file waited of late.
  func isShort(_ now: Instant) -> Bool { lastStall.map { now.seconds(since: $0) < Self.memory } ?? false }

  /// What the reader of `run` may claim. `stored` and `requested`: up to where its bytes are there, and up to where
  /// they are there or in flight. `fits`: whether the line has room for what it needs beside the older players.
  func claim(
    of run: ReaderRuns.Run, stored: Int64, requested: Int64, size: Int64, isLooker: Bool, hasTrial: Bool, fits: Bool,
    line: LineEstimate, now: Instant
  ) -> (claim: ReaderView.Claim, due: Double, rate: Double?) {
    guard let clock = clocks.first(where: { $0.run == run.number }), clock.evidence != .starting else {
      return (isLooker ? .share : .start, 0, nil)
    }
    if !isLooker, hasTrial, clock.isOnTrial(position: run.position, now: now) {
      // The youngest goes first. Readers of about the same age take turns.
      return (.trial, Playout.farthest + (clock.age(now) / Self.turnSeconds).rounded(.down), nil)
    }
    // One that reads faster than the line brings copies what is stored, in part.
    guard clock.evidence == .paced, clock.rate < Self.copyRate * line.rate, fits, !isLooker else {
      return (.share, 0, nil)
    }
    if stored >= size { return (.share, Playout.farthest, clock.rate) }
    let due = clock.seconds(before: stored, position: run.position, now: now)
    if due < max(Self.criticalSeconds, Self.criticalRoundTrips * line.roundTrip) { return (.urgent, due, clock.rate) }
    let asked = clock.seconds(before: requested, position: run.position, now: now)
    // It can have no more ahead of it than is requested at most.
    let lead = min(Self.leadSeconds, 0.8 * Double(Planner.largestAhead) / max(clock.rate, 1))
    return (asked < lead ? .lead : .share, due, clock.rate)
  }
}
