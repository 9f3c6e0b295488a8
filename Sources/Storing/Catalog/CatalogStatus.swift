import Base
import Manifest

// What `status` shows.

/// A listed file of which the catalog knows something.
package struct KnownEntry: Sendable {
  /// Its node.
  package var node: Node
  /// Its path in the mount, without a leading slash.
  package var path: String
  /// Its current generation; nil if only a problem is known.
  package var generation: GenerationRecord?
  /// Its last failure; nil if there is none.
  package var problem: NotedProblem?
}

/// Some of the entries of which the catalog knows something.
package struct KnownPage: Sendable {
  /// The entries, by resource.
  package var entries: [KnownEntry]
  /// Where the next page begins; nil at the end.
  package var next: ResourceKey?
}

extension Catalog {
  /// The listed files of which the catalog knows something: those of up to `limit` resources after `key` (nil: from the
  /// first). Call again with the page's `next` until that is nil. A page may be empty before the end.
  package func known(after key: ResourceKey?, limit: Int) throws(StoreError) -> KnownPage {
    try connections.read(snapshot: true) { (connection) throws(StoreError) in
      let start = key.map(ResourceKeyColumns.init) ?? ResourceKeyColumns(high: .min, low: .min)
      // Merges two sorted lists of up to `limit` elements each into one of up to `limit`.
      let known = try CatalogGenerations.knownKeys(after: start, limit: limit, on: connection)
      let failed = try CatalogNotes.problemKeys(after: start, limit: limit, on: connection)
      var keys: [ResourceKeyColumns] = []
      for key in (known + failed).sorted() where key != keys.last { keys.append(key) }
      let isLast = keys.count <= limit && known.count < limit && failed.count < limit
      keys = Array(keys.prefix(limit))
      var entries: [KnownEntry] = []
      for key in keys {
        let nodes = try CatalogTree.nodes(of: key, on: connection)
        if nodes.isEmpty { continue }
        let generation = try generations.current(of: key, on: connection)
        let problem = try CatalogNotes.problem(of: key, on: connection)
        for node in nodes {
          let path = try CatalogTree.path(of: node, on: connection).joined(separator: "/")
          entries.append(KnownEntry(node: node, path: path, generation: generation, problem: problem))
        }
      }
      return KnownPage(entries: entries, next: isLast ? nil : keys.last?.key)
    }
  }
}
