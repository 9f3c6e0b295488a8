import Base
import Glibc

/// How many random cases a fuzz test tries: some thousands in an ordinary run; with MEDIAFS_FUZZ_CASES (`make fuzz`)
/// that many, but no longer than MEDIAFS_FUZZ_SECONDS. The seed is printed; MEDIAFS_SEED repeats it.
package struct Fuzzing: Sendable {
  /// What a failing case is called, so that it can be found again.
  package struct Case: CustomStringConvertible, Sendable {
    let name: String
    let seed: UInt64
    /// How many came before it in this run.
    package let index: Int
    /// Which one, and how to repeat it.
    package var description: String { "\(name): case \(index) of MEDIAFS_SEED=\(seed)" }
  }

  private let name: String
  private let cases: Int

  /// `cases`: how many in an ordinary run.
  package init(_ name: String, cases: Int) {
    self.name = name
    self.cases = cases
  }

  /// Tries `body` that often; how often it was in the end.
  @discardableResult
  package func run(_ body: (inout SeededRandom, Case) throws -> Void) rethrows -> Int {
    var random = SeededRandom.fromEnvironment(for: name)
    let wanted = Self.number("MEDIAFS_FUZZ_CASES") ?? cases
    let end = Self.number("MEDIAFS_FUZZ_SECONDS").map { Instant.now.adding(seconds: Double($0)) }
    var index = 0
    while index < wanted {
      if index % 64 == 0, let end, Instant.now > end { break }
      try body(&random, Case(name: name, seed: random.seed, index: index))
      index += 1
    }
    Figures.add("fuzz cases", index)
    print("fuzz \(name): \(index) cases")
    return index
  }

  /// Lends a folder for the files of many cases: in memory where MEDIAFS_FUZZ_FOLDER names a place that is, because
  /// each case would wait for the disk.
  package static func withFolder<Result>(_ body: (TemporaryFolder) throws -> Result) throws -> Result {
    guard let place = getenv("MEDIAFS_FUZZ_FOLDER") else { return try withTemporaryFolder(body) }
    let folder = try TemporaryFolder(in: String(cString: place))
    let result = Swift.Result { try body(folder) }
    try folder.remove()
    return try result.get()
  }

  private static func number(_ variable: String) -> Int? { getenv(variable).flatMap { Int(String(cString: $0)) } }
}

extension SeededRandom {
  /// `bytes` with one to eight changes: bits, bytes, pieces left out, doubled or moved, and pieces of `tokens` put in.
  package mutating func mutated(_ bytes: [UInt8], tokens: [[UInt8]]) -> [UInt8] {
    var bytes = bytes
    for _ in 0..<Int.random(in: 1...8, using: &self) {
      let start = Int.random(in: 0...bytes.count, using: &self)
      let end = min(bytes.count, start + Int.random(in: 0...16, using: &self))
      switch Int.random(in: 0..<7, using: &self) {
      case 0: bytes.removeSubrange(start..<end)
      case 1: bytes.insert(contentsOf: bytes[start..<end], at: Int.random(in: 0...bytes.count, using: &self))
      case 2: bytes.insert(UInt8.random(in: 0...255, using: &self), at: start)
      case 3 where start < bytes.count: bytes[start] ^= 1 << UInt8.random(in: 0..<8, using: &self)
      case 4 where oneIn(8): bytes.removeSubrange(start...)
      default:
        if let token = tokens.randomElement(using: &self) { bytes.insert(contentsOf: token, at: start) }
      }
    }
    return bytes
  }

  /// Up to `limit` random bytes.
  package mutating func bytes(_ limit: Int) -> [UInt8] {
    (0..<Int.random(in: 0...limit, using: &self)).map { _ in UInt8.random(in: 0...255, using: &self) }
  }
}

/// Texts as bytes.
package func tokens(_ texts: String...) -> [[UInt8]] { texts.map { Array($0.utf8) } }
