import Base
import Fetching
import Testing

@testable import Reading

/// What each connection brings in a round trip, and how long the next request is.
@Suite struct FlightTables {
  private static let trip = 0.06
  private let start = Instant(nanoseconds: 1_000_000_000)

  private func at(_ seconds: Double) -> Instant { start.adding(seconds: seconds) }

  /// A transfer of which so many bytes come in each round trip; the connection's number is `number`.
  private func run(
    _ flights: inout Flights, _ id: UInt64, over number: Int, _ bytes: [Int], from second: Double
  ) -> Double {
    let transfer = TransferID(id)
    flights.began(transfer, roundTrip: Self.trip, now: at(second))
    var second = second + Self.trip
    flights.responded(transfer, over: number)
    for flight in bytes {
      for piece in 0..<4 {
        flights.received(flight / 4, of: transfer, roundTrip: Self.trip, now: at(second + Double(piece) * 0.002))
      }
      second += Self.trip
    }
    flights.ended(transfer, isCut: false, now: at(second - Self.trip + 0.006))
    return second
  }

  @Test("A connection's last whole flight counts, and the next one where it is larger")
  func grows() {
    var flights = Flights()
    let end = run(&flights, 1, over: 7, [14_000, 28_000, 56_000], from: 0)
    #expect(flights.idle(at(end), roundTrip: Self.trip) == [56_000])
    let later = run(&flights, 2, over: 7, [40_000, 8_000], from: end)
    #expect(flights.idle(at(later), roundTrip: Self.trip) == [40_000], "a rest is no flight")
  }

  @Test("Who lets windows grow asks for twice what came in one flight, unless the window held something back")
  func letsGrow() {
    var flights = Flights()
    let idle = { (flights: Flights, second: Double) in
      flights.idle(at(second), roundTrip: Self.trip, grows: true)
    }
    var end = run(&flights, 1, over: 7, [32_000], from: 0)
    #expect(idle(flights, end) == [64_000])
    end = run(&flights, 2, over: 7, [64_000], from: end)
    #expect(idle(flights, end) == [128_000])
    #expect(flights.idle(at(end), roundTrip: Self.trip) == [64_000], "others wait for what is known to come at once")
    end = run(&flights, 3, over: 7, [72_000, 56_000], from: end)
    #expect(idle(flights, end) == [72_000], "the window held something back")
    end = run(&flights, 4, over: 7, [16_000], from: end)
    #expect(idle(flights, end) == [72_000], "a short response says nothing of more")
    flights.began(TransferID(5), roundTrip: Self.trip, now: at(end))
    flights.ended(TransferID(5), isCut: false, now: at(end))
    #expect(idle(flights, end) == [72_000], "nor does an empty one")
    #expect(idle(flights, end + 5) == [Flights.first])
  }

  @Test("A copy lets windows grow: who has shown no pace for long, and is alone")
  func whoLetsGrow() {
    var copy = ReaderView(position: 40 << 20, length: 40 << 20, rate: 9e6)
    copy.claim = .share
    let input = PlanInput(size: 1 << 30, readers: [copy], line: LineView(roundTrip: 0.06, rate: 9e6))
    #expect(Planner.letsGrow(copy, input))
    for change: (inout ReaderView) -> Void in [
      { $0.length = 15 << 20 }, { $0.rate = 12e6 }, { $0.isPaced = true }, { $0.claim = .lead },
    ] {
      var alone = input
      change(&alone.readers[0])
      #expect(!Planner.letsGrow(alone.readers[0], alone), "\(alone.readers[0])")
    }
    var beside = input
    beside.line.hasOthers = true
    #expect(!Planner.letsGrow(copy, beside))
    beside = input
    beside.line.hasVisits = true
    #expect(!Planner.letsGrow(copy, beside))
    beside = input
    beside.readers.append(ReaderView(position: 1 << 20, length: 1 << 20, rate: 1e6))
    #expect(!Planner.letsGrow(copy, beside))
    beside.readers[1].isElsewhere = true
    #expect(Planner.letsGrow(copy, beside))
  }

