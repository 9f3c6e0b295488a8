/// The catalog's tables. docs/STORE-FORMAT.md says what they mean.
enum Schema {
  /// `mdfs`.
  static let applicationID: Int64 = 0x6D64_6673
  /// The format that this program writes.
  static let version: Int64 = 3
  /// The oldest format that it reads, and raises when it opens the store for writing.
  static let oldestVersion: Int64 = 1

  /// Indexes over `entry` that a first import creates at its end: sorting a million rows once is several times faster
  /// than inserting each in its place.
  static let entryIndexes: [(name: String, definition: String)] = [
    ("entry_name", "CREATE UNIQUE INDEX entry_name ON entry(parent, name) WHERE name IS NOT NULL"),
    ("entry_listing", "CREATE INDEX entry_listing ON entry(parent) WHERE listed = 1"),
    ("entry_key", "CREATE INDEX entry_key ON entry(key_high) WHERE kind = 0"),
  ]

  static var definition: [String] {
    [
      "CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
      """
      CREATE TABLE entry(
        id INTEGER PRIMARY KEY, inode INTEGER, parent INTEGER NOT NULL, kind INTEGER NOT NULL, listed INTEGER NOT NULL,
        name TEXT, wanted TEXT, key_high INTEGER NOT NULL, key_low INTEGER NOT NULL, line INTEGER NOT NULL, source BLOB)
      """,
      "CREATE INDEX entry_wanted ON entry(parent, wanted, key_high) WHERE wanted IS NOT NULL",
      "CREATE UNIQUE INDEX entry_inode ON entry(inode) WHERE inode IS NOT NULL",
      """
      CREATE TABLE numbering(parent INTEGER, wanted TEXT, next INTEGER NOT NULL, PRIMARY KEY(parent, wanted))
        WITHOUT ROWID
      """,
      "CREATE TABLE gained(entry INTEGER PRIMARY KEY, extension TEXT NOT NULL, applied INTEGER NOT NULL)",
      "CREATE INDEX gained_pending ON gained(entry) WHERE applied = 0",
      "CREATE TABLE alias(parent INTEGER, name TEXT, entry INTEGER NOT NULL, PRIMARY KEY(parent, name)) WITHOUT ROWID",
      """
      CREATE TABLE generation(
        id INTEGER PRIMARY KEY, key_high INTEGER NOT NULL, key_low INTEGER NOT NULL, state INTEGER NOT NULL,
        continues INTEGER NOT NULL DEFAULT 0, size INTEGER, last_modified INTEGER, etag TEXT,
        etag_weak INTEGER NOT NULL DEFAULT 0, media_type TEXT, used_at INTEGER NOT NULL DEFAULT 0,
        synced BLOB NOT NULL DEFAULT x'', synced_bytes INTEGER NOT NULL DEFAULT 0,
        recent BLOB, recent_bytes INTEGER NOT NULL DEFAULT 0, recent_boot BLOB, placing TEXT,
        copy_path TEXT, copy_size INTEGER, copy_modified INTEGER, copy_changed INTEGER, copy_device INTEGER,
        copy_inode INTEGER)
      """,
      "CREATE UNIQUE INDEX generation_current ON generation(key_high, key_low) WHERE state <> 2",
      "CREATE INDEX generation_continuing ON generation(continues) WHERE continues = 1",
      "CREATE INDEX generation_superseded ON generation(state) WHERE state = 2",
      "CREATE INDEX generation_placing ON generation(id) WHERE placing IS NOT NULL",
      """
      CREATE INDEX generation_stored ON generation(used_at)
        WHERE state = 0 AND (synced_bytes > 0 OR recent_bytes > 0)
      """,
      "CREATE TABLE old_inode(inode INTEGER PRIMARY KEY, entry INTEGER NOT NULL, generation INTEGER NOT NULL)",
      "CREATE INDEX old_inode_generation ON old_inode(generation)",
      """
      CREATE TABLE problem(
        key_high INTEGER, key_low INTEGER, message TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY(key_high, key_low))
        WITHOUT ROWID
      """,
      "INSERT INTO meta VALUES('next_id', 2), ('epoch', 0), ('names', 0), ('files', 0), ('syncs', 0)",
    ] + additions(since: oldestVersion) + entryIndexes.map(\.definition)
  }

  /// What formats have that the ones before them have not, by their versions. A raise runs these statements; they
  /// change no row that is there.
  private static let added: [(version: Int64, statements: [String])] = [
    (
      2,
      [
        """
        CREATE TABLE host(
          name TEXT PRIMARY KEY, lanes INTEGER NOT NULL, connection_rate INTEGER NOT NULL, rate INTEGER NOT NULL,
          round_trip INTEGER NOT NULL, http_version INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID
        """,
        """
        CREATE TABLE kind(
          name TEXT PRIMARY KEY, head INTEGER NOT NULL, tail INTEGER NOT NULL, files INTEGER NOT NULL,
          at INTEGER NOT NULL) WITHOUT ROWID
        """,
      ]
    ),
    (
      3,
      [
        """
        CREATE TABLE rule(
          subject INTEGER, pattern TEXT, value INTEGER NOT NULL, number INTEGER NOT NULL,
          PRIMARY KEY(subject, pattern)) WITHOUT ROWID
        """,
        """
        CREATE TABLE setting(scope TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY(scope, name)) WITHOUT ROWID
        """,
        "CREATE TABLE block_use(generation INTEGER PRIMARY KEY, uses BLOB NOT NULL)",
        "CREATE TABLE placement(generation INTEGER PRIMARY KEY, adopted INTEGER NOT NULL)",
        "CREATE INDEX generation_complete ON generation(used_at) WHERE state = 1",
      ]
    ),
  ]

  /// The statements that raise a catalog of that format to this program's.
  static func additions(since version: Int64) -> [String] {
    added.filter { $0.version > version }.flatMap(\.statements)
  }

  /// The tables that a format must have; a missing one is damage that the open reports at once.
  static func tables(ofVersion version: Int64) -> [String] {
    ["meta", "entry", "numbering", "gained", "alias", "generation", "old_inode", "problem"]
      + (version >= 2 ? ["host", "kind"] : []) + (version >= 3 ? ["rule", "setting", "block_use", "placement"] : [])
  }
}
