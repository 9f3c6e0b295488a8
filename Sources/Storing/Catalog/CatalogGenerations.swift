import Base
import Manifest

/// A partial file that has bytes, which the keeper may evict.
package struct StoredPartial: Sendable, Equatable {
  /// The generation's id, which names the file.
  package var id: Int64
  /// Its resource.
  package var key: ResourceKey
  /// Its size in bytes; nil if the origin does not send it.
  package var size: Int64?
  /// The bytes that are stored.
  package var stored: ByteRangeSet
  /// The part of them that is synced.
  package var synced: ByteRangeSet
  /// The time of the last read, in seconds since 1970; 0: never.
  package var usedAt: Int64
  /// When its blocks were used; nil if nobody noted it: all of it was used at `usedAt`.
  package var uses: BlockUses?
  /// Whether its background download continues.
  package var continues = false
  /// Whether the list has its resource.
  package var isListed = true
}

/// How many files are stored, and with how many bytes.
package struct StoredSums: Sendable, Equatable {
  /// A sum over some files.
  package struct Sum: Sendable, Equatable {
    package var files: Int64 = 0
    package var bytes: Int64 = 0
  }
  /// Files of which some bytes are stored.
  package var partial = Sum()
  /// Complete copies.
  package var complete = Sum()
}

private let fields = """
  SELECT g.id, g.key_high, g.key_low, g.state, g.continues, g.size, g.last_modified, g.etag, g.etag_weak, g.media_type,
    g.synced, g.recent, g.recent_boot, g.copy_path, g.copy_size, g.copy_modified, g.copy_changed, g.copy_device,
    g.copy_inode, g.used_at, g.placing
  """
private let columns = "\(fields) FROM generation g"
private let isListed = """
  EXISTS(
    SELECT 1 FROM entry e WHERE e.key_high = g.key_high AND e.key_low = g.key_low AND e.kind = 0 AND e.listed = 1)
  """

private enum Queries {
  static let current = SQL("\(columns) WHERE g.key_high = ? AND g.key_low = ? AND g.state <> 2")
  static let byID = SQL("\(columns) WHERE g.id = ?")
  static let continuing = SQL(
    """
    \(columns) WHERE g.continues = 1 AND g.state = 0 AND g.id > ? AND \(isListed) ORDER BY g.id LIMIT ?
    """)
  static let strong = SQL(
    """
    \(columns) WHERE (g.state = 1 OR (g.state = 0 AND (g.synced_bytes > 0 OR g.recent_bytes > 0)))
      AND g.etag IS NOT NULL AND g.etag_weak = 0 AND g.id > ? AND \(isListed) ORDER BY g.id LIMIT ?
    """)
  static let superseded = SQL("\(columns) WHERE g.state = 2 AND g.id > ? ORDER BY g.id LIMIT ?")
  static let placing = SQL("\(columns) WHERE g.placing IS NOT NULL ORDER BY g.id")
  static let stored = SQL(
    """
    \(fields), \(isListed) FROM generation g
    WHERE g.state = 0 AND (g.synced_bytes > 0 OR g.recent_bytes > 0) ORDER BY g.used_at, g.id
    """)
  static let unlisted = SQL(
    """
    \(columns) WHERE g.state = 0 AND (g.synced_bytes > 0 OR g.recent_bytes > 0) AND g.id > ? AND NOT \(isListed)
    ORDER BY g.id LIMIT ?
    """)
  static let knownAfter = SQL(
    """
    SELECT key_high, key_low FROM generation
    WHERE state <> 2 AND (key_high, key_low) > (?, ?) ORDER BY key_high, key_low LIMIT ?
    """)
  static let ids = SQL("SELECT id FROM generation WHERE id > ? ORDER BY id LIMIT ?")
  static let latestCopies = SQL("\(columns) WHERE g.state = 1 ORDER BY g.used_at DESC, g.id DESC LIMIT ?")
  static let copyCount = SQL("SELECT count(*) FROM generation WHERE state = 1")
  static let copySums = SQL("SELECT count(*), total(copy_size) FROM generation WHERE state = 1")
  static let partialSums = SQL(
    """
    SELECT count(*), total(bytes) FROM (
      SELECT iif(recent IS NOT NULL AND recent_boot = ?, recent_bytes, synced_bytes) AS bytes FROM generation
      WHERE state = 0 AND (synced_bytes > 0 OR recent_bytes > 0))
    WHERE bytes > 0
    """)
  static let oldInode = SQL("SELECT entry, generation FROM old_inode WHERE inode = ?")
}

