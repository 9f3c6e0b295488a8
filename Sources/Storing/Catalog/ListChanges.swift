import Base
import Manifest

/// What an import changed in a tree that a mount shows.
package struct ListChanges: Sendable, Equatable {
  /// The names that came and went: those that went first, each after what was below it, then those that came, each
  /// before what is below it.
  package var tree: [TreeChange] = []
  /// The resources of these names, and those that have other URLs or header fields.
  package var resources: Set<ResourceKey> = []
  /// Names that came.
  package var added = 0
  /// Names that went.
  package var removed = 0
  /// Files that have other URLs or header fields, or are other ones under a name that stays.
  package var relinked = 0
  /// What all lists lose together, and each of several lists.
  package var losses: [ListLoss] = []

  /// Whether the tree and all links are as before.
  package var isEmpty: Bool { tree.isEmpty && resources.isEmpty }
}

extension ListChanges {
  /// Beyond so many bytes the names of a difference are not remembered.
  private static let mostEncoded = 16 << 20

  /// The names that came or went: for each its folder, as a varint, and its text. Empty if they are very many.
  var encodedNames: [UInt8] {
    var writer = BlobWriter()
    for change in tree {
      switch change {
      case .added(let parent, let name, _), .removed(let parent, let name, _), .replaced(let parent, let name):
        writer.append(Int64(bitPattern: parent))
        writer.append(name)
      }
      if writer.bytes.count > Self.mostEncoded { return [] }
    }
    return writer.bytes
  }

  /// The same, read; what is damaged ends it.
  static func names(encoded bytes: [UInt8]) -> [TreeChange] {
    bytes.withUnsafeBytes { bytes in
      var (reader, names) = (BlobReader(bytes), [TreeChange]())
      while !reader.isAtEnd, let parent = reader.number(), let name = reader.text() {
        names.append(.replaced(parent: Inode(bitPattern: parent), name: name))
      }
      return names
    }
  }
}

/// Notes what an import changes, while it goes on.
struct GatheredChanges {
  /// Whether anybody asks.
  let isWanted: Bool
  private var new: [Int64] = []
  private var gone: [(id: Int64, change: TreeChange)] = []
  private var resources: Set<ResourceKey> = []
  private var relinkedCount = 0
  /// Files of which the kernel may have the former list's size.
  private var resized: [Int64] = []

  init(isWanted: Bool) { self.isWanted = isWanted }

  /// An entry is listed that was not. `key`: of a file's resource.
  mutating func added(_ id: Int64, _ key: ResourceKeyColumns) {
    guard isWanted else { return }
    new.append(id)
    resources.insert(key.key)
  }

  /// A listed file has another source.
  mutating func changed(_ id: Int64, _ key: ResourceKeyColumns, _ difference: SourceDifference) {
    guard isWanted else { return }
    if difference == .link { relinkedCount += 1 }
    if difference == .size { resized.append(id) }
    if difference == .link || difference == .size { resources.insert(key.key) }
  }

  /// An entry is about to be unlisted: it has its name still.
  mutating func removed(_ id: Int64, _ connection: SQLiteConnection) throws(StoreError) {
    guard isWanted, let row = try Self.name(of: id, connection) else { return }
    gone.append((id, .removed(parent: row.parent, name: row.name, isFolder: row.isFolder)))
    resources.insert(row.key.key)
  }

  /// All of it, once the new entries have their names.
  func list(
    in connection: SQLiteConnection, hasAliases: Bool, namesBefore: Int64, lists: [String], firstNew: Int64
  ) throws(StoreError) -> ListChanges {
    var changes = ListChanges()
    changes.resources = resources
    changes.resources.remove(ResourceKeyColumns.none.key)
    (changes.added, changes.removed, changes.relinked) = (new.count, gone.count, relinkedCount)
    var removed = Set(gone.map(\.id))
    if hasAliases, !gone.isEmpty { changes.tree = try aliases(connection) }
    // An entry's number is higher than that of its folder.
    var left: [Name: (place: Int, id: Int64)] = [:]
    for one in gone.sorted(by: { $0.id > $1.id }) {
      if case .removed(let parent, let name, false) = one.change {
        left[Name(parent: parent, name: Array(name.utf8))] = (changes.tree.count, one.id)
      }
      changes.tree.append(one.change)
    }
    for id in new.sorted() {
      guard let row = try Self.name(of: id, connection) else { continue }
      if !row.isFolder, let (place, former) = left[Name(parent: row.parent, name: Array(row.name.utf8))] {
        removed.remove(former)
        changes.tree[place] = .replaced(parent: row.parent, name: row.name)
        (changes.added, changes.removed) = (changes.added - 1, changes.removed - 1)
        changes.relinked += 1
      } else {
        changes.tree.append(.added(parent: row.parent, name: row.name, isFolder: row.isFolder))
      }
    }
    for id in resized {
      guard let row = try Self.name(of: id, connection), try !Self.hasGeneration(row.key, connection) else { continue }
      changes.tree.append(.replaced(parent: row.parent, name: row.name))
    }
    var losses = ListLosses(connection, folders: lists)
    changes.losses = [ListLoss(removed: changes.removed, names: namesBefore)]
    changes.losses += try losses.find(unlisted: gone.map(\.id).filter(removed.contains), before: firstNew)
    return changes
  }

  /// The former names of what went, which led to it too.
  private func aliases(_ connection: SQLiteConnection) throws(StoreError) -> [TreeChange] {
    let ids = Set(gone.map(\.id))
    var found: [TreeChange] = []
    let statement = try connection.statement(ImportQueries.aliases)
    defer { statement.reset() }
    while try statement.step() {
      guard ids.contains(statement.integer(2)) else { continue }
      found.append(
        .removed(parent: Inode(bitPattern: statement.integer(0)), name: statement.text(1), isFolder: false))
    }
    return found
  }

  /// By its bytes: as Strings, names that differ only in their normalization are equal.
  private struct Name: Hashable {
    var parent: Inode
    var name: [UInt8]
  }

  private struct Row {
    var parent: Inode
    var name: String
    var isFolder: Bool
    var key: ResourceKeyColumns
  }

  /// Whether the origin has answered for the file: then stat shows nothing of the list.
  private static func hasGeneration(
    _ key: ResourceKeyColumns, _ connection: SQLiteConnection
  ) throws(StoreError) -> Bool {
    let statement = try connection.statement(ImportQueries.generation)
    defer { statement.reset() }
    statement.bind(1, key)
    return try statement.step()
  }

  private static func name(of id: Int64, _ connection: SQLiteConnection) throws(StoreError) -> Row? {
    let statement = try connection.statement(ImportQueries.names)
    defer { statement.reset() }
    statement.bind(1, id)
    guard try statement.step() else { return nil }
    return Row(
      parent: Inode(bitPattern: statement.integer(0)), name: statement.text(1), isFolder: statement.integer(2) == 1,
      key: ResourceKeyColumns(high: statement.integer(3), low: statement.integer(4)))
  }
}
