import Base
import Manifest

// How a manifest becomes the tree (docs/STORE-FORMAT.md, "Names"):
//
// 1. Each line finds its row, or inserts one. An existing row keeps its name. A new row takes the name it wants if no
//    row has it; otherwise it has no name for now.
// 2. Rows that no line found become unlisted.
// 3. Rows without a name, in order: each takes the name it wants if that is free by now (or an unlisted row's).
// 4. The rest get numbers.
//
// Of step 1, ``ListComparison`` has done what needs no write: it leaves the lines that differ from their rows.
//
// The first import of a catalog is the same with fewer lookups: there are no existing rows, and a Bloom filter knows
// which names are certainly new. SQLite creates the indexes after step 1. Steps 3 and 4 settle the names of which the
// filter is not certain, including repeated lines.

/// One import, within a transaction of the writing connection.
struct TreeImport {
  /// `PRAGMA cache_size` of an import: 24 MiB. With less, SQLite writes the pages of a large import again and again.
  static let pages = -24_576

  let connection: SQLiteConnection
  private let rows: ImportRows
  private let isFirst: Bool
  /// What differs from the tree before, for whoever shows it.
  private var changes: GatheredChanges
  private let report: (ManifestProblem) -> Void
  private let scope: ImportScope?
  /// The folders of several lists.
  private let lists: [String]
  private let hasAliases: Bool
  private let hasExtensions: Bool
  private let epoch: Int64

  private let firstID: Int64
  private var nextID: Int64
  private var seen = IDSet()
  private var filter: NameFilter?
  private var folders = FolderCache()
  private var unnamed: [Int64] = []
  /// The rows of folders in which the list itself names something.
  private var own = IDSet()
  /// How many files and folders are listed that were not.
  private var added = (files: Int64(0), folders: Int64(0))

  private var entries = 0
  private var result: ImportReport

  /// `compared`: what is known of a tree that exists; nil for a catalog's first import. `scope`: the folders that
  /// the import is limited to; nil: none. `watcher`: who is told what changes.
  init(
    _ connection: SQLiteConnection, after compared: ListComparison.Result?, scope: ImportScope? = nil,
    watcher: ImportWatcher? = nil, report: @escaping (ManifestProblem) -> Void
  ) throws(StoreError) {
    self.connection = connection
    rows = ImportRows(connection: connection)
    isFirst = compared == nil
    changes = GatheredChanges(isWanted: watcher != nil)
    lists = watcher?.lists ?? []
    self.report = report
    self.scope = scope
    hasAliases = try connection.integer("SELECT 1 FROM alias LIMIT 1") != nil
    hasExtensions = try connection.integer("SELECT 1 FROM gained LIMIT 1") != nil
    let last = try connection.integer("SELECT value FROM meta WHERE name = 'epoch'") ?? 0
    guard last >= 0, last < .max else { throw .damaged(connection.path, "meta.epoch is out of range") }
    epoch = last + 1
    // The numbers that the import uses become reserved with its commit; blocks of other threads are below.
    firstID = try connection.reserveIDs(0)
    nextID = firstID
    result = compared?.counts ?? ImportReport(epoch: 0, files: 0, folders: 0, problems: 0, duplicates: 0)
    result.epoch = epoch
    seen = compared?.seen ?? IDSet()
    entries = compared?.entries ?? 0
    own = compared?.own ?? IDSet()
    if isFirst {
      filter = NameFilter()
      for index in Schema.entryIndexes { try connection.run("DROP INDEX \(index.name)") }
    }
  }

  // MARK: - Step 1: lines

  /// Writes what a comparison found.
  mutating func add(_ compared: ListComparison.Result) throws(StoreError) {
    try add(compared.lines, strict: false, rows: compared.rows, folders: compared.folders, isCompared: true)
  }

