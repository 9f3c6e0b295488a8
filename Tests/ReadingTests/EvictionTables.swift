import Base
import Manifest
import Storing
import TestSupport
import Testing

@testable import Reading

/// What goes first when room is short: ``EvictionPlan`` alone.
@Suite struct EvictionTables {
  private static let block: Int64 = 1 << 20

  /// A file of `size` blocks, of which all are stored; `times`: when each was used.
  private func file(_ id: Int64, blocks: Int, _ times: [UInt32]? = nil, usedAt: UInt32 = 0) -> EvictionPlan.Candidate {
    let size = Int64(blocks) * Self.block
    var uses: BlockUses?
    if let times { uses = BlockUses(shift: 20, times: times + [0]) }
    return .init(
      id: id, key: ResourceKey(high: UInt64(id), low: 1), size: size, stored: ByteRangeSet(ByteRange(0, size)),
      usedAt: usedAt, uses: uses)
  }

  /// What goes of each file, as its blocks.
  private func gone(
    _ files: [EvictionPlan.Candidate], need: Int, oldest: UInt32 = 0,
    examine: (EvictionPlan.Candidate) -> ByteRangeSet? = { _ in ByteRangeSet() }
  ) -> [Int64: [Int64]] {
    var gone: [Int64: [Int64]] = [:]
    let victims = EvictionPlan.victims(of: files, need: Int64(need) * Self.block, oldest: oldest, examine: examine)
    for victim in victims {
      let blocks = victim.ranges.ranges.flatMap { Array($0.start / Self.block..<$0.end / Self.block) }
      gone[files[victim.candidate].id] = blocks
    }
    return gone
  }

  @Test("What the list does not have any more goes first, all of it, and not for its age alone")
  func unlistedFirst() {
    let old = file(1, blocks: 6, [1, 2, 3, 4, 5, 6])
    var unlisted = file(2, blocks: 6, [90, 91, 92, 93, 94, 95])
    unlisted.isListed = false
    let index = { (_: EvictionPlan.Candidate) in ByteRangeSet(ByteRange(2 * Self.block, 3 * Self.block)) }
    #expect(gone([old, unlisted], need: 6, examine: index) == [2: [0, 1, 2, 3, 4, 5]])
    #expect(gone([old, unlisted], need: 7) == [1: [1], 2: [0, 1, 2, 3, 4, 5]])
    #expect(gone([old, unlisted], need: 0, oldest: 4) == [1: [0, 1, 2]])
  }

  @Test("The blocks used longest ago go first, whichever file they are of, and no more than is needed")
  func leastRecentlyUsed() {
    let (one, two) = (file(1, blocks: 6, [9, 50, 10, 40, 60, 9]), file(2, blocks: 6, [9, 20, 70, 30, 80, 9]))
    #expect(gone([one, two], need: 3) == [1: [2], 2: [1, 3]])
    #expect(gone([one, two], need: 4) == [1: [2, 3], 2: [1, 3]])
    #expect(gone([one, two], need: 0).isEmpty)
  }

  @Test("Head and tail go after every body, the oldest first")
  func edgesLast() {
    let (one, two) = (file(1, blocks: 4, [1, 100, 100, 1]), file(2, blocks: 4, [2, 200, 200, 2]))
    #expect(gone([one, two], need: 4) == [1: [1, 2], 2: [1, 2]])
    #expect(gone([one, two], need: 5) == [1: [1, 2, 3], 2: [1, 2]])
    #expect(gone([one, two], need: 99) == [1: [0, 1, 2, 3], 2: [0, 1, 2, 3]])
  }

  @Test("The blocks of an index go after every body")
  func indexLast() {
    let film = file(1, blocks: 8, [1, 5, 5, 5, 5, 5, 5, 1])
    let index = ByteRangeSet(ByteRange(5 * Self.block + 7, 6 * Self.block))
    #expect(gone([film], need: 4) { _ in index } == [1: [2, 3, 4, 6]])
    #expect(gone([film], need: 5) { _ in index } == [1: [1, 2, 3, 4, 6]])
    #expect(gone([film], need: 6) { _ in index }[1]?.contains(5) == false, "the tail is older")
    // A few bytes in each block are no index.
    let traces = ByteRangeSet(ByteRange(3 * Self.block, 3 * Self.block + 100))
    #expect(gone([film], need: 6) { _ in traces } == [1: [1, 2, 3, 4, 5, 6]])
  }

  @Test("Of what was used at one time, the end goes first: a file is started from its beginning")
  func fromTheEnd() {
    #expect(gone([file(1, blocks: 8, usedAt: 7)], need: 2) == [1: [5, 6]])
  }

