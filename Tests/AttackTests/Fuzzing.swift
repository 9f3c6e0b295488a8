import Base
import Glibc
import TestSupport

/// How many random cases a fuzz test tries: some thousands in an ordinary run; with MEDIAFS_FUZZ_CASES (`make fuzz`) that
/// many, but no longer than MEDIAFS_FUZZ_SECONDS. The seed is printed; MEDIAFS_SEED repeats it.
struct Fuzzing {
  /// What a failing case is called, so that it can be found again.
  struct Case: CustomStringConvertible {
    let name: String
    let seed: UInt64
    let index: Int
    var description: String { "\(name): case \(index) of MEDIAFS_SEED=\(seed)" }
  }

  private let name: String
  private let cases: Int

  /// `cases`: how many in an ordinary run.
  init(_ name: String, cases: Int) {
    self.name = name
    self.cases = cases
  }

  /// Tries `body` that often.
  func run(_ body: (inout SeededRandom, Case) throws -> Void) rethrows {
    var random = SeededRandom.fromEnvironment(for: name)
    let wanted = Self.number("MEDIAFS_FUZZ_CASES") ?? cases
    let end = Self.number("MEDIAFS_FUZZ_SECONDS").map { Instant.now.adding(seconds: Double($0)) }
    var index = 0
    while index < wanted {
      if index % 64 == 0, let end, Instant.now > end { break }
      try body(&random, Case(name: name, seed: random.seed, index: index))
      index += 1
    }
    print("fuzz \(name): \(index) cases")
  }

  private static func number(_ variable: String) -> Int? { getenv(variable).flatMap { Int(String(cString: $0)) } }
}

extension SeededRandom {
  /// `bytes` with one to eight changes: bits, bytes, pieces left out, doubled or moved, and pieces of `tokens` put in.
  mutating func mutated(_ bytes: [UInt8], tokens: [[UInt8]]) -> [UInt8] {
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
  mutating func bytes(_ limit: Int) -> [UInt8] {
    (0..<Int.random(in: 0...limit, using: &self)).map { _ in UInt8.random(in: 0...255, using: &self) }
  }
}

/// Texts as bytes.
func tokens(_ texts: String...) -> [[UInt8]] { texts.map { Array($0.utf8) } }
