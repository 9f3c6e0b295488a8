import Base
import Storing

/// The length of a resource, as far as it is known.
enum Length: Sendable, Equatable {
  /// The origin has not answered yet.
  case unknown
  /// The length in bytes.
  case known(Int64)
  /// The origin does not tell the length. This many bytes have arrived; the file ends where the body ends.
  case growing(Int64)
}

/// What a file's state consists of and means, and the values that its events take and return.
extension FileState {
  /// How far the file has come.
  enum Holding: Sendable, CaseIterable { case partial, modified, completing, verifying, copy }
  /// What the catalog believes about the stored bytes.
  enum Claim: Sendable, CaseIterable {
    /// It knows all of them, or there are none.
    case current
    /// It knows fewer: bytes were stored since the last commit.
    case behind
    /// The keeper is committing. Until it has, the file stays in memory: it would be loaded again with fewer bytes.
    case committing
    /// The keeper is committing, and more bytes were stored meanwhile.
    case committingBehind
    /// It believes in bytes that a failed sync lost. Nothing is written before the keeper has corrected it: bytes
    /// behind a lost range would make that range look stored.
    case overclaimed
  }
  /// Whether the file is being removed, from the store or from memory.
  enum Removal: Sendable, CaseIterable {
    /// It is not.
    case none
    /// The keeper is removing its bytes: nothing is written until it has finished.
    case frozen
    /// "Put away": the file is not in memory any more. A thread that still has the object looks the resource up again.
    case putAway
  }

  /// The size in bytes; nil until it is known.
  var size: Int64? {
    if case .known(let size) = length { return size }
    return nil
  }
  /// Whether an answer of the origin begins its generation.
  var awaitsGeneration: Bool { generation == nil && removal == .none }
  /// Stored bytes that are not known to be on disk.
  var unsynced: Int64 { stored.count - synced.count }
  /// The bytes that can answer a read now: stored, or in memory.
  var available: ByteRangeSet {
    if memory.isEmpty { return stored }
    var both = stored
    both.formUnion(memory.ranges)
    return both
  }
  /// Whether a read of `range` can be answered now.
  func has(_ range: ByteRange) -> Bool {
    stored.contains(range) || (!memory.isEmpty && available.contains(range))
  }
  /// The length of a first read: the least that the kernel reads ahead at the start of a file.
  private static let firstRead: Int64 = 16 << 10
  /// The first missing bytes: what an open asks for that asks whether the file changed.
  var firstMissing: ByteRange {
    let start = available.runEnd(from: 0)
    return ByteRange(start, min(max(start, size ?? 0), start + Self.firstRead))
  }
  /// Whether an open asks the origin whether the file changed, because the origin was last heard of this version more
  /// than `seconds` ago. That costs no request where a first read needs missing bytes, nor where a stat stored the head
  /// and nobody has read it: a reader goes on behind the head.
  func isToBeChecked(_ now: Instant, after seconds: Double) -> Bool {
    guard holding == .partial, removal == .none, !isSuperseded, let generation else { return false }
    let missing = firstMissing
    guard !missing.isEmpty, missing.start < (generation.isUsed ? Self.firstRead : Planner.headLength + 1) else {
      return false
    }
    return checkedAt.map { now.seconds(since: $0) > seconds } ?? true
  }
  /// Whether every byte is stored.
  var isWhole: Bool { size.map { stored.contains(ByteRange(0, $0)) } ?? false }
  /// Whether the file can take more bytes: it is partial, or modified.
  var isPartial: Bool { holding == .partial || holding == .modified }
  var isCopy: Bool { holding == .copy }
  var isPutAway: Bool { removal == .putAway }
  /// Whether bytes may be written to its file now.
  var isWritable: Bool { isPartial && removal == .none && claim != .overclaimed }

  /// Whether `snapshot` is still of this file, and its bytes are not being removed.
  func isCurrent(_ snapshot: Snapshot) -> Bool { removal == .none && file === snapshot.file }

  /// False for the combinations to which no sequence of events leads.
  var isLegal: Bool {
    if generation == nil, claim != .current || holding != .partial { return false }
    if generation != nil, useless != nil { return false }
    switch holding {
    case .completing, .verifying: if removal != .none || !isWhole || file == nil { return false }
    case .copy:
      if generation?.copy == nil || generation?.state != .complete || claim != .current { return false }
      if unsynced != 0 || !isWhole || !memory.isEmpty { return false }
    case .partial, .modified: break
    }
    if removal == .putAway, claim != .current || unsynced != 0 { return false }
    if (unsyncedSince == nil) != (unsynced == 0) { return false }
    return synced.intersection(stored) == synced
  }

  /// What the catalog has of the file. It is loaded before any other thread knows the content.
  enum Loaded {
    /// A copy in the library, open as `file`.
    case copy(LibraryCopy, file: ServedFile)
    /// Nothing, because a user changed or removed the copy.
    case modified
    /// Nothing that can be used. The catalog forgets the generation once another is known.
    case useless
    /// The bytes `stored`, of which `synced` are known to be on disk.
    case partial(stored: ByteRangeSet, synced: ByteRangeSet)
  }

  /// What follows from the first response.
  struct Identified {
    /// The id of a former generation that is useless.
    let useless: Int64?
  }

  /// The stored bytes that the keeper is about to commit.
  struct Snapshot {
    let generation: Int64
    let stored: ByteRangeSet
    let file: ServedFile
  }

  /// At least the size of a file system's block.
  private static let block: Int64 = 64 << 10

  /// The synced bytes, except in blocks that also hold unsynced bytes: a failed write may have torn such a block.
  static func onDisk(_ stored: ByteRangeSet, synced: ByteRangeSet) -> ByteRangeSet {
    var lost = stored
    for range in synced.ranges { lost.remove(range) }
    var kept = synced
    for range in lost.ranges {
      kept.remove(ByteRange(range.start / block * block, (range.end + block - 1) / block * block))
    }
    return kept
  }

  /// The range from the first to the last byte of `stored` that is not in `kept`; nil when there is none.
  static func hull(of stored: ByteRangeSet, without kept: ByteRangeSet) -> ByteRange? {
    var lost = stored
    for range in kept.ranges { lost.remove(range) }
    guard let first = lost.ranges.first, let last = lost.ranges.last else { return nil }
    return ByteRange(first.start, last.end)
  }
}
