import Base
import Storing

/// The store, as the reading room uses it.
public struct StoreAccess: Sendable {
  /// What is known.
  public let catalog: Catalog
  /// Where partial files are.
  public let folder: StoreFolder
  /// Where completed copies are.
  public let library: LibraryFolder

  /// The store made of these.
  public init(catalog: Catalog, folder: StoreFolder, library: LibraryFolder) {
    self.catalog = catalog
    self.folder = folder
    self.library = library
  }
}
