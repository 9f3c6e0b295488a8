import Base
import Manifest
import Testing

@testable import Storing

/// A mount of an unchanged manifest asks the catalog for the same few rows however many there are.
@Suite struct MountWorkTests {
  /// A store with that many entries in ten folders. Of each second one an extension was learned and shown since, and
  /// something is stored; each sixth is complete.
  private func makeStore(_ path: String, entries: Int) throws {
    let store = try StoreFolder.open(path, mountpoint: "/m", wait: 0)
    let catalog = try Catalog.open(path: store.catalogPath, access: .readWrite)
    let library = try KnownLibrary.open(store.defaultLibraryPath, for: catalog)
    try StoreRecovery.run(catalog: catalog, folder: store, library: library)
    let numbers = 1...UInt64(entries)
    try catalog.load(numbers.map { line("folder \($0 % 10)/talk \($0)", $0, mayGain: true) })
    var changes: [CatalogChange] = []
    for number in numbers where number % 2 == 0 {
      let id = 1_000_000 + Int64(number)
      let stored: ByteRangeSet = [0..<10]
      changes += [
        .learned(GenerationRecord(id: id, key: key(number), validators: Validators(), size: 20, mediaType: nil)),
        .extents(generation: id, stored: stored, synced: stored), .gainedExtension(key(number), "mp4"),
      ]
      if number % 6 == 0 {
        let copy = LibraryCopy(path: "\(id)", size: 20, modified: 1, changed: 1, device: 1, inode: number)
        changes.append(.placed(generation: id, copy, adopted: false))
      }
    }
    try catalog.changes.apply(changes, durably: false)
    try #require(try catalog.tree.applyPendingExtensions() == entries / 2)
    try catalog.remember("maximum_size", 1)
    try catalog.close()
  }

  /// What the server asks until the mount answers, and what the first look at it asks: SQLite's steps for it.
  private func mount(_ path: String) throws -> Int {
    let store = try StoreFolder.open(path, mountpoint: "/m", wait: 0)
    let catalog = try Catalog.open(path: store.catalogPath, access: .readWrite)
    let library = try KnownLibrary.open(store.defaultLibraryPath, for: catalog)
    #expect(try catalog.remembered("maximum_size") == 1)
    #expect(try catalog.tree.applyPendingExtensions() == 0)
    try StoreRecovery.run(catalog: catalog, folder: store, library: library)
    #expect(try catalog.importedFingerprint() == [1])
    _ = try catalog.changes.nextID()
    #expect(try catalog.generations.continuing(limit: 16, after: 0).isEmpty)
    _ = try catalog.tree.counts()
    #expect(try catalog.tree.node(rootInode) != nil)
    #expect(try catalog.tree.list(rootInode, after: 0, limit: 100).count == 10)
    #expect(try catalog.look("folder 1") != nil)
    let steps = catalog.connections.steps
    try catalog.close()
    return steps
  }

  @Test func itDoesNotGrowWithTheEntries() throws {
    let home = try TestFolder()
    try makeStore(home.path + "/small", entries: 60)
    try makeStore(home.path + "/large", entries: 6000)
    let small = try mount(home.path + "/small")
    #expect(small > 100)
    #expect(try mount(home.path + "/large") == small)
  }
}
