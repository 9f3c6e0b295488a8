import Base

/// Whether what a new link leads to has the bytes that are stored (P1). Pure.
///
/// Equal length and the same strong tag prove it. Where an origin gives another tag or none, as each host of a large
/// site does, two stored windows are requested by the new link and compared, before a byte of it is stored.
struct Seam {
  /// The bytes of a window.
  static let window: Int64 = 64 << 10

  /// The link's place in ``MirrorList``, and what its answers say.
  private(set) var subject: (mirror: Int, found: GenerationCheck.Identity)?
  /// What is still to be compared, from its end on.
  private var left: [ByteRange] = []
  /// Whether the bytes differ, or too few are stored to tell.
  private(set) var isDifferent = false

  /// The window to request next; nil when nothing is compared.
  var next: ByteRange? { isDifferent ? nil : left.last }

  /// Whether both say the same strong tag and length.
  static func isProved(_ found: GenerationCheck.Identity, _ known: GenerationCheck.Identity) -> Bool {
    guard let size = found.size, size == known.size, let tag = found.validators.strongETag else { return false }
    return tag == known.validators.strongETag
  }

  /// Whether both say the same time of the last change, and no other tag: enough for a link that a user gave.
  static func isDated(_ found: GenerationCheck.Identity, _ known: GenerationCheck.Identity) -> Bool {
    found.validators.lastModified != nil && known.validators.lastModified != nil
      && GenerationCheck.compare(found, with: known) == .same
  }

  /// The answers by the link at `mirror` say `found`, and have yet to be compared.
  mutating func begin(_ found: GenerationCheck.Identity, _ mirror: Int, stored: ByteRangeSet, size: Int64) {
    if subject?.mirror == mirror, subject?.found == found, isDifferent || !left.isEmpty { return }
    subject = (mirror, found)
    left = Self.windows(of: stored)
    isDifferent = left.reduce(0) { $0 + $1.count } < min(Self.window, size)
  }

  /// The first and the last bytes that are stored; one window where they overlap.
  private static func windows(of stored: ByteRangeSet) -> [ByteRange] {
    guard let first = stored.ranges.first, let last = stored.ranges.last else { return [] }
    let head = ByteRange(first.start, min(first.end, first.start + window))
    let tail = ByteRange(max(last.start, last.end - window), last.end)
    return head.overlaps(tail) ? [ByteRange(head.start, tail.end)] : [head, tail]
  }

  /// A window has the stored bytes. True when it was the last one.
  mutating func agreed() -> Bool {
    left = left.dropLast()
    return left.isEmpty
  }

  mutating func differed() { isDifferent = true }
}
