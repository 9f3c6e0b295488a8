import Base
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Storing

/// Stores of former formats, written by programs of that time: read as they are, and raised.
@Suite struct FormatTests {
  private static let older = "/store/catalog.sqlite"

  /// Every row of the tables of that format. Applies the log, so it gets a copy.
  private func rows(_ folder: TemporaryFolder, of old: OldStore) throws -> [String] {
    try Command.succeed(["cp", "-r", folder.file("store"), folder.file("copy")])
    defer { unlinkTree(folder.file("copy")) }
    let connection = try SQLiteConnection(path: folder.file("copy") + "/catalog.sqlite", mode: .readWrite)
    var all: [String] = []
    for table in Schema.tables(ofVersion: Int64(old.format)) {
      var columns: [String] = []
      let info = try connection.prepare("PRAGMA table_info(\(table))")
      while try info.step() { columns.append("quote(\(info.text(1)))") }
      let statement = try connection.prepare("SELECT \(columns.joined(separator: " || ',' || ")) FROM \(table)")
      while try statement.step() { all.append("\(table): \(statement.text(0))") }
    }
    return all.sorted()
  }

  /// The format of this program.
  private static let now = UInt8(Schema.version)

  /// Format 2 added what was learned of hosts and of kinds of containers.
  private func expectNotes(_ catalog: Catalog, of old: OldStore) throws {
    #expect(try catalog.notes.hosts().count == (old.format < 2 ? 0 : 1))
    #expect(try catalog.notes.kinds().map(\.name) == (old.format < 2 ? [] : ["mp4"]))
  }

  private func unlinkTree(_ path: String) { _ = try? Command.succeed(["rm", "-r", path]) }

  /// The format that other programs see: in the file itself.
  private func headerVersion(_ folder: TemporaryFolder) throws -> UInt8 {
    var header = [UInt8](repeating: 0, count: 100)
    let file = try FileDescriptor.open(folder.path + Self.older, O_RDONLY)
    _ = try header.withUnsafeMutableBytes { try file.readFully(at: 0, into: $0) }
    return header[63]
  }

  /// The format that the file says, whatever else it has.
  private func claim(_ version: UInt8, _ folder: TemporaryFolder) throws {
    let file = try FileDescriptor.open(folder.path + Self.older, O_RDWR)
    try [version].withUnsafeBytes { try file.writeFully($0, at: 63) }
  }

  /// At an upgrade of a live mount, the program before may have to come back, and knows no newer format.
  @Test(arguments: OldStore.all) func aRaiseInALiveMountIsUndone(_ old: OldStore) throws {
    try withTemporaryFolder { folder in
      try old.unpack(into: folder)
      let (before, path) = (try rows(folder, of: old), folder.path + Self.older)
      let copy = path + "-before"
      let raised = try Catalog.open(path: path, access: .goingOn)
      #expect(try headerVersion(folder) == Self.now && readFile(copy)[63] == old.format)
      var status = stat()
      #expect(stat(copy, &status) == 0 && status.st_mode & 0o777 == 0o600)
      try raised.changes.apply([.host(note("http://new", at: 1))], durably: false)
      // It dies with its log beside the catalog. The program before knows no such format.
      try Command.succeed(["cp", path + "-wal", folder.file("log")])
      try raised.close()
      try Command.succeed(["cp", folder.file("log"), path + "-wal"])
      try claim(Self.now + 1, folder)
      for access in [Catalog.Access.readWrite, .readOnly] {
        #expect(throws: StoreError.self) { try Catalog.open(path: path, access: access) }
      }
      #expect(try readFile(copy)[63] == old.format, "another mount used the copy")
      let back = try Catalog.open(path: path, access: .goingOn)
      #expect(try !back.notes.hosts().contains { $0.name == "http://new" }, "what the new program wrote is there")
      try back.close()
      #expect(try rows(folder, of: old) == before)
      // This program raises it again, and then serves.
      let again = try Catalog.open(path: path, access: .goingOn)
      #expect(Glibc.access(copy, F_OK) == 0)
      try again.settle()
      #expect(Glibc.access(copy, F_OK) != 0)
      try again.settle()
      try again.close()
      // Without its copy, a newer catalog is refused, as ever.
      try claim(Self.now + 1, folder)
      #expect(throws: StoreError.self) { try Catalog.open(path: path, access: .goingOn) }
    }
  }

