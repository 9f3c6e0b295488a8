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
  /// What changed, if the caller asked for it.
  package var changes: ListChanges?
  /// The folders that show a server's; of an import of folders, those that these list.
  package var servers: [Inode: ManifestFolder] = [:]
  /// Those of them in which, or below which, the list itself names something: only all of it says what is there.
  package var mixed: Set<Inode> = []
  /// The URLs of those that show in a folder which shows another one: `servers` has that one.
  package var hidden: Set<String> = []
  /// The folders that went; of an import of folders only.
  package var gone: [Inode] = []

  mutating func note(
    _ problem: ManifestProblem, strict: Bool, _ report: (ManifestProblem) -> Void
  ) throws(StoreError) {
    problems += 1
    report(problem)
    if strict && problem.severity == .error {
      throw StoreError(
        .invalid,
        "manifest, line \(problem.line): \(problem.message); nothing was changed (--strict); correct the line")
    }
  }

  mutating func noteDuplicate(line: Int, first: Int, _ report: (ManifestProblem) -> Void) {
    duplicates += 1
    problems += 1
    report(
      ManifestProblem(
        line: line, severity: .warning, message: "the same resource and name as on line \(first); listed once"))
  }
}

/// The disks that an import reads lists from.
package struct ListDisks {
  /// The calls for their files.
  package var calls: DiskCalls
  /// How long the import waits for one of these calls, in seconds.
  package var patience: Double

  package init(_ calls: DiskCalls, patience: Double) { (self.calls, self.patience) = (calls, patience) }
}

/// Who shows the tree during an import, and is told what changes. The import's thread calls both.
package struct ImportWatcher {
  /// The folders at the top that have a list each; empty for a single list.
  package var lists: [String]
  /// The disks of the lists; nil: the import waits for these as long as they take.
  package var disks: ListDisks?
  /// Called when the list was read to its end: what it removes at least. A throw ends the import. No other writer waits
  /// for it, unless the difference is very large: then it gets nothing.
  package var compared: ([ListLoss]) throws(StoreError) -> Void
  /// Called when all is written, and nothing committed. A throw takes all of it back. It must not call the catalog.
  package var beforeCommit: (ListChanges) throws(StoreError) -> Void
  /// Called when the tree has changed.
  package var committed: (ListChanges) -> Void

  package init(
    lists: [String] = [], compared: @escaping ([ListLoss]) throws(StoreError) -> Void = { (_) throws(StoreError) in },
    beforeCommit: @escaping (ListChanges) throws(StoreError) -> Void, committed: @escaping (ListChanges) -> Void
  ) {
    (self.lists, self.compared, self.beforeCommit, self.committed) = (lists, compared, beforeCommit, committed)
  }
}

extension Catalog {
  /// Turns a manifest into the tree: a new epoch, all of it or nothing. Readers see the old tree until the import is
  /// done. Other writers wait while the import writes what differs from the tree before; while it compares, they do
  /// not.
  ///
  /// The rules of docs/STORE-FORMAT.md ("Names") give the names. The catalog remembers `fingerprint` for
  /// ``importedFingerprint()``. The import calls `report` for each problem, on this thread and in no certain order of
  /// lines; it must not call the catalog. With `strict`, a problem of severity error ends the import. Such a problem, a
  /// manifest without a usable line, and one that cannot be read throw `.invalid` and change nothing.
  ///
  /// `watcher`: for a mount that shows the tree; the report then has the changes. `taken` is called as soon as the tree
  /// is the manifest's: the numbers of many lines may be written after that. Only one thread may import at a time.
  ///
  /// Another thread reads the manifest and has ended when this returns. There is one exception: if the reader is no
  /// longer needed and waits for a pipe (or a slow disk), it ends when data comes or the pipe is closed.
  ///
  /// With the watcher's `disks` there is none. An import whose disk is silent lets go of the catalog, waits until the
  /// disk has answered, and throws `.silent`: it never leaves a thread behind that waits for the disk.
  package func importManifest(
    _ reader: consuming ManifestReader, fingerprint: [UInt8], strict: Bool, report: (ManifestProblem) -> Void,
    watcher: ImportWatcher? = nil, taken: () -> Void = {}
  ) throws(StoreError) -> ImportReport {
    // Reading and parsing take half of the time. They need not wait for the catalog, nor the catalog for them.
    let feed: ManifestFeed
    do throws(Errno) { feed = try ManifestFeed(reader, strict: strict) } catch {
      throw StoreError(.io(error), "cannot start a thread that reads the list: \(error); \(OwnedThread.advice)")
    }
    let disks = watcher?.disks
    defer { feed.end(waiting: disks != nil) }
    return try importBatches(
      fingerprint: fingerprint, strict: strict, report: report, watcher: watcher, taken: taken
    ) { () throws(StoreError) in
      do throws(ManifestError) { return try feed.next(disks) } catch {
        if case .silent = error { throw StoreError(.silent, "\(error)") }
        throw StoreError(.invalid, "\(error)")
      }
    }
  }

