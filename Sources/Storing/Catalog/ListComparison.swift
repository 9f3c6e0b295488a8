import Base
import Manifest

/// The first half of an import into a tree that exists: compares the list with the rows, on a read connection, and
/// keeps what differs. So the catalog's writer is held only for the difference (``TreeImport``), however long the list
/// is.
///
/// Most lists change in a few lines. The rows lie in the order in which their lines first came, so a row is mostly the
/// one after that of the line before. Two walks over the rows go along with the list, and only a line that neither of
/// them meets costs lookups.
struct ListComparison {
  /// How many bytes of lines that differ are kept. A comparison with more goes on as a whole import.
  static let mostBytes = 32 << 20

  /// What it finds.
  struct Result {
    /// The rows that the list has.
    var seen = IDSet()
    var counts = ImportReport(epoch: 0, files: 0, folders: 0, problems: 0, duplicates: 0)
    /// Usable lines.
    var entries = 0
    /// The lines that change or add a row, in the list's order, and the rows that they change.
    var lines = ImportBatch()
    var rows: [Int64?] = []
    /// Folders that the list has, and that are unlisted or have no name; and before which of `lines` each came.
    var folders: [(before: Int, id: Int64)] = []
    /// The rows whose lines only have other numbers.
    var shifts = LineShifts()
    /// The rows of folders in which the list itself names something.
    var own = IDSet()
    /// The listed rows that the list does not have; nil if there was too much to compare the list to its end.
    var unseen: [Int64]?
  }

  private let rows: ImportRows
  private let report: (ManifestProblem) -> Void
  private let scope: ImportScope?
  private(set) var result = Result()
  private var folders = FolderCache()
  /// Follows the rows that the last lines met.
  private let walk: RowWalk
  /// Begins anew after each row that a lookup found.
  private let jump: RowWalk
  /// Whether `jump` has become the walk that most lines meet.
  private var isSwapped = false
  /// Unlisted rows that the list has again.
  private var relisted: [Int64] = []
  /// The listed rows that were read so far, and the statement that reads the others; nil: there are no others, or only
  /// the rows of folders count.
  private var listed = IDSet()
  private var listing: SQLiteStatement?
  /// Lines that repeat one of a row.
  private var repeated: [(line: Int, row: Int64)] = []

  /// Compares the batches that `next` gives until it returns nil, or until more than `most` bytes of lines differ.
  /// `scope`: the folders that they are of; nil: they are the whole list.
  static func run(
    _ connection: SQLiteConnection, strict: Bool, most: Int, scope: ImportScope? = nil,
    report: @escaping (ManifestProblem) -> Void, next: () throws(StoreError) -> ImportBatch?
  ) throws(StoreError) -> Result {
    var comparison = try ListComparison(connection, scope, report)
    defer { comparison.end() }
    try comparison.enter()
    while comparison.result.lines.bytes.count <= most {
      guard let batch = try next() else {
        comparison.result.unseen = try comparison.unseen()
        break
      }
      try comparison.add(batch, strict: strict)
      // As many as lines: after the last one, few are left to read.
      try comparison.readListed(ImportBatch.most)
    }
    return try comparison.finish()
  }

  private init(
    _ connection: SQLiteConnection, _ scope: ImportScope?, _ report: @escaping (ManifestProblem) -> Void
  ) throws(StoreError) {
    rows = ImportRows(connection: connection)
    self.scope = scope
    self.report = report
    walk = try RowWalk(connection)
    jump = try RowWalk(connection)
    // The rows of a folder may be anywhere: its first line says where.
    if scope == nil {
      try walk.begin(after: 0)
      listing = try connection.statement(ImportQueries.listed)
    }
  }

  /// Finds the folders of the scope, which no listing names.
  private mutating func enter() throws(StoreError) {
    guard let scope else { return }
    for (row, folder) in scope.roots {
      var id = Int64(rootInode)
      for depth in folder.path.indices {
        guard let known = try rows.row(wanting: folder.path[depth], .none, kind: 1, in: id, before: .max),
          known.isListed, known.hasName
        else { throw scope.unfit() }
        id = known.id
        _ = result.seen.insert(id)
        folders.insert(folder.path[...depth], id)
      }
      if id != row { throw scope.unfit() }
    }
  }

  private mutating func finish() throws(StoreError) -> Result {
    result.shifts.sort()
    result.shifts.exclude(relisted)
    var changed: [Int64: Int] = [:]
    if !repeated.isEmpty {
      for (index, item) in result.lines.items.enumerated() {
        if case .line(let line) = item, let row = result.rows[index] { changed[row] = line.line }
      }
    }
    for (line, row) in repeated {
      let former = try rows.row(id: row)?.line ?? 0
      result.counts.noteDuplicate(
        line: line, first: changed[row] ?? result.shifts.line(of: row, from: former), report)
    }
    return result
  }