  /// `rows`: the rows that the lines change, as far as they are known. `folders`: those that come before a line.
  mutating func add(
    _ batch: ImportBatch, strict: Bool, rows: [Int64?] = [], folders: [(before: Int, id: Int64)] = [],
    isCompared: Bool = false
  ) throws(StoreError) {
    var folders = folders[...]
    var folderIndex: Int?
    var ownIndex: Int?
    var parent: Int64 = 0
    let bytes = batch.bytes
    for (index, item) in batch.items.enumerated() {
      while let next = folders.first, next.before <= index { try list(known(folders.removeFirst().id)) }
      switch item {
      case .problem(let problem): try result.note(problem, strict: strict, report)
      case .folder(let shown, _):
        entries += 1
        let id = try folder(shown.path)
        let former = result.servers.updateValue(shown, forKey: Inode(bitPattern: id))
        if let scope {
          if former != nil { throw scope.unfit() }
          if !isCompared { try scope.met(shown, row: id, isFirst: true) }
        }
        if let former {
          _ = own.insert(id)
          result.hidden.insert(former.source.url)
        }
        if let above = shown.namedIn { _ = own.insert(try folder(above)) }
      case .line(let line):
        if let problem = line.problem {
          try result.note(problem, strict: strict, report)
          continue
        }
        if index < rows.count, let row = rows[index] {
          let row = try known(row)
          try bytes.span.withUnsafeBytes { (bytes) throws(StoreError) in
            try update(row, line: line.line, UnsafeRawBufferPointer(rebasing: bytes[line.source]))
          }
          continue
        }
        if line.folder != folderIndex {
          parent = try folder(batch.folders[line.folder])
          folderIndex = line.folder
        }
        if !line.isServed, line.folder != ownIndex {
          _ = own.insert(parent)
          ownIndex = line.folder
        }
        // A span's closures may throw typed errors. No pointer leaves this one: it resets the statements.
        try bytes.span.withUnsafeBytes { (bytes) throws(StoreError) in
          try add(
            line, name: UnsafeRawBufferPointer(rebasing: bytes[line.name]),
            source: UnsafeRawBufferPointer(rebasing: bytes[line.source]), in: parent)
        }
      }
    }
    for folder in folders { try list(known(folder.id)) }
  }

  private mutating func add(
    _ entry: ImportBatch.Line, name: UnsafeRawBufferPointer, source: UnsafeRawBufferPointer, in parent: Int64
  ) throws(StoreError) {
    entries += 1
    if isFirst {
      let isNew = filter?.insert(name, in: parent) ?? false
      let id = try insertFile(entry, name, source, in: parent, isNamed: isNew)
      if !isNew { unnamed.append(id) }
      result.files += 1
      return
    }
    let text = String(decoding: name, as: UTF8.self)
    let holder = try rows.row(named: text, in: parent)
    guard let known = try rows.file(text, entry.key, in: parent, holder: holder) else {
      let isFree = try isFree(text, in: parent, holder: holder)
      let id = try insertFile(entry, name, source, in: parent, isNamed: isFree)
      _ = seen.insert(id)
      if !isFree { unnamed.append(id) }
      if hasExtensions && entry.mayGainExtension { try inheritExtension(id, entry.key) }
      result.files += 1
      return
    }
    guard seen.insert(known.id) else { return result.noteDuplicate(line: entry.line, first: known.line, report) }
    result.files += 1
    try update(known, line: entry.line, source)
  }

  private mutating func insertFile(
    _ entry: ImportBatch.Line, _ name: UnsafeRawBufferPointer, _ source: UnsafeRawBufferPointer, in parent: Int64,
    isNamed: Bool
  ) throws(StoreError) -> Int64 {
    let statement = try connection.statement(ImportQueries.insert)
    let id = nextID
    nextID += 1
    statement.bind(1, id)
    statement.bind(2, parent)
    statement.bind(3, 0)
    statement.bind(isNamed ? 4 : 5, lastingText: name)
    statement.bind(6, entry.key)
    statement.bind(8, entry.line)
    statement.bind(9, lastingBlob: source)
    try statement.run()
    changes.added(id, entry.key)
    added.files += 1
    return id
  }

