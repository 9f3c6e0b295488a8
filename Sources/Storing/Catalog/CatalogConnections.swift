import Base

/// The connections to a catalog's file: any number of readers, and one writer.
///
/// Each thread that reads has a connection of its own and never waits for a write (SQLite's write-ahead log). Writers
/// wait for one another. A write is a short transaction, except an import.
///
/// Locks: a thread never holds `pool` and `writer` together. A thread holds `writer` while SQLite writes the file,
/// because only one may write; no read needs that lock. An import holds it for minutes, and takes its manifest from
/// ``ManifestFeed``, whose lock is the one that a thread may take within `writer`.
final class CatalogConnections: Sendable {
  private struct Pool {
    var idle: [SQLiteConnection] = []
    var isClosed = false
  }

  private struct Writer {
    var connection: SQLiteConnection?
    var isFull = false  // whether `synchronous` is FULL at present
  }

  /// How many idle read connections are kept: one for each thread that answers the kernel. Each uses up to 2 MiB.
  private static let keptConnections = 8

  let path: String
  private let isForWriting: Bool
  private let pool: Lock<Pool>
  private let writer: Lock<Writer>

  init(path: String, reader: sending SQLiteConnection?, writer: sending SQLiteConnection?) {
    self.path = path
    isForWriting = writer != nil
    pool = Lock(Pool(idle: reader.map { [$0] } ?? []))
    self.writer = Lock(Writer(connection: writer))
  }

  /// See ``Catalog/close()``.
  func close() throws(StoreError) {
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

  /// Calls `body` with a connection that no other thread uses meanwhile. With `snapshot`, all statements see one state.
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
    return snapshot ? try connection.transaction("BEGIN", body) : try body(connection)
  }

  private func giveBack(_ connection: SQLiteConnection) {
    pool.withLock { pool in
      if !pool.isClosed && pool.idle.count < Self.keptConnections { pool.idle.append(connection) }
    }
  }

  /// Closes the idle read connections; reads open new ones when they need them.
  func closeIdleReaders() {
    let idle = pool.withLock { pool in
      defer { pool.idle = [] }
      return pool.idle
    }
    _ = consume idle
  }

  /// How many virtual machine steps SQLite ran for the cached statements of the idle connections. For tests.
  var steps: Int {
    pool.withLock { $0.idle.reduce(0) { $0 + $1.steps } } + writer.withLock { $0.connection?.steps ?? 0 }
  }

  /// How often the cached statements of the idle read connections ran: the same on every machine. For tests.
  var runs: Int { pool.withLock { $0.idle.reduce(0) { $0 + $1.runs } } }

  /// Calls `body` in a transaction of the writing connection: all of it is committed, or, if it throws, nothing. With
  /// `durably`, this transaction and all earlier ones are on disk when the call returns.
  func write<Result>(
    durably: Bool, _ body: (SQLiteConnection) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try withWriter { (connection, isFull) throws(StoreError) in
      if durably != isFull {
        try connection.run("PRAGMA synchronous = \(durably ? "FULL" : "NORMAL")")
        isFull = durably
      }
      return try connection.transaction("BEGIN IMMEDIATE", body)
    }
  }

  /// Calls `body` with the writing connection outside any transaction. `isFull` is the value that `synchronous` gets.
  func withWriter<Result>(
    _ body: (SQLiteConnection, inout Bool) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try writer.withLock { (writer) throws(StoreError) in
      guard let connection = writer.connection else { throw closed }
      return try body(connection, &writer.isFull)
    }
  }

  private var closed: StoreError {
    StoreError(.invalid, "catalog \(path): it is closed, or not open for writing")
  }
}
