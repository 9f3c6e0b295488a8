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
    func feed(
      _ windows: inout CongestionWindows, burst: Double, silence: Double, isHeld: Bool = false
    ) -> Instant {
      var now = start
      while now.seconds(since: start) < 2 {
        for _ in 0..<Int(burst / 0.001) {
          now = now.adding(seconds: 0.001)
          windows.received(after: 0.001, roundTrip: 0.06, now: now)
        }
        if silence > 0 {
          now = now.adding(seconds: silence)
          windows.received(after: silence, isHeld: isHeld, roundTrip: 0.06, now: now)
        }
      }
      return now
    }
    var windows = CongestionWindows()
    let seen = feed(&windows, burst: 0.03, silence: 0.03)
    #expect(windows.areSmall(seen) && windows.areSmall(seen.adding(seconds: 50)))
    #expect(!windows.areSmall(seen.adding(seconds: 70)))
    var held = CongestionWindows()
    let now = feed(&held, burst: 0.03, silence: 0.03, isHeld: true)
    #expect(!held.areSmall(now) && !held.pause(now), "all that came waited for lost packets")
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
    paused.lost(0, over: 40_000, now: start)
    now = feed(&paused, from: start, seconds: 3)
    #expect(!paused.separates, "no packet was lost")
    paused.lost(8, over: 40_000, now: now)
    paused.lost(99, over: 40_000, now: now.adding(seconds: 1.5))
    now = feed(&paused, from: now.adding(seconds: 1.5), seconds: 1)
    #expect(!paused.separates, "the end of slow start loses many at once")
    for count in 100...101 { paused.lost(count, over: 40_000, now: now.adding(seconds: Double(count - 100))) }
    _ = feed(&paused, from: now.adding(seconds: 1), seconds: 0.1)
    #expect(paused.separates)
    // HTTP/1.1 has connections of its own in any case.
    var plain = Line(connections: 32)
    plain.speaks(httpVersion: 11)
    _ = feed(&plain, from: start, seconds: 3)
    #expect(!plain.separates)
  }

  @Test("One connection of HTTP/2 fills the line unless it pauses, or loses many packets")
  func fillsOneConnection() {
    var line = Line(connections: 32)
    let transfer = TransferID(1)
    line.began(transfer, isBackground: false, now: start)
    line.responded(transfer, over: 1, isBackground: false)
    line.estimate.responded(after: 0.06, now: start)
    line.lost(0, over: 1, now: start)
    var now = start
    func feed(_ seconds: Double, pausesFor pause: Double = 0) {
      let end = now.adding(seconds: seconds)
      while now < end {
        for _ in 0..<30 {
          now = now.adding(seconds: 0.001)
          line.received(2920, of: transfer, now: now)
        }
        now = now.adding(seconds: pause)
      }
    }
    feed(1)
    line.speaks(httpVersion: 20)
    #expect(!line.fillsOneConnection(now), "the line was idle before its only answer")
    func answer(late: Double = 0) {
      now = now.adding(seconds: late)
      line.estimate.responded(after: 0.06, now: now)
      line.estimate.ended(0, after: 0.06, now: now)
      feed(0.01)
    }
    for _ in 0..<16 { answer() }
    line.speaks(httpVersion: 11)
    #expect(!line.fillsOneConnection(now), "HTTP/1.1")
    line.speaks(httpVersion: 20)
    #expect(line.fillsOneConnection(now))
    feed(1, pausesFor: 0.03)
    #expect(!line.fillsOneConnection(now))
    feed(3)
    #expect(line.fillsOneConnection(now), "small congestion windows count for a minute elsewhere")
    for count in 1...3 {
      line.lost(count, over: 1, now: now)
      feed(0.05)
    }
    #expect(line.fillsOneConnection(now), "a full queue drops some packets")
    line.lost(4, over: 1, now: now)
    #expect(!line.fillsOneConnection(now) && !line.losesPackets(now))
    feed(2)
    #expect(line.fillsOneConnection(now))
    for _ in 0..<6 { answer(late: 0.02) }
    #expect(!line.fillsOneConnection(now), "answers are late by themselves")
    for _ in 0..<16 { answer() }
    #expect(line.fillsOneConnection(now))
    var unknown = Line(connections: 32)
    unknown.speaks(httpVersion: 20)
    #expect(!unknown.fillsOneConnection(now), "the kernel does not tell of losses")
  }

  @Test("Losses are likely where one connection has some again, a second and ten round trips later, and lately")
  func losses() {
    /// Each reading: seconds, connection, count.
    func likely(_ readings: [(Double, Int, Int)], at second: Double, roundTrip: Double = 0.06) -> Bool {
      var losses = PacketLosses()
      if !readings.isEmpty { for connection in 1...2 { losses.counted(0, over: connection, bytes: 0, now: start) } }
      for (second, connection, count) in readings {
        losses.counted(count, over: connection, bytes: 0, now: start.adding(seconds: second))
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

  @Test("Losses are frequent where one is seen in each 800 KB, and no more after 4 MiB without one")
  func frequent() {
    /// So many readings, `distance` bytes apart, with one more packet out of order each.
    func feed(_ count: Int, distance: Int64) -> PacketLosses {
      var losses = PacketLosses()
      for connection in 0..<3 { losses.counted(0, over: connection, bytes: 0, now: start) }
      for index in 1...count {
        for _ in 0..<2 {  // the second one brings no news
          losses.counted(index, over: index % 3, bytes: Int64(index) * distance, now: start)
        }
      }
      return losses
    }
    #expect(!feed(100, distance: 2_500_000).areFrequent(250_000_000, start), "a queue of one round trip")
    #expect(!feed(5, distance: 350_000).areFrequent(5 * 350_000, start), "slow start")
    #expect(!feed(12, distance: 5_000).areFrequent(12 * 5_000, start), "a queue dropped packets of all connections")
    let losses = feed(8, distance: 350_000)
    #expect(losses.areFrequent(8 * 350_000, start) && !losses.areFrequent(8 * 350_000 + 4 << 20, start))
    #expect(losses.areFrequent(8 * 350_000, start.adding(seconds: 59)))
    #expect(!losses.areFrequent(8 * 350_000, start.adding(seconds: 61)), "the network may be another")
    #expect(feed(20, distance: 650_000).areFrequent(20 * 650_000, start))
    // What a connection lost long ago is no news where another one's count was forgotten meanwhile.
    var turns = PacketLosses()
    for index in 0..<1000 { turns.counted(5, over: index % 100, bytes: Int64(index) * 300_000, now: start) }
    #expect(!turns.areFrequent(300_000_000, start))
    var unknown = PacketLosses()
    for index in 1...9 { unknown.counted(nil, over: 1, bytes: Int64(index), now: start) }
    #expect(!unknown.areFrequent(9, start))
  }

  @Test("A pause is a lost packet's where its connection has more out of order than before it")
  func held() {
    var line = Line(connections: 32)
    line.estimate.responded(after: 0.06, now: start)
    line.lost(2, over: 1, now: start)
    func isHeld(_ count: Int?, after seconds: Double, over connection: Int = 1, at second: Double) -> Bool {
      line.held(after: seconds, over: connection, now: start.adding(seconds: second)) { count }.response
    }
    #expect(!isHeld(2, after: 0.06, at: 1), "those came before")
    #expect(!isHeld(3, after: 0.01, at: 2), "too short to be a pause")
    #expect(isHeld(3, after: 0.06, at: 2))
    #expect(!isHeld(3, after: 0.06, at: 3))
    #expect(!isHeld(nil, after: 0.06, over: 2, at: 3), "the kernel does not tell")
    // The head of another response on the connection told it before.
    line.lost(4, over: 1, now: start.adding(seconds: 4))
    #expect(isHeld(4, after: 0.06, at: 4.001) && !isHeld(0, after: 0.06, over: 2, at: 4.001))
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
