import Base
import Control
import Fetching
import Glibc
import Manifest
import Reading
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// A walk over a mount of many entries asks the catalog for what is stored alone. SQLite counts its statements: their
/// number is the same on every machine.
@Suite struct ManyEntriesTests {
  private static let count = 5000

  @Test func statusListsAllWithoutAStatementForEach() throws {
    try withSettledStore { catalog, library, _ in
      let status = CatalogStatus(catalog: catalog, store: "", library: library, reports: nil)
      let before = catalog.connections.runs
      var query = StatusQuery(all: true)
      var files: [FileStatus] = []
      repeat {
        let page = try status.page(query)
        #expect(page.files.count <= ControlLimits.page)
        files += page.files
        query.after = page.next
      } while query.after != nil
      let runs = catalog.connections.runs - before
      #expect(runs < Self.count / 10, "\(runs) statements for \(files.count) files")

      // Every file once, folder by folder, and what is known of some of them.
      #expect(files.count == Self.count && Set(files.map(\.path)).count == Self.count)
      let known = files.filter { $0 != FileStatus(path: $0.path) }.map { file in
        var file = file
        file.errorAge = nil  // the machine's affair
        return file
      }
      #expect(
        known.sorted { $0.path < $1.path } == [
          FileStatus(path: "a/1", size: 500),
          FileStatus(path: "a/2", state: .partial, stored: 100, size: 500, ranges: [[0, 100]]),
          FileStatus(
            path: "b/3", state: .failed, error: "404", advice: "mount, and open or fetch the file to try again"),
        ])
      #expect(try status.page(StatusQuery(paths: ["b"])).files.first?.path == "b/3")
    }
  }

  @Test func aServersStatusListsAllWithoutAStatementForEach() throws {
    try withSettledStore { catalog, _, service in
      let before = catalog.connections.runs
      var query = StatusQuery(all: true)
      var count = 0
      repeat {
        let page = try service.page(query)
        count += page.files.count
        query.after = page.next
      } while query.after != nil
      let runs = catalog.connections.runs - before
      #expect(count == Self.count && runs < Self.count / 10, "\(runs) statements for \(count) files")
    }
  }

  @Test func clearOfEverythingLooksAtWhatIsStoredAlone() throws {
    try withSettledStore { catalog, _, service in
      let before = catalog.connections.runs
      let report = try service.clear(ClearOrder(.all)) { false }
      let runs = catalog.connections.runs - before
      #expect(report == ClearReport(files: 1, bytes: 100))
      #expect(runs < 100, "\(runs) statements for 3 files of which something is known")
      #expect(try catalog.generations.current(of: Self.key(2))?.stored.isEmpty == true)
      #expect(try service.clear(ClearOrder(.all), isLeft: { false }) == ClearReport())
    }
  }

  @Test func clearOfAFolderLooksAtWhatIsStoredAlone() throws {
    try withSettledStore { catalog, _, service in
      let before = catalog.connections.runs
      let nothing = try service.clear(ClearOrder(.at(["b"]))) { false }
      let some = try service.clear(ClearOrder(.at(["a", "c"]))) { false }
      #expect(nothing == ClearReport() && some == ClearReport(files: 1, bytes: 100), "\(nothing), \(some)")
      let runs = catalog.connections.runs - before
      #expect(runs < Self.count / 10, "\(runs) statements")
    }
  }

  // MARK: Support

  private static func key(_ number: Int) -> ResourceKey { ResourceKey(high: UInt64(number), low: UInt64(number)) }

  /// A running file system over a store of many entries in three folders: of `a/1` the size is known, of `a/2` a part
  /// is stored, `b/3` failed.
  private func withSettledStore(_ body: (Catalog, LibraryFolder, ControlService) throws -> Void) throws {
    try withTemporaryFolder { folder in try settle(folder, body) }
  }

  private func settle(
    _ folder: TemporaryFolder, _ body: (Catalog, LibraryFolder, ControlService) throws -> Void
  ) throws {
    let opened = try StoreFolder.open(folder.file("store"), mountpoint: "/nowhere", wait: 0)
    let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
    let library = try LibraryFolder(folder.file("library"))
    var numbers = (1...Self.count)[...]
    _ = try catalog.importBatches(fingerprint: [1], strict: true, report: { _ in }) { () throws(StoreError) in
      if numbers.isEmpty { return nil }
      var batch = ImportBatch()
      while let number = numbers.popFirst() {
        let name = number <= 2 ? "a" : number <= 1500 ? "b" : "c"
        batch.append(
          .entry(
            ManifestEntry(
              line: number, urls: ["http://127.0.0.1:1/\(number)"], folder: [name], name: "\(number)",
              key: Self.key(number))))
      }
      return batch
    }
    for number in 1...2 {
      let id = try catalog.changes.nextID()
      let record = GenerationRecord(
        id: id, key: Self.key(number), validators: Validators(etag: "x"), size: 500, mediaType: nil)
      try catalog.changes.apply([.learned(record)], durably: true)
      if number == 2 {
        let file = try PartialFile(in: opened, id: id, create: true)
        try Array(repeating: UInt8(7), count: 100).withUnsafeBytes { try file.write($0, at: 0) }
        let stored = ByteRangeSet(ByteRange(0, 100))
        try catalog.changes.apply([.extents(generation: id, stored: stored, synced: stored)], durably: true)
      }
    }
    try catalog.changes.apply([.problem(Self.key(3), "404")], durably: true)

    try withService(of: catalog, opened, library) { try body(catalog, library, $0) }
  }
}
