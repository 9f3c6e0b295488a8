import Base
import Manifest

// What `status` shows.

/// What went wrong with a resource for good.
package struct NotedProblem: Sendable, Equatable {
  /// For people, no secrets.
  package var message: String
  /// When, in seconds since 1970.
  package var at: Int64
}

/// A listed file of which something is known.
package struct TouchedEntry: Sendable {
  /// Its node.
  package var node: Node
  /// Its path in the mount, without a leading slash.
  package var path: String
  /// Its current generation, nil when only a problem is known.
  package var generation: GenerationRecord?
  /// The last thing that went wrong with it, nil for nothing.
  package var problem: NotedProblem?
}

/// Some of the touched entries.
package struct TouchedPage: Sendable {
  /// The entries, by resource.
  package var entries: [TouchedEntry]
  /// Where to go on; nil at the end.
  package var next: ResourceKey?
}

private enum Queries {
  static let problem = SQL("SELECT message, at FROM problem WHERE key_high = ? AND key_low = ?")
  static let problemsAfter = SQL(
    """
    SELECT key_high, key_low FROM problem WHERE (key_high, key_low) > (?, ?) ORDER BY key_high, key_low LIMIT ?
    """)
}

extension Catalog {
  /// The last thing that went wrong with a resource; nil when nothing is noted.
  package func problem(of key: ResourceKey) throws(StoreError) -> NotedProblem? {
    try read { (connection) throws(StoreError) in try Self.problem(of: ResourceKeyColumns(key), on: connection) }
  }

  private static func problem(
    of key: ResourceKeyColumns, on connection: SQLiteConnection
  ) throws(StoreError) -> NotedProblem? {
    let statement = try connection.statement(Queries.problem)
    defer { statement.reset() }
    statement.bind(1, key)
    return try statement.step() ? NotedProblem(message: statement.text(0), at: statement.integer(1)) : nil
  }

  /// The listed files of which something is known: those of up to `limit` resources behind `key` (nil: from the first).
  /// Call again with the page's `next` until that is nil; a page may be empty before the end.
  package func touched(after key: ResourceKey?, limit: Int) throws(StoreError) -> TouchedPage {
    try read(snapshot: true) { (connection) throws(StoreError) in
      let start = key.map(ResourceKeyColumns.init) ?? ResourceKeyColumns(high: .min, low: .min)
      // Two ordered lists, each up to `limit` long, become one of up to `limit`.
      let known = try knownKeys(after: start, limit: limit, on: connection)
      let failed = try Self.problemKeys(after: start, limit: limit, on: connection)
      var keys: [ResourceKeyColumns] = []
      for key in (known + failed).sorted() where key != keys.last { keys.append(key) }
      let isLast = keys.count <= limit && known.count < limit && failed.count < limit
      keys = Array(keys.prefix(limit))
      var entries: [TouchedEntry] = []
      for key in keys {
        let nodes = try Self.nodes(of: key, on: connection)
        if nodes.isEmpty { continue }
        let generation = try generation(current: key, on: connection)
        let problem = try Self.problem(of: key, on: connection)
        for node in nodes {
          let path = try Self.path(of: node, on: connection).joined(separator: "/")
          entries.append(TouchedEntry(node: node, path: path, generation: generation, problem: problem))
        }
      }
      return TouchedPage(entries: entries, next: isLast ? nil : keys.last?.key)
    }
  }

  private static func problemKeys(
    after key: ResourceKeyColumns, limit: Int, on connection: SQLiteConnection
  ) throws(StoreError) -> [ResourceKeyColumns] {
    let statement = try connection.statement(Queries.problemsAfter)
    defer { statement.reset() }
    statement.bind(1, key)
    statement.bind(3, limit)
    var keys: [ResourceKeyColumns] = []
    while try statement.step() {
      keys.append(ResourceKeyColumns(high: statement.integer(0), low: statement.integer(1)))
    }
    return keys
  }
}
