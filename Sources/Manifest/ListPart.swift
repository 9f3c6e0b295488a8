/// A list whose entries show below a folder of their own, behind those of another list.
package final class ListPart {
  let folder: String
  private var reader: ManifestReader
  /// Whether another list was seen to use the folder's name.
  var isShared = false
  /// Whether anything of it shows.
  private var isUsable = false

  /// `folder`: a safe name.
  package init(_ reader: consuming ManifestReader, folder: String) {
    self.reader = reader
    self.folder = folder
  }

  /// The list's name, for messages.
  var name: String { reader.name }

  func take(_ links: ListResolvers) { reader.take(links) }

  /// The next item, below the folder; nil at the end.
  func next() throws(ManifestError) -> ManifestItem? {
    switch try reader.next() {
    case nil:
      if !isUsable { throw .empty(name: name, format: reader.format) }
      return nil
    case .entry(var entry):
      isUsable = true
      entry.folder.insert(folder, at: 0)
      return .entry(entry)
    case .folder(var shown):
      isUsable = true
      shown.path.insert(folder, at: 0)
      shown.list = name
      return .folder(shown)
    case .problem(var problem):
      problem.list = name
      return .problem(problem)
    }
  }
}
