import Base
import CSystem
import Manifest
import Testing

@testable import Storing

@Suite struct CatalogGenerationTests {
  private func record(_ id: Int64, _ number: UInt64, size: Int64? = 1000) -> GenerationRecord {
    GenerationRecord(
      id: id, key: key(number),
      validators: Validators(etag: "\"\(id)\"", etagIsWeak: false, lastModified: 1_700_000_000 + id),
      size: size, mediaType: "video/mp4")
  }

  private let copy = LibraryCopy(
    path: "a", size: 1000, modified: 1_700_000_000_123_456_789, changed: 1_700_000_001_000_000_000, device: .max,
    inode: 77)

  @Test func theMirrorOfAGenerationIsRememberedAndWhetherItIsMixed() throws {
    let folder = CatalogFolder()
    var catalog = try folder.open()
    try catalog.load([line("a", 1), line("b", 2)])
    let ids = [try catalog.changes.nextID(), try catalog.changes.nextID(), try catalog.changes.nextID()]
    var first = record(ids[0], 1)
    first.mirror = ResourceKey(high: 1, low: .max)
    var second = record(ids[1], 2)
    second.mirror = ResourceKey(high: .max, low: 0)
    try catalog.changes.apply(
      [.learned(first), .mixed(generation: ids[0]), .mixed(generation: ids[0]), .learned(second)], durably: true)
    first.isMixed = true
    try catalog.close()
    catalog = try folder.open()
    #expect(try catalog.generations.find(ids[0]) == first)
    #expect(try catalog.generations.find(ids[1]) == second)
    for change in [CatalogChange.dropped(generation: ids[0]), .placed(generation: ids[0], copy, adopted: false)] {
      try catalog.changes.apply([.mixed(generation: ids[0]), change], durably: false)
      let known = try #require(try catalog.generations.find(ids[0]))
      #expect(!known.isMixed && known.mirror == first.mirror)
    }
    var newer = record(ids[2], 2)
    newer.mirror = first.mirror
    _ = try catalog.changes.supersede(second, by: newer)
    #expect(try catalog.generations.current(of: key(2))?.mirror == first.mirror)
    let changes = ids.map { CatalogChange.mixed(generation: $0) } + ids.map { .forgotten(generation: $0) }
    try catalog.changes.apply(changes, durably: true)
    for id in ids {
      var record = record(id, 1)
      try catalog.generations.connections.read { (connection) throws(StoreError) in
        try CatalogNotes.recall(&record, on: connection)
      }
      #expect(record == self.record(id, 1), "a note stays")
    }
  }

  @Test func aGenerationIsRememberedOverReopening() throws {
    let folder = CatalogFolder()
    var catalog = try folder.open()
    try catalog.load([line("a", 1)])
    let id = try catalog.changes.nextID()
    var known = record(id, 1)
    known.validators.etagIsWeak = true
    known.continues = true
    try catalog.changes.apply([.learned(known)], durably: true)
    try catalog.close()
    catalog = try folder.open()
    #expect(try catalog.generations.current(of: key(1)) == known)
    #expect(try catalog.generations.find(id) == known)
    #expect(try catalog.generations.current(of: key(2)) == nil)
    let node = try #require(try catalog.look("a"))
    #expect(node.size == 1000)
    #expect(node.modified == 1_700_000_000 + id)
    #expect(try catalog.tree.list(rootInode, after: 0, limit: 9) == [node])

    // Learned anew under its id: what it is, not what is stored of it.
    try catalog.changes.apply([.extents(generation: id, stored: [0..<10], synced: [0..<10])], durably: false)
    var changed = record(id, 1, size: nil)
    changed.mediaType = nil
    try catalog.changes.apply([.learned(changed)], durably: false)
    changed.stored = [0..<10]
    changed.synced = [0..<10]
    changed.continues = true
    #expect(try catalog.generations.find(id) == changed)
    #expect(storeError { try catalog.changes.apply([.learned(record(id + 1, 1))], durably: false) }?.kind == .invalid)
  }

