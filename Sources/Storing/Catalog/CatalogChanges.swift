import Base
import Glibc
import Manifest

/// One change that the server makes to the catalog. A change of an unknown generation does nothing: the catalog has
/// forgotten that generation.
package enum CatalogChange: Sendable {
  /// The first generation of a resource (nothing of it is stored yet), or the size, type and validators of a known id.
  /// If the resource has an earlier generation as its current one, this is an error: see
  /// ``CatalogChanges/supersede(_:by:)``. If it has a later one, this does nothing.
  case learned(GenerationRecord)
  /// Which of its bytes are written (`stored`), and which of those are synced and so survive a power loss. If the
  /// catalog knows all of its bytes as synced, this does nothing: it is older than the finisher's commit.
  case extents(generation: Int64, stored: ByteRangeSet, synced: ByteRangeSet)
  /// The disk lost some of its bytes: the extents that are left.
  case lost(generation: Int64, stored: ByteRangeSet, synced: ByteRangeSet)
  /// Whether its background download continues, also at the next mount.
  case continues(generation: Int64, Bool)
  /// Which URL's answers describe it, for a resource that has several.
  case came(generation: Int64, from: ResourceKey)
  /// Bytes of another URL than that are about to be stored as its own. Apply this before they are stored.
  case mixed(generation: Int64)
  /// Whether a user asked for the resource by name. If so, the server completes it whatever the policy, also at the
  /// next mount.
  case pinned(ResourceKey, Bool)
  /// A change of the user's rules.
  case rule(RuleChange)
  /// What a user set over an option of the mount (scope empty) or for a host; nil: nothing any more.
  case setting(scope: String, name: String, value: String?)
  /// When a reader last read it, in seconds since 1970.
  case used(generation: Int64, at: Int64)
  /// When blocks of it were last used. Of each block the later time counts, also of those noted before.
  case usedBlocks(generation: Int64, BlockUses)
  /// The last failure of a resource, for the user and without secrets; nil once bytes arrive again.
  case problem(ResourceKey, String?)
  /// What was learned of a host. Beyond 1,024 hosts, the one that was learned of longest ago is forgotten.
  case host(HostNote)
  /// What programs read of a kind of container at first. Beyond 64 kinds, the oldest is forgotten.
  case kind(KindNote)
  /// The extension (without its dot) that the names of a resource's entries lack.
  /// ``CatalogTree/applyPendingExtensions()`` adds it to the names. Entries whose manifest line gives the name do not
  /// gain it.
  case gainedExtension(ResourceKey, String)
  /// The finisher is about to rename it to that path, relative to the library's folder. Apply this durably before the
  /// rename.
  case placing(generation: Int64, path: String)
  /// The complete file is in the library. `adopted`: mediafs did not place it, an identical file was there already.
  /// nil: nobody knows.
  case placed(generation: Int64, LibraryCopy, adopted: Bool?)
  /// Nothing of it is stored any more; its size and validators stay known. Apply this durably before removing the
  /// bytes.
  case dropped(generation: Int64)
  /// Deletes its row and old inodes: of a superseded generation once its last handle is closed. (Of a current one: then
  /// nothing is known of the resource.)
  case forgotten(generation: Int64)
}

/// An entry that got another inode, usually because its resource changed. The kernel must forget the old inode.
package struct Renumbered: Sendable, Equatable {
  /// The folder that contains it.
  package var parent: Inode
  /// Its name there.
  package var name: String
  /// The former inode; ``CatalogGenerations/superseded(inode:)`` finds it until its generation is forgotten.
  package var old: Inode
  /// The new inode.
  package var new: Inode
}

