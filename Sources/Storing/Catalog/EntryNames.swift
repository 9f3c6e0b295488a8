import Base
import Manifest

/// Gives names within folders, in the open transaction.
struct EntryNames {
  let connection: SQLiteConnection
  let hasAliases: Bool

  /// Makes `name` free for `entry`, unless a listed entry has it or it is an alias of another listed entry. An unlisted
  /// entry that has the name loses it. Returns whether the name is free now.
  func take(_ name: String, in parent: Int64, for entry: Int64) throws(StoreError) -> Bool {
    if hasAliases, try isAlias(name, in: parent, ofAnotherThan: entry) { return false }
    let holder = try connection.statement(NameQueries.holder)
    defer { holder.reset() }
    holder.bind(1, parent)
    holder.bind(2, name)
    guard try holder.step(), holder.integer(0) != entry else { return true }
    if holder.integer(1) == 1 { return false }
    let loser = holder.integer(0)
    holder.reset()
    let statement = try connection.statement(NameQueries.lose)
    statement.bind(1, loser)
    try statement.run()
    return true
  }

  /// The first free one of the numbered forms of `wanted`. It starts after the last number given in that folder.
  func takeNumbered(_ wanted: String, in parent: Int64, for entry: Int64) throws(StoreError) -> String {
    var number = try nextNumber(of: wanted, in: parent)
    var shared = wanted
    while true {
      // Names that a number cuts to one share their numbers: else each would try all that the others have.
      let common = SafeName.common(wanted, Int(number))
      if common.utf8.count < shared.utf8.count {
        shared = common
        number = max(number, try nextNumber(of: shared, in: parent))
        continue
      }
      let name = SafeName.numbered(wanted, Int(number))
      number += 1
      guard try take(name, in: parent, for: entry) else { continue }
      let statement = try connection.statement(NameQueries.setNumber)
      statement.bind(1, parent)
      statement.bind(2, shared)
      statement.bind(3, number)
      try statement.run()
      return name
    }
  }

  private func nextNumber(of wanted: String, in parent: Int64) throws(StoreError) -> Int64 {
    let known = try connection.statement(NameQueries.number)
    defer { known.reset() }
    known.bind(1, parent)
    known.bind(2, wanted)
    let number = try known.step() ? known.integer(0) : 2
    // If a damaged catalog has an impossible number, starts from the beginning.
    return (2..<1 << 32).contains(number) ? number : 2
  }

  /// Names the entry; the name must already be free.
  func set(_ name: String, wanted: String?, for entry: Int64) throws(StoreError) {
    let statement = try connection.statement(NameQueries.set)
    statement.bind(1, entry)
    statement.bind(2, name)
    statement.bind(3, wanted)
    try statement.run()
  }

  /// Whether `name` is an alias of a listed entry other than `entry`.
  private func isAlias(_ name: String, in parent: Int64, ofAnotherThan entry: Int64) throws(StoreError) -> Bool {
    let statement = try connection.statement(NameQueries.listedAlias)
    defer { statement.reset() }
    statement.bind(1, parent)
    statement.bind(2, name)
    statement.bind(3, entry)
    return try statement.step()
  }

  /// Whether `name` is an alias of any entry, listed or not.
  func isAlias(_ name: String, in parent: Int64) throws(StoreError) -> Bool {
    let statement = try connection.statement(NameQueries.alias)
    defer { statement.reset() }
    statement.bind(1, parent)
    statement.bind(2, name)
    return try statement.step()
  }
}

private enum NameQueries {
  static let holder = SQL("SELECT id, listed FROM entry WHERE parent = ? AND name = ?")
  static let lose = SQL("UPDATE entry SET wanted = coalesce(wanted, name), name = NULL WHERE id = ?")
  static let set = SQL("UPDATE entry SET name = ?2, wanted = ?3 WHERE id = ?1")
  static let number = SQL("SELECT next FROM numbering WHERE parent = ? AND wanted = ?")
  static let setNumber = SQL("INSERT OR REPLACE INTO numbering(parent, wanted, next) VALUES(?, ?, ?)")
  static let alias = SQL("SELECT 1 FROM alias WHERE parent = ? AND name = ?")
  static let listedAlias = SQL(
    """
    SELECT 1 FROM alias a JOIN entry e ON e.id = a.entry
    WHERE a.parent = ? AND a.name = ? AND e.listed = 1 AND e.id <> ?
    """)

  // SQLite does not reorder a CROSS JOIN. Otherwise it would walk all entries, because they already have the order of
  // `gained`.
  static let pending = SQL(
    """
    SELECT e.id, e.parent, e.name, coalesce(e.wanted, e.name), g.extension
    FROM gained g CROSS JOIN entry e ON e.id = g.entry WHERE g.applied = 0 AND e.listed = 1 ORDER BY g.entry
    """)
  static let addAlias = SQL("INSERT OR REPLACE INTO alias(parent, name, entry) VALUES(?, ?, ?)")
  static let applied = SQL("UPDATE gained SET applied = 1 WHERE entry = ?")
}

extension CatalogTree {
  /// Adds the learned extensions to the names of their entries, and keeps the previous names as aliases. Call it before
  /// a mount, never under one: a listed name does not change under a mount. Returns how many names changed.
  package func applyPendingExtensions() throws(StoreError) -> Int {
    // Most mounts have no pending extension and need not write.
    let isAny = try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(NameQueries.pending)
      defer { statement.reset() }
      return try statement.step()
    }
    guard isAny else { return 0 }
    return try connections.write(durably: false) { (connection) throws(StoreError) in
      let names = EntryNames(connection: connection, hasAliases: true)
      let waiting = try Self.pendingExtensions(on: connection)
      for entry in waiting {
        let full = SafeName.appendingExtension(entry.name, entry.fileExtension)
        let isFree = try names.take(full, in: entry.parent, for: entry.id)
        // `talk (2)` becomes `talk (2).mp4`, or, if another entry has that name, the next number of `talk.mp4`.
        let plain = SafeName.appendingExtension(entry.wanted, entry.fileExtension)
        let name = isFree ? full : try names.takeNumbered(plain, in: entry.parent, for: entry.id)
        try names.set(name, wanted: entry.wanted, for: entry.id)
        let alias = try connection.statement(NameQueries.addAlias)
        alias.bind(1, entry.parent)
        alias.bind(2, entry.name)
        alias.bind(3, entry.id)
        try alias.run()
        let applied = try connection.statement(NameQueries.applied)
        applied.bind(1, entry.id)
        try applied.run()
      }
      return waiting.count
    }
  }

  private struct PendingExtension {
    var id: Int64
    var parent: Int64
    var name: String
    var wanted: String
    var fileExtension: String
  }

  private static func pendingExtensions(on connection: SQLiteConnection) throws(StoreError) -> [PendingExtension] {
    let statement = try connection.statement(NameQueries.pending)
    defer { statement.reset() }
    var found: [PendingExtension] = []
    while try statement.step() {
      found.append(
        PendingExtension(
          id: statement.integer(0), parent: statement.integer(1), name: statement.text(2),
          wanted: statement.text(3), fileExtension: statement.text(4)))
    }
    return found
  }
}
