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
  private var left = ByteRangeSet()
  /// Whether the bytes differ, or too few are stored or too many answers were needed to tell.
  private(set) var isDifferent = false
  /// How many answers by the link had stored bytes, whatever else they said.
  private var answers = 0
  /// How many of them are to prove it: the hosts behind a link may have a tag each, and none proves what another sends.
  private static let mostAnswers = 8

  /// The window to request next; nil when nothing is compared.
  var next: ByteRange? { isDifferent ? nil : left.ranges.last }

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
    if subject?.mirror != mirror { answers = 0 }
    subject = (mirror, found)
    left = Self.windows(of: stored)
    isDifferent = left.count < min(Self.window, size) || answers >= Self.mostAnswers
  }

  /// The first and the last bytes that are stored; one window where they meet.
  private static func windows(of stored: ByteRangeSet) -> ByteRangeSet {
    var windows = ByteRangeSet()
    if let first = stored.ranges.first, let last = stored.ranges.last {
      windows.insert(ByteRange(first.start, min(first.end, first.start + window)))
      windows.insert(ByteRange(max(last.start, last.end - window), last.end))
    }
    return windows
  }

  /// An answer had the stored bytes of `range`. True when nothing is left to compare.
  mutating func agreed(_ range: ByteRange) -> Bool {
    left.remove(range)
    answers += 1
    if !left.isEmpty, answers >= Self.mostAnswers { isDifferent = true }
    return left.isEmpty
  }

  mutating func differed() { isDifferent = true }
}
