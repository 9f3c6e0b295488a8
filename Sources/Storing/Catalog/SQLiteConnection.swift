import Base
import CSQLite

/// The text of a statement. It is an object, so that connections find their prepared statement by its identity.
final class SQL: Sendable {
  let text: String
  init(_ text: String) { self.text = text }
}

/// A connection to a database, with its prepared statements.
///
/// Only one thread may use it at a time: the catalog gives each connection to one thread and opens it without SQLite's
/// own mutex. It is a class and not a noncopyable struct because pools and locks keep it in arrays and optionals. No
/// other object has the handle.
final class SQLiteConnection {
  /// How a database is opened.
  enum Mode {
    /// For reading and writing; the file must exist.
    case readWrite
    /// For reading and writing, with the log's index in this process's memory and not in a file beside the catalog. No
    /// other process can use the catalog meanwhile; other connections of this one can.
    case alone
    /// For reading.
    case readOnly
    /// For reading a file that no program changes meanwhile. SQLite takes no lock, creates no file beside it, and does
    /// not see what is only in a write-ahead log.
    case immutable
  }

  let path: String
  private let handle: OpaquePointer
  /// Configured once in the process, before the first connection. If it is too late, SQLite refuses and works all the
  /// same.
  private static let isConfigured = csqlite_count_no_memory() == SQLITE_OK

  /// How long to wait for other connections, in milliseconds. Other programs hold the lock only for moments: a
  /// `status` that reads, or the last connection, whose close checkpoints the log.
  private static let patience: Int32 = 5_000

  private var statements: [ObjectIdentifier: SQLiteStatement] = [:]

  /// sqlite3_open_v2.
  init(path: String, mode: Mode) throws(StoreError) {
    _ = Self.isConfigured
    try CatalogFile.refuseSpecialFiles(path)
    var opened: OpaquePointer?
    let isForWriting = mode == .readWrite || mode == .alone
    let flags = (isForWriting ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX
    let code =
      mode == .immutable
      ? sqlite3_open_v2(Self.uri(of: path) + "?immutable=1", &opened, flags | SQLITE_OPEN_URI, nil)
      : sqlite3_open_v2(path, &opened, flags, mode == .alone ? "unix-excl" : nil)
    guard let opened else { throw StoreError(.io(Errno(rawValue: 12)), "catalog \(path): no memory to open it") }
    self.path = path
    handle = opened
    sqlite3_extended_result_codes(opened, 1)
    sqlite3_busy_timeout(opened, Self.patience)
    if code != SQLITE_OK { throw error(code, doing: "open") }
  }

  deinit {
    // Finalizes the statements first; otherwise the handle would stay half-closed until they end.
    statements.removeAll()
    sqlite3_close_v2(handle)
  }

  /// A file's path as a URI, because SQLite takes some options only in a URI.
  private static func uri(of path: String) -> String {
    var uri = "file:"
    for byte in path.utf8 {
      let isPlain = byte < 0x80 && ![UInt8(ascii: "%"), UInt8(ascii: "?"), UInt8(ascii: "#")].contains(byte)
      uri += isPlain ? String(Unicode.Scalar(byte)) : "%" + String(UInt16(byte) + 0x100, radix: 16).dropFirst()
    }
    return uri
  }

  /// Runs statements and ignores their rows.
  func run(_ sql: String) throws(StoreError) {
    let code = sqlite3_exec(handle, sql, nil, nil, nil)
    if code != SQLITE_OK { throw error(code, doing: sql.prefix { $0 != "\n" && $0 != "(" }.description) }
  }

  /// Runs statements that do not wait for other connections.
  func runWithoutWaiting(_ sql: String) throws(StoreError) {
    sqlite3_busy_timeout(handle, 0)
    defer { sqlite3_busy_timeout(handle, Self.patience) }
    try run(sql)
  }

  /// Calls `body` in a transaction that `begin` starts: all of it is committed, or, if it throws, nothing.
  func transaction<Result>(
    _ begin: String, _ body: (SQLiteConnection) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try run(begin)
    do throws(StoreError) {
      let result = try body(self)
      try run("COMMIT")
      return result
    } catch {
      // After a full disk or an I/O error, SQLite has already rolled it back.
      if !isIdle { try run("ROLLBACK") }
      throw error
    }
  }

  /// The prepared statement of `sql`, reset and without values. The caller resets it when done.
  func statement(_ sql: SQL) throws(StoreError) -> SQLiteStatement {
    if let known = statements[ObjectIdentifier(sql)] { return known }
    let made = try prepare(sql.text, kept: true)
    statements[ObjectIdentifier(sql)] = made
    return made
  }

  /// A statement for a single use.
  func prepare(_ text: String, kept: Bool = false) throws(StoreError) -> SQLiteStatement {
    var prepared: OpaquePointer?
    let flags = kept ? UInt32(SQLITE_PREPARE_PERSISTENT) : 0
    let code = sqlite3_prepare_v3(handle, text, -1, flags, &prepared, nil)
    guard code == SQLITE_OK, let prepared else { throw error(code, doing: "prepare a statement") }
    return SQLiteStatement(owning: prepared, of: self)
  }

  /// The first column of the first row, as a number; nil if there is no row or it is null.
  func integer(_ text: String) throws(StoreError) -> Int64? {
    let statement = try prepare(text)
    return try statement.step() && !statement.isNull(0) ? statement.integer(0) : nil
  }

  /// How many virtual machine steps SQLite ran for the cached statements: their cost, the same on every machine. For
  /// tests.
  var steps: Int { statements.values.reduce(0) { $0 + $1.steps } }

  /// How often the cached statements ran. For tests.
  var runs: Int { statements.values.reduce(0) { $0 + $1.runs } }

  /// Whether no transaction is open.
  var isIdle: Bool { sqlite3_get_autocommit(handle) != 0 }

  /// The error for `code`, with SQLite's latest message.
  func error(_ code: Int32, doing: String) -> StoreError {
    .sqlite(
      code, doing: doing, path: path, detail: String(cString: sqlite3_errmsg(handle)),
      system: [SQLITE_IOERR, SQLITE_CANTOPEN, SQLITE_FULL].contains(code & 0xff) ? sqlite3_system_errno(handle) : 0)
  }
}
