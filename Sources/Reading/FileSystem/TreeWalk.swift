import Base
import Storing

/// A walk over the files at and below some paths, folder by folder, with one page of names in memory at a time.
package struct TreeWalk: Sendable {
  /// A folder that the walk is in, and the entry after which its listing goes on.
  private struct Frame: Sendable {
    let folder: Inode
    /// The folder's path and a slash; empty for the root.
    let prefix: String
    var cookie: Int64
  }

  private var paths: ArraySlice<String>
  private var frames: [Frame] = []

  /// A walk that begins at the first of `paths`.
  package init(_ paths: [String]) { self.paths = paths[...] }

  /// The next files, up to `limit`, with their paths; nil at the end. There may be none before the end. Paths that the
  /// tree does not have are left out.
  package mutating func next(
    in tree: any StoreTree, limit: Int
  ) throws(StoreError) -> [(item: SurveyedNode, path: String)]? {
    guard let frame = frames.last else {
      guard let path = paths.popFirst() else { return nil }
      guard let node = try tree.find(path: path) else { return [] }
      if node.kind == .file { return [(SurveyedNode(node: node, isKnown: true), path)] }
      frames = [Frame(folder: node.inode, prefix: path.isEmpty ? "" : path + "/", cookie: 0)]
      return []
    }
    let items = try tree.survey(frame.folder, after: frame.cookie, limit: limit)
    guard let last = items.last else {
      frames.removeLast()
      return []
    }
    frames[frames.count - 1].cookie = last.node.entry
    if last.node.kind == .folder {
      frames.append(Frame(folder: last.node.inode, prefix: frame.prefix + last.node.name + "/", cookie: 0))
    }
    return items.filter { $0.node.kind == .file }.map { ($0, frame.prefix + $0.node.name) }
  }
}
