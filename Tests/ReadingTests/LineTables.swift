import Base
import Fetching
import Testing

@testable import Reading

/// What is measured of a line, and how many windows follow from it.
@Suite struct LineTables {
  private let start = Instant(nanoseconds: 1_000_000_000)
  private let transfer = TransferID(1)

  /// Windows of `bytes` one after the other at `rate`, each asked for when the last has come, for `seconds`.
  private func feed(_ line: inout LineEstimate, bytes: Int, rate: Double, roundTrip: Double, seconds: Double) {
    var now = start
    while now.seconds(since: start) < seconds {
      let asked = now
      now = now.adding(seconds: roundTrip)
      line.responded(after: roundTrip, now: now)
      var left = bytes
      while left > 0 {
        let count = min(left, 1460)
        now = now.adding(seconds: Double(count) / rate)
        line.received(count, now: now)
        left -= count
      }
      line.ended(Int64(bytes), after: now.seconds(since: asked), now: now)
    }
  }

  @Test(arguments: [
    ("http://a/b", "http://a"), ("HTTPS://User:p@ss@Example.COM:8443?q=1", "https://example.com:8443"),
    ("http://a#b/c@d", "http://a"), ("http://[::1]:80/x", "http://[::1]:80"), ("http://a", "http://a"),
    ("http://", "http://"), ("urn:a://b", "urn:a://b"), ("", ""),
  ])
  func aLineIsOfASchemeAndAHost(url: String, key: String) { #expect(Line.key(of: url) == key) }

  @Test("The time in which requests are on their way is not the line's", arguments: [16_384, 65_536, 1_000_000])
  func gaps(bytes: Int) {
    var estimate = LineEstimate()
    feed(&estimate, bytes: bytes, rate: 2e6, roundTrip: 0.05, seconds: 20)
    #expect(abs(estimate.rate - 2e6) < 0.1 * 2e6, "\(estimate.rate)")
    #expect(estimate.roundTrip == 0.05)
  }

  @Test("The path's own time is kept while all answers wait behind what is in flight, and forgotten when it is longer")
  func leastTrip() {
    var trips = TripTimes()
    trips.note(0.06, now: start)
    for answer in 1...100 { trips.note(0.3, now: start.adding(seconds: Double(answer) * 0.05)) }
    #expect(trips.least == 0.06 && trips.late == 0.3)
    for answer in 1...100 { trips.note(0.3, now: start.adding(seconds: 5 + Double(answer) * 0.06)) }
    #expect(trips.least == 0.3)
    trips.note(0.1, now: start.adding(seconds: 12))
    #expect(trips.least == 0.1)
  }

  @Test("An estimate that gets slower or faster is followed")
  func follows() {
    var estimate = LineEstimate()
    feed(&estimate, bytes: 1 << 20, rate: 8e6, roundTrip: 0.02, seconds: 3)
    feed(&estimate, bytes: 1 << 20, rate: 1e6, roundTrip: 0.02, seconds: 10)
    #expect(estimate.rate < 1.2e6)
    feed(&estimate, bytes: 1 << 20, rate: 50e6, roundTrip: 0.02, seconds: 1)
    #expect(estimate.rate > 40e6)
  }

  @Test("What a lost packet holds back, and what then comes at once, does not raise the rate")
  func heldBack() {
    var estimate = LineEstimate()
    feed(&estimate, bytes: 1 << 20, rate: 4e6, roundTrip: 0.06, seconds: 3)
    estimate.responded(after: 0.06, now: start.adding(seconds: 4))
    var now = start.adding(seconds: 4)
    for _ in 0..<40 {
      // A tenth of a second of silence, and then all of it, and a tenth as before.
      now = now.adding(seconds: 0.1)
      estimate.received(16_384, now: now)
      for _ in 0..<24 {
        now = now.adding(seconds: 0.0001)
        estimate.received(16_384, now: now)
      }
      for _ in 0..<20 {
        now = now.adding(seconds: 0.005)
        estimate.received(20_000, now: now)
      }
    }
    #expect(estimate.rate < 1.3 * 4e6 && estimate.rate > 0.7 * 4e6, "\(estimate.rate)")
  }

  @Test("A response is stuck when others on the line went on, and nothing of it came for longer than answers take")
  func stuck() {
    var line = Line(connections: 32)
    let now = start.adding(seconds: 10)
    line.estimate.responded(after: 0.06, now: start)
    for index in 0..<40 { line.estimate.received(1000, now: now.adding(seconds: -0.4 + 0.01 * Double(index))) }
    let running = { (silence: Double, responded: Bool) in
      let since = now.adding(seconds: -silence)
      var running = Running(
        active: ActiveTransfer(id: TransferID(1), position: 0, end: 1000, purpose: .demand), kind: .window, mirror: 0,
        host: "http://origin", isResolved: false, started: since, lastByte: since)
      running.responded = responded
      return running
    }
    #expect(line.isStuck(running(0.25, true), now) && !line.isStuck(running(0.15, true), now))
    // The origin may take its time for an answer.
    #expect(!line.isStuck(running(0.25, false), now))
    // Nothing else came either: the line is silent.
    #expect(!line.isStuck(running(0.05, true), now.adding(seconds: 5)))
    // It goes on, and some response is the first: mostly the others follow soon.
    line.estimate.received(1000, now: now.adding(seconds: 2))
    line.estimate.received(1000, now: now.adding(seconds: 2.08))
    #expect(!line.isStuck(running(0.01, true), now.adding(seconds: 2.08)))
    line.estimate.received(1000, now: now.adding(seconds: 2.1))
    #expect(line.isStuck(running(0.01, true), now.adding(seconds: 2.1)))
    // The line has pauses, and this one has been silent since before one of them.
    line.estimate.received(1000, now: now.adding(seconds: 2.5))
    #expect(line.isStuck(running(0.01, true), now.adding(seconds: 2.5)))
    line.speaks(httpVersion: 20)
    #expect(!line.isStuck(running(0.01, true), now.adding(seconds: 2.5)))
    // The first answers after an outage are as late as that was long: the silence does not seem usual by them.
    line = Line(connections: 32)
    line.estimate.responded(after: 0.06, now: start)
    for index in 0..<40 { line.estimate.received(1000, now: now.adding(seconds: -0.4 + 0.01 * Double(index))) }
    for _ in 0..<8 { line.estimate.responded(after: 2, now: now.adding(seconds: 2)) }
    for index in 0..<4 { line.estimate.received(1000, now: now.adding(seconds: 2 + 0.01 * Double(index))) }
    for _ in 0..<40 { line.estimate.responded(after: 0.06, now: now.adding(seconds: 2.03)) }
    #expect(!line.isStuck(running(0.01, true), now.adding(seconds: 2.03)))
  }

  /// Looks for `seconds` at a file that gets `rate(lanes)` bytes a second beside others that get `others(lanes)`; the
  /// numbers that were tried, in order.
  private func look(
    _ control: inout LaneControl, from: Double = 0, seconds: Double, enough: Double = .infinity,
    rate: (Int) -> Double, others: (Int) -> Double = { _ in 0 }
  ) -> [Int] {
    var tried = [control.lanes]
    var total = Int64(from * 1e9)
    for tick in 0..<Int(seconds / 0.05) {
      let count = rate(control.lanes) * 0.05
      control.received(Int(count))
      total += Int64(count + others(control.lanes) * 0.05)
      let now = start.adding(seconds: from + Double(tick) * 0.05)
      control.look(isReaderLimited: true, enough: enough, lineBytes: total, roundTrip: 0.05, now: now)
      if control.lanes != tried.last { tried.append(control.lanes) }
    }
    return tried
  }

  @Test("Lanes are doubled while each brings more, and stay")
  func throttled() {
    var control = LaneControl()
    let tried = look(&control, seconds: 4) { 4e6 * Double($0) }
    #expect(tried == [2, 4, 8, 16])
    // What was tried and measured is no measure of a line on which lanes bring nothing.
    control.rest()
    #expect(control == LaneControl())
  }

  @Test("An outage is no measure for more lanes")
  func outage() {
    var control = LaneControl()
    var (tried, bytes): (Set<Int>, Int64) = ([], 0)
    for tick in 0..<100 {
      // The line is away for the most of the first step.
      let count = tick < 6 ? 0 : 200_000
      control.received(count)
      bytes += Int64(count)
      let now = start.adding(seconds: Double(tick) * 0.05)
      control.look(isReaderLimited: true, lineBytes: bytes, roundTrip: 0.05, now: now)
      tried.insert(control.lanes)
    }
    #expect(tried == [2, 4] && control.lanes == 2, "\(tried)")
  }

  @Test("A line that two lanes fill keeps two")
  func full() {
    var control = LaneControl()
    let tried = look(&control, seconds: 4) { _ in 20e6 }
    #expect(tried.max() == 4 && control.lanes == 2, "\(tried)")
  }

  @Test("Lanes that were kept while a line was just being filled are given back")
  func givenBack() {
    var control = LaneControl()
    _ = look(&control, seconds: 1) { 10e6 * Double($0) }
    #expect(control.lanes > 2)
    _ = look(&control, from: 1, seconds: 30) { _ in 40e6 }
    #expect(control.lanes == 2)
  }

  @Test("More lanes are tried for a player that clearly gets too little for seconds, and no more than it needs")
  func player() {
    for (rate, enough) in [(1.1e6, 1e6), (0.95e6, 1e6)] {
      var control = LaneControl()
      #expect(look(&control, seconds: 30, enough: enough) { _ in rate } == [2], "\(rate)")
    }
    var control = LaneControl()
    #expect(look(&control, seconds: 4, enough: 1e6) { 0.3e6 * Double($0) } == [2])
    #expect(look(&control, from: 4, seconds: 4, enough: 1e6) { 0.3e6 * Double($0) } == [2, 4])
    // More than it needs are given back.
    #expect(look(&control, from: 8, seconds: 30, enough: 1e6) { _ in 1.2e6 }.last == 2)
    // It is short for three seconds now and then.
    control = LaneControl()
    for second in stride(from: 0.0, to: 30, by: 6) {
      #expect(look(&control, from: second, seconds: 3, enough: 1e6) { _ in 0.5e6 } == [2], "\(second)")
      #expect(look(&control, from: second + 3, seconds: 3, enough: 1e6) { _ in 1.1e6 } == [2], "\(second)")
    }
    // What a copy of the file took before says nothing of what a player needs.
    control = LaneControl()
    _ = look(&control, seconds: 4) { _ in 20e6 }
    #expect(look(&control, from: 4, seconds: 4.5, enough: 1e6) { _ in 0.5e6 } == [2])
  }

  @Test("What a lane takes from other files is no gain")
  func others() {
    var control = LaneControl()
    // Ten files of two lanes each share 20 MB/s.
    let share = { (lanes: Int) in 20e6 * Double(lanes) / Double(lanes + 18) }
    _ = look(&control, seconds: 4, rate: share) { 20e6 - share($0) }
    #expect(control.lanes == 2)
  }

  @Test("An origin that says that it is too much halves them")
  func pushedBack() {
    var control = LaneControl()
    _ = look(&control, seconds: 4) { 4e6 * Double($0) }
    let before = control.lanes
    control.pushedBack(now: start.adding(seconds: 4))
    #expect(control.lanes == before / 2)
    #expect(look(&control, from: 4, seconds: 5) { 4e6 * Double($0) } == [before / 2])
  }

  // MARK: Jumps

  /// A reader that read a while at the start, jumped to 500 MiB, and left so much under way at the old place.
  private func jumped(leaving bytes: Int64, spare: Int64) -> PlanInput {
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.05, rate: 2e6))
    let (old, new) = (Int64(20 << 20), Int64(500 << 20))
    input.available = ByteRangeSet(ByteRange(0, old))
    input.demands = [ByteRange(at: new, count: 65536)]
    input.readers = [
      ReaderView(position: old, length: old, rate: 1e6, isElsewhere: true),
      ReaderView(position: new + 65536, length: 65536, rate: 1e6),
    ]
    input.transfers = [
      ActiveTransfer(id: TransferID(1), position: old, end: old + bytes, purpose: .playAhead, rate: 2e6)
    ]
    input.spareBytes = spare
    return input
  }

  @Test("What a jump left under way is ended where it would delay the reader, and can be spared")
  func givesWay() {
    let inRoundTrip: Int64 = 100_000
    let end = PlanStep.cancel(TransferID(1))
    #expect(Planner.plan(jumped(leaving: 500_000, spare: 1 << 20)).contains(end))
    // It comes before the answer does, unless it was asked for just now.
    var all = jumped(leaving: inRoundTrip, spare: 1 << 20)
    #expect(!Planner.plan(all).contains(end))
    all.transfers[0].age = 0.004
    #expect(Planner.plan(all).contains(end))
    // Its connection's handshakes would be for nothing.
    all.transfers[0].isConnecting = true
    #expect(!Planner.plan(all).contains(end))
    all.transfers[0].isConnecting = false
    all.transfers[0].age = 0.04
    #expect(!Planner.plan(all).contains(end))
    // It delays nobody noticeably.
    all.transfers[0].end = all.transfers[0].position + 30_000
    #expect(!Planner.plan(all).contains(end))
    // Over a long line a quarter of a round trip is hardly noticed.
    all.transfers[0].age = 0
    for (bytes, isCancelled) in [(Int64(140_000), false), (160_000, true)] {
      all.line.roundTrip = 0.3
      all.transfers[0].end = all.transfers[0].position + bytes
      #expect(Planner.plan(all).contains(end) == isCancelled)
    }
    // Too much was thrown away before.
    #expect(!Planner.plan(jumped(leaving: 500_000, spare: 10_000)).contains(end))
    // Somebody else reads there.
    var shared = jumped(leaving: 500_000, spare: 1 << 20)
    shared.readers[0].isElsewhere = false
    #expect(!Planner.plan(shared).contains(end))
    // It is what the reader jumped to.
    var same = jumped(leaving: 500_000, spare: 1 << 20)
    same.demands = [ByteRange(at: 20 << 20, count: 65536)]
    #expect(!Planner.plan(same).contains(end))
  }

  @Test("The head that a player comes back to from the tail stays")
  func headStays() {
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.05, rate: 1e6))
    input.demands = [ByteRange(input.size - 65536, input.size)]
    input.readers = [
      ReaderView(position: 65536, length: 65536, rate: 1e6, isElsewhere: true),
      ReaderView(position: input.size, length: 65536, rate: 1e6),
    ]
    input.transfers = [
      ActiveTransfer(id: TransferID(1), position: 0, end: Planner.headLength, purpose: .demand, rate: 1e6)
    ]
    input.spareBytes = 1 << 20
    #expect(!Planner.plan(input).contains(.cancel(TransferID(1))))
  }

  @Test("What is parked where its reader left is asked for behind what a reader waits for, and then it is")
  func left() {
    var input = jumped(leaving: 0, spare: 0)
    input.transfers = []
    input.abandonedReads = [ByteRange(at: 20 << 20, count: 131072)]
    let asks = { (steps: [PlanStep]) in
      steps.contains { if case .start(let range, _) = $0 { range.start < 100 << 20 } else { false } }
    }
    #expect(!asks(Planner.plan(input)))
    input.demands = []
    input.available.insert(ByteRange(at: 500 << 20, count: 64 << 20))
    #expect(asks(Planner.plan(input)))
  }

  @Test("As many windows as connections: one more, which leaves one to spare")
  func spare() {
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.05, rate: 2e6))
    input.continues = true
    let usual = Planner.plan(input).count
    #expect(usual > 1)
    input.line.openConnections = usual
    #expect(Planner.plan(input).count == usual + 1)
    input.line.isQuiet = true  // nobody who could jump
    let quiet = Planner.plan(input).count
    input.line.openConnections = quiet
    #expect(Planner.plan(input).count == quiet)
  }

  /// A line of 20 MB/s and 50 ms of which a reader has a file open, with one window of a continuation under way.
  private func continuing(_ window: Int64) -> Line {
    var host = Line(connections: 32)
    host.estimate.responded(after: 0.05, now: start)
    for step in 0...200 { host.estimate.received(20_000, now: start.adding(seconds: Double(step) * 0.001 - 1)) }
    host.began(transfer, isBackground: true, now: start)
    host.continues(window, now: start)
    host.responded(transfer, over: nil, isBackground: true)
    return host
  }

  @Test("Windows of a continuation beside a reader follow each other as the line brings them")
  func paced() {
    let window: Int64 = 160_000  // 8 ms of the line
    let host = continuing(window)
    let admits = { (seconds: Double, bytes: Int64, isQuiet: Bool) in
      host.admits(.continuation, bytes: bytes, isQuiet: isQuiet, now: start.adding(seconds: seconds))
    }
    #expect(!admits(0.002, window, false) && admits(0.012, window, false))
    // Nobody who could meet them; and so large that two are all there are in a round trip.
    #expect(admits(0.002, window, true) && admits(0.002, 600_000, false))
  }

  @Test("A full line gets one window more, once, where every connection is in use")
  func spareOfAHost() {
    let window: Int64 = 140_000
    var host = continuing(window)
    for _ in 0..<4 {
      host.began(transfer, isBackground: true, now: start)
      host.continues(window, now: start)
      host.responded(transfer, over: nil, isBackground: true)
    }
    let later = start.adding(seconds: 0.05)
    let admits = { (host: Line) in
      host.admits(.continuation, bytes: window, isQuiet: false, now: later)
    }
    #expect(admits(host))
    var again = host
    again.began(transfer, isBackground: true, now: later)
    again.continues(window, now: later)
    #expect(!admits(again), "it is one")
    host.began(transfer, isBackground: false, now: later)
    host.ended(transfer, now: later, isBackground: false, hadResponse: true, isCut: false)
    #expect(!admits(host), "one is idle")
  }

  @Test("Where few connections are allowed, or streams are, none is kept to spare from what nobody waits for")
  func usualLanes() {
    let most = Line.backgroundLimit
    var host = Line(connections: 32)
    #expect(host.usualLanes(isQuiet: true) == most && host.usualLanes(isQuiet: false) == most - 1)
    host.speaks(httpVersion: 20)
    #expect(host.usualLanes(isQuiet: false) == most)
    let few = Line(connections: 4)
    #expect(few.backgroundLanes == 2 && few.usualLanes(isQuiet: false) == 2)
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.06, rate: 20e6))
    let window = Planner.backgroundWindow(input, .players)
    input.line.backgroundLanes = few.backgroundLanes
    #expect((215_000...217_000).contains(window) && Planner.backgroundWindow(input, .players) == 300_000)
  }

  @Test("Behind a jump the spare connection is used when it was not for a second")
  func rotation() {
    var host = continuing(160_000)
    host.began(transfer, isBackground: false, now: start)
    host.ended(transfer, now: start, isBackground: false, hadResponse: true, isCut: false)
    let later = start.adding(seconds: 2)
    #expect(host.openConnections(now: later) == 2)
    let reader = LineStanding(host: "", waits: true)
    host.readers.join(reader, now: later)
    host.readers.leave(reader, now: later)
    #expect(host.openConnections(now: later) == 1)
    #expect(host.openConnections(now: later.adding(seconds: 0.5)) == 2)
  }

  @Test("A line that said that it is too much, and then speaks another version, is asked no more at once for it")
  func versions() {
    var host = Line(connections: 32)
    host.speaks(httpVersion: 20)
    #expect(host.limit == Line.streamLimit)
    for _ in 0..<8 { host.began(transfer, isBackground: false, now: start) }
    host.pushedBack(now: start)
    #expect(host.limit == 4)
    host.speaks(httpVersion: 11)
    #expect(host.most == 32 && host.limit == 4)
    host.speaks(httpVersion: 20)
    #expect(host.most == Line.streamLimit && host.limit == 4)
    for _ in 0..<100 { host.answered(start) }
    #expect(host.limit == Line.streamLimit)
    host.speaks(httpVersion: 11)
    #expect(host.limit == 32)
  }

  @Test("Connections are believed to be open for a while")
  func connections() {
    var host = Line(connections: 32)
    for _ in 0..<3 { host.began(transfer, isBackground: false, now: start) }
    #expect(host.openConnections(now: start) == 3)
    for _ in 0..<2 {
      host.ended(transfer, now: start.adding(seconds: 1), isBackground: false, hadResponse: true, isCut: false)
    }
    #expect(host.active == 1 && host.openConnections(now: start.adding(seconds: 2)) == 3)
    #expect(host.openConnections(now: start.adding(seconds: 20)) == 1)
    host.ended(transfer, now: start.adding(seconds: 2), isBackground: false, hadResponse: true, isCut: true)
    #expect(host.openConnections(now: start.adding(seconds: 2)) == 2)
    host.speaks(httpVersion: 20)
    #expect(host.openConnections(now: start) == .max)
  }
}
