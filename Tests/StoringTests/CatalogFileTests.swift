import Base
import Glibc
import Testing

@testable import Storing

@Suite struct CatalogFileTests {
  @Test func aNewCatalogIsOursAloneAndIsMadeWhole() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    var status = stat()
    #expect(stat(folder.catalog, &status) == 0)
    #expect(status.st_mode & 0o777 == 0o600)
    #expect(!folder.files().contains("catalog.sqlite-new"))
    // The header tells the version even while all else is in the log.
    let header = try folder.contents("catalog.sqlite")
    #expect(Array(header[68..<72]) == [0x6d, 0x64, 0x66, 0x73])
    #expect(Array(header[60..<64]) == [0, 0, 0, UInt8(Schema.version)])
    try catalog.close()
    #expect(folder.files() == ["catalog.sqlite"])
  }

  @Test func aNewerVersionIsRefusedUntouched() throws {
    for isClosed in [true, false] {
      let folder = CatalogFolder()
      let catalog = try folder.open()
      try catalog.load([line("a", 1)])
      try catalog.close()
      let connection = try SQLiteConnection(path: folder.catalog, mode: .readWrite)
      try connection.run(
        "PRAGMA user_version = \(Schema.version + 1); PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE newer(x)")
      // As the newer program leaves it, or as its crash does.
      let left = isClosed ? folder : try folder.crashed()
      if isClosed { try connection.run("PRAGMA journal_mode = DELETE") }
      let before = try left.everything()
      for access in [Catalog.Access.readWrite, .readOnly] {
        let error = storeError { _ = try left.open(access) }
        #expect(error?.kind == .newer)
        #expect(error?.message.contains("newer mediafs") == true)
      }
      #expect(try left.everything() == before)
    }
  }

  @Test func whatIsNoCatalogIsRefusedUntouched() throws {
    let other = CatalogFolder()
    try SQLiteConnectionMaker.make(other.catalog)
    let text = CatalogFolder()
    try text.write(Array(String(repeating: "https://example.com/a.mp3\n", count: 200).utf8), to: "catalog.sqlite")
    let empty = CatalogFolder()
    try empty.write([], to: "catalog.sqlite")
    for folder in [other, text, empty] {
      let before = try folder.everything()
      for access in [Catalog.Access.readWrite, .readOnly] {
        let error = storeError { _ = try folder.open(access) }
        #expect(error?.kind == .corrupt)
        #expect(error?.message.contains("not a catalog") == true)
        #expect(error?.message.contains("move it away") == true)
      }
      #expect(try folder.everything() == before)
    }
  }

  @Test func damageIsAClearError() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load((1...2000).map { line("file \($0)", $0) })
    try catalog.close()
    // All pages but the first become noise.
    let size = try folder.contents("catalog.sqlite").count
    try folder.write([UInt8](repeating: 0xA5, count: size - 4096), to: "catalog.sqlite", at: 4096)
    let error = storeError {
      let catalog = try folder.open()
      _ = try catalog.look("file 1000")
    }
    #expect(error?.kind == .corrupt)
    #expect(error?.message.contains(folder.catalog) == true)
    #expect(error?.message.contains("move it away") == true)
  }

  @Test func aTableThatIsMissingIsDamage() throws {
    let folder = CatalogFolder()
    try folder.open().close()
    try SQLiteConnection(path: folder.catalog, mode: .readWrite).run("DROP TABLE problem")
    #expect(storeError { _ = try folder.open() }?.kind == .corrupt)
  }

  @Test func aFolderThatIsNotThereIsAnErrorOfTheSystem() {
    let error = storeError { _ = try Catalog.open(path: "/nonexistent/catalog.sqlite", access: .readWrite) }
    #expect(error?.kind == .io(.notFound))
  }

  @Test func readOnlyReadsWhileAServerWritesAndNeverWrites() throws {
    let folder = CatalogFolder()
    let server = try folder.open()
    try server.load([line("a", 1)])
    let status = try folder.open(.readOnly)
    #expect(try status.tree.find(path: "a") != nil)
    try server.load([line("a", 1), line("b", 2)])
    #expect(try status.tree.find(path: "b") != nil)
    #expect(storeError { _ = try status.changes.nextID() }?.kind == .invalid)
    #expect(storeError { try status.changes.apply([.problem(key(1), "x")], durably: false) }?.kind == .invalid)
    try status.close()
    try server.close()
    // And with no server.
    let later = try folder.open(.readOnly)
    #expect(try later.tree.counts() == CatalogCounts(names: 2, files: 2))
  }

  @Test func aClosedCatalogSaysSo() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.close()
    try catalog.close()
    #expect(storeError { _ = try catalog.tree.counts() }?.kind == .invalid)
    #expect(
      storeError { try catalog.changes.apply([.continues(generation: 1, true)], durably: false) }?.kind == .invalid)
  }

  @Test func aLogLeftWithoutItsDatabaseIsNotPlayedIntoANewOne() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("old", 1)])
    try catalog.changes.apply([.problem(key(1), "old")], durably: true)
    let left = try folder.crashed()
    #expect(left.files().contains("catalog.sqlite-wal"))
    unlink(left.catalog)
    let fresh = try left.open()
    #expect(try fresh.listing().isEmpty)
    #expect(try fresh.notes.problem(of: key(1)) == nil)
  }

  @Test func aFirstImportThatCrashesLeavesNothing() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    // Long sources, so that pages are written before the import is done.
    var entries = (1...3000).map { line("a \($0)", $0) }
    for index in entries.indices {
      entries[index].urls.append("https://example.com/" + String(repeating: "x", count: 12_000))
    }
    var rest = entries[...]
    var left: CatalogFolder?
    _ = try catalog.importItems(fingerprint: [1], strict: false, report: { _ in }) { () throws(StoreError) in
      if let next = rest.popFirst() { return .entry(next) }
      do { left = try folder.crashed() } catch { throw StoreError(.invalid, "\(error)") }
      return nil
    }
    #expect(try catalog.tree.counts().files == 3000)
    let crashed = try #require(left)
    #expect(crashed.files() == ["catalog.sqlite", "catalog.sqlite-journal"])
    #expect(try crashed.contents("catalog.sqlite").count > 4 << 20)
    // Who only looks has it rolled back, too.
    #expect(try crashed.open(.readOnly).tree.counts().files == 0)
    let later = try crashed.open()
    #expect(try later.listing().isEmpty)
    #expect(try later.importedFingerprint() == nil)
    try later.load([line("b", 1)])
    #expect(try Set(later.listing().keys) == ["b"])
  }

  @Test func pathsWithOddCharactersWork() throws {
    let folder = CatalogFolder()
    let path = folder.path + "/100% ä?#.sqlite"
    let catalog = try Catalog.open(path: path, access: .readWrite)
    try catalog.load([line("a", 1)])
    try catalog.close()
    #expect(try Catalog.open(path: path, access: .readOnly).tree.find(path: "a") != nil)
  }

  @Test func idsAreNeverGivenTwice() throws {
    var folder = CatalogFolder()
    var given: Set<Int64> = [1]
    for round in 0..<6 {
      let catalog = try folder.open()
      try catalog.load([line("a", 1), line("new in round \(round)", UInt64(round + 10))])
      for node in try catalog.listing().values where node.name.hasPrefix("new in round \(round)") {
        #expect(given.insert(node.entry).inserted)
      }
      for _ in 0..<(round.isMultiple(of: 2) ? 3 : 1500) {
        let id = try catalog.changes.nextID()
        #expect(given.insert(id).inserted)
      }
      if round.isMultiple(of: 3) { try catalog.close() } else { folder = try folder.crashed() }
    }
  }

  @Test func idsAreDistinctOverThreads() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let given = Lock<[Int64]>([])
    let threads = (0..<4).map { _ in
      OwnedThread(name: "ids") {
        var mine: [Int64] = []
        for _ in 0..<3000 { if let id = try? catalog.changes.nextID() { mine.append(id) } }
        let ids = mine
        given.withLock { $0 += ids }
      }
    }
    for thread in threads { thread.join() }
    let all = given.withLock { $0 }
    #expect(all.count == 12_000)
    #expect(Set(all).count == 12_000)
  }
}

/// A database of another program.
enum SQLiteConnectionMaker {
  static func make(_ path: String) throws {
    _ = try FileDescriptor.open(path, O_CREAT | O_RDWR)
    try SQLiteConnection(path: path, mode: .readWrite).run("CREATE TABLE notes(text); INSERT INTO notes VALUES('mine')")
  }
}
