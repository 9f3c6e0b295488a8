import Base
import CSQLite

/// A prepared statement: bind values (from 1), step through rows, read columns (from 0), reset.
///
/// A statement that stepped to a row keeps its read transaction open until it is reset.
final class SQLiteStatement {
  private let handle: OpaquePointer
  // Unowned: the connection owns the cached statements and outlives every use of them.
  private unowned let connection: SQLiteConnection

  init(owning handle: OpaquePointer, of connection: SQLiteConnection) {
    self.handle = handle
    self.connection = connection
  }

  deinit { sqlite3_finalize(handle) }

  // A bind fails only for a bad index or without memory; the next step then reports the missing value as a constraint
  // error.
  func bind(_ index: Int32, _ value: Int64) { sqlite3_bind_int64(handle, index, value) }
  func bind(_ index: Int32, _ value: Int) { sqlite3_bind_int64(handle, index, Int64(value)) }
  func bind(_ index: Int32, _ value: Int64?) {
    if let value { bind(index, value) } else { bindNull(index) }
  }
  func bindNull(_ index: Int32) { sqlite3_bind_null(handle, index) }

  func bind(_ index: Int32, _ value: String?) {
    guard var value else { return bindNull(index) }
    value.withUTF8 { bytes in
      bytes.withMemoryRebound(to: CChar.self) { characters in
        // An empty string may have no address, and null would bind NULL.
        _ = csqlite_bind_text(handle, index, characters.baseAddress ?? emptyText, Int32(characters.count))
      }
    }
  }

  /// Text of raw bytes, which it copies. Bytes that are not UTF-8 equal no stored text.
  func bind(_ index: Int32, text bytes: UnsafeBufferPointer<UInt8>) {
    bytes.withMemoryRebound(to: CChar.self) { characters in
      _ = csqlite_bind_text(handle, index, characters.baseAddress ?? emptyText, Int32(characters.count))
    }
  }

  func bind(_ index: Int32, blob bytes: [UInt8]?) {
    guard let bytes else { return bindNull(index) }
    bytes.withUnsafeBytes { _ = csqlite_bind_blob(handle, index, $0.baseAddress, Int32($0.count)) }
  }

  /// Text of those bytes, without a copy: they must stay valid until ``reset()`` (or ``run()``, also if it throws).
  func bind(_ index: Int32, lastingText bytes: UnsafeRawBufferPointer) {
    _ = csqlite_bind_lasting_text(handle, index, bytes.baseAddress ?? UnsafeRawPointer(emptyText), Int32(bytes.count))
  }

  /// A blob of those bytes, without a copy, as for ``bind(_:lastingText:)``.
  func bind(_ index: Int32, lastingBlob bytes: UnsafeRawBufferPointer) {
    _ = csqlite_bind_lasting_blob(handle, index, bytes.baseAddress, Int32(bytes.count))
  }

  /// Two columns: a key's halves, at `index` and after it.
  func bind(_ index: Int32, _ key: ResourceKeyColumns) {
    bind(index, key.high)
    bind(index + 1, key.low)
  }

  /// Steps; whether there is a (further) row.
  func step() throws(StoreError) -> Bool {
    let code = sqlite3_step(handle)
    if code == SQLITE_ROW { return true }
    if code == SQLITE_DONE { return false }
    let error = connection.error(code, doing: "use")
    reset()
    throw error
  }

  /// Runs it to the end and resets it for the next use.
  func run() throws(StoreError) {
    while try step() {}
    reset()
  }

  /// Ends it (and its read transaction) and clears the bound values.
  func reset() {
    // The result repeats the last step's error, which was already thrown.
    sqlite3_reset(handle)
    sqlite3_clear_bindings(handle)
  }

  /// How many virtual machine steps SQLite has run for it.
  var steps: Int { Int(sqlite3_stmt_status(handle, SQLITE_STMTSTATUS_VM_STEP, 0)) }

  /// How often it has run.
  var runs: Int { Int(sqlite3_stmt_status(handle, SQLITE_STMTSTATUS_RUN, 0)) }

  func isNull(_ column: Int32) -> Bool { sqlite3_column_type(handle, column) == SQLITE_NULL }
  func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }
  func optionalInteger(_ column: Int32) -> Int64? { isNull(column) ? nil : integer(column) }

  /// The number of a line or of names, or seconds since 1970. A damaged row may have any number. This one is from 0 to
  /// 2^53, so that no sum and no difference of such numbers overflows.
  func bounded(_ column: Int32) -> Int64 { min(max(0, integer(column)), 1 << 53) }

  func text(_ column: Int32) -> String {
    guard let bytes = sqlite3_column_text(handle, column) else { return "" }
    let count = Int(sqlite3_column_bytes(handle, column))
    return String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
  }
  func optionalText(_ column: Int32) -> String? { isNull(column) ? nil : text(column) }

  /// The column's bytes, valid only during the call.
  func withBlob<Result>(_ column: Int32, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
    let start = sqlite3_column_blob(handle, column)
    return body(UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(handle, column))))
  }
  func blob(_ column: Int32) -> [UInt8] { withBlob(column) { [UInt8]($0) } }
}

// An address for text without bytes. Immutable and never freed, so any thread may use it.
nonisolated(unsafe) private let emptyText: UnsafePointer<CChar> = {
  let byte = UnsafeMutablePointer<CChar>.allocate(capacity: 1)
  byte.initialize(to: 0)
  return UnsafePointer(byte)
}()
