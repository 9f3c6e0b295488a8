import Base
import Reading
import Testing

@testable import Mount

@Suite("Requests that are answered later")
struct RequestTableTests {
  private let memory: SessionMemory
  /// What a parked request looks like in its buffer: a header that says how long it is.
  private let bytes: [UInt8] = [40, 0, 0, 0] + [UInt8](repeating: 7, count: 36)
  private let request = OpaquePointer(bitPattern: 0x1000)!
  private let other = OpaquePointer(bitPattern: 0x2000)!

  init() throws { memory = try SessionMemory() }

  private func begin(_ table: inout RequestTable, _ request: OpaquePointer, _ process: Int32) -> Ticket {
    table.begin(request, unique: UInt64(process), process: process)
  }

  private func park(_ table: inout RequestTable, _ ticket: Ticket) -> RequestTable.Interruption {
    bytes.withUnsafeBytes { table.park(ticket, $0) }
  }

  /// Takes a request and answers it.
  private func answer(_ table: inout RequestTable, _ ticket: Ticket) -> OpaquePointer? {
    let taken = table.take(ticket)
    if taken != nil { table.done(ticket) }
    return taken?.request
  }

  @Test("Answered at once: the slot is free again, the ticket dead")
  func answeredAtOnce() {
    var table = RequestTable(memory)
    let ticket = begin(&table, request, 7)
    #expect(table.count == 1)
    table.settle(ticket)
    #expect(table.count == 0)
    #expect(table.take(ticket) == nil)
  }

  @Test("Parked, then answered once")
  func parked() {
    var table = RequestTable(memory)
    let ticket = begin(&table, request, 7)
    let afterticket = park(&table, ticket)
    #expect(afterticket == .none)
    let answeredticket = answer(&table, ticket)
    #expect(answeredticket == request)
    #expect(table.take(ticket) == nil)
    #expect(table.count == 0)
  }

  @Test("Answered by another thread before the call returned")
  func answeredDuringTheCall() {
    var table = RequestTable(memory)
    let ticket = begin(&table, request, 7)
    let answeredticket = answer(&table, ticket)
    #expect(answeredticket == request)
    #expect(table.take(ticket) == nil)
    let afterticket = park(&table, ticket)
    #expect(afterticket == .none)
    #expect(table.count == 0)
  }

  @Test("A late ticket does not name the request that came to its place")
  func reuse() {
    var table = RequestTable(memory)
    let old = begin(&table, request, 7)
    _ = park(&table, old)
    _ = answer(&table, old)
    let new = begin(&table, other, 8)
    _ = park(&table, new)
    #expect(old != new)
    #expect(table.interrupt(old) == .none)
    let isWatched = table.watch(old)
    #expect(!isWatched)
    #expect(table.take(old) == nil)
    #expect(table.interrupt(new) == .deliver(process: 8))
    let answerednew = answer(&table, new)
    #expect(answerednew == other)
  }

  @Test("An interrupt during the call is delivered behind it, once it is parked")
  func interruptedDuringTheCall() {
    var table = RequestTable(memory)
    let ticket = begin(&table, request, 7)
    #expect(table.interrupt(ticket) == .none)
    let afterticket = park(&table, ticket)
    #expect(afterticket == .deliver(process: 7))
    let answered = begin(&table, other, 9)
    #expect(table.interrupt(answered) == .none)
    table.settle(answered)
  }

  @Test("A watched request is watched until its answer")
  func watching() {
    var table = RequestTable(memory)
    let ticket = begin(&table, request, 7)
    let tooEarly = table.watch(ticket)
    _ = park(&table, ticket)
    let first = table.watch(ticket)
    let again = table.watch(ticket)
    #expect(!tooEarly && first && !again)
    #expect(table.watched == [ticket: 7])
    _ = answer(&table, ticket)
    #expect(table.watched.isEmpty)
  }

  @Test("After an overload, what is parked gets a slot that the session memory has")
  func overload() {
    var table = RequestTable(memory)
    let tickets = (0...SessionLayout.slotCount).map { _ in begin(&table, request, 7) }
    for ticket in tickets { table.settle(ticket) }
    let ticket = begin(&table, request, 7)
    let parked = park(&table, ticket)
    #expect(parked != .unkept)
  }

  @Test("Beyond the slots of the session memory nothing waits")
  func full() {
    var table = RequestTable(memory)
    for index in 0..<SessionLayout.slotCount {
      let ticket = begin(&table, request, 7)
      let parked = park(&table, ticket)
      if parked != .none { Issue.record("\(index): \(parked)") }
    }
    let ticket = begin(&table, other, 8)
    let refused = park(&table, ticket)
    #expect(refused == .unkept)
  }

  @Test("What the last server took is watched, as that one may have been told that the caller was killed")
  func left() {
    memory.raiseSlotMark(to: 2)
    for slot in 0..<2 { _ = bytes.withUnsafeBytes { memory.keep($0, inSlot: slot) } }
    var table = RequestTable(memory)
    let tickets = (0..<2).map {
      table.begin(request, unique: UInt64($0 + 1), process: Int32(7 + $0), again: $0, isLeft: true)
    }
    let parked = tickets.map { park(&table, $0) }
    #expect(parked == [.look, .none])
    #expect(table.watched == [tickets[0]: 7, tickets[1]: 8])
  }

  @Test("A reply that no longer reaches the kernel leaves the request to the next server")
  func ended() {
    var table = RequestTable(memory)
    let ticket = begin(&table, request, 7)
    _ = park(&table, ticket)
    let isKept = memory.request(inSlot: 0) != nil
    table.end()
    _ = answer(&table, ticket)
    #expect(isKept && memory.request(inSlot: 0) != nil)
  }

  @Test("Bits that were never a ticket name nothing")
  func nonsense() {
    var table = RequestTable(memory)
    #expect(table.take(Ticket(rawValue: 0)) == nil)
    #expect(table.take(Ticket(rawValue: .max)) == nil)
    _ = begin(&table, request, 7)
    #expect(table.take(Ticket(rawValue: 0)) == nil)
    #expect(table.interrupt(Ticket(rawValue: .max)) == .none)
  }
}

@Suite("What /proc says of a caller")
struct ProcessStateTests {
  @Test("SIGKILL pending on the thread or on the process")
  func masks() {
    #expect(hasPendingKill(status: "Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"))
    #expect(hasPendingKill(status: "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"))
    #expect(
      !hasPendingKill(status: "SigPnd:\t0000000000000200\nShdPnd:\t0000000000000080\nSigBlk:\t0000000000000100\n"))
    #expect(!hasPendingKill(status: ""))
    #expect(!hasPendingKill(status: "SigPnd:\tzz\n"))
  }

  @Test("This process lives, 0 is unknown, one that is gone waits for nothing")
  func processes() throws {
    #expect(!isKilled(process: 1))
    #expect(!isKilled(process: 0))
    let program = try Program.start("exit 0")
    let pid = program.pid
    _ = program.wait()
    #expect(isKilled(process: pid))
  }
}
