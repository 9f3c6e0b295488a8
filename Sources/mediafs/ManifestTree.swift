import Base
import Storing

/// Draws a catalog's tree, sorted by name, as tree(1) does. It holds the names of the folders on the current path.
struct ManifestTree {
  private let catalog: Catalog

  init(_ catalog: Catalog) { self.catalog = catalog }

  /// Writes a line for each name.
  func draw(on terminal: Terminal) throws(StoreError) {
    terminal.line(".")
    // An explicit stack, not recursion: a manifest decides how deep the folders are.
    var waiting: [(prefix: String, nodes: ArraySlice<Node>)] = [("", try sorted(rootInode)[...])]
    while let (prefix, nodes) = waiting.popLast() {
      guard let node = nodes.first else { continue }
      waiting.append((prefix, nodes.dropFirst()))
      let isLast = nodes.count == 1
      terminal.line(prefix + (isLast ? "└── " : "├── ") + TerminalText.plain(node.name))
      if node.kind == .folder {
        waiting.append((prefix + (isLast ? "    " : "│   "), try sorted(node.inode)[...]))
      }
    }
  }

  private func sorted(_ folder: Inode) throws(StoreError) -> [Node] {
    var nodes: [Node] = []
    while true {
      let next = try catalog.tree.list(folder, after: nodes.last?.entry ?? 0, limit: 1000)
      if next.isEmpty { break }
      nodes += next
    }
    return nodes.sorted { $0.name < $1.name }
  }
}