  @Test("Where packets are lost, who reads on lets windows grow, and has 2.5 round trips' bytes in flight")
  func growsWherePacketsAreLost() {
    var line = LineView(roundTrip: Self.trip, rate: 4e6)
    (line.hasSmallWindows, line.openConnections) = (true, 12)
    (line.flights, line.grownFlights) = ([Int64](repeating: 50_000, count: 12), [Int64](repeating: 100_000, count: 12))
    func planned(_ change: (inout PlanInput) -> Void) -> [Int64] {
      var input = PlanInput(size: 1 << 30, line: line)
      input.available.insert(ByteRange(0, 8 << 20))
      var film = ReaderView(position: 8 << 20, length: 8 << 20, rate: 2e6)
      (film.isPaced, film.claim) = (true, .lead)
      input.readers = [film]
      change(&input)
      return Planner.plan(input).map { if case .start(let range, _) = $0 { range.count } else { 0 } }
    }
    let usual = planned { _ in }
    #expect(usual.allSatisfy { $0 == 3 << 14 } && usual.reduce(0, +) <= 2 * Planner.inRoundTrip(line))
    let grown = planned { $0.line.losesPackets = true }
    #expect(grown.allSatisfy { $0 == 6 << 14 } && grown.reduce(0, +) > 2 * Planner.inRoundTrip(line))
    let short = planned { input in
      input.line.losesPackets = true
      (input.readers[0].position, input.readers[0].length) = (8 << 20, Planner.provenLength - 1)
    }
    #expect(short.allSatisfy { $0 == 3 << 14 }, "it has read little here")
  }

  @Test("A server forgets half of it in each quarter second without a request, down to ten packets")
  func rests() {
    var flights = Flights()
    let end = run(&flights, 1, over: 7, [80_000], from: 0)
    // The server sent the last byte a round trip before the next request can reach it.
    #expect(flights.idle(at(end + 0.13), roundTrip: Self.trip) == [80_000])
    #expect(flights.idle(at(end + 0.17), roundTrip: Self.trip) == [40_000])
    #expect(flights.idle(at(end + 5), roundTrip: Self.trip) == [Flights.first])
  }

  @Test("A line that rested for long is cold, if its server was seen to forget congestion windows")
  func rest() {
    var line = Line(connections: 8)
    line.speaks(httpVersion: 11)
    #expect(!line.hasRested(at(9)), "nothing came yet")
    var next = UInt64(0)
    /// What a response brings from `second` on, in bursts a round trip apart.
    func answer(_ bursts: [Int], at second: Double) {
      next += 1
      line.began(TransferID(next), isBackground: false, now: at(second))
      line.responded(TransferID(next), over: 1, isBackground: false)
      for (index, bytes) in bursts.enumerated() {
        line.received(bytes, of: TransferID(next), now: at(second + Self.trip * Double(index + 1)))
      }
      line.ended(
        TransferID(next), now: at(second + Self.trip * Double(bursts.count)), isBackground: false, hadResponse: true,
        isCut: false)
    }
    answer([30_000, 70_000], at: 0)
    #expect(!line.hasRested(at(3)), "a new connection says nothing of rests")
    answer([30_000], at: 3)
    #expect(!line.hasRested(at(6)), "it brought no more in the second round trip")
    answer([30_000, 70_000], at: 6)
    #expect(!line.hasRested(at(7)) && line.hasRested(at(9)))
    answer([40_000], at: 9)
    #expect(line.hasRested(at(12)), "that may be two windows")
    answer([100_000], at: 12)
    #expect(!line.hasRested(at(15)))
    answer([30_000, 70_000], at: 15)
    answer([100_000, 70_000], at: 18)
    #expect(!line.hasRested(at(21)), "the first came at once")
    answer([30_000, 70_000], at: 21)
    line.speaks(httpVersion: 20)
    #expect(!line.hasRested(at(24)))
  }

