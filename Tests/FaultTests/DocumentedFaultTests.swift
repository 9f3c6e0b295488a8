import Base
import TestSupport
import Testing

/// The tables of docs/RELIABILITY.md and those of the tests are the same ones: what stands in quotes in the last column
/// of a row are the cases that try it.
@Suite("Documented faults")
struct DocumentedFaultTests {
  @Test(arguments: [
    ("Connections", ConnectionFaults.all), ("Statuses and redirects", StatusFaults.all),
    ("Ranges, lengths, codings, validators", RangeFaults.all),
    ("Mirrors and checksums", MirrorFaults.all),
  ])
  func everyCaseStandsInARowAndEveryRowHasItsCase(title: String, cases: [FaultCase]) throws {
    let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
    let text = try Command.succeed(["cat", "\(root)/docs/RELIABILITY.md"])
    let section = try #require(text.split(separator: "\n## ").first { $0.hasPrefix(title) }, "no section \(title)")
    let rows = section.split(separator: "\n").filter { $0.hasPrefix("|") }.dropFirst(2)
    let named = rows.flatMap { row in
      (row.split(separator: "|").last ?? "").matches(of: #/"([^"]+)"/#).map { String($0.1) }
    }
    let known = cases.map(\.name)
    #expect(Set(named).subtracting(known).isEmpty, "no such case")
    #expect(Set(known).subtracting(named).isEmpty, "a case in no row")
    #expect(Set(known).count == known.count, "two cases of one name")
  }
}
