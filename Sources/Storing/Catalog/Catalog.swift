import Base

/// The durable index of a store: the tree of names, what is known of each resource, and which of its bytes are stored
/// (docs/STORE-FORMAT.md).
///
/// Any thread may call any method. A read never waits for a write. All errors are ``StoreError``.
package final class Catalog: Sendable {
  /// The format that this program writes.
  package static var format: Int64 { Schema.version }

  /// How the catalog is opened.
  package enum Access: Sendable {
    /// For the server, which holds the store's lock. A missing catalog is created, and an older format raised.
    case readWrite
    /// The same for a server that goes on with a mount. Until ``settle()``, the program before may have to come back,
    /// and could not read what this one raised: a copy stays, which its server puts back.
    case goingOn
    /// For reading, also while a server writes. Every write throws `.invalid`.
    case readOnly
  }

  /// The tree of names.
  package let tree: CatalogTree
  /// What is known of the generations of resources.
  package let generations: CatalogGenerations
  /// The notes on resources: pins and problems.
  package let notes: CatalogNotes
  /// The server's changes of the catalog.
  package let changes: CatalogChanges
  let connections: CatalogConnections

  private init(_ connections: CatalogConnections, bootID: [UInt8]) {
    self.connections = connections
    tree = CatalogTree(connections: connections)
    generations = CatalogGenerations(connections: connections, bootID: bootID)
    notes = CatalogNotes(connections: connections)
    changes = CatalogChanges(connections, bootID: bootID)
  }

  /// Opens the catalog at `path`. With `.readWrite`, creates a missing catalog (mode 0600); its folder must exist.
  ///
  /// Throws `.newer` if a newer program wrote the file, `.corrupt` if the file is damaged or not a catalog, and `.io`
  /// if it cannot be opened. In these cases no byte of the file changes.
  ///
  /// `mount`: the name of the mount that the store lies in (``StoreMount``), if the caller knows a better one than the
  /// kernel. What was written in another mount and not synced counts as lost.
  package static func open(path: String, access: Access, mount: String? = nil) throws(StoreError) -> Catalog {
    let folder = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
    let id = BootID.current(inMount: mount ?? StoreMount.kernelsName(of: folder))
    return try open(path: path, access: access, bootID: id)
  }

  /// The same with a given boot id, for tests.
  static func open(path: String, access: Access, bootID: [UInt8]) throws(StoreError) -> Catalog {
    let connections =
      switch access {
      case .readWrite, .goingOn:
        CatalogConnections(
          path: path, reader: nil, writer: try CatalogFile.openForWriting(path, goesOn: access == .goingOn))
      case .readOnly: CatalogConnections(path: path, reader: try CatalogFile.openForReading(path), writer: nil)
      }
    return Catalog(connections, bootID: bootID)
  }

  /// Deletes the copy of the time before a raise: no other program comes back any more.
  package func settle() throws(StoreError) { try CatalogCopy.discard(of: connections.path) }

  /// Waits for running calls, checkpoints the log into the database and closes the file. Later calls throw `.invalid`.
  /// A catalog that was not closed loses nothing; only the next open takes longer.
  package func close() throws(StoreError) { try connections.close() }

  /// A number that ``remember(_:_:)`` stored for the whole store; nil if there is none.
  package func remembered(_ name: String) throws(StoreError) -> Int64? {
    try connections.read { (connection) throws(StoreError) in try connection.meta(name) }
  }

  /// Stores a number for the whole store. docs/STORE-FORMAT.md lists the names.
  package func remember(_ name: String, _ value: Int64) throws(StoreError) {
    try connections.write(durably: false) { (connection) throws(StoreError) in try connection.setMeta(name, value) }
  }

  /// The errors that SQLite finds in the catalog's file (PRAGMA integrity_check), up to `limit` lines; empty if there
  /// are none. Reads the whole file.
  package func integrityProblems(limit: Int) throws(StoreError) -> [String] {
    try connections.read { (connection) throws(StoreError) in
      do throws(StoreError) {
        let statement = try connection.prepare("PRAGMA integrity_check(\(limit))")
        var lines: [String] = []
        while try statement.step() { lines.append(statement.text(0)) }
        return lines == ["ok"] ? [] : lines
      } catch {
        guard error.kind == .corrupt else { throw error }
        return [error.message]
      }
    }
  }
}
