import Base
import Glibc
import Manifest
import Testing

@testable import Storing

@Suite struct CatalogLogTests {
  /// A server that follows a killed one reads the log first: it stays short while much is written and read.
  @Test func theLogStaysShort() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load((1...200).map { line("\($0)", $0) })
    try catalog.changes.apply(
      (1...200).map {
        .learned(
          GenerationRecord(
            id: Int64($0), key: key($0), validators: Validators(etag: nil, etagIsWeak: false, lastModified: 1),
            size: 1 << 30, mediaType: nil))
      }, durably: false)
    var stored = ByteRangeSet()
    for index in 0..<600 { stored.insert(ByteRange(Int64(index) * 100_000, Int64(index) * 100_000 + 70_001)) }
    let isOver = Lock(false)
    let reader = OwnedThread(name: "reader") {
      while !isOver.withLock({ $0 }) { _ = try? catalog.listing() }  // the log's length is what the test looks at
    }
    defer {
      isOver.withLock { $0 = true }
      reader.join()
    }
    var longest: Int64 = 0
    for _ in 0..<40 {
      for id in 1...200 as ClosedRange<Int64> {
        try catalog.changes.apply([.extents(generation: id, stored: stored, synced: [])], durably: false)
      }
      var status = stat()
      try #require(stat(folder.catalog + "-wal", &status) == 0)
      longest = max(longest, Int64(status.st_size))
    }
    #expect(longest > 1 << 20 && longest < 16 << 20, "\(longest) bytes")
  }

  /// An import is committed before its log is cut: whoever watches the tree is told, whatever becomes of the log.
  @Test func aLogThatStaysLongEndsNoImport() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("old", 1)])
    // SQLite cuts no log while the connection itself has a statement that has not ended.
    try catalog.connections.withWriter { (connection, _) throws(StoreError) in
      _ = try connection.statement(unended).step()
    }
    var rest = (2...4001).map { (number: UInt64) -> ManifestEntry in
      var entry = line("\(number)", number, line: Int(number))
      entry.urls = ["https://example.com/" + String(repeating: "x", count: 2500) + "\(number)"]
      return entry
    }[...]
    var told: [ListChanges] = []
    let watcher = ImportWatcher(beforeCommit: { _ in }, committed: { told.append($0) })
    let report = try catalog.importBatches(
      fingerprint: [2], strict: true, report: { _ in }, watcher: watcher
    ) { () throws(StoreError) in
      guard let entry = rest.popFirst() else { return nil }
      var batch = ImportBatch()
      batch.append(.entry(entry))
      return batch
    }
    #expect(report.files == 4000 && told.map(\.added) == [4000] && told.map(\.removed) == [1])
    #expect(try catalog.look("4001") != nil && catalog.look("old") == nil)
    var status = stat()
    #expect(stat(folder.catalog + "-wal", &status) == 0 && status.st_size > 8 << 20, "the log was cut")
    let patience = try catalog.connections.withWriter { (connection, _) throws(StoreError) in
      try connection.statement(unended).reset()
      return try connection.integer("PRAGMA busy_timeout")
    }
    #expect(patience == 5000)
    try catalog.close()
  }
}

private let unended = SQL("SELECT name FROM meta")
