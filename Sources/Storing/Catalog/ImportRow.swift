/// The columns of a row of `entry` that an import needs.
struct ImportRow {
  var id: Int64
  var parent: Int64
  var kind: Int64
  var isListed: Bool
  var hasName: Bool
  var wanted: String?
  var key: ResourceKeyColumns
  var line: Int

  /// The first row of a statement over ``ImportQueries/columns``, nil if there is none; resets the statement.
  init?(first statement: SQLiteStatement) throws(StoreError) {
    defer { statement.reset() }
    guard try statement.step() else { return nil }
    id = statement.integer(0)
    parent = statement.integer(1)
    kind = statement.integer(2)
    isListed = statement.integer(3) == 1
    hasName = statement.integer(4) == 1
    wanted = statement.optionalText(5)
    key = ResourceKeyColumns(high: statement.integer(6), low: statement.integer(7))
    line = Int(statement.bounded(8))
  }
}

/// The rows of `entry`, as an import looks them up.
struct ImportRows {
  let connection: SQLiteConnection

  func row(named name: String, in parent: Int64) throws(StoreError) -> ImportRow? {
    let statement = try connection.statement(ImportQueries.byName)
    statement.bind(1, parent)
    statement.bind(2, name)
    return try ImportRow(first: statement)
  }

  func row(
    wanting name: String, _ key: ResourceKeyColumns, kind: Int, in parent: Int64, before id: Int64
  ) throws(StoreError) -> ImportRow? {
    let statement = try connection.statement(ImportQueries.byWanted)
    statement.bind(1, parent)
    statement.bind(2, name)
    statement.bind(3, key)
    statement.bind(5, kind)
    statement.bind(6, id)
    return try ImportRow(first: statement)
  }

  func row(id: Int64) throws(StoreError) -> ImportRow? {
    let statement = try connection.statement(ImportQueries.byID)
    statement.bind(1, id)
    return try ImportRow(first: statement)
  }

  /// The row of the same resource that wants the same name in the same folder. `holder`: the row that has the name.
  func file(
    _ name: String, _ key: ResourceKeyColumns, in parent: Int64, holder: ImportRow?
  ) throws(StoreError) -> ImportRow? {
    if let holder, holder.kind == 0, holder.key == key, holder.wanted == nil { return holder }
    return try row(wanting: name, key, kind: 0, in: parent, before: .max)
  }

  /// Whether a row's line is the one that `source` encodes.
  func hasSource(_ id: Int64, _ source: UnsafeRawBufferPointer) throws(StoreError) -> Bool {
    let statement = try connection.statement(ImportQueries.source)
    defer { statement.reset() }
    statement.bind(1, id)
    return try statement.step() && statement.withBlob(0) { $0.hasBytes(of: source) }
  }

  /// In what `source` differs from a row's line.
  func difference(_ id: Int64, _ source: UnsafeRawBufferPointer) throws(StoreError) -> SourceDifference {
    let statement = try connection.statement(ImportQueries.source)
    defer { statement.reset() }
    statement.bind(1, id)
    return try statement.step() ? statement.withBlob(0) { SourceDifference(from: $0, to: source) } : .link
  }

  /// The listed rows, of the scope if there is one, that are not in `seen`.
  func unseen(_ seen: IDSet, _ scope: ImportScope?) throws(StoreError) -> [Int64] {
    if let scope { return try scope.unseen(self, seen) }
    var found: [Int64] = []
    let statement = try connection.statement(ImportQueries.listed)
    defer { statement.reset() }
    while try statement.step() {
      let id = statement.integer(0)
      if !seen.contains(id) { found.append(id) }
    }
    return found
  }

  /// The listed rows in a folder.
  func listed(in parent: Int64) throws(StoreError) -> [(id: Int64, isFolder: Bool)] {
    var found: [(Int64, Bool)] = []
    let statement = try connection.statement(ImportQueries.listedIn)
    defer { statement.reset() }
    statement.bind(1, parent)
    while try statement.step() { found.append((statement.integer(0), statement.integer(1) == 1)) }
    return found
  }