  @Test("A fresh request makes a connection, and the idle one stays idle")
  func fresh() {
    var flights = Flights()
    let end = run(&flights, 1, over: 7, [50_000], from: 0)
    #expect(flights.idleCount(at(end)) == 1)
    flights.began(TransferID(2), isFresh: true, roundTrip: Self.trip, now: at(end))
    #expect(flights.idleCount(at(end)) == 1)
    flights.responded(TransferID(2), over: 8)
    flights.ended(TransferID(2), isCut: false, now: at(end + 0.1))
    #expect(flights.idleCount(at(end + 0.1)) == 2)
  }

  @Test("A connection that was idle for two minutes counts as closed")
  func closed() {
    var flights = Flights()
    let end = run(&flights, 1, over: 7, [50_000], from: 0)
    #expect(flights.idleCount(at(end + 117)) == 1)
    #expect(flights.idleCount(at(end + 119)) == 0 && flights.idle(at(end + 119), roundTrip: Self.trip).isEmpty)
    flights.began(TransferID(2), roundTrip: Self.trip, now: at(end + 119))
    #expect(flights.isConnecting(TransferID(2)))
  }

  @Test("Requests take the connection that was made first; a response over another one puts that right")
  func order() {
    var flights = Flights()
    let (first, second) = (TransferID(1), TransferID(2))
    flights.began(first, roundTrip: Self.trip, now: at(0))
    flights.began(second, roundTrip: Self.trip, now: at(0))
    flights.responded(first, over: 7)
    flights.responded(second, over: 8)
    flights.received(50_000, of: second, roundTrip: Self.trip, now: at(0.1))
    flights.ended(first, isCut: false, now: at(0.1))
    flights.ended(second, isCut: false, now: at(0.1))
    #expect(flights.idle(at(0.1), roundTrip: Self.trip) == [Flights.first, 50_000])
    // Expected over 7 and came over 8, so the origin has closed 7.
    flights.began(TransferID(3), roundTrip: Self.trip, now: at(0.1))
    flights.responded(TransferID(3), over: 8)
    #expect(flights.idle(at(0.1), roundTrip: Self.trip) == [])
    flights.ended(TransferID(3), isCut: false, now: at(0.1))
    #expect(flights.idle(at(0.1), roundTrip: Self.trip) == [50_000])
    // Two that began together came the other way around.
    flights.began(TransferID(4), roundTrip: Self.trip, now: at(0.1))
    flights.began(TransferID(5), roundTrip: Self.trip, now: at(0.1))
    flights.responded(TransferID(5), over: 8)
    flights.responded(TransferID(4), over: 9)
    flights.ended(TransferID(4), isCut: true, now: at(0.1))
    #expect(flights.idle(at(0.1), roundTrip: Self.trip) == [], "what was cut is closed")
    flights.ended(TransferID(5), isCut: false, now: at(0.1))
    #expect(flights.idle(at(0.1), roundTrip: Self.trip) == [50_000])
    // The origin has closed it; a new one takes its place, and nothing of it is known.
    flights.began(TransferID(6), roundTrip: Self.trip, now: at(0.2))
    flights.responded(TransferID(6), over: 10)
    flights.ended(TransferID(6), isCut: false, now: at(0.2))
    #expect(flights.idle(at(0.2), roundTrip: Self.trip) == [Flights.first])
  }

  @Test("A new connection brings ten packets, and in each further round trip twice as much")
  func growth() {
    let bytes: [Int64] = [1, 14_600, 14_601, 43_800, 43_802, 64 << 10, 102_200, 256 << 10]
    #expect(bytes.map(Flights.moreTrips) == [0, 0, 1, 1, 2, 2, 2, 4])
  }

