import Base
import Testing

@testable import Reading

/// What the planner requests where a reader begins, by what the idle connections bring in a round trip.
@Suite struct BeginningTables {
  private static let trip = 0.06

  @Test("On a line that rested, a file's first bytes come in pieces side by side, each in one flight of its connection")
  func coldStart() {
    func lengths(_ change: (inout PlanInput) -> Void = { _ in }) -> [Int64] {
      var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: Self.trip, rate: 4e6))
      input.line.hasRested = true
      input.line.openConnections = 6
      input.line.flights = Array(repeating: Flights.first, count: 6)
      input.available.insert(ByteRange(0, 4096))
      // The kernel reads ahead; the reader waits for the first of the two.
      input.demands = [ByteRange(4096, 64 << 10), ByteRange(64 << 10, 128 << 10)]
      input.readers = [ReaderView(position: 128 << 10, length: 128 << 10, rate: 4e6, stalled: 0)]
      change(&input)
      return Planner.plan(input).compactMap { step in
        if case .start(let range, .demand) = step { range.count } else { nil }
      }
    }
    let small = Flights.first - Planner.overhead
    let needed = Int64(60 << 10)
    #expect(lengths() == [small, small, small, small, needed - 4 * small])
    #expect(lengths { $0.line.flights[0] = needed + Planner.overhead }.count == 1, "one is warm")
    #expect(lengths { $0.line.flights.removeLast(2) }.count == 1, "too few are idle")
    let others: [(String, (inout PlanInput) -> Void)] = [
      ("it looks", { $0.readers[0].isLooker = true }),
      ("they may be warm", { $0.line.hasRested = false }),
      ("the user limits the rate", { $0.line.isLimited = true }),
      ("the next reader would find none", { $0.line.hasOthers = true }),
      ("the first response alone is compared", { $0.isCompared = true }),
      ("others have a part of the file", { $0.bounds = [ByteRange(0, 1 << 30)] }),
      ("the limit is lower than their number", { $0.line.requestLimit = 4 }),
      ("the router's queue would drop some", { $0.line.rate = 0.4e6 }),
      ("it steps", { $0.readers[0].takes = needed }),
      ("it reads in small steps", { $0.demands = [ByteRange(4096, 32 << 10)] }),
    ]
    for (why, change) in others { #expect(lengths(change).count <= 1, "\(why)") }
    #expect(
      lengths {
        $0.demands = [ByteRange(1 << 29, (1 << 29) + needed)]
        $0.readers = [ReaderView(position: (1 << 29) + needed, length: needed, rate: 4e6, stalled: 0)]
      } == lengths(), "behind a jump, too")
  }

  @Test("Who reads on over the only warm connection gets a first window and the next in one response")
  func oneResponse() {
    func length(_ change: (inout PlanInput) -> Void = { _ in }) -> Int64? {
      var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: Self.trip, rate: 1e6))
      input.line.hasHandshakes = true
      input.line.flights = [180_000, 60_000]
      input.available.insert(ByteRange(0, 128 << 10))
      input.demands = [ByteRange(128 << 10, 384 << 10)]
      input.readers = [ReaderView(position: 384 << 10, length: 384 << 10, rate: 4e6, stalled: 0)]
      change(&input)
      guard case .start(let range, .demand)? = Planner.plan(input).first else { return nil }
      return range.count
    }
    #expect(length() == 512 << 10)
    #expect(length { $0.line.flights = [180_000] } == 512 << 10)
    #expect(length { $0.line.flights[1] = 90_000 } == 256 << 10, "the next one brings much, too")
    #expect(length { $0.line.flights = [] } == 256 << 10)
    #expect(length { $0.line.hasHandshakes = false } == 256 << 10)
    #expect(length { $0.readers[0].isLooker = true } == 256 << 10)
    #expect(length { $0.line.isLimited = true } == 256 << 10)
    #expect(length { $0.line.hasOthers = true } == 256 << 10)
    #expect(length { $0.line.rate = 0.5e6 } == 256 << 10, "that is more than a second")
    #expect(length { $0.slowConnections = .init(rate: 1e5, count: 4) } == 256 << 10)
    #expect(length { $0.demands = [ByteRange(128 << 10, 256 << 10)] } ?? 0 < 512 << 10, "the kernel reads little ahead")
  }
}
