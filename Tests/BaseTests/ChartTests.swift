import TestSupport
import Testing

/// The charts of docs/BENCHMARKS.md and README.
@Suite("Charts")
struct ChartTests {
  @Test("The charts show what docs/BENCHMARKS.md says")
  func areOfTheTables() throws {
    try withTemporaryFolder { folder in
      let root = DocumentTests.root
      let drawn = try Command.succeed([
        "/usr/bin/python3", "\(root)/Benchmarks/chart.py", "\(root)/docs/BENCHMARKS.md", folder.path,
      ]).split { $0 == " " || $0 == "\n" }
      #expect(drawn.count > 5 && drawn.contains("summary"))
      for name in drawn {
        let chart = try Command.run(["cmp", folder.file("\(name).svg"), "\(root)/docs/images/\(name).svg"])
        #expect(chart.succeeded, "Benchmarks/chart.py docs/BENCHMARKS.md docs/images draws it anew: \(chart.output)")
      }
    }
  }
}
