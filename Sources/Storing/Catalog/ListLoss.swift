import Base

/// How many names an import removes: of all, or of the list that shows in one folder.
package struct ListLoss: Sendable, Equatable {
  /// The folder at the top of the tree; empty: what is in none of the lists' folders; nil: the whole tree.
  package var folder: String?
  /// How many names go.
  package var removed: Int
  /// Of how many. Of one list at most twice as many as go are counted.
  package var names: Int64

  /// Whether more than half of the names go.
  package var isMost: Bool { Int64(removed) * 2 > names }
}

/// Tells the losses of several lists apart, each of which shows in a folder of its own.
struct ListLosses {
  private let connection: SQLiteConnection
  /// The folders of lists.
  private let folders: [String]
  /// The rows of folders that are known to lie in one at the top.
  private var tops: [Int64: String] = [:]

  init(_ connection: SQLiteConnection, folders: [String]) {
    self.connection = connection
    self.folders = folders
  }

  /// What each list loses with the listed rows `gone`, less its `added` new names: each may be the next name of a row
  /// that goes. Empty for a single list.
  mutating func find(_ gone: [Int64], added: [String: Int]) throws(StoreError) -> [ListLoss] {
    try find(gone, added: added, firstNew: nil)
  }

  /// The same with rows that are unlisted by now. `firstNew`: the lowest id that the import gave.
  mutating func find(unlisted gone: [Int64], before firstNew: Int64) throws(StoreError) -> [ListLoss] {
    try find(gone, added: [:], firstNew: firstNew)
  }

  private mutating func find(
    _ gone: [Int64], added: [String: Int], firstNew: Int64?
  ) throws(StoreError) -> [ListLoss] {
    if folders.isEmpty { return [] }
    var removed: [String: Int] = [:]
    for id in gone {
      let top = try top(of: id)
      removed[list(of: [top]), default: 0] += 1
    }
    var losses: [ListLoss] = []
    for (folder, count) in removed.sorted(by: { $0.key < $1.key }) {
      let left = count - (added[folder] ?? 0)
      guard left > 0 else { continue }
      let names =
        if let firstNew {
          Int64(left) + (try names(of: folder, before: firstNew, most: Int64(left)))
        } else {
          try names(of: folder, before: .max, most: 2 * Int64(left))
        }
      losses.append(ListLoss(folder: folder, removed: left, names: names))
    }
    return losses
  }

  /// The list to which a new line counts.
  func list(of path: [String]) -> String { path.first.flatMap { folders.contains($0) ? $0 : nil } ?? "" }

  /// The name of the folder at the top in which a row lies, or that it is; empty for a file at the top.
  private mutating func top(of id: Int64) throws(StoreError) -> String {
    var (id, passed, found) = (id, [Int64](), "")
    var steps = 0
    while true {
      if let known = tops[id] {
        found = known
        break
      }
      let statement = try connection.statement(ImportQueries.place)
      defer { statement.reset() }
      statement.bind(1, id)
      // A path has at most 4096 bytes: more folders than that are a cycle.
      guard try statement.step(), steps < 4096 else {
        throw .damaged(connection.path, "entry \(id) is in no folder")
      }
      steps += 1
      if statement.integer(1) == 1 { passed.append(id) }
      let parent = statement.integer(0)
      if parent == Int64(rootInode) {
        if statement.integer(1) == 1 { found = statement.text(2) }
        break
      }
      id = parent
    }
    for folder in passed { tops[folder] = found }
    return found
  }

  /// How many listed names a list has in the tree, whose ids are below `id`; `most` at most.
  private func names(of folder: String, before id: Int64, most: Int64) throws(StoreError) -> Int64 {
    let statement = try connection.statement(ImportQueries.namesOfList)
    defer { statement.reset() }
    statement.bind(1, Int64(rootInode))
    statement.bind(2, folder)
    statement.bind(3, "/" + folders.joined(separator: "/") + "/")
    statement.bind(4, id)
    statement.bind(5, most)
    return try statement.step() ? statement.integer(0) : 0
  }
}
