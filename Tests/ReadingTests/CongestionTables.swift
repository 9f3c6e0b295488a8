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
    paused.losses.counted(0, over: 40_000, now: start)
    now = feed(&paused, from: start, seconds: 3)
    #expect(!paused.separates, "no packet was lost")
    paused.losses.counted(8, over: 40_000, now: now)
    paused.losses.counted(99, over: 40_000, now: now.adding(seconds: 1.5))
    now = feed(&paused, from: now.adding(seconds: 1.5), seconds: 1)
    #expect(!paused.separates, "the end of slow start loses many at once")
    for count in 100...101 { paused.losses.counted(count, over: 40_000, now: now.adding(seconds: Double(count - 100))) }
    _ = feed(&paused, from: now.adding(seconds: 1), seconds: 0.1)
    #expect(paused.separates)
    // HTTP/1.1 has connections of its own in any case.
    var plain = Line(connections: 32)
    plain.speaks(httpVersion: 11)
    _ = feed(&plain, from: start, seconds: 3)
    #expect(!plain.separates)
  }

  @Test("Losses are likely where one connection has some again, a second and ten round trips later, and lately")
  func losses() {
    /// Each reading: seconds, connection, count.
    func likely(_ readings: [(Double, Int, Int)], at second: Double, roundTrip: Double = 0.06) -> Bool {
      var losses = PacketLosses()
      for (second, connection, count) in readings {
        losses.counted(count, over: connection, now: start.adding(seconds: second))
      }
      return losses.areLikely(roundTrip: roundTrip, start.adding(seconds: second))
    }
    #expect(likely([], at: 0), "the kernel may not tell")
    #expect(!likely([(0, 1, 0), (1, 1, 5)], at: 1))
    let again = [(0, 1, 1), (3, 1, 1), (3.5, 1, 2)]
    #expect(likely(again, at: 4) && !likely(again, at: 14))
    #expect(likely(again, at: 4, roundTrip: 0.29))
    #expect(!likely(again, at: 4, roundTrip: 0.31), "slow start takes ten round trips")
    #expect(!likely([(0, 1, 1), (3, 1, 2)], at: 3), "they may be from right after the first")
    #expect(!likely([(0, 1, 1), (11, 1, 1), (12, 1, 2)], at: 12), "the first are long ago")
    #expect(!likely([(0, 1, 1), (3, 1, 1), (3.5, 2, 9), (3.6, 2, 9)], at: 4), "each connection has a slow start")
    #expect(!likely((0..<20).map { (Double($0), $0 % 2, $0 % 2 == 0 ? 5 : 9) }, at: 20), "no news in turns")
  }

  @Test("Responses count as pausing until some came without a pause")
  func pauses() {
    var windows = CongestionWindows()
    #expect(windows.pause(start), "nothing is known")
    var now = start
    func feed(_ elapsed: Double, times: Int) {
      for _ in 0..<times {
        now = now.adding(seconds: elapsed)
        windows.received(after: elapsed, roundTrip: 0.06, now: now)
      }
    }
    feed(0.004, times: 10)
    #expect(!windows.pause(now))
    feed(0.04, times: 1)
    #expect(windows.pause(now) && !windows.areSmall(now))
    feed(0.004, times: 400)
    #expect(!windows.pause(now), "it was one of many")
    for _ in 0..<10 {
      feed(0.04, times: 1)
      feed(0.004, times: 5)
    }
    #expect(windows.areSmall(now) && windows.pause(now))
  }

  @Test("Windows that were small after slow start count no longer once the line was busy without silences")
  func mends() {
    var windows = CongestionWindows()
    var now = start
    func feed(_ seconds: Double, silence: Double) {
      let end = now.adding(seconds: seconds)
      while now < end {
        for elapsed in [silence, 0.004, 0.004, 0.004, 0.004] {
          now = now.adding(seconds: elapsed)
          windows.received(after: elapsed, roundTrip: 0.06, now: now)
        }
      }
    }
    feed(5, silence: 0.04)
    #expect(windows.areSmallForLong)
    for _ in 0..<12 {
      now = now.adding(seconds: 1)  // a player with a full buffer
      feed(0.5, silence: 0.004)
    }
    #expect(!windows.areSmallForLong)
  }
}
