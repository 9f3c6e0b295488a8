import Base

/// Whether an origin without validators still sends the bytes that are stored (P1). Pure.
///
/// The heads of its answers do not tell one version from another. So the first request after a pause begins before its
/// hole, and what is stored there is compared with what comes, before anything else of the file is requested or stored.
/// An answer with other bytes is not believed until a second one brings the same other bytes.
struct Comparison {
  /// What the compared bytes say.
  enum Verdict: Equatable {
    /// The answer has other bytes than the file. Another answer decides.
    case odd
    /// Two answers have the same other bytes: another version.
    case another
    /// The answers differ from the file and from each other, or agree in too few bytes: a failed attempt.
    case fickle
  }

  /// In how many bytes two answers agree at least, unless both bring fewer.
  static let least = 64
  /// The most bytes that one request repeats.
  static let most: Int64 = 4 << 10
  /// After so many seconds without a byte of the file, the next request compares.
  static let pause = 1.0

  /// Whether the next request compares, and nothing else is requested or stored before.
  private(set) var isDue = false
  /// When bytes of the file came last; nil: not since it was loaded.
  private var lastBytes: Instant?
  /// How many bytes were requested again, in all.
  private var repeated: Int64 = 0
  /// The bytes of an answer from where it differs from the file.
  private var odd: (offset: Int64, bytes: [UInt8])?

  /// Nothing of the file is in flight. Notes whether the next request has to compare with the `stored` bytes.
  mutating func look(stored: ByteRangeSet, size: Int64, now: Instant) {
    if isDue { return }
    let hasPaused = lastBytes.map { now.seconds(since: $0) > Self.pause } ?? true
    isDue = hasPaused && !stored.isEmpty && allowance(of: size) > 0
  }

  /// How many bytes may be repeated now: half a percent of the file in all (P4), a half of what is left at most.
  private func allowance(of size: Int64) -> Int64 { max(0, min(Self.most, (size / 200 - repeated) / 2)) }

  /// The range to request in place of `hole`. It begins with stored bytes: those before the hole or, if there are none,
  /// only the end of a stored range near it. The hole is requested after that. Once no more may be repeated, it is the
  /// hole itself.
  func range(before hole: ByteRange, stored: ByteRangeSet, size: Int64) -> ByteRange {
    guard let near = stored.ranges.last(where: { $0.end <= hole.start }) ?? stored.ranges.first else { return hole }
    let start = max(near.start, near.end - allowance(of: size))
    let end = near.end == hole.start ? hole.end : near.end
    return start < end ? ByteRange(start, end) : hole
  }

  /// Bytes of the file came. `count` of them were stored before, agree, and were requested for that.
  mutating func agreed(repeating count: Int64, now: Instant) {
    lastBytes = now
    repeated += count
  }

  /// An answer agrees with all that it repeats of the file.
  mutating func ended() {
    isDue = false
    odd = nil
  }

  /// An answer differs from the file; `bytes` are those from the first different one on.
  mutating func differed(at offset: Int64, _ bytes: some Sequence<UInt8>) -> Verdict {
    let came = Array(bytes.prefix(Int(Self.most)))
    guard let former = odd, former.offset == offset, zip(former.bytes, came).allSatisfy(==) else {
      defer { odd = (offset, came) }
      return odd == nil ? .odd : .fickle
    }
    if former.bytes.count == came.count || min(former.bytes.count, came.count) >= Self.least { return .another }
    // Where a piece ends early, its few bytes may be equal by chance. The longer piece tells more next time.
    if came.count > former.bytes.count { odd = (offset, came) }
    return .fickle
  }
}
