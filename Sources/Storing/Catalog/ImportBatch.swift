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
    /// Whether a server's folder names it, and not the list itself.
    var isServed: Bool
    /// Index of its path in ``ImportBatch/folders``.
    var folder: Int
    /// The length of its path in bytes, folders included.
    var pathLength: Int
    var name: Range<Int>
    /// The `entry.source` that the catalog keeps of the line.
    var source: Range<Int>

    /// A path may have 4095 bytes (PATH_MAX with its NUL, Linux).
    private static let maximumPath = 4095

    /// Why the line cannot be used; nil if it can.
    var problem: ManifestProblem? {
      if pathLength <= Self.maximumPath { return nil }
      return ManifestProblem(
        line: line, severity: .error,
        message: "its path has \(pathLength) bytes, more than the 4095 that Linux allows")
    }
  }
  enum Item {
    case line(Line)
    /// A folder that shows a server's, and the index of its path.
    case folder(ManifestFolder, Int)
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
    case .folder(let folder): append(folder)
    case .entry(var entry):
      if SafeName.isReserved(entry.folder.first ?? entry.name) {
        if entry.folder.isEmpty {
          entry.name = SafeName.unreserved(entry.name)
        } else {
          entry.folder[0] = SafeName.unreserved(entry.folder[0])
        }
      }
      add(path: entry.folder)
      let start = writer.bytes.count
      writer.append(sourceOf: entry)
      let end = writer.bytes.count
      writer.append(bytesOf: entry.name)
      items.append(
        .line(
          Line(
            line: entry.line, key: ResourceKeyColumns(entry.key), mayGainExtension: entry.mayGainExtension,
            isServed: entry.isServed, folder: folders.count - 1,
            pathLength: entry.folder.reduce(entry.name.utf8.count) { $0 + $1.utf8.count + 1 },
            name: end..<writer.bytes.count, source: start..<end)))
    }
  }

  mutating func append(_ folder: ManifestFolder) {
    var folder = folder
    if let top = folder.path.first, SafeName.isReserved(top) { folder.path[0] = SafeName.unreserved(top) }
    add(path: folder.path)
    items.append(.folder(folder, folders.count - 1))
  }

  private mutating func add(path: [String]) {
    // Compares bytes: as Strings, names that differ only in their normalization are equal.
    let isSame = folders.last?.elementsEqual(path) { $0.utf8.elementsEqual($1.utf8) } ?? false
    if !isSame { folders.append(path) }
  }

  /// Appends a line of another batch.
  mutating func append(_ line: Line, of batch: ImportBatch) {
    add(path: batch.folders[line.folder])
    var copy = line
    copy.folder = folders.count - 1
    copy.source = append(batch.bytes[line.source])
    copy.name = append(batch.bytes[line.name])
    items.append(.line(copy))
  }

  private mutating func append(_ bytes: ArraySlice<UInt8>) -> Range<Int> {
    let start = writer.bytes.count
    writer.append(rawBytes: bytes)
    return start..<writer.bytes.count
  }
}
