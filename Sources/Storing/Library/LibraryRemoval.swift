import Base
import Glibc

extension LibraryFolder {
  /// Removes an intact copy, and the folders that it leaves empty. What a user changed stays: false. Also false when
  /// there is nothing to remove any more.
  ///
  /// To be called after the catalog forgot the copy, durably.
  @discardableResult
  package func remove(_ copy: LibraryCopy) throws(StoreError) -> Bool {
    guard try check(copy) == .intact else { return false }
    var components = try LibraryPath(copy.path).folders
    let name = try LibraryPath(copy.path).name
    guard let folder = try existing(components) else { return false }
    let removed = try calling("cannot remove \(path)/\(copy.path)") { () throws(Errno) in try folder.remove(name) }
    while let empty = components.popLast() {
      guard let parent = try existing(components) else { break }
      // Not empty, or removed by another program meanwhile: there the tidying ends.
      if unlinkat(parent.descriptor.rawValue, empty, AT_REMOVEDIR) != 0 { break }
    }
    return removed
  }
}