  /// Writes the line's changes.
  private mutating func update(_ known: ImportRow, line: Int, _ source: UnsafeRawBufferPointer) throws(StoreError) {
    if !known.hasName { unnamed.append(known.id) }
    let difference = try rows.difference(known.id, source)
    if difference == .none && known.line == line && known.isListed { return }
    let statement = try connection.statement(ImportQueries.update)
    statement.bind(1, known.id)
    statement.bind(2, line)
    statement.bind(3, lastingBlob: source)
    try statement.run()
    // What failed may have been the former link.
    if difference == .link {
      let problem = try connection.statement(ImportQueries.forgetProblem)
      problem.bind(1, known.key)
      try problem.run()
    }
    if !known.isListed {
      added.files += 1
      changes.added(known.id, known.key)
    } else {
      changes.changed(known.id, known.key, difference)
    }
  }

  /// If the resource's extension is known, its new name gains it at the next mount, too.
  private func inheritExtension(_ id: Int64, _ key: ResourceKeyColumns) throws(StoreError) {
    let statement = try connection.statement(ImportQueries.inherit)
    statement.bind(1, id)
    statement.bind(2, key)
    try statement.run()
  }

  // MARK: - Folders

  private mutating func folder(_ path: [String]) throws(StoreError) -> Int64 {
    if let known = folders.find(path) { return known }
    var id = Int64(rootInode)
    for depth in path.indices {
      let prefix = path[...depth]
      if let known = folders.find(prefix) {
        id = known
      } else {
        id = try folder(path[depth], in: id)
        folders.insert(prefix, id)
      }
    }
    return id
  }

  private mutating func folder(_ name: String, in parent: Int64) throws(StoreError) -> Int64 {
    if let known = try rows.row(wanting: name, .none, kind: 1, in: parent, before: .max) {
      guard seen.insert(known.id) else { return known.id }
      result.folders += 1
      try list(known)
      return known.id
    }
    let isFree: Bool
    if isFirst {
      isFree = name.utf8.span.withUnsafeBytes { filter?.insert($0, in: parent) } ?? false
    } else {
      isFree = try self.isFree(name, in: parent, holder: rows.row(named: name, in: parent))
    }
    let id = nextID
    nextID += 1
    let statement = try connection.statement(ImportQueries.insert)
    statement.bind(1, id)
    statement.bind(2, parent)
    statement.bind(3, 1)
    if isFree { statement.bind(4, name) }
    statement.bind(5, name)
    statement.bind(6, ResourceKeyColumns.none)
    statement.bind(8, 0)
    try statement.run()
    _ = seen.insert(id)
    if !isFree { unnamed.append(id) }
    result.folders += 1
    added.folders += 1
    changes.added(id, .none)
    return id
  }

  /// Lists a folder again.
  private mutating func list(_ known: ImportRow) throws(StoreError) {
    if !known.hasName { unnamed.append(known.id) }
    if known.isListed { return }
    let statement = try connection.statement(ImportQueries.list)
    statement.bind(1, known.id)
    try statement.run()
    added.folders += 1
    changes.added(known.id, .none)
  }

  // MARK: - Steps 2 to 4

  static var nothingUsable: StoreError {
    StoreError(.invalid, "the manifest has no usable line; nothing was changed (mediafs check FILE lists the problems)")
  }