  /// A catalog may have hundreds of megabytes, and so may what is left of its copy.
  @Test(arguments: OldStore.all) func aCopyThatFailsLeavesNothing(_ old: OldStore) throws {
    try withTemporaryFolder { folder in
      try old.unpack(into: folder)
      let (before, path) = (try rows(folder, of: old), folder.path + Self.older)
      let unfinished = path + "-before-new"
      // The copy cannot get its name.
      mkdir(path + "-before", 0o700)
      #expect(throws: StoreError.self) { try Catalog.open(path: path, access: .goingOn) }
      #expect(Glibc.access(unfinished, F_OK) != 0)
      #expect(try headerVersion(folder) == old.format && rows(folder, of: old) == before)
      rmdir(path + "-before")
      // A server was killed while it made one.
      for access in [Catalog.Access.readWrite, .goingOn] {
        _ = try FileDescriptor.open(unfinished, O_CREAT | O_WRONLY, mode: 0o600)
        try Catalog.open(path: path, access: access).close()
        #expect(Glibc.access(unfinished, F_OK) != 0, "\(access)")
      }
    }
  }

  private func readFile(_ path: String) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: 100)
    _ = try bytes.withUnsafeMutableBytes { try FileDescriptor.open(path, O_RDONLY).readFully(at: 0, into: $0) }
    return bytes
  }

  @Test(arguments: OldStore.all) func anOldStoreIsRaisedWithoutLosingARow(_ old: OldStore) throws {
    try withTemporaryFolder { folder in
      try old.unpack(into: folder)
      let before = try rows(folder, of: old)
      #expect(before.count > 20)
      #expect(try headerVersion(folder) == old.format)
      let catalog = try Catalog.open(path: folder.path + Self.older, access: .readWrite)
      // While the catalog is open: the version is never in the log alone.
      #expect(try headerVersion(folder) == Self.now)
      try expectNotes(catalog, of: old)
      for (id, bytes) in old.stored {
        let generation = try #require(try catalog.generations.find(id))
        #expect(generation.synced.count == bytes)
        #expect((generation.state == .superseded) == (id == old.superseded))
      }
      #expect(try catalog.generations.find(old.complete)?.copy?.path == OldStore.names[0])
      #expect(try catalog.notes.pins(limit: 9, after: nil).count == 1)
      try catalog.close()
      #expect(try rows(folder, of: old) == before)
      // Its next open finds nothing to raise.
      let again = try Catalog.open(path: folder.path + Self.older, access: .readWrite)
      try again.changes.apply([.host(note("http://a", at: 1))], durably: false)
      #expect(try again.notes.hosts().contains(note("http://a", at: 1)))
      try again.close()
    }
  }

  @Test(arguments: OldStore.all) func whoOnlyReadsDoesNotRaise(_ old: OldStore) throws {
    try withTemporaryFolder { folder in
      try old.unpack(into: folder)
      let before = try rows(folder, of: old)
      let catalog = try Catalog.open(path: folder.path + Self.older, access: .readOnly)
      #expect(try catalog.tree.find(path: OldStore.names[1]) != nil)
      #expect(try catalog.generations.ids(limit: 99, after: 0).count == old.stored.count + 1)
      #expect(try catalog.integrityProblems(limit: 9).isEmpty)
      try expectNotes(catalog, of: old)
      try catalog.close()
      #expect(try headerVersion(folder) == old.format)
      #expect(try rows(folder, of: old) == before)
    }
  }

  @Test(arguments: OldStore.all) func aRaiseWaitsForAProgramThatReads(_ old: OldStore) throws {
    try withTemporaryFolder { folder in
      try old.unpack(into: folder)
      let status = try Catalog.open(path: folder.path + Self.older, access: .readOnly)
      #expect(try status.tree.find(path: OldStore.names[1]) != nil)
      let refused = storeError { _ = try Catalog.open(path: folder.path + Self.older, access: .readWrite) }
      guard case .busy? = refused?.kind else {
        throw StoreError(.invalid, "not refused: \(String(describing: refused))")
      }
      #expect(refused?.message.contains("another program reads it") == true)
      #expect(try headerVersion(folder) == old.format)
      let reader = OwnedThread(name: "reader") {
        usleep(300_000)
        try? status.close()
      }
      defer { reader.join() }
      try Catalog.open(path: folder.path + Self.older, access: .readWrite).close()
      #expect(try headerVersion(folder) == Self.now)
    }
  }
}

