import Base
import Manifest

/// Some items of a manifest, in its order, in the form in which an import writes them.
///
/// An entry here is not an object of its own. One thread fills a batch and another consumes it: each object would cost
/// both threads a cache line, and the heap's lock when it is freed.
struct ImportBatch: Sendable {
  /// An entry; its ranges refer to the batch's ``ImportBatch/bytes``.
  struct Line {
    var line: Int
    var key: ResourceKeyColumns
    var mayGainExtension: Bool
    /// Index of its path in ``ImportBatch/folders``.
    var folder: Int
    /// The length of its path in bytes, folders included.
    var pathLength: Int
    var name: Range<Int>
    /// The `entry.source` that the catalog keeps of the line.
    var source: Range<Int>
  }
  enum Item {
    case line(Line)
    case problem(ManifestProblem)
  }

  private(set) var items: [Item] = []
  /// Paths of folders; consecutive entries in one folder share one.
  private(set) var folders: [[String]] = []
  private var writer = BlobWriter()

  var bytes: [UInt8] { writer.bytes }

  /// Whether the batch is full, by items or by bytes: an entry may have megabytes of header fields.
  var isFull: Bool { items.count >= Self.most || writer.bytes.count >= Self.mostBytes }
  /// Enough items that the cost of a hand-over does not matter, and few enough that a batch fills soon.
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
      // Compares bytes: as Strings, names that differ only in their normalization are equal.
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