  @Test("What may not go is asked for once and left, whatever is needed")
  func kept() {
    var asked: [Int64] = []
    let files = [file(1, blocks: 4, usedAt: 1), file(2, blocks: 4, usedAt: 2)]
    let gone = gone(files, need: 99) { candidate in
      asked.append(candidate.id)
      return candidate.id == 1 ? nil : ByteRangeSet()
    }
    #expect(gone == [2: [0, 1, 2, 3]])
    #expect(asked == [1, 2])
  }

  @Test("What nobody used since a time goes even if there is room")
  func age() {
    let (old, new) = (file(1, blocks: 3, usedAt: 10), file(2, blocks: 3, [10, 30, 10]))
    #expect(gone([old, new], need: 0, oldest: 20) == [1: [0, 1, 2], 2: [0, 2]])
  }

  @Test("A file without a known length, and a complete copy, go as a whole")
  func wholeFiles() {
    var growing = file(1, blocks: 3, usedAt: 5)
    growing.size = nil
    var copy = file(2, blocks: 3, usedAt: 4)
    copy.copy = LibraryCopy(path: "a", size: 3 * Self.block, modified: 0, changed: 0, device: 0, inode: 0)
    let part = file(3, blocks: 3, usedAt: 3)
    #expect(gone([growing, copy, part], need: 2) == [2: [0, 1, 2], 3: [1]])
    #expect(gone([growing, copy, part], need: 5) == [1: [0, 1, 2], 2: [0, 1, 2], 3: [1]])
  }

  @Test("What a write takes on the disk is whole blocks, each of them once")
  func space() {
    func space(_ start: Int64, _ end: Int64, _ stored: [(Int64, Int64)] = []) -> Int64 {
      var set = ByteRangeSet()
      for (start, end) in stored { set.insert(ByteRange(start, end)) }
      return StoreLedger.space(of: ByteRange(start, end), in: set)
    }
    #expect(space(0, 1) == 4096)
    #expect(space(4095, 4097) == 8192)
    #expect(space(100, 4096, [(0, 100)]) == 0)
    #expect(space(100, 8193, [(0, 100)]) == 8192)
    #expect(space(100, 200, [(0, 100), (200, 300)]) == 0)
    #expect(space(4000, 9000, [(0, 4000), (9000, 9001)]) == 4096)
    var random = SeededRandom.fromEnvironment(for: "EvictionTables.space")
    var stored = ByteRangeSet()
    var taken: Int64 = 0
    for _ in 0..<2000 {
      let start = Int64.random(in: 0..<400_000, using: &random)
      let whole = ByteRange(start, start + Int64.random(in: 1...20_000, using: &random))
      while let gap = stored.firstGap(in: whole) {
        taken += StoreLedger.space(of: gap, in: stored)
        stored.insert(gap)
      }
      var blocks = ByteRangeSet()
      for range in stored.ranges { blocks.insert(range.blocks(of: 4096)) }
      #expect(taken == blocks.count, "MEDIAFS_SEED=\(random.seed)")
    }
  }

  @Test("What is kept free shrinks as copies that stay fill the limit, and ends where nothing is left")
  func besideCopies() {
    var balance = StoreLedger.Balance(held: 0, copies: 0, limit: 1 << 30)
    #expect(balance.headroom == 64 << 20 && balance.goal == 128 << 20)
    balance.copies = (1 << 30) - (20 << 20)
    #expect(balance.headroom == 10 << 20 && balance.goal == 10 << 20 && !balance.isHopeless)
    balance.copies = (1 << 30) - 1
    #expect(balance.isHopeless)
    balance.copiesStay = false
    #expect(balance.headroom == 64 << 20 && !balance.isHopeless)
  }

  @Test("What is promised to a copy is room for readers, and none for background downloads")
  func promises() {
    let ledger = StoreLedger(limit: 100 << 20)
    let (key, other) = (ResourceKey(high: 1, low: 1), ResourceKey(high: 2, low: 2))
    ledger.promise(90 << 20, to: key, until: Instant(nanoseconds: 5))
    ledger.promise(1 << 20, to: other, until: Instant(nanoseconds: 5))
    #expect(!ledger.reserve(20 << 20, for: .background).isGranted && ledger.reserve(5 << 20, for: .reader).isGranted)
    #expect(ledger.reserve(90 << 20, for: .copy(key)).isGranted && ledger.balance.promised == 1 << 20)
    ledger.forgetPromises(Instant(nanoseconds: 4))
    #expect(ledger.balance.promised == 1 << 20)
    ledger.forgetPromises(Instant(nanoseconds: 5))
    #expect(ledger.balance.free == 5 << 20)
  }
}
