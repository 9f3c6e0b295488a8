import Base
import CSQLite
import Manifest

/// What an import gave.
package struct ImportReport: Sendable, Equatable {
  /// The epoch that began: 1 for a store's first import.
  package var epoch: Int64
  /// Files that are listed now.
  package var files: Int64
  /// Folders that are listed now.
  package var folders: Int64
  /// Problems reported (errors and warnings, duplicates among them).
  package var problems: Int
  /// Lines that gave an entry which an earlier line had given.
  package var duplicates: Int
}

extension Catalog {
  /// Makes a manifest the tree: a new epoch, all of it or nothing. Readers see the old tree until it is done; other
  /// writers wait.
  ///
  /// Names are given by the rules of docs/STORE-FORMAT.md ("Names"). `fingerprint` is remembered with it, for
  /// ``importedFingerprint()``. `report` gets each problem, on this thread, in no certain order of lines; it must not
  /// call the catalog. With `strict` a problem of severity error ends the import. That, a manifest without a usable
  /// line, and one that cannot be read throw `.invalid` and change nothing.
  ///
  /// The manifest is read on another thread, which has ended when this returns. Only one that is not needed any more
  /// and waits for a pipe (or a slow disk) is left to itself: it ends when that gives something or is closed.
  package func importManifest(
    _ reader: consuming ManifestReader, fingerprint: [UInt8], strict: Bool, report: (ManifestProblem) -> Void
  ) throws(StoreError) -> ImportReport {
    // Half of the time goes into reading and parsing, which need not wait for the catalog, nor that for them.
    let feed = ManifestFeed(reader, strict: strict)
    defer { feed.end() }
    return try importBatches(fingerprint: fingerprint, strict: strict, report: report) { () throws(StoreError) in
      do throws(ManifestError) { return try feed.next() } catch { throw StoreError(.invalid, "\(error)") }
    }
  }

  /// The fingerprint of the manifest that the tree is of; nil when none was imported. The server skips the import of an
  /// equal one.
  package func importedFingerprint() throws(StoreError) -> [UInt8]? {
    try connections.read { (connection) throws(StoreError) in try connection.metaBlob("fingerprint") }
  }

  /// The same with batches from anywhere: `next` is called until it gives none.
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
      // Synced at its end, so that no inode that the kernel was told is given again after a power loss.
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
      // The pages came from the heap in small pieces, which glibc keeps: 50 MiB after a million lines.
      malloc_trim(0)
      try CatalogFile.useLog(connection)
      if case .success = result { try connection.run("PRAGMA wal_checkpoint(TRUNCATE)") }
      return try result.get()
    }
  }

  /// Lets the first import write pages to their place at once: a rollback journal keeps only pages that were there
  /// before, while a log would hold all and have them copied. Where somebody else has the catalog open, the log stays.
  private func prepareBulk(_ connection: SQLiteConnection) throws(StoreError) {
    do throws(StoreError) {
      try connection.run("PRAGMA busy_timeout = 0; PRAGMA journal_mode = DELETE")
    } catch {
      guard case .busy = error.kind else { throw error }
      Log.debug("catalog \(connection.path): another program reads it; the import goes through the log")
    }
    try connection.run("PRAGMA busy_timeout = 5000")
  }
}
