import Base

/// What a user set over an option of the mount.
package struct StoredSetting: Sendable, Equatable {
  /// Empty: the mount; else a host, as in ``HostNote/name``.
  package var scope: String
  /// The option's name.
  package var name: String
  /// Its value, as the option takes it.
  package var value: String

  /// A setting with these values.
  package init(scope: String, name: String, value: String) {
    self.scope = scope
    self.name = name
    self.value = value
  }
}

private enum Queries {
  static let settings = SQL("SELECT scope, name, value FROM setting ORDER BY scope, name")
  static let set = SQL("INSERT OR REPLACE INTO setting(scope, name, value) VALUES(?, ?, ?)")
  static let unset = SQL("DELETE FROM setting WHERE scope = ? AND name = ?")
}

/// The settings, which a catalog of a format before 3 does not have.
extension CatalogNotes {
  /// All settings, also those that this program does not know.
  package func settings() throws(StoreError) -> [StoredSetting] {
    try connections.read { (connection) throws(StoreError) in
      guard try connection.integer("PRAGMA user_version") ?? 0 >= 3 else { return [] }
      let statement = try connection.statement(Queries.settings)
      defer { statement.reset() }
      var settings: [StoredSetting] = []
      while try statement.step() {
        settings.append(
          StoredSetting(scope: statement.text(0), name: statement.text(1), value: statement.text(2)))
      }
      return settings
    }
  }

  static func set(
    _ value: String?, _ name: String, scope: String, on connection: SQLiteConnection
  ) throws(StoreError) {
    let statement = try connection.statement(value == nil ? Queries.unset : Queries.set)
    statement.bind(1, scope)
    statement.bind(2, name)
    if let value { statement.bind(3, value) }
    try statement.run()
  }
}
