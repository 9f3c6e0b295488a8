import Base
import Fetching
import Manifest
import Testing

@testable import Reading

/// What the silences of a line say of the servers' congestion windows, and when a line of HTTP/2 follows from it.
@Suite struct CongestionTables {
  private let start = Instant(nanoseconds: 1_000_000_000)
  private let transfer = TransferID(1)

  @Test("Congestion windows are small where the line is silent for half of a round trip now and then, for a minute")
  func smallWindows() {
    /// Two packets each millisecond of `burst`, then `silence`, for two seconds.
    func feed(_ windows: inout CongestionWindows, burst: Double, silence: Double) -> Instant {
      var now = start
      while now.seconds(since: start) < 2 {
        for _ in 0..<Int(burst / 0.001) {
          now = now.adding(seconds: 0.001)
          windows.received(after: 0.001, roundTrip: 0.06, now: now)
        }
        if silence > 0 {
          now = now.adding(seconds: silence)
          windows.received(after: silence, roundTrip: 0.06, now: now)
        }
      }
      return now
    }
    var windows = CongestionWindows()
    let seen = feed(&windows, burst: 0.03, silence: 0.03)
    #expect(windows.areSmall(seen) && windows.areSmall(seen.adding(seconds: 50)))
    #expect(!windows.areSmall(seen.adding(seconds: 70)))
    // A full line, one with an outage now and then, and one that is silent for less than a part of a round trip.
    for (burst, silence) in [(0.03, 0), (0.3, 0.5), (0.01, 0.01)] {
      var windows = CongestionWindows()
      let now = feed(&windows, burst: burst, silence: silence)
      #expect(!windows.areSmall(now), "\(burst) s and \(silence) s")
    }
  }

  @Test("A line of HTTP/2 whose windows stay small takes connections of their own, unless they get no answer")
  func separates() {
    /// Two packets each millisecond for half of each round trip.
    func feed(_ line: inout Line, from begin: Instant, seconds: Double) -> Instant {
      var now = begin
      line.estimate.responded(after: 0.06, now: now)
      while now.seconds(since: begin) < seconds {
        for _ in 0..<30 {
          now = now.adding(seconds: 0.001)
          line.received(2920, of: transfer, now: now)
        }
        now = now.adding(seconds: 0.03)
      }
      return now
    }
    var line = Line(connections: 32)
    line.speaks(httpVersion: 20)
    var now = feed(&line, from: start, seconds: 0.7)
    #expect(!line.separates && line.most == Line.streamLimit, "slow start looks the same")
    now = feed(&line, from: now, seconds: 1)
    #expect(line.separates && line.most == 32 && line.openConnections(now: now) == 0)
    line.speaks(httpVersion: 20)  // of a request that was made before
    #expect(line.separates && line.most == 32)
    let failure = TransferFailure(kind: .transient, message: "")
    var other = line
    other.missed(ResourceKey(high: 1, low: 1), askedAt: now, failure, now: now, random: 0)
    #expect(!other.separates && other.most == Line.streamLimit)
    _ = feed(&other, from: now, seconds: 3)
    #expect(!other.separates)
    // Once one was answered, a failure says nothing of it.
    line.speaks(httpVersion: 11)
    line.missed(ResourceKey(high: 1, low: 1), askedAt: now, failure, now: now, random: 0)
    #expect(line.separates)
    // A server that pauses looks the same, but then no packet comes out of order.
    var paused = Line(connections: 32)
    paused.speaks(httpVersion: 20)
    paused.losses.counted(7, over: 40_000, now: start)
    paused.losses.counted(7, over: 40_000, now: start.adding(seconds: 20))
    now = feed(&paused, from: start.adding(seconds: 20), seconds: 3)
    #expect(!paused.separates, "what was lost long ago says nothing")
    paused.losses.counted(8, over: 40_000, now: now)
    paused.losses.counted(99, over: 40_000, now: now.adding(seconds: 1.5))
    now = feed(&paused, from: now.adding(seconds: 1.5), seconds: 1)
    #expect(!paused.separates, "the end of slow start loses many at once")
    paused.losses.counted(100, over: 40_000, now: now)
    _ = feed(&paused, from: now, seconds: 0.1)
    #expect(paused.separates)
    // Two connections in turns: what one lost long ago is no news.
    var turns = PacketLosses()
    for second in 0..<20 {
      turns.counted(second % 2 == 0 ? 5 : 9, over: second % 2, now: start.adding(seconds: Double(second)))
    }
    #expect(!turns.areLikely(start.adding(seconds: 20)))
    turns.counted(6, over: 0, now: start.adding(seconds: 20))
    #expect(!turns.areLikely(start.adding(seconds: 20)), "the ones before are long ago")
    // HTTP/1.1 has connections of its own in any case.
    var plain = Line(connections: 32)
    plain.speaks(httpVersion: 11)
    _ = feed(&plain, from: start, seconds: 3)
    #expect(!plain.separates)
  }
}