private enum Queries {
  static let insert = SQL(
    """
    INSERT INTO generation(id, key_high, key_low, state, size, last_modified, etag, etag_weak, media_type, continues)
    VALUES(?, ?, ?, 0, ?, ?, ?, ?, ?, ?)
    ON CONFLICT(id) DO UPDATE SET size = excluded.size, last_modified = excluded.last_modified, etag = excluded.etag,
      etag_weak = excluded.etag_weak, media_type = excluded.media_type
    """)
  static let extents = SQL(
    """
    UPDATE generation SET synced = ?2, synced_bytes = ?3, recent = ?4, recent_bytes = ?5, recent_boot = ?6
    WHERE id = ?1 AND (?7 OR synced_bytes IS NOT size)
    """)
  static let continues = SQL("UPDATE generation SET continues = ?2 WHERE id = ?1")
  static let used = SQL("UPDATE generation SET used_at = ?2 WHERE id = ?1")
  static let problem = SQL("INSERT OR REPLACE INTO problem(key_high, key_low, message, at) VALUES(?, ?, ?, ?)")
  static let noProblem = SQL("DELETE FROM problem WHERE key_high = ? AND key_low = ?")
  static let gaining = SQL("SELECT id, source FROM entry WHERE key_high = ? AND key_low = ? AND kind = 0")
  static let gain = SQL("INSERT OR IGNORE INTO gained(entry, extension, applied) VALUES(?, ?, 0)")
  static let placing = SQL("UPDATE generation SET placing = ?2 WHERE id = ?1")
  static let placed = SQL(
    """
    UPDATE generation SET state = iif(state = 2, 2, 1), continues = 0, placing = NULL, size = ?3, synced = ?8,
      synced_bytes = ?3, recent = NULL, recent_bytes = 0, recent_boot = NULL, copy_path = ?2, copy_size = ?3,
      copy_modified = ?4, copy_changed = ?5, copy_device = ?6, copy_inode = ?7,
      used_at = max(coalesce(used_at, 0), CAST(strftime('%s', 'now') AS INTEGER))
    WHERE id = ?1
    """)
  static let dropped = SQL(
    """
    UPDATE generation SET state = iif(state = 2, 2, 0), continues = 0, placing = NULL, synced = x'', synced_bytes = 0,
      recent = NULL, recent_bytes = 0, recent_boot = NULL, copy_path = NULL, copy_size = NULL, copy_modified = NULL,
      copy_changed = NULL, copy_device = NULL, copy_inode = NULL
    WHERE id = ?1
    """)
  static let forgotten = SQL("DELETE FROM generation WHERE id = ?")
  static let forgottenInodes = SQL("DELETE FROM old_inode WHERE generation = ?")
  static let countSync = SQL("UPDATE meta SET value = value + 1 WHERE name = 'syncs'")

  static let currentID = SQL("SELECT id FROM generation WHERE key_high = ? AND key_low = ? AND state <> 2")
  static let supersede = SQL("UPDATE generation SET state = 2, continues = 0, placing = NULL WHERE id = ?")
  static let entries = SQL(
    """
    SELECT id, coalesce(inode, id), parent, name, listed FROM entry
    WHERE key_high = ? AND key_low = ? AND kind = 0 ORDER BY id
    """)
  static let renumber = SQL("UPDATE entry SET inode = ?2 WHERE id = ?1")
  static let oldInode = SQL("INSERT INTO old_inode(inode, entry, generation) VALUES(?, ?, ?)")
}

