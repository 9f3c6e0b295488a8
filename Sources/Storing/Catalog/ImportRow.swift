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
    line = Int(statement.integer(8))
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
  static let insert = SQL(
    """
    INSERT INTO entry(id, parent, kind, listed, name, wanted, key_high, key_low, line, source)
    VALUES(?, ?, ?, 1, ?, ?, ?, ?, ?, ?)
    """)
  static let update = SQL("UPDATE entry SET line = ?2, source = ?3, listed = 1 WHERE id = ?1")
  static let list = SQL("UPDATE entry SET listed = 1 WHERE id = ?")
  static let listed = SQL("SELECT id FROM entry WHERE listed = 1")
  static let unlist = SQL("UPDATE entry SET listed = 0 WHERE id = ?")
  static let delete = SQL("DELETE FROM entry WHERE id = ?")
  static let remember = SQL("INSERT OR REPLACE INTO meta(name, value) VALUES(?, ?)")
  static let inherit = SQL(
    """
    INSERT OR IGNORE INTO gained(entry, extension, applied)
    SELECT ?1, g.extension, 0 FROM entry e JOIN gained g ON g.entry = e.id
    WHERE e.key_high = ?2 AND e.key_low = ?3 AND e.kind = 0 LIMIT 1
    """)
}
