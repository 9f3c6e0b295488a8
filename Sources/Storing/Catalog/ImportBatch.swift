import Base
import Manifest

/// Some items of a manifest, in its order, in the form in which an import writes them.
///
/// An entry here has no object of its own: a batch is made on one thread and used up on another, where each object
/// would cost two threads a cache line, and the heap's lock when it goes.
struct ImportBatch: Sendable {
  /// An entry; the ranges are of the batch's ``ImportBatch/bytes``.
  struct Line {
    var line: Int
    var key: ResourceKeyColumns
    var mayGainExtension: Bool
    /// Index of its path in ``ImportBatch/folders``.
    var folder: Int
    /// How many bytes its path has, the folders' too.
    var pathLength: Int
    var name: Range<Int>
    /// What the catalog keeps of the line as `entry.source`.
    var source: Range<Int>
  }
  enum Item {
    case line(Line)
    case problem(ManifestProblem)
  }

  private(set) var items: [Item] = []
  /// Paths of folders; entries that follow each other in one folder share one.
  private(set) var folders: [[String]] = []
  private var writer = BlobWriter()

  var bytes: [UInt8] { writer.bytes }

  /// Whether it is as large as one should be: by number, and by bytes, as an entry may have megabytes of header fields.
  var isFull: Bool { items.count >= Self.most || writer.bytes.count >= Self.mostBytes }
  /// So many items that a hand-over costs nothing beside them, and so few that they are soon there.
  static let most = 256
  private static let mostBytes = 256 << 10

  init(capacity: Int = 0) {
    items.reserveCapacity(capacity)
    writer.reserveCapacity(capacity * 96)
  }

  mutating func append(_ item: consuming ManifestItem) {
    switch consume item {
    case .problem(let problem): items.append(.problem(problem))
    case .entry(let entry):
      // By bytes: to a String, names that differ only in their normalisation are equal.
      let isSame = folders.last?.elementsEqual(entry.folder) { $0.utf8.elementsEqual($1.utf8) } ?? false
      if !isSame { folders.append(entry.folder) }
      let start = writer.bytes.count
      writer.append(sourceOf: entry)
      let end = writer.bytes.count
      writer.append(bytesOf: entry.name)
      items.append(
        .line(
          Line(
            line: entry.line, key: ResourceKeyColumns(entry.key), mayGainExtension: entry.mayGainExtension,
            folder: folders.count - 1,
            pathLength: entry.folder.reduce(entry.name.utf8.count) { $0 + $1.utf8.count + 1 },
            name: end..<writer.bytes.count, source: start..<end)))
    }
  }
}
