import Base
import Storing

/// The store, as the reading room uses it.
package struct StoreAccess: Sendable {
  /// What is known.
  package let catalog: Catalog
  /// Where partial files are.
  package let folder: StoreFolder
  /// Where completed copies are.
  package let library: LibraryFolder

  /// The store made of these.
  package init(catalog: Catalog, folder: StoreFolder, library: LibraryFolder) {
    self.catalog = catalog
    self.folder = folder
    self.library = library
  }
}
