import TestSupport
import Testing

/// Every fault of the table, with one reader, with eight, and with nobody reading: right bytes or the documented errno,
/// a store that is right, and a file that is complete when the fault is over.
@Suite("Faults of an origin")
struct FaultTableTests {
  @Test("Connections", arguments: ConnectionFaults.all, Readers.allCases)
  func connections(fault: FaultCase, readers: Readers) async { await run(fault, readers) }

  @Test("Statuses", arguments: StatusFaults.all, Readers.allCases)
  func statuses(fault: FaultCase, readers: Readers) async { await run(fault, readers) }

  @Test("Ranges", arguments: RangeFaults.all, Readers.allCases)
  func ranges(fault: FaultCase, readers: Readers) async { await run(fault, readers) }

  @Test("Mirrors", arguments: MirrorFaults.all, Readers.allCases)
  func mirrors(fault: FaultCase, readers: Readers) async { await run(fault, readers) }

  private func run(_ fault: FaultCase, _ readers: Readers) async {
    Figures.add("faults of an origin tried, with \(readers.rawValue)")
    for problem in await Gate.shared.run({ try FaultRun.run(fault, readers) }) {
      Issue.record("\(problem)")
    }
  }
}