  /// The same for what servers' folders list, without the list that names them: it costs time in proportion to what
  /// they list. `roots`: their rows, of which none is in another one, and none ``ImportReport/mixed``. `shown`: the
  /// server's folder that a folder of the tree shows, as its imports reported it. `resolver`: of the files that name
  /// none. `name`: the list's.
  ///
  /// Names, lines and all else are as after an import of the whole list. Nil: the tree is not as `shown` says, so that
  /// only such an import can tell.
  package func importFolders(
    _ roots: [Inode], shown: @escaping (Inode) -> ManifestFolder?, _ folders: any ServerFolders, resolver: String?,
    name: String, strict: Bool, report: (ManifestProblem) -> Void, watcher: ImportWatcher
  ) throws(StoreError) -> ImportReport? {
    let scope = ImportScope(roots, shown: shown, folders, resolver: resolver, name: name)
    do throws(StoreError) {
      return try importBatches(
        fingerprint: [], strict: strict, report: report, watcher: watcher, scope: scope
      ) { () throws(StoreError) in try scope.next() }
    } catch {
      if scope.isUnfit { return nil }
      throw error
    }
  }

  /// The fingerprint of the tree's manifest; nil if none was imported. The server skips the import of a manifest with
  /// the same fingerprint.
  package func importedFingerprint() throws(StoreError) -> [UInt8]? {
    try connections.read { (connection) throws(StoreError) in try connection.metaBlob("fingerprint") }
  }

  /// The names that the last import under a mount brought or took: the kernel may not have been told of all of them.
  package func lastChanges() throws(StoreError) -> [TreeChange] {
    let bytes = try connections.read { (connection) throws(StoreError) in try connection.metaBlob("announced") }
    return ListChanges.names(encoded: bytes ?? [])
  }