/// What is learned of hosts and of kinds of containers.
@Suite struct LearnedNotesTests {
  @Test func whatIsLearnedLastCounts() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    var host = note("https://example.com:8443", at: 5)
    host.connectionRate = 4e6
    host.httpVersion = 20
    let kind = KindNote(name: "mp4", head: 100_000, tail: 4096, files: 3, at: 7)
    try catalog.changes.apply(
      [.host(note("https://example.com:8443", at: 4)), .host(host), .kind(kind)], durably: true)
    #expect(try catalog.notes.hosts() == [host])
    #expect(try catalog.notes.kinds() == [kind])
    try catalog.close()
    let later = try folder.open(.readOnly)
    #expect(try later.notes.hosts() == [host] && later.notes.kinds() == [kind])
  }

  @Test func theOldestGo() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let hosts = (1...CatalogNotes.mostHosts + 10).map { note("http://host\($0)", at: Int64($0)) }
    let kinds = (1...CatalogNotes.mostKinds + 3).map {
      KindNote(name: "k\($0)", head: 1, tail: 1, files: 1, at: Int64($0))
    }
    try catalog.changes.apply(hosts.shuffled().map { .host($0) } + kinds.reversed().map { .kind($0) }, durably: false)
    #expect(try Set(catalog.notes.hosts().map(\.name)) == Set(hosts.dropFirst(10).map(\.name)))
    #expect(try Set(catalog.notes.kinds().map(\.name)) == Set(kinds.dropFirst(3).map(\.name)))
  }

  @Test func noSecretIsStoredInAHostsName() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let names = [
      "http://user:secret@example.com", "http://example.com/secret", "http://example.com?secret", "secret",
      "http://example.com#secret", "http://a\nb", "http://", "http://" + String(repeating: "a", count: 300),
    ]
    for name in names {
      let error = storeError { try catalog.changes.apply([.host(note(name, at: 1))], durably: false) }
      #expect(error?.kind == .invalid, "\(name)")
      #expect(error?.message.contains("secret") != true)
    }
    var odd = note("http://a", at: 1)
    odd.rate = .infinity
    #expect(storeError { try catalog.changes.apply([.host(odd)], durably: false) }?.kind == .invalid)
    #expect(try catalog.notes.hosts().isEmpty)
  }

  @Test func damagedRowsAreLeftOut() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.changes.apply([.host(note("http://good", at: 1))], durably: true)
    try catalog.close()
    try SQLiteConnection(path: folder.catalog, mode: .readWrite).run(
      """
      INSERT INTO host VALUES('http://u:p@bad', 2, 0, 1, 1, 11, 1), ('http://few', -5, 0, 1, 1, 11, 1),
        ('http://slow', 2, 0, -7, 1, 11, 1), (x'00ff', 'x', 'y', 'z', 1, 1, 1);
      INSERT INTO kind VALUES('mp4', -1, 0, 1, 1), ('', 1, 1, 1, 1)
      """)
    let later = try folder.open()
    #expect(try later.notes.hosts().map(\.name) == ["http://good"])
    #expect(try later.notes.kinds().isEmpty)
  }
}

private func note(_ name: String, at: Int64) -> HostNote {
  HostNote(name: name, lanes: 8, connectionRate: nil, rate: 1e7, roundTrip: 0.05, httpVersion: nil, at: at)
}
