import Glibc

/// What a name in the bucket is of: read from lists, where anything may be.
extension ObjectName {
  /// The kinds of objects, in the order in which a list has them.
  package enum Kind: String, CaseIterable, Sendable {
    case blocks, done, claims, format, heads, leases, nodes, probes, conditions, seen, pointers, foreign

    /// The most bytes of an object (docs/FLEET-FORMAT.md); nil: the bucket's format says it, or nothing is known.
    package var limit: Int? {
      switch self {
      case .blocks, .foreign: nil
      case .done: 8 << 20
      case .probes: 1 << 20
      case .pointers, .heads: 4 << 10
      case .claims, .format, .leases, .nodes, .conditions, .seen: 1 << 10
      }
    }
  }

  package var kind: Kind {
    switch self {
    case .format: .format
    case .pointer: .pointers
    case .head: .heads
    case .block: .blocks
    case .lease: .leases
    case .claim: .claims
    case .probe: .probes
    case .done: .done
    case .seen: .seen
    case .node: .nodes
    }
  }

  /// The object of that key; nil when no such object is known.
  package init?(key: String) {
    let parts = key.split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count >= 2, parts[0] == "mfs1" else { return nil }
    if parts.count == 2 {
      guard parts[1] == "format" else { return nil }
      self = .format
      return
    }
    let id = FleetID(parts[2])
    switch (parts[1], parts.count, id) {
    case ("u", 3, let id?): self = .pointer(id)
    case ("g", 3, let id?): self = .head(id)
    case ("p", 3, let id?): self = .probe(id)
    case ("d", 3, let id?): self = .done(id)
    case ("b", 4, let id?):
      guard let index = Self.number(parts[3], 8) else { return nil }
      self = .block(id, index)
    case ("l", 4, let id?):
      guard let segment = Self.number(parts[3], 6) else { return nil }
      self = .lease(id, segment: segment)
    case ("e", 4, let id?):
      let words = parts[3].split(separator: "-", omittingEmptySubsequences: false)
      guard words.count == 2, let index = Self.number(words[0], 8), let round = Self.number(words[1], 2) else {
        return nil
      }
      self = .claim(id, index, round: round)
    case ("s", 4, nil):
      guard let day = Self.number(parts[2], 8), let id = FleetID(parts[3]) else { return nil }
      self = .seen(day: day, id)
    case ("n", 4, nil):
      guard let day = Self.number(parts[2], 8), let node = UInt64(hex: parts[3], digits: 16) else { return nil }
      self = .node(day: day, node)
    default: return nil
    }
  }

  /// The kind of what has that key, known or not.
  package static func kind(of key: String) -> Kind {
    if key.hasPrefix("mfs1/probe/") { return .conditions }
    return ObjectName(key: key)?.kind ?? .foreign
  }

  private static func number(_ text: Substring, _ digits: Int) -> Int? {
    guard text.utf8.count == digits, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return Int(text)
  }
}

/// Days of the store's clock.
enum StoreDay {
  /// The day of a time, UTC: YYYYMMDD.
  static func number(of time: Int64) -> Int {
    var seconds = time_t(time)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    return (Int(parts.tm_year) + 1900) * 10_000 + (Int(parts.tm_mon) + 1) * 100 + Int(parts.tm_mday)
  }

  /// A time as lists have it, `2026-11-26T00:12:53.000Z`, in seconds since 1970; nil: it is none.
  static func seconds(_ text: String) -> Int64? {
    let bytes = Array(text.utf8)
    guard bytes.count >= 20, bytes[4] == 0x2D, bytes[7] == 0x2D, bytes[10] == 0x54, bytes[13] == 0x3A,
      bytes[16] == 0x3A, bytes.last == 0x5A
    else { return nil }
    func number(_ range: Range<Int>) -> Int32? { Int32(String(decoding: bytes[range], as: UTF8.self)) }
    guard let year = number(0..<4), let month = number(5..<7), let day = number(8..<10), let hour = number(11..<13),
      let minute = number(14..<16), let second = number(17..<19), (1...12).contains(month), (1...31).contains(day),
      (0...23).contains(hour), (0...59).contains(minute), (0...60).contains(second), year >= 1970
    else { return nil }
    var parts = tm()
    (parts.tm_year, parts.tm_mon, parts.tm_mday) = (year - 1900, month - 1, day)
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (hour, minute, second)
    return Int64(timegm(&parts))
  }
}
