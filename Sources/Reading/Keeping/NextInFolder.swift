import Base
import Media
import Storing

/// Which files follow another in its folder. Pure.
enum NextInFolder {
  /// The most files of a folder whose names are compared. In a larger one the list's order counts.
  static let mostCompared = 4096

  /// The `count` files that follow `file` in `listed`, the folder's files in the list's order. If the list is sorted by
  /// the bytes of the names, a program sorted it, and the natural order counts: 9 comes before 10. Only files of the
  /// same kind count, and among media all that play: a cover or subtitles are no next film.
  static func following(_ file: Node, in listed: [Node], count: Int) -> [Node] {
    let kind = MediaKind.name(of: file.name)
    var files = listed.filter { node in
      if node.entry == file.entry { return true }
      guard node.kind == .file, node.key != file.key else { return false }
      let other = MediaKind.name(of: node.name)
      return other == kind || (MediaKind.plays(kind) && MediaKind.plays(other))
    }
    if files.count <= mostCompared, NaturalOrder.isSortedByBytes(files.map(\.name)) {
      files.sort { NaturalOrder.isAscending($0.name, $1.name) }
    }
    guard let place = files.firstIndex(where: { $0.entry == file.entry }) else { return [] }
    return Array(files[(place + 1)...].prefix(count))
  }
}