  @Test("A pause that a lost packet made does not make its connection's flight smaller")
  func held() {
    for (isHeld, flight) in [(false, Int64(16_000)), (true, 50_000)] {
      var flights = Flights()
      flights.began(TransferID(1), roundTrip: Self.trip, now: at(0))
      flights.responded(TransferID(1), over: 7)
      flights.received(50_000, of: TransferID(1), roundTrip: Self.trip, now: at(0.1))
      flights.ended(TransferID(1), isCut: false, now: at(0.1))
      flights.began(TransferID(2), roundTrip: Self.trip, now: at(0.1))
      flights.responded(TransferID(2), over: 7)
      flights.received(16_000, of: TransferID(2), roundTrip: Self.trip, now: at(0.16))
      flights.received(15_000, of: TransferID(2), isHeld: isHeld, roundTrip: Self.trip, now: at(0.23))
      flights.ended(TransferID(2), isCut: false, now: at(0.23))
      #expect(flights.idle(at(0.23), roundTrip: Self.trip) == [flight])
      #expect(flights.idle(at(0.23), roundTrip: Self.trip, grows: true) == [flight], "it came in two parts")
    }
  }

  @Test("A connection is being made until it brings something, and a response lasts from its first byte on")
  func ages() {
    var flights = Flights()
    let (first, second) = (TransferID(1), TransferID(2))
    flights.began(first, roundTrip: Self.trip, now: at(0))
    #expect(flights.isConnecting(first) && !flights.isConnecting(second))
    #expect(flights.haveLasted(1, at(0.1)), "no bytes come")
    flights.responded(first, over: 7)
    flights.received(1000, of: first, roundTrip: Self.trip, now: at(0.1))
    #expect(!flights.isConnecting(first))
    #expect(!flights.haveLasted(0.1, at(0.15)) && flights.haveLasted(0.1, at(0.2)))
    flights.began(second, roundTrip: Self.trip, now: at(0.2))
    flights.responded(second, over: 8)
    flights.received(1000, of: second, roundTrip: Self.trip, now: at(0.25))
    #expect(!flights.haveLasted(0.1, at(0.3)), "one of two is younger")
    flights.ended(first, isCut: false, now: at(0.3))
    #expect(flights.haveLasted(0.1, at(0.35)))
    // The first one's connection serves another.
    flights.began(TransferID(3), roundTrip: Self.trip, now: at(0.4))
    #expect(!flights.isConnecting(TransferID(3)))
  }

  @Test("Each request of a plan is as long as its connection's flight, and at most half a round trip of the line")
  func lengths() {
    var line = LineView(roundTrip: Self.trip, rate: 4e6)
    line.flights = [500_000, 100_000]
    var draft = PlanDraft(input: PlanInput(size: 1 << 30, line: line))
    var lengths: [Int64] = []
    for index in 0..<3 {
      lengths.append(Planner.flight(draft))
      draft.ask(from: Int64(index) << 20, length: lengths[index], .playAhead)
    }
    #expect(lengths == [7 << 14, 6 << 14, Planner.pieceLength])
    line.staysSmall = true
    #expect(Planner.flight(PlanDraft(input: PlanInput(size: 1 << 30, line: line))) == 14 << 14)
    line.grownFlights = [500_000, 200_000]
    draft = PlanDraft(input: PlanInput(size: 1 << 30, line: line))
    draft.ask(from: 0, length: 1 << 20, .playAhead)
    #expect(Planner.flight(draft, grows: true) == 12 << 14)
  }

  /// Five connections that have brought ten packets each, and are idle since 0.2 s.
  private func five() -> Flights {
    var flights = Flights()
    for id in 1...5 { flights.began(TransferID(UInt64(id)), roundTrip: Self.trip, now: at(0)) }
    for id in 1...5 { answer(&flights, UInt64(id), over: id, at: 0.2) }
    return flights
  }

  private func answer(_ flights: inout Flights, _ id: UInt64, over number: Int, at second: Double) {
    flights.responded(TransferID(id), over: number)
    flights.received(1000, of: TransferID(id), roundTrip: Self.trip, now: at(second))
    flights.ended(TransferID(id), isCut: false, now: at(second))
  }

  private func lacks(_ flights: Flights, most: Int = 12, at second: Double) -> Bool {
    flights.lackSpare(for: Planner.smallestFirstWindow, most: most, at(second), roundTrip: Self.trip)
  }

