import Base

/// The durable index of a store: the tree of names, what is known of each resource, and which of its bytes are stored
/// (docs/STORE-FORMAT.md).
///
/// Any thread may call anything. A read never waits for a write. All errors are ``StoreError``.
package final class Catalog: Sendable {
  /// What a catalog is opened for.
  package enum Access: Sendable {
    /// For the server, which holds the store's lock. A missing catalog is created.
    case readWrite
    /// For reading, also while a server writes. Every write throws `.invalid`.
    case readOnly
  }

  /// The tree of names.
  package let tree: CatalogTree
  /// What is known of the generations of resources.
  package let generations: CatalogGenerations
  /// What is noted of resources.
  package let notes: CatalogNotes
  /// What the server learns.
  package let changes: CatalogChanges
  let connections: CatalogConnections

  private init(_ connections: CatalogConnections, bootID: [UInt8]) {
    self.connections = connections
    tree = CatalogTree(connections: connections)
    generations = CatalogGenerations(connections: connections, bootID: bootID)
    notes = CatalogNotes(connections: connections)
    changes = CatalogChanges(connections, bootID: bootID)
  }

  /// Opens the catalog at `path`. With `.readWrite` a missing catalog is created (mode 0600); its folder must exist.
  ///
  /// Throws `.newer` when a newer program wrote the file, `.corrupt` when the file is damaged or is no catalog, and
  /// `.io` when it cannot be opened. No byte of the file changes then.
  package static func open(path: String, access: Access) throws(StoreError) -> Catalog {
    try open(path: path, access: access, bootID: BootID.current())
  }

  /// The same with the boot id given, for tests.
  static func open(path: String, access: Access, bootID: [UInt8]) throws(StoreError) -> Catalog {
    let connections =
      switch access {
      case .readWrite: CatalogConnections(path: path, reader: nil, writer: try CatalogFile.openForWriting(path))
      case .readOnly: CatalogConnections(path: path, reader: try CatalogFile.openForReading(path), writer: nil)
      }
    return Catalog(connections, bootID: bootID)
  }

  /// Waits for the calls that run, moves the log into the database and closes the file. Later calls throw `.invalid`.
  /// A catalog that was not closed loses nothing; only the next open takes longer.
  package func close() throws(StoreError) { try connections.close() }

  /// A number that was remembered for the whole store by ``remember(_:_:)``; nil when none was.
  package func remembered(_ name: String) throws(StoreError) -> Int64? {
    try connections.read { (connection) throws(StoreError) in try connection.meta(name) }
  }

  /// Remembers a number for the whole store. The names are listed in docs/STORE-FORMAT.md.
  package func remember(_ name: String, _ value: Int64) throws(StoreError) {
    try connections.write(durably: false) { (connection) throws(StoreError) in try connection.setMeta(name, value) }
  }

  /// What SQLite finds wrong with the catalog's file (PRAGMA integrity_check), up to `limit` lines; empty when all is
  /// well. Reads the whole file.
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
