import Glibc

/// A random number generator that gives the same numbers for the same seed (splitmix64).
package struct SeededRandom: RandomNumberGenerator, Sendable {
  /// What it was started with: what a failing test prints and what repeats it.
  package let seed: UInt64
  private var state: UInt64

  /// Starts at `seed`.
  package init(seed: UInt64) {
    self.seed = seed
    state = seed
  }

  /// The seed in the environment variable `name` (decimal, or hexadecimal with 0x), else a random one; printed either
  /// way, with `what` uses it, so that a failure can be repeated.
  package static func fromEnvironment(_ name: String = "MEDIAFS_SEED", for what: String = #function) -> SeededRandom {
    var seed = UInt64.random(in: 0...UInt64.max)
    if let raw = getenv(name) {
      let text = String(cString: raw)
      if let given = text.hasPrefix("0x") ? UInt64(text.dropFirst(2), radix: 16) : UInt64(text) {
        seed = given
      } else {
        print("\(name)=\(text) is not a number; a random seed is used")
      }
    }
    print("\(what): \(name)=\(seed)")
    return SeededRandom(seed: seed)
  }

  /// The next number.
  package mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }

  /// A generator of its own, for a thread or a step: what others draw does not change what it gives.
  package mutating func fork() -> SeededRandom { SeededRandom(seed: next()) }

  /// `true` once in `count` times on average.
  package mutating func oneIn(_ count: Int) -> Bool { Int.random(in: 0..<count, using: &self) == 0 }
}
