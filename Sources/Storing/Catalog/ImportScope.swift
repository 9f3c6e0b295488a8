import Base
import Manifest

/// The folders of servers that an import is limited to: it compares what each lists with the rows directly in it, and
/// leaves all other rows as they are.
///
/// A folder within one of them is read too, unless the tree shows it as it is already. No folder may be in another one,
/// and the list itself may name nothing in them (``ImportReport/mixed``).
///
/// One thread uses it, that of the import.
final class ImportScope {
  /// The folders that the import begins with, by their rows.
  let roots: [(row: Int64, folder: ManifestFolder)]
  /// Whether the tree is not what it was taken for: then all of the list has to be compared.
  private(set) var isUnfit = false
  /// The listed folders that are in none of the listings any more, and all below them.
  private(set) var gone: [Int64] = []

  private let shown: (Inode) -> ManifestFolder?
  private let folders: any ServerFolders
  private let resolver: String?
  private let name: String
  private var waiting: [ManifestFolder]
  private var reading: (folder: ManifestFolder, expansion: FolderExpansion)?
  /// The rows of the folders that are compared.
  private var parents: [Int64]

  /// `shown`: the server's folder that a folder of the tree shows, as each of the `roots` does. `resolver`: as of
  /// ``ManifestReader``. `name`: the list's, for messages.
  init(
    _ roots: [Inode], shown: @escaping (Inode) -> ManifestFolder?, _ folders: any ServerFolders, resolver: String?,
    name: String
  ) {
    self.roots = roots.compactMap { root in shown(root).map { (Int64(bitPattern: root), $0) } }
    (self.shown, self.folders, self.resolver, self.name) = (shown, folders, resolver, name)
    waiting = self.roots.map(\.folder)
    parents = self.roots.map(\.row)
  }

  /// What the folders list, one after the other; nil at the end, which is there once the import has handed over each
  /// folder (``met(_:row:isFirst:)``) that came.
  func next() throws(StoreError) -> ImportBatch? {
    var batch = ImportBatch()
    while !batch.isFull {
      if reading == nil {
        // What is in it may add to those that wait.
        guard batch.items.isEmpty, let folder = waiting.popLast() else { break }
        reading = (folder, FolderExpansion(folder, folders, name: folder.list ?? name, isShallow: true))
      }
      let item: ManifestItem?
      do throws(ManifestError) { item = try reading?.expansion.next() } catch { throw StoreError(.invalid, "\(error)") }
      switch item {
      case nil: reading = nil
      case .entry(var entry):
        entry.resolver = entry.resolver ?? resolver
        batch.append(.entry(entry))
      case .problem(var problem):
        problem.list = reading?.folder.list
        batch.append(.problem(problem))
      case .folder(let folder): batch.append(.folder(folder))
      }
    }
    return batch.items.isEmpty && reading == nil ? nil : batch
  }

  /// A listing has a folder. `row`: its row, if it has one. `isFirst`: whether none had it before.
  func met(_ folder: ManifestFolder, row: Int64?, isFirst: Bool) throws(StoreError) {
    guard isFirst else { throw unfit() }
    if let row, let known = shown(Inode(bitPattern: row)), known.source == folder.source { return }
    waiting.append(folder)
    if let row { parents.append(row) }
  }

  /// Throws an error that says that the tree is another one than was thought.
  func unfit() -> StoreError {
    isUnfit = true
    return StoreError(.invalid, "the folders are not as they were shown")
  }

  /// The listed rows that no listing has.
  func unseen(_ rows: ImportRows, _ seen: IDSet) throws(StoreError) -> [Int64] {
    var found: [Int64] = []
    gone = []
    for parent in parents {
      for (id, isFolder) in try rows.listed(in: parent) where !seen.contains(id) {
        found.append(id)
        if isFolder { gone.append(id) }
      }
    }
    var folders = Set(gone)
    var next = 0
    while next < gone.count {
      for (id, isFolder) in try rows.listed(in: gone[next]) {
        found.append(id)
        guard isFolder else { continue }
        guard folders.insert(id).inserted else {
          throw .damaged(rows.connection.path, "entry \(id) is in no folder")
        }
        gone.append(id)
      }
      next += 1
    }
    return found
  }
}
