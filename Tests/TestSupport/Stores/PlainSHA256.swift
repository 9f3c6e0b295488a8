/// SHA-256 and HMAC (FIPS 180-4, RFC 2104), written out: what judges signatures must not share code with what signs.
enum PlainSHA256 {
  private static let constants: [UInt32] = roots(64) { $0.cubeRoot }
  private static let initial: [UInt32] = roots(8) { $0.squareRoot() }

  static func digest(_ message: [UInt8]) -> [UInt8] {
    var bytes = message + [0x80]
    bytes += [UInt8](repeating: 0, count: (120 - bytes.count % 64) % 64)
    bytes += (0..<8).map { UInt8(truncatingIfNeeded: (UInt64(message.count) * 8) >> (56 - 8 * UInt64($0))) }
    var state = initial
    var words = [UInt32](repeating: 0, count: 64)
    for start in stride(from: 0, to: bytes.count, by: 64) {
      for index in 0..<16 {
        let at = start + index * 4
        words[index] =
          UInt32(bytes[at]) << 24 | UInt32(bytes[at + 1]) << 16 | UInt32(bytes[at + 2]) << 8 | UInt32(bytes[at + 3])
      }
      for index in 16..<64 {
        let (a, b) = (words[index - 15], words[index - 2])
        let first = a.turned(7) ^ a.turned(18) ^ a >> 3
        let second = b.turned(17) ^ b.turned(19) ^ b >> 10
        words[index] = words[index - 16] &+ first &+ words[index - 7] &+ second
      }
      var s = state
      for index in 0..<64 {
        let sum = s[4].turned(6) ^ s[4].turned(11) ^ s[4].turned(25)
        let one = s[7] &+ sum &+ ((s[4] & s[5]) ^ (~s[4] & s[6])) &+ constants[index] &+ words[index]
        let other = s[0].turned(2) ^ s[0].turned(13) ^ s[0].turned(22)
        let two = other &+ ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]))
        (s[7], s[6], s[5], s[4]) = (s[6], s[5], s[4], s[3] &+ one)
        (s[3], s[2], s[1], s[0]) = (s[2], s[1], s[0], one &+ two)
      }
      for index in 0..<8 { state[index] &+= s[index] }
    }
    return state.flatMap { word in (0..<4).map { UInt8(truncatingIfNeeded: word >> (24 - 8 * UInt32($0))) } }
  }

  static func code(_ message: [UInt8], key: [UInt8]) -> [UInt8] {
    let short = key.count > 64 ? digest(key) : key
    let block = short + [UInt8](repeating: 0, count: 64 - short.count)
    return digest(block.map { $0 ^ 0x5C } + digest(block.map { $0 ^ 0x36 } + message))
  }

  static func text(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  /// The first 32 bits of the fractions of roots of the first primes.
  private static func roots(_ count: Int, _ root: (Double) -> Double) -> [UInt32] {
    var primes: [Int] = []
    var next = 2
    while primes.count < count {
      if primes.allSatisfy({ next % $0 != 0 }) { primes.append(next) }
      next += 1
    }
    return primes.map { prime in
      let value = root(Double(prime))
      return UInt32((value - value.rounded(.down)) * 4_294_967_296)
    }
  }
}

extension UInt32 {
  fileprivate func turned(_ count: UInt32) -> UInt32 { self >> count | self << (32 - count) }
}

extension Double {
  /// By Newton's method, which ends at the nearest value.
  fileprivate var cubeRoot: Double {
    var root = self / 2
    for _ in 0..<100 { root -= (root * root * root - self) / (3 * root * root) }
    return root
  }
}
