import Base
import Manifest

/// A complete copy that this store placed itself.
package struct PlacedCopy: Sendable, Equatable {
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
  static let place = SQL("INSERT OR REPLACE INTO placement(generation, adopted) VALUES(?, ?)")
  static let forgetUses = SQL("DELETE FROM block_use WHERE generation = ?")
  static let forgetPlacement = SQL("DELETE FROM placement WHERE generation = ?")
  // The disk gives a file its space in blocks of 4 KiB.
  static let copyBytes = SQL(
    """
    SELECT total((g.copy_size + 4095) / 4096 * 4096) FROM generation g LEFT JOIN placement p ON p.generation = g.id
    WHERE g.state = 1 AND g.copy_size >= 0 AND coalesce(p.adopted, 0) = 0
    """)
  static let placed = SQL(
    """
    SELECT g.id, g.key_high, g.key_low, g.used_at, g.copy_path, g.copy_size, g.copy_modified, g.copy_changed,
      g.copy_device, g.copy_inode
    FROM generation g JOIN placement p ON p.generation = g.id
    WHERE g.state = 1 AND p.adopted = 0 AND g.copy_path IS NOT NULL AND g.copy_size >= 0 AND EXISTS(
      SELECT 1 FROM entry e WHERE e.key_high = g.key_high AND e.key_low = g.key_low AND e.kind = 0 AND e.listed)
    ORDER BY g.used_at, g.id LIMIT ?
    """)
}

/// When what is stored was used, and which copies this store placed: what evictions need to know.
extension CatalogGenerations {
  /// The bytes of the complete copies that are not known to have been there before this store.
  package func copyBytes() throws(StoreError) -> Int64 {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.copyBytes)
      defer { statement.reset() }
      return try statement.step() ? statement.integer(0) : 0
    }
  }

  /// Up to `limit` copies that this store placed itself, the least recently used first.
  package func placedCopies(limit: Int) throws(StoreError) -> [PlacedCopy] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.placed)
      defer { statement.reset() }
      statement.bind(1, limit)
      var found: [PlacedCopy] = []
      while try statement.step() {
        let copy = LibraryCopy(
          path: statement.text(4), size: statement.integer(5), modified: statement.integer(6),
          changed: statement.integer(7), device: UInt64(bitPattern: statement.integer(8)),
          inode: UInt64(bitPattern: statement.integer(9)))
        found.append(
          PlacedCopy(
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

  /// Notes how the copy of a generation got into the library.
  func notePlacement(of id: Int64, adopted: Bool) throws(StoreError) {
    let statement = try statement(Queries.place)
    statement.bind(1, id)
    statement.bind(2, adopted ? 1 : 0)
    try statement.run()
  }

  /// Nothing of a generation is stored any more.
  func forgetUse(of id: Int64) throws(StoreError) {
    for query in [Queries.forgetUses, Queries.forgetPlacement] {
      let statement = try statement(query)
      statement.bind(1, id)
      try statement.run()
    }
  }
}
