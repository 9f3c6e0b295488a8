import Base
import Manifest

/// A complete copy that is not known to have been there before this store.
package struct CountedCopy: Sendable, Equatable {
  /// The generation's id.
  package var id: Int64
  /// Its resource.
  package var key: ResourceKey
  /// The copy, as it was when it was placed.
  package var copy: LibraryCopy
  /// The time of the last read, in seconds since 1970; 0: never.
  package var usedAt: Int64
}

private enum Queries {
  static let uses = SQL("SELECT uses FROM block_use WHERE generation = ?")
  static let use = SQL(
    """
    INSERT OR REPLACE INTO block_use(generation, uses)
    SELECT ?1, ?2 WHERE EXISTS(SELECT 1 FROM generation WHERE id = ?1)
    """)
  static let place = SQL("INSERT INTO placement(generation, adopted) VALUES(?, ?)")
  static let isIntent = SQL("SELECT 1 FROM generation WHERE id = ? AND placing = ?")
  static let forgetPlacements = SQL("DELETE FROM placement WHERE adopted = 0")
  static let forgetUses = SQL("DELETE FROM block_use WHERE generation = ?")
  static let forgetPlacement = SQL("DELETE FROM placement WHERE generation = ?")
  // The disk gives a file its space in blocks of 4 KiB.
  static let copyBytes = SQL(
    """
    SELECT total((g.copy_size + 4095) / 4096 * 4096) FROM generation g LEFT JOIN placement p ON p.generation = g.id
    WHERE g.state = 1 AND g.copy_size >= 0 AND coalesce(p.adopted, 0) = 0 AND g.id BETWEEN ? AND ?
    """)
  static let copies = SQL(
    """
    SELECT g.id, g.key_high, g.key_low, g.used_at, g.copy_path, g.copy_size, g.copy_modified,
      g.copy_changed, g.copy_device, g.copy_inode
    FROM generation g LEFT JOIN placement p ON p.generation = g.id
    WHERE g.state = 1 AND g.copy_path IS NOT NULL AND g.copy_size >= 0 AND coalesce(p.adopted, 0) = 0
      AND (g.used_at, g.id) > (?1, ?2) AND (NOT ?3 OR p.adopted = 0 AND EXISTS(
        SELECT 1 FROM entry e WHERE e.key_high = g.key_high AND e.key_low = g.key_low AND e.kind = 0 AND e.listed))
    ORDER BY g.used_at, g.id LIMIT ?4
    """)
}

/// When what is stored was used, and which copies this store placed: what evictions need to know.
extension CatalogGenerations {
  /// The bytes of the complete copies that are not known to have been there before this store; or of one generation's.
  package func copyBytes(of id: Int64? = nil) throws(StoreError) -> Int64 {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.copyBytes)
      defer { statement.reset() }
      statement.bind(1, id ?? 0)
      statement.bind(2, id ?? .max)
      return try statement.step() ? statement.integer(0) : 0
    }
  }

  /// Up to `limit` of those copies, the least recently used first: those after `last`. `mayGo`: only those that this
  /// store placed and that the list names.
  package func copies(limit: Int, after last: CountedCopy?, mayGo: Bool) throws(StoreError) -> [CountedCopy] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.copies)
      defer { statement.reset() }
      statement.bind(1, last?.usedAt ?? -1)
      statement.bind(2, last?.id ?? 0)
      statement.bind(3, mayGo ? 1 : 0)
      statement.bind(4, limit)
      var found: [CountedCopy] = []
      while try statement.step() {
        let copy = LibraryCopy(
          path: statement.text(4), size: statement.integer(5), modified: statement.integer(6),
          changed: statement.integer(7), device: UInt64(bitPattern: statement.integer(8)),
          inode: UInt64(bitPattern: statement.integer(9)))
        found.append(
          CountedCopy(
            id: statement.integer(0),
            key: ResourceKeyColumns(high: statement.integer(1), low: statement.integer(2)).key,
            copy: copy, usedAt: statement.integer(3)))
      }
      return found
    }
  }

  /// When the blocks of a generation were used; nil if nobody noted it.
  package func uses(of id: Int64) throws(StoreError) -> BlockUses? {
    try connections.read { (connection) throws(StoreError) in try Self.uses(of: id, on: connection) }
  }

  static func uses(of id: Int64, on connection: SQLiteConnection) throws(StoreError) -> BlockUses? {
    let statement = try connection.statement(Queries.uses)
    defer { statement.reset() }
    statement.bind(1, id)
    return try statement.step() ? statement.withBlob(0) { BlockUses(encoded: $0) } : nil
  }
}

extension SQLiteConnection {
  /// Notes when blocks of a generation were used: of each block the later time counts.
  func note(_ uses: BlockUses, of id: Int64) throws(StoreError) {
    var all = uses
    if let before = try CatalogGenerations.uses(of: id, on: self) { all.merge(before) }
    let statement = try statement(Queries.use)
    statement.bind(1, id)
    statement.bind(2, blob: all.encoded)
    try statement.run()
  }

  /// Notes how the copy of a generation got to `path` in the library.
  func notePlacement(of id: Int64, at path: String, adopted: Bool?) throws(StoreError) {
    try run(Queries.forgetPlacement, id)
    // An identical file where this one was about to be placed: by a server that was killed then, or by somebody else.
    if adopted == true {
      let intent = try statement(Queries.isIntent)
      defer { intent.reset() }
      intent.bind(1, id)
      intent.bind(2, path)
      if try intent.step() { return }
    }
    guard let adopted else { return }
    let statement = try statement(Queries.place)
    statement.bind(1, id)
    statement.bind(2, adopted ? 1 : 0)
    try statement.run()
  }

  /// Of no copy it is known any more that this store placed it.
  func forgetPlacements() throws(StoreError) { try statement(Queries.forgetPlacements).run() }

  /// Nothing of a generation is stored any more.
  func forgetUse(of id: Int64) throws(StoreError) {
    try run(Queries.forgetUses, id)
    try run(Queries.forgetPlacement, id)
  }

  private func run(_ query: SQL, _ id: Int64) throws(StoreError) {
    let statement = try statement(query)
    statement.bind(1, id)
    try statement.run()
  }
}