  /// The same with batches from any source: it calls `next` until `next` returns nil. `mostCompared`: how many bytes of
  /// lines that differ are kept until the rest is imported as a whole. `scope`: the folders that the batches are of.
  func importBatches(
    fingerprint: [UInt8], strict: Bool, report: (ManifestProblem) -> Void, watcher: ImportWatcher? = nil,
    mostCompared: Int = ListComparison.mostBytes, scope: ImportScope? = nil, taken: () -> Void = {},
    next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> ImportReport {
    try withoutActuallyEscaping(report) { (report) throws(StoreError) in
      // With the writing connection: another one would keep a first import from writing without the log.
      let isFirst = try connections.withWriter { (connection, _) throws(StoreError) in
        try connection.integer("SELECT 1 FROM entry LIMIT 1") == nil
      }
      // Under a mount, which may have begun without a name, those who watch are told.
      if isFirst, watcher == nil {
        let first = try importFirst(fingerprint, strict, report, next)
        taken()
        return first
      }
      let compared = try connections.read(snapshot: true) { (connection) throws(StoreError) in
        try ListComparison.run(
          connection, strict: strict, most: mostCompared, scope: scope, report: report, next: next)
      }
      if compared.unseen != nil, compared.entries == 0, scope == nil { throw TreeImport.nothingUsable }
      if let watcher { try watcher.compared(try losses(compared, watcher.lists)) }
      let write = DifferenceImport(
        compared: compared, scope: scope, fingerprint: fingerprint, strict: strict, report: report, watcher: watcher)
      return try write.run(connections, taken, next)
    }
  }

  /// What an import removes at least; empty if the list was not compared to its end.
  private func losses(_ compared: ListComparison.Result, _ lists: [String]) throws(StoreError) -> [ListLoss] {
    guard let unseen = compared.unseen else { return [] }
    let names = try tree.counts().names
    return try connections.read(snapshot: true) { (connection) throws(StoreError) in
      var losses = ListLosses(connection, folders: lists)
      // Each new line may bring back one of the names that go.
      var added: [String: Int] = [:]
      for (item, row) in zip(compared.lines.items, compared.rows) where row == nil {
        guard case .line(let line) = item else { continue }
        added[losses.list(of: compared.lines.folders[line.folder]), default: 0] += 1
      }
      let removed = unseen.count - added.values.reduce(0, +)
      return [ListLoss(removed: removed, names: names)] + (try losses.find(unseen, added: added))
    }
  }

  private func importFirst(
    _ fingerprint: [UInt8], _ strict: Bool, _ report: @escaping (ManifestProblem) -> Void,
    _ next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> ImportReport {
    // An open read connection would keep the first import from writing without the log.
    connections.closeIdleReaders()
    return try connections.withWriter { (connection, isFull) throws(StoreError) in
      // Syncs at the end of the import: after a power loss, no inode that the kernel was told of is assigned again.
      try connection.run("PRAGMA synchronous = FULL")
      isFull = true
      try prepareBulk(connection)
      let result = try connection.withLargeCache { (connection) throws(StoreError) in
        var tree = try TreeImport(connection, after: nil, report: report)
        while let batch = try next() { try tree.add(batch, strict: strict) }
        return try tree.finish(fingerprint: fingerprint, unseen: [])
      }
      try CatalogFile.useLog(connection)
      if case .success = result { try connection.run("PRAGMA wal_checkpoint(TRUNCATE)") }
      return try result.get()
    }
  }

  /// Lets the first import write pages to their place at once. A rollback journal saves only pages that existed before;
  /// a log would contain all pages, and SQLite would copy them. If another program has the catalog open, the log stays.
  private func prepareBulk(_ connection: SQLiteConnection) throws(StoreError) {
    do throws(StoreError) {
      try connection.runWithoutWaiting("PRAGMA journal_mode = DELETE")
    } catch {
      guard case .busy = error.kind else { throw error }
      Log.debug("catalog \(connection.path): another program reads it; the import uses the log")
    }
  }
}

extension SQLiteConnection {
  /// Calls `body` in a transaction with an import's cache, and gives that memory back.
  fileprivate func withLargeCache<Value>(
    _ body: (SQLiteConnection) throws(StoreError) -> Value
  ) throws(StoreError) -> Result<Value, StoreError> {
    try run("PRAGMA cache_size = \(TreeImport.pages)")
    let result: Result<Value, StoreError>
    do throws(StoreError) {
      result = .success(try transaction("BEGIN IMMEDIATE", body))
    } catch {
      result = .failure(error)
    }
    try run("PRAGMA cache_size = -2048; PRAGMA shrink_memory")
    // malloc returned the pages in small pieces, and glibc keeps them: 50 MiB after a million lines.
    malloc_trim(0)
    return result
  }
}

/// The second half of an import into a tree that exists: writes what ``ListComparison`` found.
private struct DifferenceImport {
  let compared: ListComparison.Result
  let scope: ImportScope?
  let fingerprint: [UInt8]
  let strict: Bool
  let report: (ManifestProblem) -> Void
  let watcher: ImportWatcher?

  /// `next`: the rest of the list, where it was not compared to its end.
  func run(
    _ connections: CatalogConnections, _ taken: () -> Void, _ next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> ImportReport {
    let shiftsLater = compared.shifts.count > LineShifts.most
    let result = try connections.withWriter { (connection, isFull) throws(StoreError) in
      if !isFull { try connection.run("PRAGMA synchronous = FULL") }
      isFull = true
      guard compared.unseen == nil else {
        let result = try connection.transaction("BEGIN IMMEDIATE") { (connection) throws(StoreError) in
          try write(connection, shiftsLater: shiftsLater, next)
        }
        CatalogFile.shortenLog(connection)
        return result
      }
      let result = try connection.withLargeCache { (connection) throws(StoreError) in
        try write(connection, shiftsLater: shiftsLater, next)
      }
      if case .success = result { CatalogFile.shortenLog(connection) }
      return try result.get()
    }
    taken()
    if let changes = result.changes { watcher?.committed(changes) }
    guard shiftsLater else { return result }
    do throws(StoreError) {
      try compared.shifts.write(connections)
      try connections.write(durably: false) { (connection) throws(StoreError) in
        try connection.setMeta("fingerprint", blob: result.servers.isEmpty && scope == nil ? fingerprint : [])
      }
    } catch {
      // The tree is as the list says. Without a fingerprint, the next import puts the numbers right.
      Log.warning("messages may name other lines of the list: \(error.message)")
    }
    return result
  }

  private func write(
    _ connection: SQLiteConnection, shiftsLater: Bool, _ next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> ImportReport {
    var tree = try TreeImport(connection, after: compared, scope: scope, watcher: watcher, report: report)
    try tree.add(compared)
    if compared.unseen == nil {
      while let batch = try next() { try tree.add(batch, strict: strict) }
      if let watcher { try watcher.compared([]) }
    }
    if !shiftsLater { try compared.shifts.write(connection) }
    // An import whose lines have not their numbers yet is done again if it is interrupted.
    let result = try tree.finish(fingerprint: shiftsLater ? [] : fingerprint, unseen: compared.unseen)
    if let watcher, let changes = result.changes {
      if !changes.tree.isEmpty { try connection.setMeta("announced", blob: changes.encodedNames) }
      try watcher.beforeCommit(changes)
    }
    return result
  }
}