/// The server's changes of the catalog, in short transactions.
package final class CatalogChanges: Sendable {
  private struct Numbers {
    var next: Int64 = 0
    var end: Int64 = 0
  }

  /// How many ids are reserved at once. One block costs one sync of the log; a crash loses the rest of a block.
  private static let idBlock: Int64 = 1024

  private let connections: CatalogConnections
  private let bootID: [UInt8]
  private let ids = Lock(Numbers())

  init(_ connections: CatalogConnections, bootID: [UInt8]) {
    self.connections = connections
    self.bootID = bootID
  }

  /// A new id. No inode, entry or generation of this store ever had it, and none gets it later.
  package func nextID() throws(StoreError) -> Int64 {
    let ready: Int64? = ids.withLock { ids in
      guard ids.next < ids.end else { return nil }
      defer { ids.next += 1 }
      return ids.next
    }
    if let ready { return ready }
    let first = try connections.write(durably: true) { (connection) throws(StoreError) in
      try connection.reserveIDs(Self.idBlock)
    }
    return ids.withLock { ids in
      // Another thread may have reserved a block meanwhile; the rest of the shorter block is lost, as in a crash.
      if ids.end < first + Self.idBlock { ids = Numbers(next: first + 1, end: first + Self.idBlock) }
      return first
    }
  }

  /// Writes the changes, in their order, in one transaction: all of them or, if it throws, none. With `durably`, these
  /// changes and all earlier ones are on disk when the call returns, and survive a power loss.
  package func apply(_ changes: [CatalogChange], durably: Bool) throws(StoreError) {
    if changes.isEmpty && !durably { return }
    try connections.write(durably: durably) { (connection) throws(StoreError) in
      for change in changes { try apply(change, on: connection) }
      // SQLite syncs its log only for a commit that changed a page.
      if durably { try connection.statement(Queries.countSync).run() }
    }
  }

  private func apply(_ change: CatalogChange, on connection: SQLiteConnection) throws(StoreError) {
    switch change {
    case .learned(let record): try learn(record, on: connection)
    case .extents(let id, let stored, let synced): try write(id, stored, synced, isLoss: false, on: connection)
    case .lost(let id, let stored, let synced): try write(id, stored, synced, isLoss: true, on: connection)
    case .continues(let id, let continues):
      try run(Queries.continues, on: connection) {
        $0.bind(1, id); $0.bind(2, continues ? 1 : 0)
      }
    case .came(let id, let mirror): try CatalogNotes.note(.mirror, CatalogNotes.digits(mirror), of: id, on: connection)
    case .mixed(let id): try CatalogNotes.note(.mixed, "1", of: id, on: connection)
    case .pinned(let key, let isPinned): try CatalogNotes.pin(key, isPinned, on: connection)
    case .rule(let change): try CatalogNotes.change(change, on: connection)
    case .setting(let scope, let name, let value):
      try CatalogNotes.set(value, name, scope: scope, on: connection)
    case .used(let id, let at):
      try run(Queries.used, on: connection) {
        $0.bind(1, id); $0.bind(2, at)
      }
    case .usedBlocks(let id, let uses): try connection.note(uses, of: id)
    case .problem(let key, let message?):
      try run(Queries.problem, on: connection) {
        $0.bind(1, ResourceKeyColumns(key))
        $0.bind(3, message)
        $0.bind(4, time(nil))
      }
    case .problem(let key, nil):
      try run(Queries.noProblem, on: connection) { $0.bind(1, ResourceKeyColumns(key)) }
    case .host(let note): try CatalogNotes.note(note, on: connection)
    case .kind(let note): try CatalogNotes.note(note, on: connection)
    case .gainedExtension(let key, let fileExtension): try gain(fileExtension, key, on: connection)
    case .placing(let id, let path):
      try run(Queries.placing, on: connection) {
        $0.bind(1, id); $0.bind(2, path)
      }
    case .placed(let id, let copy, let adopted):
      guard copy.size >= 0 else { throw StoreError(.invalid, "catalog: a copy cannot have \(copy.size) bytes") }
      try connection.notePlacement(of: id, at: copy.path, adopted: adopted)
      try run(Queries.placed, on: connection) {
        $0.bind(1, id)
        $0.bind(2, copy.path)
        $0.bind(3, copy.size)
        $0.bind(4, copy.modified)
        $0.bind(5, copy.changed)
        $0.bind(6, Int64(bitPattern: copy.device))
        $0.bind(7, Int64(bitPattern: copy.inode))
        $0.bind(8, blob: ByteRangeSet(ByteRange(0, copy.size)).encoded)
      }
      try CatalogNotes.forget(.mixed, of: id, on: connection)
    case .dropped(let id):
      try run(Queries.dropped, on: connection) { $0.bind(1, id) }
      try connection.forgetUse(of: id)
      try CatalogNotes.forget(.mixed, of: id, on: connection)
    case .forgotten(let id):
      try connection.forgetUse(of: id)
      for note in [GenerationNote.mixed, .mirror] { try CatalogNotes.forget(note, of: id, on: connection) }
      try run(Queries.forgottenInodes, on: connection) { $0.bind(1, id) }
      try run(Queries.forgotten, on: connection) { $0.bind(1, id) }
    }
  }

  private func run(
    _ sql: SQL, on connection: SQLiteConnection, _ bind: (SQLiteStatement) -> Void
  ) throws(StoreError) {
    let statement = try connection.statement(sql)
    bind(statement)
    try statement.run()
  }

  private func learn(_ record: GenerationRecord, on connection: SQLiteConnection) throws(StoreError) {
    let key = ResourceKeyColumns(record.key)
    if let current = try currentID(of: key, on: connection), current != record.id {
      // A later generation superseded this one before this change was applied.
      if current > record.id { return }
      throw StoreError(
        .invalid,
        "catalog: generation \(record.id) must supersede \(current), the resource's current one")
    }
    try insert(record, on: connection)
  }

  /// Ignores the bytes that a record claims to be stored: `.extents` reports those.
  private func insert(_ record: GenerationRecord, on connection: SQLiteConnection) throws(StoreError) {
    try run(Queries.insert, on: connection) {
      $0.bind(1, record.id)
      $0.bind(2, ResourceKeyColumns(record.key))
      $0.bind(4, record.size)
      $0.bind(5, record.validators.lastModified)
      $0.bind(6, record.validators.etag)
      $0.bind(7, record.validators.etagIsWeak ? 1 : 0)
      $0.bind(8, record.mediaType)
      $0.bind(9, record.continues ? 1 : 0)
    }
    if let mirror = record.mirror {
      try apply(.came(generation: record.id, from: mirror), on: connection)
    }
  }

  private func write(
    _ id: Int64, _ stored: ByteRangeSet, _ synced: ByteRangeSet, isLoss: Bool, on connection: SQLiteConnection
  ) throws(StoreError) {
    let isAllSynced = stored == synced
    try run(Queries.extents, on: connection) {
      $0.bind(1, id)
      $0.bind(2, blob: synced.encoded)
      $0.bind(3, synced.count)
      $0.bind(4, blob: isAllSynced ? nil : stored.encoded)
      $0.bind(5, isAllSynced ? 0 : stored.count)
      $0.bind(6, blob: isAllSynced ? nil : bootID)
      $0.bind(7, isLoss ? 1 : 0)
    }
  }

  private func gain(
    _ fileExtension: String, _ key: ResourceKey, on connection: SQLiteConnection
  ) throws(StoreError) {
    let plain = fileExtension.hasPrefix(".") ? String(fileExtension.dropFirst()) : fileExtension
    // The extension becomes part of a file's name.
    guard !plain.isEmpty, plain.utf8.count <= 16, plain.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f && $0 != 0x2f }) else {
      throw StoreError(.invalid, "catalog: not a file name extension: \(fileExtension.debugDescription)")
    }
    let statement = try connection.statement(Queries.gaining)
    defer { statement.reset() }
    statement.bind(1, ResourceKeyColumns(key))
    while try statement.step() {
      guard statement.withBlob(1, sourceMayGainExtension) else { continue }
      let entry = statement.integer(0)
      try run(Queries.gain, on: connection) {
        $0.bind(1, entry); $0.bind(2, plain)
      }
    }
  }

  private func currentID(of key: ResourceKeyColumns, on connection: SQLiteConnection) throws(StoreError) -> Int64? {
    let statement = try connection.statement(Queries.currentID)
    defer { statement.reset() }
    statement.bind(1, key)
    return try statement.step() ? statement.integer(0) : nil
  }

  /// Makes `new` the current generation of its resource in place of `old`, durably. The former generation becomes
  /// superseded, and every entry of the resource gets a new inode. Returns the listed entries.
  ///
  /// The `.learned` of `old` may not be applied yet. Readers may have read it all the same, and the kernel may have
  /// cached its bytes under the entries' inodes. So this method records `old` too, if the catalog knows no generation.
  package func supersede(_ old: GenerationRecord, by new: GenerationRecord) throws(StoreError) -> [Renumbered] {
    guard new.key == old.key else { throw StoreError(.invalid, "catalog: generation \(new.id) is of another resource") }
    let columns = ResourceKeyColumns(old.key)
    return try connections.write(durably: true) { (connection) throws(StoreError) in
      let known = try currentID(of: columns, on: connection)
      if known == nil { try insert(old, on: connection) }
      let former = known ?? old.id
      guard former != new.id else {
        throw StoreError(.invalid, "catalog: generation \(former) cannot supersede itself")
      }
      try run(Queries.supersede, on: connection) { $0.bind(1, former) }
      try insert(new, on: connection)
      return try renumber(columns, from: former, on: connection)
    }
  }

  /// Gives one entry of `key`, the one with the given inode, another inode, durably. Its generation and the inodes of
  /// other entries stay. Nil if no listed entry has the inode (any more), or nothing is known of the resource.
  package func renumber(_ inode: Inode, of key: ResourceKey) throws(StoreError) -> Renumbered? {
    let columns = ResourceKeyColumns(key)
    return try connections.write(durably: true) { (connection) throws(StoreError) in
      guard let generation = try currentID(of: columns, on: connection) else { return nil }
      return try renumber(columns, from: generation, only: inode, on: connection).first
    }
  }

  private func renumber(
    _ key: ResourceKeyColumns, from old: Int64, only inode: Inode? = nil, on connection: SQLiteConnection
  ) throws(StoreError) -> [Renumbered] {
    // Reads all rows before it changes them: an UPDATE during a SELECT may show a row twice.
    var entries: [(id: Int64, change: Renumbered, isListed: Bool)] = []
    let statement = try connection.statement(Queries.entries)
    defer { statement.reset() }
    statement.bind(1, key)
    while try statement.step() {
      let change = Renumbered(
        parent: Inode(bitPattern: statement.integer(2)), name: statement.text(3),
        old: Inode(bitPattern: statement.integer(1)), new: 0)
      if let inode, inode != change.old { continue }
      entries.append((statement.integer(0), change, statement.integer(4) == 1))
    }
    guard !entries.isEmpty else { return [] }
    var inode = try connection.reserveIDs(Int64(entries.count))
    for index in entries.indices {
      entries[index].change.new = Inode(bitPattern: inode)
      let entry = entries[index]
      try run(Queries.oldInode, on: connection) {
        $0.bind(1, Int64(bitPattern: entry.change.old))
        $0.bind(2, entry.id)
        $0.bind(3, old)
      }
      try run(Queries.renumber, on: connection) {
        $0.bind(1, entry.id); $0.bind(2, inode)
      }
      inode += 1
    }
    return entries.filter(\.isListed).map(\.change)
  }
}
