import Base
import Glibc

/// A walk over the listed files, in the order of their ids, that goes along with the lines of a list.
///
/// One thread uses it, that of the connection.
final class RowWalk {
  /// After so many lines in a row, a walk is the one that the next lines are likely to meet.
  static let long = 16

  private let statement: SQLiteStatement
  private var hasRow = false
  /// The row that the last line met.
  private(set) var id: Int64 = 0
  /// The one before it, if the line before met that.
  private(set) var previous: Int64?
  private(set) var line = 0
  /// How many lines in a row have met one row after the other.
  private(set) var length = 0

  /// Without an index: the rows in their own order.
  private static let query = """
    SELECT id, parent, key_high, key_low, line, coalesce(wanted, name), source FROM entry NOT INDEXED
    WHERE id > ? AND kind = 0 AND listed = 1 ORDER BY id
    """

  /// A walk without a row.
  init(_ connection: SQLiteConnection) throws(StoreError) { statement = try connection.prepare(Self.query) }

  /// Begins anew with the row after `id`.
  func begin(after id: Int64) throws(StoreError) {
    end()
    statement.bind(1, id)
    hasRow = try statement.step()
    (length, previous) = (0, nil)
  }

  /// Ends the statement's read.
  func end() {
    statement.reset()
    hasRow = false
  }

  /// Whether the line is that of the walk's next row, and the same as when it was imported. The walk then goes on to
  /// the row after it. It passes over rows in `seen`: other lines have met them.
  func meets(
    _ entry: ImportBatch.Line, _ name: UnsafeRawBufferPointer, _ source: UnsafeRawBufferPointer, in parent: Int64,
    _ seen: IDSet
  ) throws(StoreError) -> Bool {
    while hasRow, seen.contains(statement.integer(0)) {
      length = 0
      hasRow = try statement.step()
    }
    guard hasRow, statement.integer(2) == entry.key.high, statement.integer(3) == entry.key.low,
      statement.integer(1) == parent, statement.withBlob(5, { $0.hasBytes(of: name) }),
      statement.withBlob(6, { $0.hasBytes(of: source) })
    else { return false }
    previous = length > 0 ? id : nil
    (id, line) = (statement.integer(0), Int(statement.bounded(4)))
    length += 1
    hasRow = try statement.step()
    return true
  }
}

extension UnsafeRawBufferPointer {
  /// Whether it has the same bytes as `other`.
  func hasBytes(of other: UnsafeRawBufferPointer) -> Bool {
    guard count == other.count else { return false }
    guard let first = baseAddress, let second = other.baseAddress else { return isEmpty }
    return memcmp(first, second, count) == 0
  }
}
