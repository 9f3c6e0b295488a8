import Base
import TestSupport
import Testing

/// A minute of `make soak`: all that can go wrong, at random, under eight kinds of readers that compare every byte.
@Suite struct SoakTests {
  /// The soak's own words say what went wrong. Its choices repeat with the seed, their moments do not.
  @Test func readersNoticeNothingButPauses() throws {
    let seed = SeededRandom.fromEnvironment(for: "soak").seed
    try withTemporaryFolder { folder in
      let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
      let result = try Command.run(
        ["/usr/bin/python3", "-B", "\(root)/Benchmarks/soak.py", "--seconds", "60", "--seed", "\(seed)"],
        environment: ["BUILT": builtProduct(""), "BENCH": folder.path], timeout: 280)
      print(result.output)
      #expect(result.succeeded, "\(result.output)\(result.errors)")
    }
  }
}
