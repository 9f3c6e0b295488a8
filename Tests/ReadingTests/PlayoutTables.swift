import Base
import Manifest
import Testing

@testable import Reading

/// The clock of a reader: what shows a pace, what does not, and when a byte is due.
@Suite struct PlayoutTables {
  private let start = Instant(nanoseconds: 1_000_000_000)

  private func run(at position: Int64) -> ReaderRuns.Run {
    ReaderRuns.Run(
      start: 0, position: position, bytes: position, firstRead: start, began: start, lastRead: start, process: 1,
      number: 1)
  }

  /// A reader that takes `rate` bytes a second for `seconds`, and waits in all looks but each `leisurely`-th.
  private func clock(rate: Double, seconds: Double, leisurely: Int?) -> (clock: Playout, position: Int64, now: Instant)
  {
    var clock = Playout(run: run(at: 0), rate: 0, now: start)
    var now = start
    var position: Int64 = 0
    for look in 1...Int(seconds / 0.05) {
      now = start.adding(seconds: Double(look) * 0.05)
      position = Int64(Double(look) * 0.05 * rate)
      clock.look(position: position, waits: leisurely.map { look % $0 != 0 } ?? true, seconds: 0.05, now: now)
    }
    return (clock, position, now)
  }

  @Test("Who takes all that comes has its credit, and then shares the line")
  func copies() {
    #expect(clock(rate: 1e6, seconds: 9, leisurely: nil).clock.evidence == .starting)
    #expect(clock(rate: 1e6, seconds: 11, leisurely: nil).clock.evidence == .hungry)
    #expect(clock(rate: 20e6, seconds: 1, leisurely: nil).clock.evidence == .hungry, "the credit in bytes is used up")
  }

  @Test("Who has used up its credit is on trial until 20 s or 128 MiB from its start, if it has read on")
  func trial() {
    for (rate, seconds, may) in [
      (1e6, 9.0, false), (1e6, 11, true), (1e6, 19, true), (1e6, 21, false), (0.08e6, 11, false), (20e6, 4, true),
      (20e6, 8, false),
    ] {
      let (clock, position, now) = clock(rate: rate, seconds: seconds, leisurely: nil)
      #expect(clock.isOnTrial(position: position, now: now) == may, "\(rate), \(seconds)")
    }
  }

  @Test("A process that was on trial at one file has none at the next for a minute, unless it showed a pace")
  func trials() {
    var trials = Trials()
    let key = { (number: UInt64) in ResourceKey(high: 0, low: number) }
    let at = { (seconds: Double) in start.adding(seconds: seconds) }
    #expect(trials.has(7, key(1), start))
    trials.note(7, key(1), isOnTrial: false, last: start, start)
    #expect(trials.has(7, key(2), at(12)))
    trials.note(7, key(1), isOnTrial: true, last: start, start)
    trials.note(7, key(1), isOnTrial: false, last: at(9), at(9))
    #expect(trials.has(7, key(1), at(12)) && trials.has(8, key(2), at(12)))
    // Of two files that it reads at the same time each may be a film.
    #expect(trials.has(7, key(2), at(10)) && !trials.has(7, key(2), at(12)) && trials.has(7, key(2), at(61)))
    trials.passed(7)
    #expect(trials.has(7, key(2), at(12)))
    trials.note(0, key(1), isOnTrial: true, last: start, start)
    #expect(trials.has(0, key(2), at(12)))
  }

  @Test("Who asks for nothing now and then has a pace", arguments: [2, 5, 8])
  func players(leisurely: Int) {
    let (clock, position, now) = clock(rate: 1e6, seconds: 4, leisurely: leisurely)
    #expect(clock.evidence == .paced)
    #expect((0.9e6...1.1e6).contains(clock.rate))
    // Three megabytes ahead are three seconds.
    let lead = clock.seconds(before: position + 3_000_000, position: position, now: now)
    #expect(lead > 2.7 && lead < 3.5)
  }

