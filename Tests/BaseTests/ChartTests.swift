import TestSupport
import Testing

/// The charts of docs/BENCHMARKS.md and README.
@Suite("Charts")
struct ChartTests {
  /// chart.py fails where the document has no row for a bar: its chart would go without.
  @Test("The charts show what docs/BENCHMARKS.md says")
  func areOfTheTables() throws {
    try withTemporaryFolder { folder in
      let root = DocumentTests.root
      let drawn = try Command.succeed([
        "/usr/bin/python3", "\(root)/Benchmarks/chart.py", "\(root)/docs/BENCHMARKS.md", folder.path,
      ]).split { $0 == " " || $0 == "\n" }
      let pictures = try Command.succeed(["ls", "\(root)/docs/images"]).split(separator: "\n")
      // `top` is no chart.
      #expect(Set(drawn.map { "\($0).svg" }) == Set(pictures.map(String.init)).subtracting(["top.svg"]))
      for name in drawn {
        let chart = try Command.run(["cmp", folder.file("\(name).svg"), "\(root)/docs/images/\(name).svg"])
        #expect(chart.succeeded, "Benchmarks/chart.py docs/BENCHMARKS.md docs/images draws it anew: \(chart.output)")
      }
    }
  }
}
