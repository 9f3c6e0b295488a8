import Base
import Manifest
import Storing

/// Which stored blocks make room: the least recently used first, but those that the next start of a film or the next
/// scan needs (a file's head, index and tail) after all others. Pure.
struct EvictionPlan {
  /// A file of which something is stored.
  struct Candidate: Sendable {
    var id: Int64
    var key: ResourceKey
    /// nil: its length is not known, or it is a complete copy. Then it goes as a whole.
    var size: Int64?
    var stored: ByteRangeSet
    /// When it was used, in seconds since 1970, if nobody noted it of its blocks.
    var usedAt: UInt32
    var uses: BlockUses?
    /// Whether the list has its resource. What it has not goes first, all of it.
    var isListed = true
    /// The complete copy that this is; nil for a partial file.
    var copy: LibraryCopy?
  }

  /// What goes of a file.
  struct Victim: Sendable {
    /// Its place in the list of candidates.
    var candidate: Int
    /// Whole blocks, or all of the file.
    var ranges: ByteRangeSet
    var bytes: Int64
  }

  /// Blocks of one file that follow each other and were used at the same time.
  private struct Run {
    var isListed: Bool
    var time: UInt32
    var candidate: Int
    var blocks: Range<Int64>
  }

  /// What a program reads of the beginning and the end of a file when it opens it, in bytes.
  static let edge: Int64 = 1 << 20

  /// A block with less of the index than this is of the body, in bytes: some formats have a little in each part.
  static let leastIndex: Int64 = 4 << 10

  private let candidates: [Candidate]
  private let need: Int64
  private let oldest: UInt32
  private var found: [Int: Victim] = [:]
  private var order: [Int] = []
  private var freed: Int64 = 0
  /// What `examine` said of each candidate that was looked at.
  private var examined: [Int: ByteRangeSet?] = [:]

  /// What has to go for `need` bytes, and whatever was last used before `oldest`. `examine` is asked once of each
  /// candidate that would go: nil if it may not, else the bytes of its index.
  static func victims(
    of candidates: [Candidate], need: Int64, oldest: UInt32 = 0, examine: (Candidate) -> ByteRangeSet?
  ) -> [Victim] {
    var plan = EvictionPlan(candidates, need: need, oldest: oldest)
    plan.run(examine)
    return plan.order.compactMap { plan.found[$0] }
  }

  private init(_ candidates: [Candidate], need: Int64, oldest: UInt32) {
    (self.candidates, self.need, self.oldest) = (candidates, need, oldest)
  }

  private mutating func run(_ examine: (Candidate) -> ByteRangeSet?) {
    var (bodies, edges): ([Run], [Run]) = ([], [])
    for index in candidates.indices { sort(index, into: &bodies, &edges) }
    bodies.sort(by: Self.isBefore)
    for run in bodies {
      // Behind what is not listed there may be older runs.
      guard goesOn(run) else { if run.isListed { break } else { continue } }
      guard var index = look(at: run.candidate, examine) else { continue }
      if !run.isListed { index = ByteRangeSet() }
      for block in run.blocks.reversed() {
        if index.count(in: range(of: block, run.candidate)) >= Self.leastIndex {
          var edge = run
          edge.blocks = block..<block + 1
          edges.append(edge)
        } else {
          guard goesOn(run) else { break }
          take(block, of: run.candidate)
        }
      }
    }
    edges.sort(by: Self.isBefore)
    for run in edges {
      guard goesOn(run) else { break }
      guard look(at: run.candidate, examine) != nil else { continue }
      for block in run.blocks.reversed() where goesOn(run) { take(block, of: run.candidate) }
    }
  }

  private static func isBefore(_ first: Run, _ second: Run) -> Bool {
    if first.isListed != second.isListed { return !first.isListed }
    // Of one file, what lies further back goes first: it is started from its beginning.
    return (first.time, first.candidate, second.blocks.lowerBound) < (
      second.time, second.candidate, first.blocks.lowerBound
    )
  }

  /// More is needed, or the run is too old.
  private func goesOn(_ run: Run) -> Bool { freed < need || run.time < oldest }

  private mutating func look(at index: Int, _ examine: (Candidate) -> ByteRangeSet?) -> ByteRangeSet? {
    if let known = examined[index] { return known }
    let answer = examine(candidates[index])
    examined[index] = .some(answer)
    return answer
  }

  /// Whether a candidate goes as a whole.
  private func isWhole(_ candidate: Candidate) -> Bool { candidate.size == nil || candidate.copy != nil }

  private func shift(_ candidate: Candidate) -> Int64 { Int64(BlockUses.shift(of: candidate.size ?? 0)) }

  private func range(of block: Int64, _ index: Int) -> ByteRange {
    let candidate = candidates[index]
    if isWhole(candidate) { return ByteRange(0, candidate.stored.end) }
    let shift = shift(candidate)
    return ByteRange(block << shift, (block + 1) << shift)
  }

  private func sort(_ index: Int, into bodies: inout [Run], _ edges: inout [Run]) {
    let candidate = candidates[index]
    if candidate.stored.isEmpty { return }
    guard let size = candidate.size, candidate.copy == nil else {
      return bodies.append(
        Run(isListed: candidate.isListed, time: candidate.usedAt, candidate: index, blocks: 0..<1))
    }
    let shift = shift(candidate)
    let uses = candidate.uses.flatMap { Int64($0.shift) == shift ? $0 : nil }
    let (head, tail) = ((Self.edge - 1) >> shift, max(0, size - Self.edge) >> shift)
    var next: Int64 = 0
    for stored in candidate.stored.ranges {
      for block in max(next, stored.start >> shift)...max(next, (stored.end - 1) >> shift) {
        if block << shift >= stored.end { break }
        next = block + 1
        let noted = uses.flatMap { Int(block) < $0.times.count ? $0.times[Int(block)] : nil } ?? 0
        let run = Run(
          isListed: candidate.isListed, time: noted == 0 ? candidate.usedAt : noted, candidate: index,
          blocks: block..<block + 1)
        if candidate.isListed, block <= head || block >= tail {
          Self.append(run, to: &edges)
        } else {
          Self.append(run, to: &bodies)
        }
      }
    }
  }

  private static func append(_ run: Run, to runs: inout [Run]) {
    if let last = runs.last, last.candidate == run.candidate, last.time == run.time,
      last.blocks.upperBound == run.blocks.lowerBound
    {
      runs[runs.count - 1].blocks = last.blocks.lowerBound..<run.blocks.upperBound
    } else {
      runs.append(run)
    }
  }

  private mutating func take(_ block: Int64, of index: Int) {
    let range = range(of: block, index)
    let bytes = candidates[index].stored.count(in: range)
    if found[index] == nil {
      found[index] = Victim(candidate: index, ranges: ByteRangeSet(), bytes: 0)
      order.append(index)
    }
    found[index]?.ranges.insert(range)
    found[index]?.bytes += bytes
    freed += bytes
  }
}
