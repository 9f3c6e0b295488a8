import Base
import Manifest

// The tree, as the mount queries it. A listed entry is visible. A remembered one is found by its inode only, because a
// handle on it may still be open.

/// How many names a catalog lists.
package struct CatalogCounts: Sendable, Equatable {
  /// Files and folders, without the root.
  package var names: Int64
  /// Files.
  package var files: Int64
}

/// A name, as a walk over the whole tree finds it.
package struct SurveyedNode: Sendable {
  /// Its node.
  package var node: Node
  /// Whether bytes of it are stored or a problem is noted. If not, the node has all that the catalog knows.
  package var isKnown: Bool

  /// Wraps that node.
  package init(node: Node, isKnown: Bool) {
    self.node = node
    self.isKnown = isKnown
  }
}

private let nodeFields = """
  e.id, coalesce(e.inode, e.id), e.parent, e.kind, coalesce(e.name, e.wanted), e.key_high, e.key_low, g.size,
    g.last_modified, iif(g.id IS NULL, e.source, NULL)
  """
private let nodeRows = """
  FROM entry e LEFT JOIN generation g ON g.key_high = e.key_high AND g.key_low = e.key_low AND g.state <> 2
  """
private let nodeColumns = "SELECT \(nodeFields) \(nodeRows)"

private enum Queries {
  static let byName = SQL("\(nodeColumns) WHERE e.parent = ? AND e.name = ? AND e.listed = 1")
  static let byAlias = SQL(
    "\(nodeColumns) WHERE e.id = (SELECT entry FROM alias WHERE parent = ? AND name = ?) AND e.listed = 1")
  static let byID = SQL("\(nodeColumns) WHERE e.id = ? AND e.inode IS NULL")
  static let byEntry = SQL("\(nodeColumns) WHERE e.id = ?")
  static let byInode = SQL("\(nodeColumns) WHERE e.inode = ?")
  static let listing = SQL("\(nodeColumns) WHERE e.parent = ? AND e.listed = 1 AND e.id > ? ORDER BY e.id LIMIT ?")
  static let survey = SQL(
    """
    SELECT \(nodeFields), g.state = 1 OR g.synced_bytes > 0 OR g.recent_bytes > 0 OR EXISTS(
      SELECT 1 FROM problem p WHERE p.key_high = e.key_high AND p.key_low = e.key_low)
    \(nodeRows) WHERE e.parent = ? AND e.listed = 1 AND e.id > ? ORDER BY e.id LIMIT ?
    """)
  static let byKey = SQL("\(nodeColumns) WHERE e.key_high = ? AND e.key_low = ? AND e.kind = 0 AND e.listed = 1")
  static let former = SQL("\(nodeColumns) WHERE e.key_high = ? AND e.key_low = ? AND e.kind = 0 AND e.listed = 0")
  static let parent = SQL("SELECT parent FROM entry WHERE id = ? AND kind = 1")
  static let names = SQL("SELECT parent, coalesce(name, wanted), coalesce(wanted, name) FROM entry WHERE id = ?")
  static let source = SQL("SELECT line, coalesce(wanted, name), source, listed FROM entry WHERE id = ?")
}