  /// Adds to `folders` all those that lead to one of them.
  func addAbove(_ folders: inout IDSet) throws(StoreError) {
    let statement = try connection.statement(ImportQueries.upwards)
    defer { statement.reset() }
    // An entry's number is higher than that of its folder: the folder's own folder comes later.
    while try statement.step() {
      if folders.contains(statement.integer(1)) { _ = folders.insert(statement.integer(0)) }
    }
  }
}

enum ImportQueries {
  static let columns = "SELECT id, parent, kind, listed, name IS NOT NULL, wanted, key_high, key_low, line FROM entry"
  static let byName = SQL("\(columns) WHERE parent = ? AND name = ?")
  static let byID = SQL("\(columns) WHERE id = ?")
  // At most one row: the twin of an earlier twin is gone by then. The plus before `id` keeps SQLite from scanning the
  // table. The plus before `kind` keeps SQLite from checking entry_key's `kind = 0` against the bound value: otherwise
  // it would prepare the statement again for each value.
  static let byWanted = SQL(
    """
    \(columns) WHERE parent = ? AND wanted = ? AND key_high = ? AND key_low = ? AND +kind = ?
      AND +id < ? LIMIT 1
    """)
  static let source = SQL("SELECT source FROM entry WHERE id = ?")
  static let generation = SQL("SELECT 1 FROM generation WHERE key_high = ? AND key_low = ? AND state <> 2")
  static let insert = SQL(
    """
    INSERT INTO entry(id, parent, kind, listed, name, wanted, key_high, key_low, line, source)
    VALUES(?, ?, ?, 1, ?, ?, ?, ?, ?, ?)
    """)
  static let names = SQL("SELECT parent, coalesce(name, wanted), kind, key_high, key_low FROM entry WHERE id = ?")
  static let aliases = SQL("SELECT parent, name, entry FROM alias")
  static let place = SQL("SELECT parent, kind, coalesce(wanted, name) FROM entry WHERE id = ?")
  // ?1: the root. ?2: a list's folder, which is no name of the list; empty: what is in none of the folders ?3, which
  // slashes surround.
  static let namesOfList = SQL(
    """
    WITH RECURSIVE below(id, kind, parent) AS (
      SELECT id, kind, parent FROM entry
      WHERE parent = ?1 AND listed = 1 AND CASE ?2
        WHEN '' THEN kind = 0 OR instr(?3, '/' || coalesce(wanted, name) || '/') = 0
        ELSE kind = 1 AND coalesce(wanted, name) = ?2 END
      UNION
      SELECT e.id, e.kind, e.parent FROM below b JOIN entry e ON e.parent = b.id WHERE b.kind = 1 AND e.listed = 1)
    SELECT count(*) FROM (SELECT 1 FROM below WHERE id < ?4 AND (?2 = '' OR parent <> ?1) LIMIT ?5)
    """)
  static let update = SQL("UPDATE entry SET line = ?2, source = ?3, listed = 1 WHERE id = ?1")
  static let list = SQL("UPDATE entry SET listed = 1 WHERE id = ?")
  static let listed = SQL("SELECT id FROM entry WHERE listed = 1")
  static let listedIn = SQL("SELECT id, kind FROM entry WHERE parent = ? AND listed = 1")
  static let upwards = SQL("SELECT parent, id FROM entry WHERE listed = 1 ORDER BY parent DESC")
  static let unlist = SQL("UPDATE entry SET listed = 0 WHERE id = ?")
  static let delete = SQL("DELETE FROM entry WHERE id = ?")
  static let remember = SQL("INSERT OR REPLACE INTO meta(name, value) VALUES(?, ?)")
  static let forgetProblem = SQL("DELETE FROM problem WHERE key_high = ? AND key_low = ?")
  static let inherit = SQL(
    """
    INSERT OR IGNORE INTO gained(entry, extension, applied)
    SELECT ?1, g.extension, 0 FROM entry e JOIN gained g ON g.entry = e.id
    WHERE e.key_high = ?2 AND e.key_low = ?3 AND e.kind = 0 LIMIT 1
    """)
}
