import Base

// Numbers of the whole store: rows of `meta`.

private enum Queries {
  static let meta = SQL("SELECT value FROM meta WHERE name = ?")
  static let remember = SQL("INSERT OR REPLACE INTO meta(name, value) VALUES (?, ?)")
  static let takeIDs = SQL("UPDATE meta SET value = value + ? WHERE name = 'next_id' RETURNING value")
}

extension SQLiteConnection {
  func meta(_ name: String) throws(StoreError) -> Int64? {
    let statement = try statement(Queries.meta)
    defer { statement.reset() }
    statement.bind(1, name)
    return try statement.step() ? statement.integer(0) : nil
  }

  /// How many names are listed.
  func counts() throws(StoreError) -> CatalogCounts {
    CatalogCounts(names: try count("names"), files: try count("files"))
  }

  private func count(_ name: String) throws(StoreError) -> Int64 {
    let statement = try statement(Queries.meta)
    defer { statement.reset() }
    statement.bind(1, name)
    return try statement.step() ? statement.bounded(0) : 0
  }

  func metaBlob(_ name: String) throws(StoreError) -> [UInt8]? {
    let statement = try statement(Queries.meta)
    defer { statement.reset() }
    statement.bind(1, name)
    return try statement.step() ? statement.blob(0) : nil
  }

  func setMeta(_ name: String, blob: [UInt8]) throws(StoreError) {
    let statement = try statement(Queries.remember)
    defer { statement.reset() }
    statement.bind(1, name)
    statement.bind(2, blob: blob)
    _ = try statement.step()
  }

  func setMeta(_ name: String, _ value: Int64) throws(StoreError) {
    let statement = try statement(Queries.remember)
    defer { statement.reset() }
    statement.bind(1, name)
    statement.bind(2, value)
    _ = try statement.step()
  }

  /// Takes `count` numbers from the sequence, within the open transaction, and returns the first.
  func reserveIDs(_ count: Int64) throws(StoreError) -> Int64 {
    let statement = try statement(Queries.takeIDs)
    defer { statement.reset() }
    statement.bind(1, count)
    guard try statement.step() else { throw .damaged(path, "meta.next_id is missing") }
    let next = statement.integer(0)
    guard next > count + 1, next < 1 << 62 else { throw .damaged(path, "meta.next_id is out of range") }
    // Steps to the end; otherwise SQLite does not write the row.
    while try statement.step() {}
    return next - count
  }
}