  @Test("A background request makes a connection where the other idle ones bring less than a jump asks for")
  func lacking() {
    var flights = five()
    #expect(lacks(flights, at: 1), "four are left, and bring 54 KB")
    #expect(!lacks(flights, most: 5, at: 1))
    flights.began(TransferID(6), isFresh: true, roundTrip: Self.trip, now: at(1))
    #expect(!lacks(flights, at: 1), "one is being made")
    answer(&flights, 6, over: 6, at: 1.2)
    #expect(!lacks(flights, at: 2), "five are left, and bring 67 KB")
    #expect(lacks(flights, at: 120), "all are taken as closed")
  }

  @Test("Where they are made in vain, twelve are made in a minute")
  func lackingInVain() {
    var flights = five()
    for id in UInt64(6)..<18 {
      #expect(lacks(flights, at: 1))
      flights.began(TransferID(id), isFresh: true, roundTrip: Self.trip, now: at(1))
      flights.ended(TransferID(id), isCut: true, now: at(1.1))
    }
    #expect(!lacks(flights, at: 60) && lacks(flights, at: 61.1))
  }

  @Test("A connection that was closed while it was idle says how long others last, unless one lasted longer")
  func closedIdle() {
    /// Takes the first idle connection, which has number 1, and gets the response over `number`.
    func take(_ flights: inout Flights, _ id: UInt64, over number: Int, isReused: Bool = false, at second: Double) {
      flights.began(TransferID(id), roundTrip: Self.trip, now: at(second))
      flights.responded(TransferID(id), over: number, isReused: isReused)
      flights.ended(TransferID(id), isCut: false, now: at(second))
    }
    var flights = five()
    take(&flights, 6, over: 7, at: 6)
    #expect(flights.idleCount(at(7)) == 1, "the others were idle for longer")
    flights = five()
    take(&flights, 6, over: 7, at: 3)
    #expect(flights.idleCount(at(7)) == 5, "hardly idle, it was closed for another reason")
    flights = five()
    take(&flights, 6, over: 7, isReused: true, at: 6)
    #expect(flights.idleCount(at(7)) == 5, "it is one that was forgotten here")
    flights = five()
    take(&flights, 6, over: 1, isReused: true, at: 9)
    take(&flights, 7, over: 7, at: 15)
    #expect(flights.idleCount(at(16)) == 5, "one lasted for 8.8 s, which is longer")
    flights = five()
    take(&flights, 6, over: 7, at: 6)
    take(&flights, 7, over: 7, isReused: true, at: 607)
    take(&flights, 8, over: 7, isReused: true, at: 608)
    #expect(flights.idleCount(at(620)) == 1, "after ten minutes it is forgotten")
  }

  @Test("Spare connections are made for readers, as many as are allowed, and not over HTTP/2")
  func spareOfALine() {
    func line(connections: Int = 32, visits: Int = 1, httpVersion: Int = 11) -> Line {
      var line = Line(connections: connections)
      line.speaks(httpVersion: httpVersion)
      line.readers.visits = visits
      line.began(TransferID(1), isBackground: true, now: at(0))
      line.responded(TransferID(1), over: 1, isBackground: true)
      line.ended(TransferID(1), now: at(0.1), isBackground: true, hadResponse: true, isCut: false)
      return line
    }
    #expect(line().lacksSpare(at(1)) && line(connections: 2).lacksSpare(at(1)))
    #expect(!line(connections: 1).lacksSpare(at(1)))
    #expect(!line(visits: 0).lacksSpare(at(1)))
    #expect(!line(httpVersion: 20).lacksSpare(at(1)))
    var warm = line()
    warm.began(TransferID(2), isBackground: true, isFresh: true, now: at(1))
    #expect(warm.openConnections(now: at(1)) == 2 && warm.lacksWarmConnection(now: at(1)))
  }