/// The tree of names.
package struct CatalogTree: Sendable {
  let connections: CatalogConnections

  /// The root, which has no row.
  private static let root = Node(
    entry: Int64(rootInode), inode: rootInode, parent: rootInode, kind: .folder, name: "",
    key: ResourceKeyColumns.none.key, size: nil, modified: nil)

  /// What `name` (any bytes) leads to in the folder `parent`: a listed entry, or one that had this name before it
  /// gained an extension. Nil if there is none.
  package func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(StoreError) -> Node? {
    try connections.read { (connection) throws(StoreError) in
      try Self.lookup(parent: Int64(bitPattern: parent), on: connection) { $0.bind(2, text: name) }
    }
  }

  private static func lookup(
    parent: Int64, on connection: SQLiteConnection, bindName: (SQLiteStatement) -> Void
  ) throws(StoreError) -> Node? {
    for query in [Queries.byName, Queries.byAlias] {
      let statement = try connection.statement(query)
      statement.bind(1, parent)
      bindName(statement)
      if let node = try first(statement) { return node }
    }
    return nil
  }

  /// The node whose current inode this is (also one that is no longer listed, because handles on it may be open); the
  /// root for 1. Nil for an inode that never existed or that another one replaced: see
  /// ``CatalogGenerations/superseded(inode:)``.
  package func node(_ inode: Inode) throws(StoreError) -> Node? {
    try connections.read { (connection) throws(StoreError) in try Self.node(Int64(bitPattern: inode), on: connection) }
  }

  static func node(_ inode: Int64, on connection: SQLiteConnection) throws(StoreError) -> Node? {
    if inode == root.entry { return root }
    for query in [Queries.byID, Queries.byInode] {
      let statement = try connection.statement(query)
      statement.bind(1, inode)
      if let node = try first(statement) { return node }
    }
    return nil
  }

  /// The node of the entry with that id, listed or remembered.
  static func node(entry: Int64, on connection: SQLiteConnection) throws(StoreError) -> Node? {
    let statement = try connection.statement(Queries.byEntry)
    statement.bind(1, entry)
    return try first(statement)
  }

  /// Up to `limit` names of `folder` whose entry id (the directory cookie) is greater than `cookie`, in that order. If
  /// a name is added or removed while a reader lists the folder, the position of the others stays.
  package func list(_ folder: Inode, after cookie: Int64, limit: Int) throws(StoreError) -> [Node] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.listing)
      defer { statement.reset() }
      statement.bind(1, Int64(bitPattern: folder))
      statement.bind(2, cookie)
      statement.bind(3, limit)
      var nodes: [Node] = []
      while try statement.step() { nodes.append(Self.node(of: statement)) }
      return nodes
    }
  }

  /// Like ``list(_:after:limit:)``, for a walk over the whole tree. The list ends after the first folder, into which
  /// the walk goes next. For each file it says whether the walk must ask the catalog for more.
  ///
  /// Throws `.corrupt` at a folder whose number none in `folder` can have: damaged rows may lead back to where the walk
  /// has been, and it would never end.
  package func survey(_ folder: Inode, after cookie: Int64, limit: Int) throws(StoreError) -> [SurveyedNode] {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.survey)
      defer { statement.reset() }
      statement.bind(1, Int64(bitPattern: folder))
      statement.bind(2, cookie)
      statement.bind(3, limit)
      var found: [SurveyedNode] = []
      while found.last?.node.kind != .folder, try statement.step() {
        let node = Self.node(of: statement)
        if node.kind == .folder, !Self.isBelow(folder, node) {
          throw .damaged(connection.path, "the number of folder \(node.entry) is impossible")
        }
        found.append(SurveyedNode(node: node, isKnown: statement.integer(10) != 0))
      }
      return found
    }
  }

  /// Whether a folder may lie in `folder`: it keeps its first inode, and is newer than the folder that it was made in.
  private static func isBelow(_ folder: Inode, _ node: Node) -> Bool {
    node.inode == Inode(bitPattern: node.entry) && node.entry > Int64(bitPattern: folder)
  }

  /// The folder that contains `folder`; the root for the root and for an inode that is not a folder.
  package func parent(of folder: Inode) throws(StoreError) -> Inode {
    try connections.read { (connection) throws(StoreError) in
      let statement = try connection.statement(Queries.parent)
      defer { statement.reset() }
      statement.bind(1, Int64(bitPattern: folder))
      return try statement.step() ? Inode(bitPattern: statement.integer(0)) : rootInode
    }
  }

  /// The node at a `/`-separated path below the root (slashes at its ends and repeated slashes do not matter); the root
  /// for an empty path.
  package func find(path: String) throws(StoreError) -> Node? {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      var node = Self.root
      for name in pathComponents(path) where !name.isEmpty {
        let below = try Self.lookup(parent: node.entry, on: connection) { $0.bind(2, name) }
        guard let below else { return nil }
        node = below
      }
      return node
    }
  }

  /// The path of a node below the root, without a leading slash; nil for an inode that is no node's current one.
  package func path(of inode: Inode) throws(StoreError) -> String? {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      guard let node = try Self.node(Int64(bitPattern: inode), on: connection) else { return nil }
      return try Self.path(of: node, on: connection).joined(separator: "/")
    }
  }

  /// The path of the node to which `path` leads: another one if the name has gained an extension since. Nil if it leads
  /// to none.
  package func presentPath(_ path: String) throws(StoreError) -> String? {
    guard let node = try find(path: path) else { return nil }
    return try self.path(of: node.inode)
  }

  /// The names from the root down to `node`.
  static func path(of node: Node, on connection: SQLiteConnection) throws(StoreError) -> [String] {
    node.inode == rootInode ? [] : try folders(above: node, on: connection).names + [node.name]
  }

  /// The folders that contain `node`, from the root: their names in the tree, and those that the manifest gave.
  private static func folders(
    above node: Node, on connection: SQLiteConnection
  ) throws(StoreError) -> (names: [String], wanted: [String]) {
    var names: [String] = []
    var wanted: [String] = []
    var folder = Int64(bitPattern: node.parent)
    while folder != root.entry {
      let statement = try connection.statement(Queries.names)
      defer { statement.reset() }
      statement.bind(1, folder)
      // A path has at most 4096 bytes: more folders than that are a cycle.
      guard try statement.step(), names.count < 4096 else {
        throw .damaged(connection.path, "entry \(node.entry) is in no folder")
      }
      folder = statement.integer(0)
      names.append(statement.text(1))
      wanted.append(statement.text(2))
    }
    return (names.reversed(), wanted.reversed())
  }

  /// How many names are listed.
  package func counts() throws(StoreError) -> CatalogCounts {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in try connection.counts() }
  }

  // MARK: - Whole entries

  /// What the catalog knows of the file with that current inode, also if it is no longer listed; nil for folders and
  /// unknown inodes.
  package func entry(_ inode: Inode) throws(StoreError) -> EntryRecord? {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      guard let node = try Self.node(Int64(bitPattern: inode), on: connection), node.kind == .file else { return nil }
      return try Self.record(of: node, on: connection)
    }
  }

  /// The listed entries of a resource, in no certain order.
  package func entries(of key: ResourceKey) throws(StoreError) -> [EntryRecord] {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      var records: [EntryRecord] = []
      for node in try Self.nodes(of: ResourceKeyColumns(key), on: connection) {
        records.append(try Self.record(of: node, on: connection))
      }
      return records
    }
  }

  /// The paths of the resource's unlisted entries, in no certain order.
  package func formerPaths(of key: ResourceKey) throws(StoreError) -> [String] {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      var paths: [String] = []
      for node in try Self.nodes(of: ResourceKeyColumns(key), on: connection, Queries.former) {
        paths.append(try Self.path(of: node, on: connection).joined(separator: "/"))
      }
      return paths
    }
  }

  static func nodes(
    of key: ResourceKeyColumns, on connection: SQLiteConnection, _ query: SQL = Queries.byKey
  ) throws(StoreError) -> [Node] {
    let statement = try connection.statement(query)
    defer { statement.reset() }
    statement.bind(1, key)
    var nodes: [Node] = []
    while try statement.step() { nodes.append(node(of: statement)) }
    return nodes
  }

  private static func record(of node: Node, on connection: SQLiteConnection) throws(StoreError) -> EntryRecord {
    let (names, wanted) = try folders(above: node, on: connection)
    let statement = try connection.statement(Queries.source)
    defer { statement.reset() }
    statement.bind(1, node.entry)
    guard try statement.step() else { throw .damaged(connection.path, "entry \(node.entry) is gone") }
    let line = Int(statement.bounded(0))
    let name = statement.text(1)
    let source = statement.withBlob(2) { bytes in
      var reader = BlobReader(bytes)
      return reader.source(line: line, folder: wanted, name: name, key: node.key)
    }
    guard let source else { throw .damaged(connection.path, "the source of entry \(node.entry) cannot be read") }
    var record = EntryRecord(node: node, path: (names + [node.name]).joined(separator: "/"), source: source)
    if statement.integer(3) == 1 { return record }
    statement.reset()
    // The resource may have another name by now, and other URLs there.
    guard let present = try nodes(of: ResourceKeyColumns(node.key), on: connection).first else {
      record.isListed = false
      return record
    }
    record = try Self.record(of: present, on: connection)
    record.node = node
    return record
  }

  // MARK: - Rows

  /// The node in the statement's first row, nil if there is none; resets the statement.
  private static func first(_ statement: SQLiteStatement) throws(StoreError) -> Node? {
    defer { statement.reset() }
    return try statement.step() ? node(of: statement) : nil
  }

  /// The node in the current row of a statement with `nodeColumns`.
  private static func node(of row: SQLiteStatement) -> Node {
    let listed = row.isNull(9) ? ListedFacts(nil) : row.withBlob(9) { ListedFacts(source: $0) }
    return Node(
      entry: row.integer(0), inode: Inode(bitPattern: row.integer(1)), parent: Inode(bitPattern: row.integer(2)),
      kind: row.integer(3) == 1 ? .folder : .file, name: row.text(4),
      key: ResourceKeyColumns(high: row.integer(5), low: row.integer(6)).key,
      // A negative size is damage; a read of the generation reports it.
      size: row.optionalInteger(7).flatMap { $0 < 0 ? nil : $0 },
      modified: row.optionalInteger(8), listedSize: listed.size, listedDate: listed.modified)
  }
}
