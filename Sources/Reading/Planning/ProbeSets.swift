import Base
import Storing

/// What programs that look at files read of one kind of file (``MediaKind``), in bytes at its two ends.
struct ProbeSet: Equatable, Sendable {
  var head: Int64
  /// 0 when most looks read nothing there.
  var tail: Int64
}

/// Learns the probe set of each kind of file from looks: opens that ended before the file was played. The next file of
/// that kind is then fetched in one or two requests, and little more of it than such a program reads. Pure; owned by
/// the transfer thread.
struct ProbeSets: Sendable {
  /// The most kinds that are known at once. A new kind replaces the one that was looked at longest ago.
  static let most = 64
  /// The most bytes that a look reads at one end. Whoever reads more does more than look.
  static let longest: Int64 = 512 << 10
  /// How many looks at a kind count.
  static let remembered = 8
  /// How many bytes a probe set may cost a look beyond what it reads, on average: what is too short costs a request and
  /// a round trip. A program that goes to the tail shows by itself where most tails begin.
  private static let spare = ProbeSet(head: 64 << 10, tail: 16 << 10)

  private struct Learned: Sendable {
    /// The last few looks, the latest last, and what follows from them.
    var looks: [ProbeSet]
    var set: ProbeSet
    var lastLook: UInt64
    /// The number of looks, those of earlier mounts too.
    var files: Int64
  }
  private var learned: [String: Learned] = [:]
  private var looks: UInt64 = 0

  /// What looks at files of `kind` read; nil when there was none.
  subscript(kind: String?) -> ProbeSet? { kind.flatMap { learned[$0]?.set } }

  /// Notes what one look at a file of `kind` read. False when it was no look.
  @discardableResult
  mutating func looked(at kind: String, _ look: ProbeSet) -> Bool {
    guard look.head > 0, look.head <= Self.longest, look.tail <= Self.longest else { return false }
    guard var known = learned[kind] else {
      add(look, of: kind, files: 1)
      return true
    }
    looks += 1
    known.lastLook = looks
    known.files = .clampedSum(known.files, 1)
    known.looks = known.looks.suffix(Self.remembered - 1) + [look]
    known.set = Self.set(of: known.looks)
    learned[kind] = known
    return true
  }

  private static func set(of looks: [ProbeSet]) -> ProbeSet {
    let tails = looks.map(\.tail).filter { $0 > 0 }
    return ProbeSet(
      head: longest(looks.map(\.head), spare: spare.head),
      tail: 2 * tails.count < looks.count ? 0 : longest(tails, spare: spare.tail))
  }

  /// The largest of `lengths` that is on average at most `spare` longer than they are, in whole pages, as the kernel
  /// asks for them. So one odd file changes nothing.
  private static func longest(_ lengths: [Int64], spare: Int64) -> Int64 {
    let fitting = lengths.filter { length in
      lengths.reduce(0) { $0 + max(0, length - $1) } <= spare * Int64(lengths.count)
    }
    return ((fitting.max() ?? 0) + 4095) / 4096 * 4096
  }

  // MARK: The store's notes

  /// What the store is to remember of `kind`, learned at `date`; nil when nothing is known.
  func note(of kind: String, at date: Int64) -> KindNote? {
    learned[kind].map { KindNote(name: kind, head: $0.set.head, tail: $0.set.tail, files: $0.files, at: date) }
  }

  /// Takes over what earlier mounts learned, the latest of it. What this mount learned itself stays. The store may be
  /// damaged: more than a look reads is not believed.
  mutating func load(_ notes: [KindNote]) {
    let latest = notes.filter { learned[$0.name] == nil && $0.head > 0 && $0.tail >= 0 }
      .sorted { ($0.at, $0.name) < ($1.at, $1.name) }.suffix(max(0, Self.most - learned.count))
    for note in latest {
      let set = ProbeSet(head: min(note.head, Self.longest), tail: min(note.tail, Self.longest))
      add(set, of: note.name, files: max(1, note.files))
    }
  }

  private mutating func add(_ set: ProbeSet, of kind: String, files: Int64) {
    if learned.count >= Self.most, let oldest = learned.min(by: { $0.value.lastLook < $1.value.lastLook }) {
      learned[oldest.key] = nil
    }
    looks += 1
    learned[kind] = Learned(looks: [set], set: Self.set(of: [set]), lastLook: looks, files: files)
  }
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