  @Test("A reader that rests has no more in flight than a background download, unless it needs its lanes")
  func resting() {
    var line = LineView(roundTrip: Self.trip, rate: 4e6)
    line.hasSmallWindows = true
    line.openConnections = 8
    func underWay(_ change: (inout PlanInput) -> Void) -> Int64 {
      var input = PlanInput(size: 1 << 30, line: line)
      input.available.insert(ByteRange(0, 13 << 20))
      input.readers = [ReaderView(position: 12 << 20, length: 12 << 20, rate: 4e6)]
      input.readers[0].isResting = true
      change(&input)
      return Planner.plan(input).reduce(0) { if case .start(let range, _) = $1 { $0 + range.count } else { $0 } }
    }
    let inRoundTrip = Planner.inRoundTrip(line)
    #expect(underWay { _ in } < inRoundTrip)
    #expect(underWay { $0.readers[0].isResting = false } > inRoundTrip)
    #expect(underWay { $0.lanes = Lanes(now: 8, settled: 8) } > inRoundTrip)
    #expect(underWay { $0.line.hasSmallWindows = false } > inRoundTrip)
  }

  @Test("Behind a jump each piece comes in one flight of its connection, and the last one brings a little more")
  func pieces() {
    var line = LineView(roundTrip: Self.trip, rate: 4e6)
    line.flights = [14_600, 14_600, 80_000]
    func lengths(_ needed: Int64, _ more: Int64, isBusy: Bool = false) -> [Int64] {
      var draft = PlanDraft(input: PlanInput(size: 1 << 30, line: line))
      if isBusy { draft.ask(from: 0, length: 4096, .demand) }
      let before = draft.transfers.count
      Planner.spread(ByteRange(1 << 29, (1 << 29) + needed), more: more, &draft)
      return draft.transfers[before...].map(\.rest.count)
    }
    let small = Flights.first - Planner.overhead
    #expect(lengths(4096, 0) == [4096])
    #expect(lengths(4096, 4096) == [8192])
    #expect(lengths(4096, 1 << 20) == [small])
    #expect(lengths(64 << 10, 0) == [small, small, Planner.pieceLength, (64 << 10) - 2 * small - Planner.pieceLength])
    #expect(lengths(64 << 10, 1 << 20) == [small, small, Planner.pieceLength, Planner.pieceLength])
    line.flights[2] = 20_000
    #expect(lengths(2 * small + 8192, 1 << 20) == [small, small, small], "a record of TLS comes as a whole")
    line.flights = [14_600, 14_600]
    let long = Planner.pieceLength
    #expect(lengths(64 << 10, 0) == [long, long], "a new connection takes longer")
    #expect(lengths(64 << 10, 0, isBusy: true) == [small, long, (64 << 10) - small - long], "one in use is soon idle")
  }

  @Test("A reader that jumps again and again gets half of what it takes in pieces side by side")
  func smallSteps() {
    var line = LineView(roundTrip: Self.trip, rate: 4e6)
    line.hasSmallWindows = true
    line.openConnections = 0  // none was in use for seconds
    line.flights = Array(repeating: Flights.first, count: 8)
    let place: Int64 = 1 << 29
    var input = PlanInput(size: 1 << 30, line: line)
    input.demands = [ByteRange(at: place, count: 4096)]
    input.readers = [ReaderView(position: place + 4096, length: 4096, rate: 4e6, stalled: 0, takes: 64 << 10)]
    let small = Flights.first - Planner.overhead
    let pieces = (0..<3).map { ByteRange(at: place + $0 * small, count: small) }
    #expect(Planner.plan(input) == pieces.map { .start($0, .demand) })
  }

  @Test("What a reader that jumped waits for is requested, however little of it the pieces left")
  func lastPiece() {
    var line = LineView(roundTrip: Self.trip, rate: 4e6)
    line.hasSmallWindows = true
    line.openConnections = 8
    line.flights = [Flights.first]
    let place: Int64 = 1 << 29
    let end = place + (64 << 10)
    var input = PlanInput(size: 1 << 30, line: line)
    input.demands = [ByteRange(place, end)]
    input.readers = [
      ReaderView(position: end, length: 64 << 10, rate: 4e6, claim: .start, isServed: true, stalled: 0, takes: 64 << 10)
    ]
    input.transfers = [ActiveTransfer(id: .init(1), position: place, end: end - 3072, purpose: .demand, rate: nil)]
    #expect(Planner.plan(input) == [.start(ByteRange(end - 3072, end), .playAhead)])
  }
}
