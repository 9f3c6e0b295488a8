import Base
import Fetching
import Testing

@testable import Reading

/// Play-ahead over TLS for which no connection is idle: ``Planner/waitsForConnection(_:_:)``.
@Suite struct ConnectingTables {
  private static let piece = Planner.pieceLength
  private static let position: Int64 = 1 << 20
  /// What is requested already goes up to here.
  private static let frontier = position + (128 << 10)
  private static let goal = position + (512 << 10)

  /// A reader, and what it needs next under way over the only connection.
  private func input(_ change: (inout PlanInput) -> Void = { _ in }) -> PlanInput {
    var line = LineView(roundTrip: 0.06, rate: 4e6)
    (line.hasHandshakes, line.hasSmallWindows, line.openConnections) = (true, true, 1)
    var input = PlanInput(size: 1 << 30, line: line)
    input.available.insert(ByteRange(0, Self.position))
    input.readers = [ReaderView(position: Self.position, length: Self.position, rate: 4e6)]
    var running = ActiveTransfer(
      id: .init(1), position: Self.position, end: Self.frontier, purpose: .playAhead, rate: 4e6)
    (running.hasBegun, running.age) = (true, 0.1)
    input.transfers = [running]
    change(&input)
    return input
  }

  private func connecting(_ id: UInt64, from start: Int64) -> ActiveTransfer {
    var transfer = ActiveTransfer(
      id: .init(id), position: start, end: start + Self.piece, purpose: .playAhead, rate: nil)
    (transfer.isConnecting, transfer.age) = (true, 0.05)
    return transfer
  }

  @Test("What comes next waits for the connection in use, and others are made with what comes last")
  func connectsAhead() {
    #expect(Planner.plan(input()) == [.start(ByteRange(Self.goal - Self.piece, Self.goal), .playAhead)])
    let one = input { $0.transfers.append(connecting(2, from: Self.goal - Self.piece)) }
    #expect(
      Planner.plan(one)
        == [.start(ByteRange(Self.goal - 2 * Self.piece, Self.goal - Self.piece), .playAhead)])
    let two = input {
      $0.transfers += (1...2).map { connecting(UInt64($0 + 1), from: Self.goal - Int64($0) * Self.piece) }
    }
    #expect(Planner.plan(two) == [], "two at once are enough")
    let near = input { $0.transfers[0].end = Self.goal - 2 * Self.piece + 1 }
    #expect(Planner.plan(near) == [], "what comes last is nearly what comes next")
    let partly = input { $0.available.insert(ByteRange(at: Self.goal - 4096, count: 4096)) }
    #expect(Planner.plan(partly) == [], "little is left there")
  }

  @Test("What comes next is requested at once where that wait is long or in vain, or no handshake is saved")
  func asksAtOnce() {
    let changes: [(String, (inout PlanInput) -> Void)] = [
      ("a connection is idle", { $0.line.flights = [60_000] }),
      ("HTTP/2, or no TLS", { $0.line.hasHandshakes = false }),
      ("packets are lost", { $0.line.losesPackets = true }),
      ("windows stay small", { $0.line.staysSmall = true }),
      ("the one in use is slow", { $0.transfers[0].rate = 1e5 }),
      (
        "its answer and its bytes together take too long",
        { ($0.transfers[0].hasBegun, $0.transfers[0].age, $0.transfers[0].rate) = (false, 0, 8.7e5) }
      ),
      (
        "it has brought nothing for two round trips",
        { ($0.transfers[0].hasBegun, $0.transfers[0].age) = (false, 0.13) }
      ),
      ("it was requested long ago", { $0.transfers[0].age = 0.61 }),
      ("it is stuck", { $0.transfers[0].isStuck = true }),
      ("it is being made", { $0.transfers[0].isConnecting = true }),
      ("the reader has read little here", { $0.readers[0].length = (1 << 20) - 1 }),
      ("each connection is slow", { $0.lanes = Lanes(now: 4, settled: 4) }),
    ]
    for (name, change) in changes {
      let input = input(change)
      let first = Planner.plan(input).compactMap { if case .start(let range, _) = $0 { range.start } else { nil } }
        .first
      #expect(first == input.transfers[0].end, "\(name)")
    }
  }
}
