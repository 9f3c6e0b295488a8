import Base
import CSystem
import Glibc

/// Creates, recognizes and opens the catalog's file.
enum CatalogFile {
  /// Opens the catalog for writing. Creates it if there is none, and raises one of an older format.
  ///
  /// `goesOn`: for a mount that had a server before. Then a raise first makes a copy, and a catalog that is newer than
  /// this program is replaced by its copy.
  static func openForWriting(_ path: String, goesOn: Bool = false) throws(StoreError) -> SQLiteConnection {
    try refuseSpecialFiles(path)  // before `make` removes a stale log
    if access(path, F_OK) != 0 {
      guard Errno.current == .notFound else { throw io(.current, "look at", path) }
      try make(path)
    }
    do throws(StoreError) { try checkHeader(path) } catch {
      guard goesOn, error.kind == .newer, let copy = CatalogCopy.find(for: path) else { throw error }
      try checkHeader(copy)
      try CatalogCopy.putBack(to: path)
    }
    let connection = try goesOn ? connectToGoOn(path) : SQLiteConnection(path: path, mode: .readWrite)
    let version = try version(of: connection)
    try checkTables(connection, version)
    CatalogCopy.removeUnfinished(of: path)
    if version < Schema.version { try raise(connection, from: version, keepsCopy: goesOn) }
    try useLog(connection)
    try configure(connection)
    try connection.run(
      """
      PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = \(mostLog); PRAGMA secure_delete = OFF;
      PRAGMA wal_autocheckpoint = 1000
      """)
    return connection
  }

  /// Refuses a catalog of a newer format before anything of its store changes, unless ``openForWriting(_:goesOn:)``
  /// replaces it. What else may be wrong with it, that tells.
  static func refuseNewer(_ path: String, goesOn: Bool) throws(StoreError) {
    do throws(StoreError) { try checkHeader(path) } catch {
      if error.kind == .newer, !goesOn || CatalogCopy.find(for: path) == nil { throw error }
    }
  }

  /// Throws if the catalog, or a file that SQLite keeps beside it, exists and is not a regular file. SQLite opens these
  /// names without a check. The open of a FIFO would wait until another program writes, and the open of a device may
  /// have side effects.
  static func refuseSpecialFiles(_ path: String) throws(StoreError) {
    var status = stat()
    // The catalog may be a symbolic link; SQLite then keeps the other files beside its target.
    let real = resolvedPath(path) ?? path
    for name in [real, real + "-wal", real + "-shm", real + "-journal"]
    where lstat(name, &status) == 0 && !status.isPlainFile {
      throw StoreError(
        .invalid,
        "\(name) is \(status.kindName), no plain file: move it away, or choose another store with --store;"
          + " nothing was changed")
    }
  }

  /// A connection for writing, also if the disk takes no byte. SQLite writes the index of the log anew when no other
  /// program has the catalog open, so a server that is killed while the disk is full could not be followed by another.
  private static func connectToGoOn(_ path: String) throws(StoreError) -> SQLiteConnection {
    do throws(StoreError) {
      let connection = try SQLiteConnection(path: path, mode: .readWrite)
      _ = try version(of: connection)  // the first use of the catalog makes the index
      return connection
    } catch {
      switch error.kind {
      case .full, .io: Log.warning("\(error.message). The server keeps the index of the catalog's log in memory")
      default: throw error
      }
    }
    return try SQLiteConnection(path: path, mode: .alone)
  }

  /// Switches back to the write-ahead log, which a first import turns off. SQLite cannot switch while another program
  /// reads the catalog. Then the next open switches; until then reads and writes wait for one another.
  static func useLog(_ connection: SQLiteConnection) throws(StoreError) {
    do throws(StoreError) {
      try connection.run("PRAGMA journal_mode = WAL")
    } catch {
      guard case .busy = error.kind else { throw error }
      Log.warning("catalog \(connection.path): another program reads it, so the catalog is slower until the next mount")
    }
  }

  /// The most bytes that the log keeps after a large transaction.
  private static let mostLog: Int64 = 8 << 20

  /// After a transaction that made the log long: writes all of it to its place, and cuts it. Waits for no reader: what
  /// one still needs stays, and the next commit that meets none cuts it (`journal_size_limit`). The transaction is
  /// committed, so an error is no failure of the caller's.
  static func shortenLog(_ connection: SQLiteConnection) {
    var status = stat()
    guard stat(connection.path + "-wal", &status) == 0, Int64(status.st_size) > mostLog else { return }
    do throws(StoreError) {
      try connection.runWithoutWaiting("PRAGMA wal_checkpoint(TRUNCATE)")
    } catch {
      Log.warning("the catalog's log stays long: \(error.message)")
    }
  }

  /// Raises a catalog of an older format to this program's: all of it in one transaction, or nothing.
  ///
  /// Without the write-ahead log, because other programs look for the format in the file itself. SQLite cannot give up
  /// the log while another program reads the catalog, and does not wait for that.
  private static func raise(_ connection: SQLiteConnection, from version: Int64, keepsCopy: Bool) throws(StoreError) {
    let end = Instant.now.adding(seconds: raisePatience)
    while true {
      do throws(StoreError) {
        try connection.run("PRAGMA journal_mode = DELETE")
        break
      } catch {
        guard case .busy(let holder) = error.kind else { throw error }
        guard Instant.now < end else {
          throw StoreError(
            .busy(holder: holder),
            "catalog \(connection.path): its format cannot be raised while another program reads it: end that program"
              + " and mount again; nothing was changed")
        }
        usleep(20_000)
      }
    }
    if keepsCopy { try CatalogCopy.make(of: connection.path) }
    try connection.run("PRAGMA synchronous = FULL")
    try connection.transaction("BEGIN EXCLUSIVE") { (connection) throws(StoreError) in
      for statement in Schema.additions(since: version) { try connection.run(statement) }
      try connection.run("PRAGMA user_version = \(Schema.version)")
    }
    Log.info("catalog \(connection.path): raised to format \(Schema.version)")
  }