/// What is known of the generations of resources.
package struct CatalogGenerations: Sendable {
  let connections: CatalogConnections
  let bootID: [UInt8]

  /// The current generation of a resource; nil if nothing is known of it.
  package func current(of key: ResourceKey) throws(StoreError) -> GenerationRecord? {
    try connections.read { (connection) throws(StoreError) in try current(of: ResourceKeyColumns(key), on: connection) }
  }

  func current(
    of key: ResourceKeyColumns, on connection: SQLiteConnection
  ) throws(StoreError) -> GenerationRecord? {
    let statement = try connection.statement(Queries.current)
    defer { statement.reset() }
    statement.bind(1, key)
    return try statement.step() ? try record(of: statement, on: connection) : nil
  }

  /// The generation with that id, current or superseded.
  package func find(_ id: Int64) throws(StoreError) -> GenerationRecord? {
    try connections.read { (connection) throws(StoreError) in try find(id, on: connection) }
  }

  private func find(_ id: Int64, on connection: SQLiteConnection) throws(StoreError) -> GenerationRecord? {
    let statement = try connection.statement(Queries.byID)
    defer { statement.reset() }
    statement.bind(1, id)
    return try statement.step() ? try record(of: statement, on: connection) : nil
  }

  /// What an inode showed before its resource changed: the node (with that inode, and the old size and time) and the
  /// old generation. Nil for a current inode, an unknown one, and one whose generation is forgotten.
  package func superseded(inode: Inode) throws(StoreError) -> (Node, GenerationRecord)? {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.oldInode)
      defer { statement.reset() }
      statement.bind(1, Int64(bitPattern: inode))
      guard try statement.step() else { return nil }
      guard var node = try CatalogTree.node(entry: statement.integer(0), on: connection),
        let generation = try find(statement.integer(1), on: connection)
      else { return nil }
      node.inode = inode
      node.size = generation.size
      node.modified = generation.validators.lastModified
      return (node, generation)
    }
  }

  /// Up to `limit` generations with an id greater than `after`, by id, that are listed and partial and whose background
  /// download continues.
  package func continuing(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord] {
    try generations(Queries.continuing, after, Int64(limit))
  }

  /// Up to `limit` generations with an id greater than `after`, by id, of which something is stored in part, and that
  /// no line of the list names any more.
  package func unlisted(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord] {
    try generations(Queries.unlisted, after, Int64(limit))
  }

  /// Up to `limit` generations with an id greater than `after`, by id, that are listed, have a strong ETag, and of
  /// which something is stored.
  package func strong(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord] {
    try generations(Queries.strong, after, Int64(limit))
  }

  /// Up to `limit` superseded generations with an id greater than `after`, by id. At the start of a mount no handle on
  /// them is open.
  package func superseded(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord] {
    try generations(Queries.superseded, after, Int64(limit))
  }

  /// Up to `limit` ids of generations greater than `after`, in order, whatever their state.
  package func ids(limit: Int, after: Int64) throws(StoreError) -> [Int64] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.ids)
      defer { statement.reset() }
      statement.bind(1, after)
      statement.bind(2, limit)
      var ids: [Int64] = []
      while try statement.step() { ids.append(statement.integer(0)) }
      return ids
    }
  }

  /// Up to `limit` copies in the library, the most recently used ones. Scans all generations.
  func latestCopies(limit: Int) throws(StoreError) -> [LibraryCopy] {
    try generations(Queries.latestCopies, Int64(limit)).compactMap(\.copy)
  }

  /// The number of copies in the library. Scans all generations.
  func copyCount() throws(StoreError) -> Int64 {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.copyCount)
      defer { statement.reset() }
      return try statement.step() ? statement.integer(0) : 0
    }
  }

  private func generations(_ query: SQL, _ values: Int64...) throws(StoreError) -> [GenerationRecord] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(query)
      defer { statement.reset() }
      for (index, value) in values.enumerated() { statement.bind(Int32(index + 1), value) }
      var records: [GenerationRecord] = []
      while try statement.step() { records.append(try record(of: statement, on: connection)) }
      return records
    }
  }

  /// The generations that a crash interrupted while mediafs placed them, each with its path relative to the library's
  /// folder.
  package func placements() throws(StoreError) -> [(generation: GenerationRecord, path: String)] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.placing)
      defer { statement.reset() }
      var found: [(generation: GenerationRecord, path: String)] = []
      while try statement.step() { found.append((try record(of: statement, on: connection), statement.text(20))) }
      return found
    }
  }

  /// The current partial generations of which something is stored, least recently used first.
  package func partialsByUse() throws(StoreError) -> [StoredPartial] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.stored)
      defer { statement.reset() }
      var found: [StoredPartial] = []
      while try statement.step() {
        let known = try record(of: statement, on: connection)
        // Skips it if all its extents were recent in an earlier boot.
        if known.stored.isEmpty { continue }
        found.append(
          StoredPartial(
            id: known.id, key: known.key, size: known.size, stored: known.stored, synced: known.synced,
            usedAt: statement.integer(19), uses: try Self.uses(of: known.id, on: connection),
            continues: known.continues,
            isListed: statement.integer(21) != 0))
      }
      return found
    }
  }

  /// How much is stored, as last committed.
  package func sums() throws(StoreError) -> StoredSums {
    try connections.read { (connection) throws(StoreError) in
      let (partials, copies) = (
        try connection.statement(Queries.partialSums), try connection.statement(Queries.copySums)
      )
      defer { for statement in [partials, copies] { statement.reset() } }
      partials.bind(1, blob: bootID)
      return StoredSums(partial: try Self.sum(partials), complete: try Self.sum(copies))
    }
  }

  private static func sum(_ statement: SQLiteStatement) throws(StoreError) -> StoredSums.Sum {
    try statement.step() ? .init(files: statement.integer(0), bytes: statement.integer(1)) : .init()
  }

  /// The keys greater than `key` that have a current generation, in order.
  static func knownKeys(
    after key: ResourceKeyColumns, limit: Int, on connection: SQLiteConnection
  ) throws(StoreError) -> [ResourceKeyColumns] {
    try connection.keys(Queries.knownAfter, after: key, limit: limit)
  }

  /// The record in the current row of a statement with `columns`.
  private func record(of row: SQLiteStatement, on connection: SQLiteConnection) throws(StoreError) -> GenerationRecord {
    let id = row.integer(0)
    let isRecentBelieved = !row.isNull(11) && row.withBlob(12) { $0.elementsEqual(bootID) }
    let synced = row.withBlob(10) { ByteRangeSet(encoded: $0) }
    let stored = isRecentBelieved ? row.withBlob(11) { ByteRangeSet(encoded: $0) } : synced
    let size = row.optionalInteger(5)
    // Numbers that contradict each other are damage: the reading room calculates with them.
    guard let stored, let synced, let state = GenerationRecord.State(rawValue: Int(row.integer(3))), size ?? 0 >= 0,
      stored.end <= size ?? .max, synced.end <= size ?? .max, row.isNull(13) || row.integer(14) == size
    else { throw .damaged(connection.path, "generation \(id) cannot be read") }
    var record = GenerationRecord(
      id: id, key: ResourceKeyColumns(high: row.integer(1), low: row.integer(2)).key,
      validators: Validators(
        etag: row.optionalText(7), etagIsWeak: row.integer(8) != 0, lastModified: row.optionalInteger(6)),
      size: size, mediaType: row.optionalText(9))
    record.state = state
    record.stored = stored
    record.synced = synced
    record.continues = row.integer(4) != 0
    record.isUsed = row.integer(19) != 0
    if let path = row.optionalText(13) {
      record.copy = LibraryCopy(
        path: path, size: row.integer(14), modified: row.integer(15), changed: row.integer(16),
        device: UInt64(bitPattern: row.integer(17)), inode: UInt64(bitPattern: row.integer(18)))
    }
    try CatalogNotes.recall(&record, on: connection)
    return record
  }
}
