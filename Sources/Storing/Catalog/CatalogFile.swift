import Base
import CSystem
import Glibc

/// The catalog's file: made, recognised, opened.
enum CatalogFile {
  /// Opens the catalog for writing, making it when there is none.
  static func openForWriting(_ path: String) throws(StoreError) -> SQLiteConnection {
    try refuseSpecialFiles(path)  // before `make` removes a stale log
    if access(path, F_OK) != 0 {
      guard Errno.current == .notFound else { throw io(.current, "look at", path) }
      try make(path)
    }
    try checkHeader(path)
    let connection = try SQLiteConnection(path: path, mode: .readWrite)
    try checkTables(connection)
    try useLog(connection)
    try configure(connection)
    try connection.run(
      """
      PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 8388608; PRAGMA secure_delete = OFF;
      PRAGMA wal_autocheckpoint = 1000
      """)
    return connection
  }

  /// Throws when the catalog, or a file that SQLite keeps beside it, is there and is no plain file. SQLite opens these
  /// names without a look at them: a FIFO makes the open wait until another program writes, and opening a device may
  /// have effects of its own.
  static func refuseSpecialFiles(_ path: String) throws(StoreError) {
    var status = stat()
    // The catalog may be a link; SQLite then keeps the other files beside its target.
    let real = resolvedPath(path) ?? path
    for name in [real, real + "-wal", real + "-shm", real + "-journal"]
    where lstat(name, &status) == 0 && !status.isPlainFile {
      throw StoreError(
        .invalid,
        "\(name) is \(status.kindName), no plain file: move it away, or choose another store with --store; nothing was"
          + " changed")
    }
  }

  /// Switches to the write-ahead log, which a first import turns off. While somebody reads that cannot be done: then
  /// the next open does it, and until then all works, except that reads and writes wait for one another.
  static func useLog(_ connection: SQLiteConnection) throws(StoreError) {
    do throws(StoreError) {
      try connection.run("PRAGMA journal_mode = WAL")
    } catch {
      guard case .busy = error.kind else { throw error }
      Log.warning("catalog \(connection.path): another program reads it, so it is slower until the next mount")
    }
  }

  /// Opens a catalog that is there for reading, whether a server has it open or not.
  static func openForReading(_ path: String) throws(StoreError) -> SQLiteConnection {
    try checkHeader(path)
    do throws(StoreError) {
      let connection = try SQLiteConnection(path: path, mode: .readOnly)
      try checkTables(connection)
      try configure(connection)
      return connection
    } catch {
      // On a filesystem that is read-only the log's index cannot be made; then nobody writes either. With a log or a
      // journal beside it, the file alone is not the whole truth.
      guard case .io = error.kind, access(path + "-wal", F_OK) != 0, access(path + "-journal", F_OK) != 0 else {
        throw error
      }
      let connection = try SQLiteConnection(path: path, mode: .immutable)
      try checkTables(connection)
      try configure(connection)
      return connection
    }
  }

  /// One more connection to a catalog that this process has open.
  static func openAnotherForReading(_ path: String) throws(StoreError) -> SQLiteConnection {
    let connection = try SQLiteConnection(path: path, mode: .readOnly)
    try configure(connection)
    return connection
  }

  private static func configure(_ connection: SQLiteConnection) throws(StoreError) {
    // 2 MiB of pages a connection: the upper levels of all indexes of a million entries; the rest is in the page cache.
    try connection.run("PRAGMA cache_size = -2048; PRAGMA temp_store = FILE")
  }

  /// Makes an empty catalog under another name and renames it: one that is only half made is never met.
  private static func make(_ path: String) throws(StoreError) {
    let new = path + "-new"
    // What is left of an earlier attempt, and a log whose database was deleted: it would be played into the new one.
    for stale in [new, new + "-journal", path + "-wal", path + "-shm", path + "-journal"] {
      if unlink(stale) != 0, Errno.current != .notFound { throw io(.current, "remove", stale) }
    }
    do throws(Errno) {
      // Made here, because SQLite would let others read it. The files beside it get the same mode.
      let descriptor = try FileDescriptor.open(new, O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
      _ = consume descriptor
    } catch {
      throw io(error, "make", new)
    }
    let connection = try SQLiteConnection(path: new, mode: .readWrite)
    try connection.run("PRAGMA synchronous = FULL; BEGIN")
    for statement in Schema.definition { try connection.run(statement) }
    try connection.run(
      "PRAGMA application_id = \(Schema.applicationID); PRAGMA user_version = \(Schema.version); COMMIT")
    guard rename(new, path) == 0 else { throw io(.current, "rename into place", new) }
    let slash = path.lastIndex(of: "/")
    let folder = slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
    do throws(Errno) {
      try FileDescriptor.open(folder, O_RDONLY | O_DIRECTORY).sync()
    } catch {
      throw io(error, "sync the folder of", path)
    }
  }

  /// Refuses what is no catalog of this version, without making or changing any file.
  private static func checkHeader(_ path: String) throws(StoreError) {
    let application: Int64
    let version: Int64
    do throws(StoreError) {
      let connection = try SQLiteConnection(path: path, mode: .immutable)
      application = try connection.integer("PRAGMA application_id") ?? 0
      version = try connection.integer("PRAGMA user_version") ?? 0
    } catch {
      if error.kind == .corrupt { throw notOurs(path) }
      throw error
    }
    guard application == Schema.applicationID else { throw notOurs(path) }
    if version > Schema.version {
      throw StoreError(
        .newer,
        "catalog \(path) has format \(version), and this program knows \(Schema.version): a newer mediafs made it; use"
          + " that, or another --store; nothing was changed")
    }
    guard version == Schema.version else { throw .damaged(path, "format \(version) never was") }
  }

  private static func notOurs(_ path: String) -> StoreError {
    StoreError(
      .corrupt,
      "\(path) is not a catalog of mediafs, or its beginning is damaged; move it away or choose another --store;"
        + " nothing was changed")
  }

  private static func checkTables(_ connection: SQLiteConnection) throws(StoreError) {
    for table in Schema.tables {
      let count = try connection.integer(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '\(table)'")
      guard count == 1 else { throw .damaged(connection.path, "its table \(table) is missing") }
    }
  }

  private static func io(_ error: Errno, _ doing: String, _ path: String) -> StoreError {
    StoreError(error.isFullDisk ? .full : .io(error), "cannot \(doing) \(path): \(error)")
  }
}