  @Test func whatIsNotSyncedIsBelievedInItsBootOnly() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open(boot: "boot 1")
    try catalog.load([line("a", 1), line("b", 2)])
    try catalog.changes.apply(
      [
        .learned(record(100, 1)), .extents(generation: 100, stored: [0..<500, 700..<800], synced: [0..<300]),
        .learned(record(101, 2)), .extents(generation: 101, stored: [0..<10], synced: []),
      ], durably: false)
    // A crash of the server: the same boot.
    let killed = try folder.crashed().open(boot: "boot 1")
    #expect(try killed.generations.find(100)?.stored == [0..<500, 700..<800])
    #expect(try killed.generations.partialsByUse().map(\.stored.count) == [600, 10])
    // A power loss, looked at and served.
    for access in [Catalog.Access.readOnly, .readWrite] {
      let left = try folder.crashed()
      let later = try left.open(access, boot: "boot 2")
      #expect(try later.generations.find(100)?.stored == [0..<300])
      #expect(try later.generations.find(101)?.stored == [])
      #expect(try later.generations.partialsByUse().map(\.stored.count) == [300])
      guard access == .readWrite else { continue }
      // A third boot believes only what the second wrote as synced.
      try later.changes.apply([.extents(generation: 100, stored: [0..<400], synced: [0..<350])], durably: false)
      #expect(try later.generations.find(100)?.stored == [0..<400])
      #expect(try left.crashed().open(boot: "boot 1").generations.find(100)?.stored == [0..<350])
    }
    // When all is synced nothing recent is left.
    try catalog.changes.apply([.extents(generation: 100, stored: [0..<5], synced: [0..<5])], durably: true)
    #expect(try folder.crashed().open(boot: "boot 9").generations.find(100)?.stored == [0..<5])
  }

  /// The keeper takes the extents of a file, the finisher syncs the file and commits, and the keeper's commit comes
  /// last.
  @Test func anOlderCommitUndoesNoCompletion() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open(boot: "boot 1")
    try catalog.load([line("a", 1)])
    let all: ByteRangeSet = [0..<1000]
    try catalog.changes.apply([.learned(record(100, 1))], durably: true)
    func synced() throws -> ByteRangeSet? {
      try folder.crashed().open(.readOnly, boot: "boot 2").generations.find(100)?.stored
    }
    try catalog.changes.apply([.extents(generation: 100, stored: all, synced: [0..<300])], durably: false)
    try catalog.changes.apply([.extents(generation: 100, stored: all, synced: all)], durably: true)
    try catalog.changes.apply([.extents(generation: 100, stored: all, synced: [0..<300])], durably: false)
    #expect(try synced() == all)
    // What the disk lost is lost.
    try catalog.changes.apply([.lost(generation: 100, stored: [0..<900], synced: [0..<300])], durably: false)
    #expect(try synced() == [0..<300])
    try catalog.changes.apply([.extents(generation: 100, stored: all, synced: [0..<400])], durably: false)
    #expect(try synced() == [0..<400])
  }

  /// A server was killed in the midst of its first import, of which a journal knows how to undo it.
  @Test func whatAKilledImportLeftIsReadAsBefore() throws {
    let folder = CatalogFolder()
    try folder.open().close()
    let before = try folder.everything()
    let connection = try SQLiteConnection(path: folder.catalog, mode: .readWrite)
    try connection.run("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN EXCLUSIVE")
    try connection.run("UPDATE meta SET value = value + 1; CREATE TABLE rows(bytes)")
    for _ in 0..<100 { try connection.run("INSERT INTO rows VALUES(randomblob(4000))") }
    let left = try folder.crashed()
    try connection.run("ROLLBACK")
    #expect(left.files().contains { $0.hasSuffix("-journal") } && before.count == 1)
    let catalog = try left.open(.readOnly)
    #expect(try catalog.tree.list(rootInode, after: 0, limit: 9).isEmpty)
    try catalog.close()
  }

  @Test func theMachinesBootIDStaysTheSame() {
    #expect(BootID.current() == BootID.current())
    #expect(BootID.current().count >= 32)
    let here = BootID.current(inMount: "1")
    #expect(here == BootID.current(inMount: "1") && here.starts(with: BootID.current()))
    #expect(here != BootID.current(inMount: "2"))
    #expect(BootID.current(inMount: nil) != BootID.current(inMount: nil))
    if let root = StoreMount.kernelsName(of: "/") { #expect(StoreMount.kernelsName(of: "/proc/") != root) }
  }

  @Test func aFailedChangeUndoesAllOfItsBatch() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.changes.apply([.learned(record(100, 1))], durably: false)
    let error = storeError {
      try catalog.changes.apply(
        [.problem(key(1), "x"), .continues(generation: 100, true), .learned(record(101, 1))], durably: false)
    }
    #expect(error?.kind == .invalid)
    #expect(try catalog.notes.problem(of: key(1)) == nil)
    #expect(try catalog.generations.find(100)?.continues == false)
    try catalog.changes.apply([.problem(key(1), "y")], durably: true)
    #expect(try catalog.notes.problem(of: key(1))?.message == "y")
    try catalog.changes.apply([.problem(key(1), nil)], durably: true)
    #expect(try catalog.notes.problem(of: key(1)) == nil)
    // Nothing new, but what came before is to be synced: SQLite does that only with a commit that writes.
    let log = try folder.contents("catalog.sqlite-wal")
    try catalog.changes.apply([], durably: false)
    #expect(try folder.contents("catalog.sqlite-wal") == log)
    try catalog.changes.apply([], durably: true)
    #expect(try folder.contents("catalog.sqlite-wal") != log)
  }

  @Test func aNewGenerationGetsNewInodes() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1), line("gone", 1), line("x/b", 1), line("c", 2)])
    try catalog.load([line("a", 1), line("x/b", 1), line("c", 2)])
    let before = try catalog.listing()
    // The first one changes no inode.
    try catalog.changes.apply([.learned(record(100, 1))], durably: false)
    #expect(try catalog.listing().mapValues(\.inode) == before.mapValues(\.inode))
    try catalog.changes.apply([.continues(generation: 100, true)], durably: false)
    let after = try catalog.changes.supersede(record(100, 1), by: record(101, 1, size: 2000))
    #expect(after.map(\.name) == ["a", "b"])
    let a = try #require(try catalog.look("a"))
    #expect(after.first == Renumbered(parent: rootInode, name: "a", old: before["a"]?.inode ?? 0, new: a.inode))
    #expect(a.entry == before["a"]?.entry)
    #expect(a.size == 2000)
    #expect(Set(after.map(\.new)).isDisjoint(with: before.values.map(\.inode)))
    #expect(try catalog.look("c") == before["c"])
    #expect(try catalog.tree.node(a.inode) == a)
    #expect(try catalog.tree.entry(a.inode)?.path == "a")
    // The old inode is nobody's, and known.
    let old = try #require(before["a"]?.inode)
    #expect(try catalog.tree.node(old) == nil)
    let (node, generation) = try #require(try catalog.generations.superseded(inode: old))
    #expect(node.inode == old && node.name == "a" && node.size == 1000)
    #expect(generation.id == 100 && generation.state == .superseded && !generation.continues)
    #expect(try catalog.generations.superseded(inode: a.inode) == nil)
    // One that is listed again has left the old inode too.
    try catalog.load([line("gone", 1), line("a", 1)])
    let gone = try #require(try catalog.look("gone"))
    #expect(gone.size == 2000)
    #expect(try catalog.generations.superseded(inode: gone.inode) == nil)
    // Again, over a crash.
    _ = try catalog.changes.supersede(record(101, 1), by: record(102, 1))
    let later = try folder.crashed().open()
    #expect(try later.generations.superseded(limit: 9, after: 0).map(\.id) == [100, 101])
    #expect(try later.generations.superseded(limit: 1, after: 100).map(\.id) == [101])
    #expect(try later.generations.superseded(inode: a.inode)?.1.id == 101)
    try later.changes.apply([.forgotten(generation: 100)], durably: true)
    #expect(try later.generations.superseded(inode: old) == nil)
    #expect(try later.generations.find(100) == nil)
    #expect(try later.generations.superseded(inode: a.inode)?.1.id == 101)
    #expect(storeError { _ = try later.changes.supersede(record(102, 1), by: record(102, 1)) }?.kind == .invalid)
    #expect(storeError { _ = try later.changes.supersede(record(102, 2), by: record(103, 1)) }?.kind == .invalid)
    #expect(try later.generations.current(of: key(1))?.id == 102)
  }

  @Test func aGenerationThatIsSupersededBeforeItIsRecordedLeavesItsInodes() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1), line("b", 2)])
    let before = try #require(try catalog.look("a"))
    let changes = try catalog.changes.supersede(record(100, 1), by: record(101, 1, size: 2000))
    let after = try #require(try catalog.look("a"))
    #expect(changes == [Renumbered(parent: rootInode, name: "a", old: before.inode, new: after.inode)])
    #expect(after.inode != before.inode && after.size == 2000)
    #expect(try catalog.generations.superseded(inode: before.inode)?.1.id == 100)
    // What was still to be recorded of the former one comes late, before and after it is forgotten.
    for _ in 0..<2 {
      try catalog.changes.apply(
        [.learned(record(100, 1)), .extents(generation: 100, stored: [0..<10], synced: [])], durably: false)
      #expect(try catalog.generations.current(of: key(1))?.id == 101)
      #expect(try catalog.look("a") == after)
      try catalog.changes.apply([.forgotten(generation: 100)], durably: false)
      #expect(try catalog.generations.find(100) == nil)
    }
    #expect(try catalog.generations.superseded(inode: before.inode) == nil)
  }

  @Test func placingIsAnIntentUntilItIsPlaced() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1)])
    try catalog.changes.apply(
      [.learned(record(100, 1)), .continues(generation: 100, true), .placing(generation: 100, path: "x/ä")],
      durably: true)
    let left = try folder.crashed().open()
    #expect(try left.generations.placements().map(\.path) == ["x/ä"])
    #expect(try left.generations.placements().first?.generation.id == 100)
    try left.changes.apply([.placed(generation: 100, copy, adopted: nil)], durably: true)
    #expect(try left.generations.placements().isEmpty)
    let placed = try #require(try left.generations.find(100))
    #expect(placed.state == .complete)
    #expect(placed.copy == copy)
    #expect(placed.stored == [0..<1000])
    #expect(!placed.continues)
    #expect(try left.generations.partialsByUse().isEmpty)
    // Deleted by its user: remote again, and what is known stays known. A copy counts as used when it is placed.
    try left.changes.apply([.dropped(generation: 100)], durably: true)
    var known = record(100, 1)
    known.isUsed = true
    #expect(try left.generations.find(100) == known)
  }

  @Test func continuationsOfListedResourcesAreFound() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1), line("b", 2), line("c", 3), line("d", 4)])
    for number in 1...4 as ClosedRange<Int64> {
      try catalog.changes.apply(
        [.learned(record(100 + number, UInt64(number))), .continues(generation: 100 + number, number != 2)],
        durably: false)
    }
    try catalog.changes.apply([.placed(generation: 104, copy, adopted: nil)], durably: false)
    #expect(try catalog.generations.continuing(limit: 9, after: 0).map(\.id) == [101, 103])
    #expect(try catalog.generations.continuing(limit: 1, after: 0).map(\.id) == [101])
    #expect(try catalog.generations.continuing(limit: 9, after: 101).map(\.id) == [103])
    try catalog.load([line("a", 1), line("b", 2)])
    #expect(try catalog.generations.continuing(limit: 9, after: 0).map(\.id) == [101])
  }

  @Test("What a fleet may get of a store: listed, with a strong ETag, and with bytes")
  func strongGenerationsAreFound() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1), line("b", 2), line("c", 3), line("d", 4)])
    for number in 1...5 as ClosedRange<Int64> {
      var generation = record(100 + number, UInt64(number))
      generation.validators = Validators(etag: number == 2 ? nil : "\"tag\"", etagIsWeak: number == 3)
      try catalog.changes.apply(
        [.learned(generation), .extents(generation: 100 + number, stored: [0..<9], synced: [])], durably: false)
    }
    try catalog.changes.apply([.placed(generation: 104, copy, adopted: nil)], durably: false)
    #expect(try catalog.generations.strong(limit: 9, after: 0).map(\.id) == [101, 104])
    #expect(try catalog.generations.strong(limit: 1, after: 0).map(\.id) == [101])
    #expect(try catalog.generations.strong(limit: 9, after: 101).map(\.id) == [104])
    try catalog.changes.apply([.lost(generation: 101, stored: [], synced: [])], durably: false)
    #expect(try catalog.generations.strong(limit: 9, after: 0).map(\.id) == [104])
  }

  @Test func theLeastRecentlyUsedComesFirst() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    for number in 1...4 as ClosedRange<Int64> {
      try catalog.changes.apply(
        [
          .learned(record(100 + number, UInt64(number))),
          .extents(generation: 100 + number, stored: number == 3 ? [] : [0..<number], synced: []),
          .used(generation: 100 + number, at: 50 - number),
        ], durably: false)
    }
    try catalog.changes.apply([.dropped(generation: 104)], durably: false)
    #expect(
      try catalog.generations.partialsByUse().map { [$0.id, $0.stored.count, $0.usedAt] } == [
        [102, 2, 48], [101, 1, 49],
      ])
  }

  @Test func oneOfSeveralEntriesGetsAnotherInode() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1), line("b", 1), line("c", 2)])
    let before = try ["a", "b", "c"].map { try catalog.look($0)?.inode ?? 0 }
    #expect(try catalog.changes.renumber(before[0], of: key(1)) == nil, "nothing is known of it")
    try catalog.changes.apply([.learned(record(100, 1))], durably: false)
    #expect(try catalog.changes.renumber(before[2], of: key(1)) == nil, "another resource's")
    let change = try #require(try catalog.changes.renumber(before[0], of: key(1)))
    #expect(change.old == before[0] && change.name == "a")
    #expect(try ["a", "b", "c"].map { try catalog.look($0)?.inode ?? 0 } == [change.new] + before[1...])
    #expect(try catalog.generations.superseded(inode: before[0])?.1.id == 100)
    #expect(try catalog.generations.current(of: key(1))?.state == .partial)
    #expect(try catalog.changes.renumber(before[0], of: key(1)) == nil, "it was an entry's, and is no longer")
    // Its old inodes go with the generation.
    try catalog.changes.apply([.forgotten(generation: 100)], durably: false)
    #expect(try catalog.generations.superseded(inode: before[0]) == nil)
  }

  @Test func allThatIsKnownIsPagedThrough() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load((1...60).map { line("f/\($0)", $0) } + (1...60).map { line("g/\($0)", $0) })
    var changes: [CatalogChange] = []
    for number in stride(from: 1, through: 70, by: 2) as StrideThrough<Int64> {
      changes.append(.learned(record(1000 + number, UInt64(number))))
    }
    for number in stride(from: 1, through: 70, by: 3) as StrideThrough<UInt64> {
      changes.append(.problem(key(number), "p\(number)"))
    }
    try catalog.changes.apply(changes, durably: false)
    for limit in [1, 2, 7, 1000] {
      var found: [String: (Int64?, String?)] = [:]
      var next: ResourceKey?
      repeat {
        let page = try catalog.known(after: next, limit: limit)
        for entry in page.entries {
          #expect(found.updateValue((entry.generation?.id, entry.problem?.message), forKey: entry.path) == nil)
          #expect(try catalog.tree.path(of: entry.node.inode) == entry.path)
        }
        next = page.next
      } while next != nil
      for number in 1...60 {
        let isKnown = number % 2 == 1
        let isFailed = number % 3 == 1
        for folder in ["f", "g"] {
          let entry = found["\(folder)/\(number)"]
          #expect((entry != nil) == (isKnown || isFailed))
          #expect(entry?.0 == (isKnown ? Int64(1000 + number) : nil))
          #expect(entry?.1 == (isFailed ? "p\(number)" : nil))
        }
      }
    }
  }
}

extension ByteRangeSet: ExpressibleByArrayLiteral {
  /// The set of those ranges: `[0..<10, 20..<30]`.
  package init(arrayLiteral ranges: Range<Int64>...) {
    self.init()
    for range in ranges { insert(ByteRange(range.lowerBound, range.upperBound)) }
  }
}
