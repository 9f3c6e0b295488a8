import Base
import Manifest
import TestSupport
import Testing

@testable import Storing

/// What the catalog knows of uses and placements, which evictions need.
@Suite struct BlockUseTests {
  private func record(_ id: Int64, _ number: UInt64) -> GenerationRecord {
    GenerationRecord(id: id, key: key(number), validators: Validators(etag: "\"1\""), size: 1000, mediaType: nil)
  }

  private func decoded(_ bytes: [UInt8]) -> BlockUses? { bytes.withUnsafeBytes { BlockUses(encoded: $0) } }

  @Test("A row says of each block what was written, at any size of a file")
  func rows() throws {
    var random = SeededRandom.fromEnvironment(for: "BlockUseTests.rows")
    for size in [0, 1, 1 << 20, (1 << 32) - 1, 1 << 32, 20 << 30, 1 << 50] as [Int64] {
      var uses = BlockUses(size: size)
      #expect(uses.times.count <= BlockUses.mostBlocks && uses.times.count > 0)
      #expect(Int64(uses.times.count - 1) << Int64(uses.shift) <= size)
      #expect(decoded(uses.encoded) == uses)
      for index in uses.times.indices where Bool.random(using: &random) {
        uses.times[index] = UInt32.random(in: 0...UInt32.max, using: &random)
      }
      #expect(decoded(uses.encoded) == uses, "MEDIAFS_SEED=\(random.seed)")
    }
    #expect(BlockUses(shift: 20, times: [100, 100, 0, 103]).encoded == [1, 20, 100, 2, 1, 1, 0, 1, 4])
  }

  @Test(
    "What is no row counts as none",
    arguments: [
      [], [2, 20, 0, 1, 1], [1, 19, 0, 1, 1], [1, 51, 0, 1, 1], [1, 20, 0, 0, 1], [1, 20, 0, 1], [1, 20],
      [1, 20, 0, 0xff, 0xff, 0x03, 1], [1, 20, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2],
    ] as [[UInt8]])
  func garbage(_ bytes: [UInt8]) { #expect(decoded(bytes) == nil) }

  @Test("Of each block the later use counts; what is gone leaves no row behind")
  func merged() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    func note(_ times: [UInt32]) throws {
      try catalog.changes.apply([.usedBlocks(generation: 100, BlockUses(shift: 20, times: times))], durably: false)
    }
    try note([1, 1, 1])
    #expect(try catalog.generations.uses(of: 100) == nil, "a generation that nobody knows")
    try catalog.changes.apply([.learned(record(100, 1))], durably: false)
    try note([5, 0, 7])
    try note([6, 0, 2])
    #expect(try catalog.generations.uses(of: 100)?.times == [6, 0, 7])
    try note([9, 9])  // of another size: what is known now counts
    #expect(try catalog.generations.uses(of: 100)?.times == [9, 9])
    try catalog.changes.apply([.dropped(generation: 100)], durably: false)
    #expect(try catalog.generations.uses(of: 100) == nil)
    try note([3])
    try catalog.changes.apply([.forgotten(generation: 100)], durably: false)
    #expect(try catalog.generations.uses(of: 100) == nil)
  }

