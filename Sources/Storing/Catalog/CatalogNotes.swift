import Base
import Manifest

/// A failure of a resource that was noted.
package struct NotedProblem: Sendable, Equatable {
  /// The message for the user, without secrets.
  package var message: String
  /// The time, in seconds since 1970.
  package var at: Int64
}

/// What is noted of a generation beside its row, in a row of `meta` that a program ignores which does not know it.
enum GenerationNote: String {
  /// ``GenerationRecord/mirror``.
  case mirror
  /// ``GenerationRecord/isMixed``.
  case mixed
}

private enum Queries {
  static let note = SQL("INSERT OR REPLACE INTO meta(name, value) VALUES(? || ':' || ?, ?)")
  static let forgetNote = SQL("DELETE FROM meta WHERE name = ? || ':' || ?")
  static let noted = SQL("SELECT value FROM meta WHERE name = ? || ':' || ?")
  static let pin = SQL("INSERT OR REPLACE INTO meta(name, value) VALUES(?, 1)")
  static let unpin = SQL("DELETE FROM meta WHERE name = ?")
  static let pinned = SQL("SELECT 1 FROM meta WHERE name = ?")
  // `;` is the character after `:`.
  static let pins = SQL("SELECT name FROM meta WHERE name > ? AND name < 'pin;' ORDER BY name LIMIT ?")
  static let problem = SQL("SELECT message, at FROM problem WHERE key_high = ? AND key_low = ?")
  static let problemsAfter = SQL(
    """
    SELECT key_high, key_low FROM problem WHERE (key_high, key_low) > (?, ?) ORDER BY key_high, key_low LIMIT ?
    """)
}

/// Notes on resources, whether the catalog knows a generation of them or not: what failed, and whether a user asked for
/// them by name (pins). Pins are rows of `meta`, so a program that does not know pins ignores them.
package struct CatalogNotes: Sendable {
  let connections: CatalogConnections

  /// The last failure of a resource; nil if none is noted.
  package func problem(of key: ResourceKey) throws(StoreError) -> NotedProblem? {
    try connections.read { (connection) throws(StoreError) in
      try Self.problem(of: ResourceKeyColumns(key), on: connection)
    }
  }

  static func problem(
    of key: ResourceKeyColumns, on connection: SQLiteConnection
  ) throws(StoreError) -> NotedProblem? {
    let statement = try connection.statement(Queries.problem)
    defer { statement.reset() }
    statement.bind(1, key)
    return try statement.step() ? NotedProblem(message: statement.text(0), at: statement.bounded(1)) : nil
  }

  static func problemKeys(
    after key: ResourceKeyColumns, limit: Int, on connection: SQLiteConnection
  ) throws(StoreError) -> [ResourceKeyColumns] {
    try connection.keys(Queries.problemsAfter, after: key, limit: limit)
  }

  // MARK: - Pins

  private static let prefix = "pin:"

  /// Whether a user asked for the resource by name and it is not complete yet.
  package func isPinned(_ key: ResourceKey) throws(StoreError) -> Bool {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.pinned)
      defer { statement.reset() }
      statement.bind(1, Self.name(key))
      return try statement.step()
    }
  }

  /// Up to `limit` pinned resources after `key` (nil: from the first), in order, whether listed or not.
  package func pins(limit: Int, after key: ResourceKey?) throws(StoreError) -> [ResourceKey] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.pins)
      defer { statement.reset() }
      statement.bind(1, key.map(Self.name) ?? Self.prefix)
      statement.bind(2, limit)
      var keys: [ResourceKey] = []
      while try statement.step() {
        if let key = Self.key(statement.text(0)) { keys.append(key) }
      }
      return keys
    }
  }

  static func pin(_ key: ResourceKey, _ isPinned: Bool, on connection: SQLiteConnection) throws(StoreError) {
    let statement = try connection.statement(isPinned ? Queries.pin : Queries.unpin)
    statement.bind(1, name(key))
    try statement.run()
  }

  private static func name(_ key: ResourceKey) -> String { prefix + digits(key) }

  static func digits(_ key: ResourceKey) -> String { digits(key.high) + digits(key.low) }

  private static func digits(_ half: UInt64) -> String {
    let text = String(half, radix: 16)
    return String(repeating: "0", count: 16 - text.utf8.count) + text
  }

  /// Nil for a name that is not a pin's: the catalog may be damaged.
  private static func key(_ name: String) -> ResourceKey? {
    key(digits: name.dropFirst(prefix.utf8.count))
  }

  private static func key(digits text: Substring) -> ResourceKey? {
    guard text.utf8.count == 32, let high = UInt64(text.prefix(16), radix: 16),
      let low = UInt64(text.suffix(16), radix: 16)
    else { return nil }
    return ResourceKey(high: high, low: low)
  }

  // MARK: - Generations

  static func note(
    _ note: GenerationNote, _ value: String, of id: Int64, on connection: SQLiteConnection
  ) throws(StoreError) {
    let statement = try connection.statement(Queries.note)
    statement.bind(1, note.rawValue)
    statement.bind(2, id)
    statement.bind(3, value)
    try statement.run()
  }

  static func forget(_ note: GenerationNote, of id: Int64, on connection: SQLiteConnection) throws(StoreError) {
    let statement = try connection.statement(Queries.forgetNote)
    statement.bind(1, note.rawValue)
    statement.bind(2, id)
    try statement.run()
  }

  /// Completes a record with what is noted of it.
  static func recall(_ record: inout GenerationRecord, on connection: SQLiteConnection) throws(StoreError) {
    record.mirror = try noted(.mirror, of: record.id, on: connection).flatMap { key(digits: $0[...]) }
    record.isMixed = try noted(.mixed, of: record.id, on: connection) != nil
  }

  private static func noted(
    _ note: GenerationNote, of id: Int64, on connection: SQLiteConnection
  ) throws(StoreError) -> String? {
    let statement = try connection.statement(Queries.noted)
    defer { statement.reset() }
    statement.bind(1, note.rawValue)
    statement.bind(2, id)
    return try statement.step() ? statement.text(0) : nil
  }
}