  private func end() {
    walk.end()
    jump.end()
    listing?.reset()
  }

  /// Reads up to `count` more of the listed rows.
  private mutating func readListed(_ count: Int) throws(StoreError) {
    guard let listing else { return }
    for _ in 0..<count {
      guard try listing.step() else {
        listing.reset()
        self.listing = nil
        return
      }
      _ = listed.insert(listing.integer(0))
    }
  }

  /// The listed rows that no line has met.
  private mutating func unseen() throws(StoreError) -> [Int64] {
    if let scope { return try scope.unseen(rows, result.seen) }
    try readListed(.max)
    return listed.subtracting(result.seen)
  }

  private mutating func add(_ batch: ImportBatch, strict: Bool) throws(StoreError) {
    var folderIndex: Int?
    var ownIndex: Int?
    var parent: Int64?
    let bytes = batch.bytes
    for item in batch.items {
      switch item {
      case .problem(let problem): try result.counts.note(problem, strict: strict, report)
      case .folder(let shown, _):
        result.entries += 1
        let id = try folder(shown.path)
        let former = id.flatMap { result.counts.servers.updateValue(shown, forKey: Inode(bitPattern: $0)) }
        try scope?.met(shown, row: id, isFirst: former == nil)
        guard let id else {
          result.rows.append(nil)
          result.lines.append(shown)
          continue
        }
        if let former {
          _ = result.own.insert(id)
          result.counts.hidden.insert(former.source.url)
        }
        if let above = shown.namedIn, let id = try folder(above) { _ = result.own.insert(id) }
      case .line(let line):
        if let problem = line.problem {
          try result.counts.note(problem, strict: strict, report)
          continue
        }
        result.entries += 1
        if line.folder != folderIndex {
          parent = try folder(batch.folders[line.folder])
          folderIndex = line.folder
        }
        if !line.isServed, line.folder != ownIndex, let parent {
          _ = result.own.insert(parent)
          ownIndex = line.folder
        }
        // No pointer leaves the closure.
        let isKept = try bytes.span.withUnsafeBytes { (bytes) throws(StoreError) -> KeptLine in
          guard let parent else { return .new }
          return try compare(
            line, name: UnsafeRawBufferPointer(rebasing: bytes[line.name]),
            source: UnsafeRawBufferPointer(rebasing: bytes[line.source]), in: parent)
        }
        switch isKept {
        case .no: continue
        case .new: result.rows.append(nil)
        case .row(let row): result.rows.append(row)
        }
        result.lines.append(line, of: batch)
      }
    }
  }

  /// Whether a line differs from the tree, and in which row.
  private enum KeptLine {
    case no
    case new
    case row(Int64)
  }

  private mutating func compare(
    _ line: ImportBatch.Line, name: UnsafeRawBufferPointer, source: UnsafeRawBufferPointer, in parent: Int64
  ) throws(StoreError) -> KeptLine {
    let (usual, other) = isSwapped ? (jump, walk) : (walk, jump)
    if try usual.meets(line, name, source, in: parent, result.seen) {
      met(line, usual)
      return .no
    }
    if try other.meets(line, name, source, in: parent, result.seen) {
      met(line, other)
      if other.length == RowWalk.long { isSwapped.toggle() }
      return .no
    }
    let text = String(decoding: name, as: UTF8.self)
    let holder = try rows.row(named: text, in: parent)
    guard let known = try rows.file(text, line.key, in: parent, holder: holder) else { return .new }
    guard result.seen.insert(known.id) else {
      repeated.append((line.line, known.id))
      return .no
    }
    result.counts.files += 1
    if !known.isListed { relisted.append(known.id) }
    guard known.isListed, known.hasName, try rows.hasSource(known.id, source) else { return .row(known.id) }
    result.shifts.note(known.id, by: line.line - known.line)
    try other.begin(after: known.id)
    return .no
  }

  /// A line has met the row of a walk.
  private mutating func met(_ line: ImportBatch.Line, _ walk: RowWalk) {
    result.counts.files += 1
    _ = result.seen.insert(walk.id)
    result.shifts.note(walk.id, by: line.line - walk.line, after: walk.previous)
  }

  /// The row of a folder; nil if it, or a folder above it, has none.
  private mutating func folder(_ path: [String]) throws(StoreError) -> Int64? {
    if let known = folders.find(path) { return known }
    var id = Int64(rootInode)
    for depth in path.indices {
      let prefix = path[...depth]
      if let known = folders.find(prefix) {
        id = known
        continue
      }
      guard let known = try rows.row(wanting: path[depth], .none, kind: 1, in: id, before: .max) else { return nil }
      if result.seen.insert(known.id) {
        result.counts.folders += 1
        if !known.isListed || !known.hasName { result.folders.append((result.rows.count, known.id)) }
      }
      id = known.id
      folders.insert(prefix, id)
    }
    return id
  }
}
