import Base
import Testing

@testable import Reading

/// What a program shows of a film, by its reads.
@Suite struct FilmClockTables {
  private let start = Instant(nanoseconds: 1_000_000_000)

  private func at(_ seconds: Double) -> Instant { start.adding(seconds: seconds) }

  @Test("It shows what was read, from a second of it on, and begins again after a stall")
  func plays() {
    var clock = FilmClock(run: 1, start: 20, began: start, answered: 20, now: start)
    // Seconds since the start, the second of the film up to which its reads were answered, and what is shown.
    let looks: [(Double, Double, Double)] = [
      (0.5, 20.5, 20), (1, 21, 20), (2, 25, 21), (5, 25, 24), (7, 25, 25), (9, 25.5, 25), (10, 26, 25), (11, 30, 26),
    ]
    for (seconds, answered, shown) in looks {
      clock.look(answered: answered, now: at(seconds))
      #expect(abs(clock.shown - shown) < 1e-6, "\(seconds) s: \(clock.shown)")
    }
  }

  @Test("A play that began before its index was known has gone on since, as far as it was read")
  func late() {
    for (answered, shown) in [(40.0, 25.0), (23, 23), (20, 20)] {
      let clock = FilmClock(run: 1, start: 20, began: start, answered: answered, now: at(5))
      #expect(clock.shown == shown)
    }
  }

  @Test("Reads of a run are answered up to the first that waits")
  func answered() throws {
    var runs = ReaderRuns()
    for offset in stride(from: Int64(0), to: 512 << 10, by: 64 << 10) {
      runs.note(offset: offset, count: 64 << 10, process: 1, now: start)
    }
    let run = try #require(runs.runs.first)
    #expect(runs.answered(run, parked: []) == 512 << 10 && run.largest == 64 << 10)
    let parked = [384, 320, 448].map { offset in
      ParkedRead(
        ticket: Ticket(rawValue: 1), range: ByteRange(at: offset << 10, count: 64 << 10), since: start, process: 1)
    }
    #expect(runs.answered(run, parked: parked) == 320 << 10)
    // A read belongs to the run that is nearest, not to the first that is near enough.
    runs.note(offset: 4096 << 10, count: 64 << 10, process: 2, now: start)
    runs.note(offset: 2560 << 10, count: 64 << 10, process: 2, now: start)
    #expect(runs.runs.map(\.position) == [512 << 10, 4160 << 10])
  }
}