  /// How long to wait for programs that read the catalog, in seconds: a `status` reads for moments.
  private static let raisePatience = 5.0

  /// Opens an existing catalog for reading, whether a server has it open or not. One of an older format stays as it is.
  static func openForReading(_ path: String) throws(StoreError) -> SQLiteConnection {
    try checkHeader(path)
    do throws(StoreError) {
      return try openChecked(path, .readOnly)
    } catch {
      if case .io(.accessDenied) = error.kind, rollsBack(path) { return try openChecked(path, .readOnly) }
      // On a read-only filesystem SQLite cannot create the log's index, but nobody writes either. If there is a log or
      // a journal, the file alone is incomplete.
      guard case .io = error.kind, access(path + "-wal", F_OK) != 0, access(path + "-journal", F_OK) != 0 else {
        throw error
      }
      return try openChecked(path, .immutable)
    }
  }

  private static func openChecked(_ path: String, _ mode: SQLiteConnection.Mode) throws(StoreError) -> SQLiteConnection
  {
    let connection = try SQLiteConnection(path: path, mode: mode)
    try checkTables(connection, version(of: connection))
    try configure(connection)
    return connection
  }

  /// Whether this rolls back what a server left in a journal that was killed in a first import, or in a raise: a
  /// connection that only reads cannot.
  private static func rollsBack(_ path: String) -> Bool {
    guard access(path + "-journal", F_OK) == 0 else { return false }
    do throws(StoreError) {
      _ = try version(of: try SQLiteConnection(path: path, mode: .readWrite))
      return true
    } catch {
      return false  // the reading says why
    }
  }

  /// One more connection to a catalog that this process has open.
  static func openAnotherForReading(_ path: String) throws(StoreError) -> SQLiteConnection {
    let connection = try SQLiteConnection(path: path, mode: .readOnly)
    try configure(connection)
    return connection
  }

  private static func configure(_ connection: SQLiteConnection) throws(StoreError) {
    // 2 MiB of pages for each connection hold the upper levels of all indexes of a million entries. The page cache has
    // the rest.
    try connection.run("PRAGMA cache_size = -2048; PRAGMA temp_store = FILE")
  }

  /// Creates an empty catalog under another name and renames it, so that no program finds a half-created one.
  private static func make(_ path: String) throws(StoreError) {
    let new = path + "-new"
    // Removes the rest of an earlier attempt, and a log whose database was deleted: SQLite would replay it into the new
    // one.
    for stale in [new, new + "-journal", path + "-wal", path + "-shm", path + "-journal"] {
      if unlink(stale) != 0, Errno.current != .notFound { throw io(.current, "remove", stale) }
    }
    do throws(Errno) {
      // Created here, because SQLite would let other users read it. SQLite gives the files beside it the same mode.
      let descriptor = try FileDescriptor.open(new, O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
      _ = consume descriptor
    } catch {
      throw io(error, "create", new)
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

  /// Refuses a file that is not a catalog, or one of a newer format, without creating or changing any file.
  private static func checkHeader(_ path: String) throws(StoreError) {
    do throws(StoreError) {
      _ = try version(of: SQLiteConnection(path: path, mode: .immutable))
    } catch {
      guard error.kind == .corrupt else { throw error }
      // A raise or a first import that was killed may leave a first page that does not fit the others. Its journal
      // undoes it at the open, which then looks again.
      if access(path + "-journal", F_OK) != 0 { throw error }
    }
  }

  /// The format of a catalog. Throws if it is no catalog, or of a format that this program does not know.
  private static func version(of connection: SQLiteConnection) throws(StoreError) -> Int64 {
    let path = connection.path
    let application: Int64
    let version: Int64
    do throws(StoreError) {
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
        "catalog \(path) has format \(version), and this program knows \(Schema.version): a newer mediafs wrote it; use"
          + " that, or another --store; nothing was changed")
    }
    guard version >= Schema.oldestVersion else { throw .damaged(path, "no mediafs wrote format \(version)") }
    return version
  }

  private static func notOurs(_ path: String) -> StoreError {
    StoreError(
      .corrupt,
      "\(path) is not a catalog of mediafs, or its beginning is damaged; move it away or choose another --store;"
        + " nothing was changed")
  }

  private static func checkTables(_ connection: SQLiteConnection, _ version: Int64) throws(StoreError) {
    for table in Schema.tables(ofVersion: version) {
      let count = try connection.integer(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '\(table)'")
      guard count == 1 else { throw .damaged(connection.path, "its table \(table) is missing") }
    }
  }

  private static func io(_ error: Errno, _ doing: String, _ path: String) -> StoreError {
    StoreError(error.isFullDisk ? .full : .io(error), "cannot \(doing) \(path): \(error)")
  }
}
