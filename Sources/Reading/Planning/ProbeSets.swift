import Base

/// What programs that look at files read of one kind of file (``MediaKind``), in bytes at its two ends.
struct ProbeSet: Equatable, Sendable {
  var head: Int64
  /// 0 when most looks read nothing there.
  var tail: Int64
}

/// Learns the probe set of each kind of file from looks: opens that ended before the file was played. The next file of
/// that kind is then fetched in one or two requests, and no more of it than such a program reads. Pure; owned by the
/// transfer thread.
struct ProbeSets: Sendable {
  /// The most kinds that are known at once. A new kind replaces the one that was looked at longest ago.
  static let most = 64
  /// The most bytes that a look reads at one end. Whoever reads more does more than look.
  static let longest: Int64 = 512 << 10

  private struct Learned: Sendable {
    var head: Int64
    var tail: Int64
    /// Which part of the last few looks read the tail.
    var tailShare: Double
    var lastLook: UInt64
  }
  private var learned: [String: Learned] = [:]
  private var looks: UInt64 = 0

  /// What looks at files of `kind` read; nil when there was none.
  subscript(kind: String?) -> ProbeSet? {
    guard let known = kind.flatMap({ learned[$0] }) else { return nil }
    return ProbeSet(head: Self.whole(known.head), tail: known.tailShare < 0.5 ? 0 : Self.whole(known.tail))
  }

  /// Notes what one look at a file of `kind` read. The values follow their median, so that one odd file changes
  /// little: up by half of the difference, because a second request costs a look a round trip, and down by a quarter.
  mutating func looked(at kind: String, _ look: ProbeSet) {
    guard look.head > 0, look.head <= Self.longest, look.tail <= Self.longest else { return }
    looks += 1
    guard var known = learned[kind] else {
      add(look, of: kind)
      return
    }
    known.head = Self.step(known.head, to: look.head)
    if look.tail > 0 { known.tail = known.tail == 0 ? look.tail : Self.step(known.tail, to: look.tail) }
    known.tailShare += ((look.tail > 0 ? 1 : 0) - known.tailShare) / 4
    known.lastLook = looks
    learned[kind] = known
  }

  // MARK: The durable note

  /// All that is known, by kind.
  var notes: [String: ProbeSet] {
    Dictionary(uniqueKeysWithValues: learned.keys.compactMap { kind in self[kind].map { (kind, $0) } })
  }

  /// Takes over what an earlier mount learned. What this mount learned itself stays.
  mutating func load(_ notes: [String: ProbeSet]) {
    for (kind, set) in notes.sorted(by: { $0.key < $1.key })
    where learned[kind] == nil && learned.count < Self.most && set.head > 0 && set.tail >= 0 {
      add(ProbeSet(head: min(set.head, Self.longest), tail: min(set.tail, Self.longest)), of: kind)
    }
  }

  private mutating func add(_ set: ProbeSet, of kind: String) {
    if learned.count >= Self.most, let oldest = learned.min(by: { $0.value.lastLook < $1.value.lastLook }) {
      learned[oldest.key] = nil
    }
    learned[kind] = Learned(head: set.head, tail: set.tail, tailShare: set.tail > 0 ? 1 : 0, lastLook: looks)
  }

  private static func step(_ old: Int64, to new: Int64) -> Int64 {
    new > old ? old + (new - old + 1) / 2 : old - (old - new) / 4
  }

  /// Whole pages, as the kernel asks for them.
  private static func whole(_ bytes: Int64) -> Int64 { (bytes + 4095) / 4096 * 4096 }
}

/// Which bytes at the two ends of a file were read since it was opened. Pure.
struct LookTrace: Equatable, Sendable {
  /// The parts of a read-ahead window arrive in any order, and programs skip a little.
  private static let slack: Int64 = 128 << 10

  /// One past the last byte that was read from the start on.
  private var head: Int64 = 0
  /// How many bytes before the end the first read there began.
  private var tail: Int64 = 0

  /// Notes a read of `range` in a file of `size` bytes.
  mutating func note(_ range: ByteRange, size: Int64) {
    if range.start <= head + Self.slack {
      head = max(head, range.end)
    } else if size - range.start <= ProbeSets.longest {
      tail = max(tail, size - range.start)
    }
  }

  /// What was read; nil when that was nothing, or more than a look reads.
  var look: ProbeSet? { head > 0 && head <= ProbeSets.longest ? ProbeSet(head: head, tail: tail) : nil }
}
