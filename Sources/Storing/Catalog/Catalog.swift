import Base

/// The durable index of a store: the tree of names, what is known of each resource, and which of its bytes are stored
/// (docs/STORE-FORMAT.md).
///
/// Any thread may call anything. Reads use connections of their own, one for each thread that reads at the same time,
/// and never wait for a write (SQLite's write-ahead log). Writes wait for one another: a write is a short transaction,
/// except an import. All errors are ``StoreError``.
///
/// Locks: `ids`, `pool` and `writer` are taken one at a time. `writer` alone is held over file operations:
/// being the only one who writes is its purpose, and no read needs it.
package final class Catalog: Sendable {
  /// What a catalog is opened for.
  package enum Access: Sendable {
    /// For the one server of the store, which holds its lock; made when there is none.
    case readWrite
    /// For looking, also while a server writes. Every write throws `.invalid`.
    case readOnly
  }

  private struct Pool {
    var idle: [SQLiteConnection] = []
    var isClosed = false
  }

  private struct Writer {
    var connection: SQLiteConnection?
    var isFull = false  // whether `synchronous` is FULL at present
  }

  private struct Numbers {
    var next: Int64 = 0
    var end: Int64 = 0
  }

  /// How many idle read connections are kept: as many as there are threads that answer the kernel, at 2 MiB at most
  /// each.
  private static let keptConnections = 8
  /// How many ids are reserved at once: one sync of the log for that many, and as many are lost at a crash.
  private static let idBlock: Int64 = 1024

  let path: String
  let bootID: [UInt8]
  private let isForWriting: Bool
  private let pool: Lock<Pool>
  private let writer: Lock<Writer>
  private let ids = Lock(Numbers())

  private init(path: String, bootID: [UInt8], reader: sending SQLiteConnection?, writer: sending SQLiteConnection?) {
    self.path = path
    self.bootID = bootID
    isForWriting = writer != nil
    pool = Lock(Pool(idle: reader.map { [$0] } ?? []))
    self.writer = Lock(Writer(connection: writer))
  }

  /// Opens the catalog at `path`. For writing, one that is not there is made (mode 0600), and its folder must exist.
  ///
  /// Throws `.newer` for one that a newer program made and `.corrupt` for what is damaged or no catalog, both without
  /// changing a byte, `.io` when the file cannot be opened.
  package static func open(path: String, access: Access) throws(StoreError) -> Catalog {
    try open(path: path, access: access, bootID: BootID.current())
  }

  /// The same with the boot id given, for tests.
  static func open(path: String, access: Access, bootID: [UInt8]) throws(StoreError) -> Catalog {
    switch access {
    case .readWrite:
      Catalog(path: path, bootID: bootID, reader: nil, writer: try CatalogFile.openForWriting(path))
    case .readOnly:
      Catalog(path: path, bootID: bootID, reader: try CatalogFile.openForReading(path), writer: nil)
    }
  }

  /// Moves the log into the database and closes it, after the calls that are under way. What is called later throws
  /// `.invalid`. Not needed for safety: a catalog that was not closed is as right, and the next open takes longer.
  package func close() throws(StoreError) {
    let idle = pool.withLock { pool in
      pool.isClosed = true
      defer { pool.idle = [] }
      return pool.idle
    }
    _ = consume idle  // closed here, not under the lock
    try writer.withLock { (writer) throws(StoreError) in
      guard let connection = writer.connection else { return }
      writer.connection = nil
      try connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
    }
  }

  // MARK: - Connections

  /// Runs `body` with a connection that nobody else uses meanwhile. With `snapshot`, all its statements see one state.
  func read<Result>(
    snapshot: Bool = false, _ body: (SQLiteConnection) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    let (kept, isClosed) = pool.withLock { ($0.idle.popLast(), $0.isClosed) }
    if isClosed { throw closed }
    let connection: SQLiteConnection
    if let kept {
      connection = kept
    } else {
      connection = try isForWriting ? CatalogFile.openAnotherForReading(path) : CatalogFile.openForReading(path)
    }
    defer { giveBack(connection) }
    guard snapshot else { return try body(connection) }
    try connection.run("BEGIN")
    do throws(StoreError) {
      let result = try body(connection)
      try connection.run("COMMIT")
      return result
    } catch {
      if !connection.isIdle { try connection.run("ROLLBACK") }
      throw error
    }
  }

  private func giveBack(_ connection: SQLiteConnection) {
    pool.withLock { pool in
      if !pool.isClosed && pool.idle.count < Self.keptConnections { pool.idle.append(connection) }
    }
  }

  /// Closes the idle read connections; new ones are made when needed.
  func closeIdleReaders() {
    let idle = pool.withLock { pool in
      defer { pool.idle = [] }
      return pool.idle
    }
    _ = consume idle
  }

  /// How many steps SQLite's machine took for the kept statements of the open connections that nobody uses. For tests.
  var steps: Int {
    pool.withLock { $0.idle.reduce(0) { $0 + $1.steps } } + writer.withLock { $0.connection?.steps ?? 0 }
  }

  /// How many times the kept statements of the idle read connections ran: the same on every machine. For tests.
  var runs: Int { pool.withLock { $0.idle.reduce(0) { $0 + $1.runs } } }

  /// Runs `body` in a transaction of the one writing connection: all of it is committed, or, when it throws, nothing.
  /// `durably`: it is on the disk when this returns, and with it all that was committed before.
  func write<Result>(
    durably: Bool, _ body: (SQLiteConnection) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try withWriter { (connection, isFull) throws(StoreError) in
      if durably != isFull {
        try connection.run("PRAGMA synchronous = \(durably ? "FULL" : "NORMAL")")
        isFull = durably
      }
      return try Self.transaction(on: connection, body)
    }
  }

  /// Runs `body` with the writing connection outside of any transaction; `isFull` is what `synchronous` is set to.
  func withWriter<Result>(
    _ body: (SQLiteConnection, inout Bool) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try writer.withLock { (writer) throws(StoreError) in
      guard let connection = writer.connection else { throw closed }
      return try body(connection, &writer.isFull)
    }
  }

  static func transaction<Result>(
    on connection: SQLiteConnection, _ body: (SQLiteConnection) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try connection.run("BEGIN IMMEDIATE")
    do throws(StoreError) {
      let result = try body(connection)
      try connection.run("COMMIT")
      return result
    } catch {
      // A full disk or an I/O error has rolled it back already.
      if !connection.isIdle { try connection.run("ROLLBACK") }
      throw error
    }
  }

  private var closed: StoreError {
    StoreError(.invalid, "catalog \(path): it is closed, or not open for writing")
  }

  // MARK: - Ids

  /// A number that was never an inode, an entry's or a generation's id in this store, and never will be another's.
  package func nextID() throws(StoreError) -> Int64 {
    let ready: Int64? = ids.withLock { ids in
      guard ids.next < ids.end else { return nil }
      defer { ids.next += 1 }
      return ids.next
    }
    if let ready { return ready }
    let first = try write(durably: true) { (connection) throws(StoreError) in
      try Self.reserveIDs(Self.idBlock, on: connection)
    }
    return ids.withLock { ids in
      // Another thread may have reserved a block meanwhile; the rest of the shorter one is lost, as at a crash.
      if ids.end < first + Self.idBlock { ids = Numbers(next: first + 1, end: first + Self.idBlock) }
      return first
    }
  }

  private static let takeIDs = SQL("UPDATE meta SET value = value + ? WHERE name = 'next_id' RETURNING value")

  /// Takes `count` numbers out of the sequence, within the transaction that is open: the first of them.
  static func reserveIDs(_ count: Int64, on connection: SQLiteConnection) throws(StoreError) -> Int64 {
    let statement = try connection.statement(takeIDs)
    defer { statement.reset() }
    statement.bind(1, count)
    guard try statement.step() else { throw .damaged(connection.path, "meta.next_id is missing") }
    let next = statement.integer(0)
    guard next > count + 1, next < 1 << 62 else { throw .damaged(connection.path, "meta.next_id makes no sense") }
    // To its end, or the row is not written.
    while try statement.step() {}
    return next - count
  }
}
