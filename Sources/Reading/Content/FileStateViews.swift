import Base
import Storing

/// What the states of a file mean, and what goes into its events and comes out of them.
extension FileState {
  /// Bytes, when known.
  var size: Int64? {
    if case .known(let size) = length { return size }
    return nil
  }
  /// Stored bytes that are not known to be on disk.
  var unsynced: Int64 { stored.count - synced.count }
  /// What a read can be answered from now: what is stored, and what is kept in memory.
  var available: ByteRangeSet {
    if memory.isEmpty { return stored }
    var both = stored
    both.formUnion(memory.ranges)
    return both
  }
  /// Whether all of `range` is there.
  func has(_ range: ByteRange) -> Bool {
    stored.contains(range) || (!memory.isEmpty && available.contains(range))
  }
  /// Whether every byte is stored.
  var isWhole: Bool { size.map { stored.contains(ByteRange(0, $0)) } ?? false }
  /// Whether bytes may still be missing and be stored.
  var isPartial: Bool { holding == .partial || holding == .touched }
  var isCopy: Bool { holding == .copy }
  var isPutAway: Bool { removal == .putAway }
  /// Whether bytes may be written to its file now.
  var isWritable: Bool { isPartial && removal == .none && claim != .overclaimed }

  /// What no sequence of events leads to.
  var isLegal: Bool {
    if generation == nil, claim != .current || holding != .partial { return false }
    switch holding {
    case .completing, .verifying: if removal != .none || !isWhole { return false }
    case .copy: if generation?.copy == nil || claim != .current || unsynced != 0 || !isWhole { return false }
    case .partial, .touched: break
    }
    if removal == .putAway, claim != .current || unsynced != 0 { return false }
    if (unsyncedSince == nil) != (unsynced == 0) { return false }
    return synced.intersection(stored) == synced
  }

  /// What the catalog has of it, loaded before any other thread knows the content.
  enum Loaded {
    /// A copy in the library, open as `file`.
    case copy(LibraryCopy, file: ServedFile)
    /// Nothing, as a user changed the copy or removed it.
    case touched
    /// Nothing that can be used: the catalog's generation is forgotten once another is known.
    case useless
    /// These bytes, of which `synced` are known to be on disk.
    case partial(stored: ByteRangeSet, synced: ByteRangeSet)
  }

  /// What follows from the first answer.
  struct Identified {
    /// The id of a former generation that is of no use any more.
    let useless: Int64?
  }

  /// The stored bytes as they are to be committed.
  struct Snapshot {
    let generation: Int64
    let stored: ByteRangeSet
    let file: ServedFile
  }

  /// The bytes of a file system's block, generously.
  private static let block: Int64 = 64 << 10

  /// Of what is synced, all that shares no block with what is not: a write that failed may have torn such a block.
  static func onDisk(_ stored: ByteRangeSet, synced: ByteRangeSet) -> ByteRangeSet {
    var lost = stored
    for range in synced.ranges { lost.remove(range) }
    var kept = synced
    for range in lost.ranges {
      kept.remove(ByteRange(range.start / block * block, (range.end + block - 1) / block * block))
    }
    return kept
  }

  /// From the first byte of `stored` that is not in `kept` to the last; nil when there is none.
  static func hull(of stored: ByteRangeSet, without kept: ByteRangeSet) -> ByteRange? {
    var lost = stored
    for range in kept.ranges { lost.remove(range) }
    guard let first = lost.ranges.first, let last = lost.ranges.last else { return nil }
    return ByteRange(first.start, last.end)
  }
}
