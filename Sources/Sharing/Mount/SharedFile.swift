import Base
import Manifest
import Reading

/// One version of a file that a member shares. The transfer thread alone has it.
final class SharedFile {
  /// A block that this node fetches from the origin for the fleet.
  struct Grant {
    let since: Instant
    /// What was stored of the block before.
    let base: Int64
    /// What the fleet's code was told last.
    var told: Int64
    /// Whether all of it was asked for.
    var isAsked = false
  }

  let key: ResourceKey
  /// The catalog's number, by which the fleet's code calls it too.
  let number: Int64
  let id: FleetID
  let etag: String
  let size: Int64
  let block: Int64
  /// What is stored here, as it was last seen, and the file that has it.
  var stored = ByteRangeSet()
  var served: ServedFile?
  /// The blocks that the origin may be asked for, and those that the store is asked for.
  var granted: [Int: Grant] = [:]
  var looking: Set<Int> = []
  /// Those whose fetch ended because another machine stored them.
  var left: Set<Int> = []
  /// Blocks of which one window may be asked from the origin.
  var bypasses: Set<Int> = []
  /// The windows that were asked for so, by block, until nobody waits for them.
  var windows: [Int: ByteRange] = [:]
  /// Blocks that were seen in the store.
  var inTier: Set<Int> = []
  /// What readers want, where they wait, and how many readers the fleet's code was told of.
  var foreground: Set<Int> = []
  var fronts: Set<Int> = []
  /// Where they wait, by byte.
  var waits: [Int64] = []
  var probe = KnownProbe.unknown
  var digests = KnownDigests.unknown
  /// The checksums of the blocks that were seen in the store.
  var sums: [Int: UInt32] = [:]
  /// Whether the whole file is in the library, with the SHA-256 that its list has.
  var isComplete = false
  var sha256: Checksum?
  var hasOfferedDigests = false
  var readers = 0
  var continues = false
  var isClosed = true
  /// Whether the names of its blocks were asked for, and whether they are known.
  var isListing = false
  var isListed = false
  /// Blocks that are going up, and those whose bytes cannot be read any more.
  var offered: Set<Int> = []
  /// How many bytes are here that are not known to be in the store, nor on their way there.
  var owed: Int64 = 0
  /// Whether an earlier server may owe it: nobody opened it since.
  var isRecalled = false
  /// Blocks in whose place an object of another program was.
  var foreign: Set<Int> = []
  /// When the file was closed last.
  var closedAt = Instant.now
  var ending: EndOfSharing?
  /// Rises when stored bytes are removed: what was read before may be no bytes of the file.
  var epoch = 0
  /// Uploads that wait or are under way.
  var uploads = 0

  init(_ file: SecondFile, id: FleetID, block: Int64) {
    (key, number, self.id, etag, size, self.block) = (file.key, file.generation, id, file.etag, file.size, block)
  }

  /// What the fleet's code calls it.
  var generation: Int { Int(number) }
  var blocks: Int { Int((size + block - 1) / block) }
  var piece: Int { max(1, Int(block) / PieceSums.count) }

  func range(of index: Int) -> ByteRange {
    let start = Int64(index) * block
    return ByteRange(start, min(start + block, size))
  }

  func isWhole(_ index: Int) -> Bool { stored.contains(range(of: index)) }

  /// The blocks that a range touches.
  func blocks(of range: ByteRange) -> Range<Int> {
    if range.isEmpty || range.start >= size { return 0..<0 }
    return Int(range.start / block)..<Int((min(range.end, size) - 1) / block) + 1
  }

  /// What is here, is not known to be in the store, and does not go up.
  func lacking(segment: Int) -> [(segment: Int, blocks: BlockSet)] {
    held(segment: segment).sorted { $0.key < $1.key }.compactMap { place, blocks in
      var blocks = blocks
      for local in 0..<segment where blocks.contains(local) {
        let block = place * segment + local
        if inTier.contains(block) || offered.contains(block) || granted[block] != nil { blocks.remove(local) }
      }
      return blocks.isEmpty ? nil : (place, blocks)
    }
  }

  /// The blocks that are stored here, by their segments of `segment` blocks.
  func held(segment: Int) -> [Int: BlockSet] {
    var held: [Int: BlockSet] = [:]
    for range in stored.ranges {
      let first = Int((range.start + block - 1) / block)
      let last = range.end >= size ? blocks : Int(range.end / block)
      for index in stride(from: first, to: last, by: 1) {
        held[index / segment, default: BlockSet()].insert(index % segment)
      }
    }
    return held
  }
}
