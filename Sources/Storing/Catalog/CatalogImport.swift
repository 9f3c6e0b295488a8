import Base
import CSQLite
import Manifest

/// The result of an import.
package struct ImportReport: Sendable, Equatable {
  /// The new epoch: 1 for a store's first import.
  package var epoch: Int64
  /// Listed files.
  package var files: Int64
  /// Listed folders.
  package var folders: Int64
  /// Reported problems (errors and warnings, including duplicates).
  package var problems: Int
  /// Lines that repeat an entry of an earlier line.
  package var duplicates: Int
}

extension Catalog {
  /// Turns a manifest into the tree: a new epoch, all of it or nothing. Readers see the old tree until the import is
  /// done. Other writers wait.
  ///
  /// The rules of docs/STORE-FORMAT.md ("Names") give the names. The catalog remembers `fingerprint` for
  /// ``importedFingerprint()``. The import calls `report` for each problem, on this thread and in no certain order of
  /// lines; it must not call the catalog. With `strict`, a problem of severity error ends the import. Such a problem, a
  /// manifest without a usable line, and one that cannot be read throw `.invalid` and change nothing.
  ///
  /// Another thread reads the manifest and has ended when this returns. There is one exception: if the reader is no
  /// longer needed and waits for a pipe (or a slow disk), it ends when data comes or the pipe is closed.
  package func importManifest(
    _ reader: consuming ManifestReader, fingerprint: [UInt8], strict: Bool, report: (ManifestProblem) -> Void
  ) throws(StoreError) -> ImportReport {
    // Reading and parsing take half of the time. They need not wait for the catalog, nor the catalog for them.
    let feed = ManifestFeed(reader, strict: strict)
    defer { feed.end() }
    return try importBatches(fingerprint: fingerprint, strict: strict, report: report) { () throws(StoreError) in
      do throws(ManifestError) { return try feed.next() } catch { throw StoreError(.invalid, "\(error)") }
    }
  }

  /// The fingerprint of the tree's manifest; nil if none was imported. The server skips the import of a manifest with
  /// the same fingerprint.
  package func importedFingerprint() throws(StoreError) -> [UInt8]? {
    try connections.read { (connection) throws(StoreError) in try connection.metaBlob("fingerprint") }
  }

  /// The same with batches from any source: it calls `next` until `next` returns nil.
  func importBatches(
    fingerprint: [UInt8], strict: Bool, report: (ManifestProblem) -> Void,
    next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> ImportReport {
    try withoutActuallyEscaping(report) { (report) throws(StoreError) in
      try importBatches(fingerprint, strict, report, next)
    }
  }

  private func importBatches(
    _ fingerprint: [UInt8], _ strict: Bool, _ report: @escaping (ManifestProblem) -> Void,
    _ next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> ImportReport {
    // An open read connection would keep the first import from writing without the log.
    connections.closeIdleReaders()
    return try connections.withWriter { (connection, isFull) throws(StoreError) in
      // Syncs at the end of the import: after a power loss, no inode that the kernel was told of is assigned again.
      try connection.run("PRAGMA synchronous = FULL")
      isFull = true
      let isFirst = try connection.integer("SELECT 1 FROM entry LIMIT 1") == nil
      if isFirst { try prepareBulk(connection) }
      try connection.run("PRAGMA cache_size = \(TreeImport.pages)")
      let result: Result<ImportReport, StoreError>
      do throws(StoreError) {
        result = .success(
          try connection.transaction("BEGIN IMMEDIATE") { (connection) throws(StoreError) in
            var tree = try TreeImport(connection, isFirst: isFirst, report: report)
            while let batch = try next() { try tree.add(batch, strict: strict) }
            return try tree.finish(fingerprint: fingerprint)
          })
      } catch {
        result = .failure(error)
      }
      try connection.run("PRAGMA cache_size = -2048; PRAGMA shrink_memory")
      // malloc returned the pages in small pieces, and glibc keeps them: 50 MiB after a million lines.
      malloc_trim(0)
      try CatalogFile.useLog(connection)
      if case .success = result { try connection.run("PRAGMA wal_checkpoint(TRUNCATE)") }
      return try result.get()
    }
  }

  /// Lets the first import write pages to their place at once. A rollback journal saves only pages that existed before;
  /// a log would contain all pages, and SQLite would copy them. If another program has the catalog open, the log stays.
  private func prepareBulk(_ connection: SQLiteConnection) throws(StoreError) {
    do throws(StoreError) {
      try connection.run("PRAGMA busy_timeout = 0; PRAGMA journal_mode = DELETE")
    } catch {
      guard case .busy = error.kind else { throw error }
      Log.debug("catalog \(connection.path): another program reads it; the import uses the log")
    }
    try connection.run("PRAGMA busy_timeout = 5000")
  }
}
