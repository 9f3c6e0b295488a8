import Base
import Manifest
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

/// What the keeper looks up for ``NextFiles``: the transfer thread reads neither the catalog nor a file.
extension Keeper {
  /// Finds the files that follow the one of `content`, and tells the transfer thread. Completed ones are left out.
  func findNext(of content: Content, count: Int) {
    measureSpare()
    readIndex(of: content)
    var next: [Content] = []
    do throws(StoreError) {
      let entries = try room.store.tree.entries(of: content.key)
      let node = (entries.first { $0.path == content.path } ?? entries.first)?.node
      for sibling in try node.map({ (node) throws(StoreError) in try following(node, count: count) }) ?? [] {
        do throws(Errno) {
          let found = try room.content(of: sibling.inode, opening: true)
          next.append(found)
        } catch {
          Log.debug("\(sibling.name): not fetched ahead: \(error)")  // its own open reports it
        }
      }
    } catch {
      Log.error("\(content.path): the files that follow it cannot be looked up: \(error.message)")
    }
    room.transfers.post(.next(of: content, next))
  }

  private func following(_ node: Node, count: Int) throws(StoreError) -> [Node] {
    var files: [Node] = []
    var isWhole = true
    var cookie: Int64 = 0
    var seen = 0
    while true {
      let page = try room.store.tree.list(node.parent, after: cookie, limit: 512)
      seen += page.count
      files += page.filter { $0.kind == .file }
      guard let last = page.last, page.count == 512 else { break }
      cookie = last.entry
      if seen > NextInFolder.mostCompared {
        isWhole = false
        break
      }
    }
    if !isWhole { files = [node] + (try room.store.tree.list(node.parent, after: node.entry, limit: 64)) }
    return NextInFolder.following(node, in: files, count: count)
  }

  /// Reads the index of a file as far as its stored bytes tell.
  func readIndex(of content: Content) {
    let (generation, stored, size) = content.guarded.withLock {
      ($0.held.generation?.id, $0.held.stored, $0.held.size)
    }
    guard let generation, let size else { return }
    _ = room.films.index(of: generation, StoredBytes(size: size, stored: stored) { content.fill($0, at: $1) })
  }
}