  @Test("What a file's players need is enough while nobody else reads the file")
  func enough() {
    var (playouts, runs) = (Playouts(), ReaderRuns())
    #expect(playouts.enough == .infinity)
    for look in 1...320 {
      let now = start.adding(seconds: Double(look) * 0.05)
      let position = Int64(look) * 50_000
      if look % 2 == 0 { runs.note(offset: position - 100_000, count: 100_000, process: 1, now: now) }
      // Another program copies the file for a while.
      if (100..<130).contains(look) { runs.note(offset: 500 << 20 + position, count: 50_000, process: 2, now: now) }
      playouts.look(runs, parked: [], film: nil, now: now)
      if look == 90 || look == 320 { #expect((0.9e6...1.2e6).contains(playouts.enough), "\(look): \(playouts.enough)") }
      if look == 110 { #expect(playouts.enough == .infinity && playouts.need > 0.9e6) }
    }
  }

  @Test("One pause shows no pace")
  func pause() {
    var clock = Playout(run: run(at: 0), rate: 0, now: start)
    for look in 1...180 {
      let now = start.adding(seconds: Double(look) * 0.05)
      clock.look(position: Int64(look) * 50_000, waits: look > 18, seconds: 0.05, now: now)
    }
    #expect(clock.evidence == .starting)
  }

  @Test("Who reads all at once and stops shows no pace")
  func burst() {
    var clock = Playout(run: run(at: 0), rate: 0, now: start)
    for look in 1...60 {
      let now = start.adding(seconds: Double(look) * 0.05)
      clock.look(position: Int64(min(look, 16)) * 600_000, waits: look < 16, seconds: 0.05, now: now)
    }
    #expect(clock.evidence != .paced)
  }

  @Test("Who goes on taking all, faster than it did, is no player; who is kept waiting may be one")
  func doubts() {
    for (rate, evidence) in [(2e6, Playout.Evidence.hungry), (1e6, .paced), (0.3e6, .paced)] {
      var (clock, position, now) = clock(rate: 1e6, seconds: 4, leisurely: 2)
      for _ in 0..<400 {
        now = now.adding(seconds: 0.05)
        position += Int64(rate * 0.05)
        clock.look(position: position, waits: true, seconds: 0.05, now: now)
      }
      #expect(clock.evidence == evidence, "\(rate)")
    }
  }

  @Test("Who fills its buffer after a jump, and then reads at its pace, is a player though it never rests")
  func filling() {
    var clock = Playout(run: run(at: 0), rate: 1e6, now: start)
    for look in 1...400 {
      let now = start.adding(seconds: Double(look) * 0.05)
      clock.look(position: 2_500_000 + Int64(look) * 50_000, waits: true, seconds: 0.05, now: now)
    }
    #expect(clock.evidence == .paced)
  }

  @Test("Who stops before a jump, or is paused for a while, has not become slower", arguments: [0.4, 1.5, 7, 60])
  func stops(seconds: Double) {
    var (clock, position, now) = clock(rate: 1e6, seconds: 4.3, leisurely: 2)
    for _ in 0..<Int(seconds / 0.05) {
      now = now.adding(seconds: 0.05)
      clock.look(position: position, waits: false, seconds: 0.05, now: now)
    }
    #expect(clock.evidence == .paced && clock.rate > 0.9e6, "\(clock.rate)")
    for look in 1...20 {
      now = now.adding(seconds: 0.05)
      position += 50_000
      clock.look(position: position, waits: look % 2 == 0, seconds: 0.05, now: now)
    }
    #expect(clock.evidence == .paced && clock.rate > 0.6e6, "\(clock.rate)")
  }

  @Test("No place and no pace traps")
  func extremes() {
    for rate in [0, 1e-300, 1, 1e300] {
      for position in [0, Int64.max / 2] {
        var clock = Playout(run: run(at: position), rate: rate, now: start)
        clock.look(position: position, waits: false, seconds: 0.05, now: start.adding(seconds: 2))
        for byte in [0, Int64.max] { _ = clock.seconds(before: byte, position: position, now: start) }
      }
    }
  }

  @Test("What players leave comes at its rate, and never more than a burst at once")
  func spare() {
    var spare = SpareBytes()
    // A full bucket lets the first request through at once, also one that is larger than the bucket.
    #expect(spare.level(rate: 1000, most: 500, start) == 500)
    #expect(spare.has(5000, rate: 1000, most: 500, start))
    spare.took(500, rate: 1000, most: 500, now: start)
    #expect(spare.level(rate: 1000, most: 500, start) == 0)
    #expect(spare.level(rate: 1000, most: 500, start.adding(seconds: 0.25)) == 250)
    #expect(spare.level(rate: 1000, most: 500, start.adding(seconds: 9)) == 500)
    spare.took(10_000, rate: 1000, most: 500, now: start.adding(seconds: 9))
    // A small request forgives nothing of that.
    spare.took(10, rate: 1000, most: 50, now: start.adding(seconds: 9))
    #expect(spare.level(rate: 1000, most: 500, start.adding(seconds: 9)) == -500)
    #expect(spare.level(rate: 1000, most: 500, start.adding(seconds: 9.5)) == 0)
    #expect(!spare.has(5000, rate: 1000, most: 500, start.adding(seconds: 9.9)))
  }
}
