import Base
import Reading
import Testing

@testable import Mount

@Suite("Requests that are answered later")
struct RequestTableTests {
  private let request = OpaquePointer(bitPattern: 0x1000)!
  private let other = OpaquePointer(bitPattern: 0x2000)!

  @Test("Answered at once: the slot is free again, the ticket dead")
  func answeredAtOnce() {
    var table = RequestTable()
    let ticket = table.begin(request, process: 7)
    #expect(table.count == 1)
    #expect(table.settle(ticket, parked: false) == .none)
    #expect(table.count == 0)
    #expect(table.take(ticket) == nil)
  }

  @Test("Parked, then answered once")
  func parked() {
    var table = RequestTable()
    let ticket = table.begin(request, process: 7)
    #expect(table.settle(ticket, parked: true) == .none)
    #expect(table.take(ticket) == request)
    #expect(table.take(ticket) == nil)
    #expect(table.count == 0)
  }

  @Test("Answered by another thread before the call returned")
  func answeredDuringTheCall() {
    var table = RequestTable()
    let ticket = table.begin(request, process: 7)
    #expect(table.take(ticket) == request)
    #expect(table.take(ticket) == nil)
    #expect(table.settle(ticket, parked: true) == .none)
    #expect(table.count == 0)
  }

  @Test("A late ticket does not name the request that came to its place")
  func reuse() {
    var table = RequestTable()
    let old = table.begin(request, process: 7)
    _ = table.settle(old, parked: true)
    _ = table.take(old)
    let new = table.begin(other, process: 8)
    _ = table.settle(new, parked: true)
    #expect(old != new)
    #expect(table.interrupt(old) == .none)
    let isWatched = table.watch(old)
    #expect(!isWatched)
    #expect(table.take(old) == nil)
    #expect(table.interrupt(new) == .deliver(process: 8))
    #expect(table.take(new) == other)
  }

  @Test("An interrupt during the call is delivered behind it, once it is parked")
  func interruptedDuringTheCall() {
    var table = RequestTable()
    let ticket = table.begin(request, process: 7)
    #expect(table.interrupt(ticket) == .none)
    #expect(table.settle(ticket, parked: true) == .deliver(process: 7))
    let answered = table.begin(other, process: 9)
    #expect(table.interrupt(answered) == .none)
    #expect(table.settle(answered, parked: false) == .none)
  }

  @Test("A watched request is watched until its answer")
  func watching() {
    var table = RequestTable()
    let ticket = table.begin(request, process: 7)
    let tooEarly = table.watch(ticket)
    _ = table.settle(ticket, parked: true)
    let first = table.watch(ticket)
    let again = table.watch(ticket)
    #expect(!tooEarly && first && again)
    #expect(table.watchedProcesses().map(\.process) == [7])
    _ = table.take(ticket)
    #expect(table.watchedProcesses().isEmpty)
  }

  @Test("Bits that were never a ticket name nothing")
  func nonsense() {
    var table = RequestTable()
    #expect(table.take(Ticket(rawValue: 0)) == nil)
    #expect(table.take(Ticket(rawValue: .max)) == nil)
    _ = table.begin(request, process: 7)
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