  @Test("Copies that were there before do not count, and only those that were placed may go")
  func placements() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([1, 2, 3, 5].map { line("\($0)", $0) })  // not the fourth
    for (number, adopted) in [(1, false), (2, true), (3, nil), (4, false), (5, true)] as [(Int64, Bool?)] {
      var known = record(100 + number, UInt64(number))
      known.size = 5000
      let copy = LibraryCopy(path: "\(number)", size: 5000, modified: 1, changed: 1, device: 1, inode: 1)
      var changes: [CatalogChange] = [.learned(known), .placed(generation: known.id, copy, adopted: adopted)]
      // A server was killed right before or after it placed the fifth: an identical file is its own, or another's.
      if number == 5 { changes.insert(.placing(generation: known.id, path: "5"), at: 1) }
      try catalog.changes.apply(changes, durably: false)
    }
    #expect(try catalog.generations.copyBytes() == 4 * 8192, "whole blocks; nobody knows of the third and fifth")
    let copies = try catalog.generations.copies(limit: 9, after: nil, mayGo: false)
    #expect(copies.map(\.id) == [101, 103, 104, 105])
    #expect(try catalog.generations.copies(limit: 9, after: nil, mayGo: true).map(\.id) == [101])
    #expect(try catalog.generations.copies(limit: 2, after: copies[0], mayGo: false).map(\.id) == [103, 104])
    #expect(try catalog.generations.copyBytes(of: 101) == 8192 && catalog.generations.copyBytes(of: 102) == 0)
    try catalog.changes.apply([.dropped(generation: 101)], durably: false)
    #expect(try catalog.generations.copyBytes() == 3 * 8192)
    #expect(try catalog.generations.copies(limit: 9, after: nil, mayGo: false).map(\.id) == [103, 104, 105])
  }

  @Test("In a copied store nobody knows who placed the copies; those that were there before still do not count")
  func moved() throws {
    let store = try TemporaryFolder()
    defer { try? store.remove() }
    let folder = try StoreFolder.open(store.file("store"), mountpoint: "/m", wait: 0)
    let catalog = try Catalog.open(path: folder.catalogPath, access: .readWrite)
    let library = try LibraryFolder(store.file("library"))
    try catalog.load([line("1", 1), line("2", 2)])
    for (number, adopted) in [(1, false), (2, true)] as [(Int64, Bool)] {
      let copy = LibraryCopy(path: "\(number)", size: 5000, modified: 1, changed: 1, device: 1, inode: 1)
      var known = record(100 + number, UInt64(number))
      known.size = 5000
      try catalog.changes.apply(
        [.learned(known), .placed(generation: known.id, copy, adopted: adopted)], durably: false)
    }
    try StoreRecovery.run(catalog: catalog, folder: folder, library: library)
    #expect(try catalog.generations.copies(limit: 9, after: nil, mayGo: true).count == 1)
    // As after a copy of its folder: the catalog knows another one.
    try catalog.remember("store_inode", 1)
    try StoreRecovery.run(catalog: catalog, folder: folder, library: library)
    #expect(try catalog.generations.copies(limit: 9, after: nil, mayGo: true).isEmpty)
    #expect(try catalog.generations.copyBytes() == 8192)
    try catalog.close()
  }

  @Test("What a killed server wrote without a claim is trimmed at the next start")
  func trimmed() throws {
    let (folder, store) = (try TemporaryFolder(), try TemporaryFolder())
    defer { for folder in [folder, store] { try? folder.remove() } }
    let opened = try StoreFolder.open(store.file("store"), mountpoint: "/m", wait: 0)
    let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
    let library = try LibraryFolder(folder.file("library"))
    let bytes = [UInt8](repeating: 7, count: 1 << 20)
    for (id, claimed) in [(101, true), (102, false)] as [(Int64, Bool)] {
      var known = record(id, UInt64(id))
      known.size = 8 << 20
      try catalog.changes.apply([.learned(known)], durably: false)
      let file = try PartialFile(in: opened, id: id, create: true)
      for offset in stride(from: Int64(0), to: 4 << 20, by: 1 << 20) {
        try bytes.withUnsafeBytes { try file.write($0, at: offset) }
      }
      let all = ByteRangeSet(ByteRange((1 << 20) + 5, 2 << 20))
      if claimed { try catalog.changes.apply([.extents(generation: id, stored: all, synced: all)], durably: false) }
    }
    try StoreRecovery.run(catalog: catalog, folder: opened, library: library)
    #expect(try PartialFile.allocated(of: 101, in: opened) == 1 << 20)
    let file = try PartialFile(in: opened, id: 101, create: false)
    var read = [UInt8](repeating: 0, count: 3)
    let count = try read.withUnsafeMutableBytes { try file.descriptor.read(at: (1 << 20) + 5, into: $0) }
    #expect(count == 3 && read == [7, 7, 7])
    #expect(try opened.partialIDs() == [101], "nothing is claimed of the other")
    try catalog.close()
  }
}