  /// `unseen`: the listed rows that no line found; nil if they are to be looked up. Some may have been found since.
  mutating func finish(fingerprint: [UInt8], unseen: [Int64]?) throws(StoreError) -> ImportReport {
    guard entries > 0 || scope != nil else { throw Self.nothingUsable }
    if isFirst {
      try makeIndexes()
    } else {
      if let unseen { try unlist(unseen) } else { try unlist(rows.unseen(seen, scope)) }
    }
    if let scope {
      let former = try connection.counts()
      result.files = former.files + added.files
      result.folders = former.names - former.files + added.folders
      result.gone = scope.gone.map { Inode(bitPattern: $0) }
    } else if !result.servers.isEmpty {
      try rows.addAbove(&own)
      result.mixed = Set(result.servers.keys.filter { own.contains(Int64(bitPattern: $0)) })
    }
    let naming = EntryNames(connection: connection, hasAliases: hasAliases)
    var toNumber: [Int64] = []
    for id in unnamed {
      let entry = try known(id)
      guard let wanted = entry.wanted else { throw .damaged(connection.path, "entry \(id) has no name") }
      if isFirst, let first = try earlierTwin(of: entry, wanting: wanted) {
        let statement = try connection.statement(ImportQueries.delete)
        statement.bind(1, id)
        try statement.run()
        result.files -= 1
        result.noteDuplicate(line: entry.line, first: first.line, report)
      } else if try naming.take(wanted, in: entry.parent, for: id) {
        try naming.set(wanted, wanted: entry.kind == 0 ? nil : wanted, for: id)
      } else {
        toNumber.append(id)
      }
    }
    for id in toNumber {
      let entry = try known(id)
      guard let wanted = entry.wanted else { throw .damaged(connection.path, "entry \(id) has no name") }
      let name = try naming.takeNumbered(wanted, in: entry.parent, for: id)
      try naming.set(name, wanted: wanted, for: id)
    }
    let names = try connection.counts().names
    // What is remembered of a server's folder may be another each time.
    try remember(result.servers.isEmpty && scope == nil ? fingerprint : [])
    if changes.isWanted {
      result.changes = try changes.list(
        in: connection, hasAliases: hasAliases, namesBefore: names, lists: lists, firstNew: firstID)
    }
    return result
  }

  private mutating func makeIndexes() throws(StoreError) {
    filter = nil
    // The cache also limits what a sorter keeps in memory. Three times that size is no faster: what fits into the
    // processor's cache is sorted faster, and SQLite merges it from files that are in the page cache.
    try connection.run("PRAGMA cache_size = -8192")
    for index in Schema.entryIndexes { try connection.run(index.definition) }
    try connection.run("PRAGMA cache_size = \(Self.pages)")
  }

  private mutating func unlist(_ unseen: [Int64]) throws(StoreError) {
    let statement = try connection.statement(ImportQueries.unlist)
    let folders = Set(scope?.gone ?? [])
    for id in unseen where !seen.contains(id) {
      try changes.removed(id, connection)
      if folders.contains(id) { added.folders -= 1 } else { added.files -= 1 }
      statement.bind(1, id)
      try statement.run()
    }
  }

  /// In a first import: the row of an earlier line with the same resource, folder and wanted name.
  private func earlierTwin(of entry: ImportRow, wanting wanted: String) throws(StoreError) -> ImportRow? {
    guard entry.kind == 0 else { return nil }
    if let holder = try rows.row(named: wanted, in: entry.parent), holder.kind == 0, holder.key == entry.key,
      holder.wanted == nil, holder.id < entry.id
    {
      return holder
    }
    return try rows.row(wanting: wanted, entry.key, kind: 0, in: entry.parent, before: entry.id)
  }

  private func remember(_ fingerprint: [UInt8]) throws(StoreError) {
    let statement = try connection.statement(ImportQueries.remember)
    for (name, value) in [
      ("next_id", nextID), ("epoch", epoch), ("names", result.files + result.folders), ("files", result.files),
    ] {
      statement.bind(1, name)
      statement.bind(2, value)
      try statement.run()
    }
    statement.bind(1, "fingerprint")
    statement.bind(2, blob: fingerprint)
    try statement.run()
  }

  // MARK: - Rows

  /// The row with that id, which must exist.
  private func known(_ id: Int64) throws(StoreError) -> ImportRow {
    guard let known = try rows.row(id: id) else { throw .damaged(connection.path, "entry \(id) is gone") }
    return known
  }

  /// Whether a new row may take `name`, which `holder` has, at once. If the holder, or an alias's entry, is unlisted, a
  /// later line may list it again: step 3 decides.
  private func isFree(_ name: String, in parent: Int64, holder: ImportRow?) throws(StoreError) -> Bool {
    if holder != nil { return false }
    guard hasAliases else { return true }
    return try !EntryNames(connection: connection, hasAliases: true).isAlias(name, in: parent)
  }
}
