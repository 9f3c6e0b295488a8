import Base
import Glibc
import Manifest
import Reading
import Storing

/// The store of a mount, opened for serving: locked, its manifest imported, what a crash left tidied.
struct OpenedStore {
  let access: StoreAccess
  /// The bound of the partial files in bytes.
  let maximumSize: Int64

  /// Opens (or makes) everything. Waits a moment for a server of the same store that is just ending.
  ///
  /// `input`: what came on standard input when that is the manifest. `rootWaits`: see ``HelperLink/Start/rootWaits``.
  init(_ request: MountRequest, input: borrowing FileDescriptor?, rootWaits: Bool) throws(ServerError) {
    do throws(StoreError) {
      let environment = processEnvironment()
      let path: String
      if let named = request.storage.store {
        path = named
      } else {
        path = try StoreFolder.defaultPath(mountpoint: request.mountpoint, environment: environment, uid: geteuid())
      }
      try Self.refuseInside(request, store: path)
      let folder = try StoreFolder.open(path, mountpoint: request.mountpoint, wait: Self.patience)
      let catalog = try Catalog.open(path: folder.catalogPath, access: .readWrite)
      let libraryPath = request.storage.library ?? folder.defaultLibraryPath
      let library: LibraryFolder
      do throws(StoreError) {
        library = try LibraryFolder.open(libraryPath, for: catalog)
      } catch {
        // What its message advises, `mediafs verify`, is to look at this library.
        Self.remember(request, store: folder.path, library: libraryPath, environment)
        throw error
      }
      access = StoreAccess(catalog: catalog, folder: folder, library: library)
      let bound = try Self.defaultMaximum(catalog, folder)
      maximumSize = request.storage.maxSize ?? bound
      _ = try catalog.applyPendingExtensions()
      try StoreRecovery.run(catalog: catalog, folder: folder, library: library)
      try ManifestImport.run(request, input: input, rootWaits: rootWaits, into: catalog)
      Self.remember(request, store: folder.path, library: library.path, environment)
    } catch {
      throw .failed(error.message)
    }
  }

  /// So that `mediafs status MOUNTPOINT` finds the store. A service's user may have no home to remember it in: it is
  /// served all the same.
  private static func remember(
    _ request: MountRequest, store: String, library: String, _ environment: [String: String]
  ) {
    let record = MountRecord(
      mountpoint: request.mountpoint, store: store, library: library, manifest: request.manifest)
    do throws(StoreError) {
      let registry = try MountRegistry(environment: environment, uid: geteuid())
      try registry.remember(record)
      // What is gone with its store, and its place, is nothing to ask about any more.
      for other in try registry.all() where Glibc.access(other.store, F_OK) != 0 {
        if Errno.current == .notFound, Glibc.access(other.mountpoint, F_OK) != 0, Errno.current == .notFound {
          try registry.forget(mountpoint: other.mountpoint)
        }
      }
    } catch {
      Log.warning("status, fetch and clear will not find this mount by its mountpoint: \(error.message)")
    }
  }

  /// How long to wait for the lock, in seconds: a server whose mount was just taken away may still be saving.
  private static let patience = 5.0

  /// A store, library or manifest inside the mount would be read through the mount itself.
  private static func refuseInside(_ request: MountRequest, store: String) throws(StoreError) {
    let places = [("store", store), ("library", request.storage.library), ("manifest", request.manifest)]
    for (what, path) in places {
      guard let path, path.hasPrefix("/") else { continue }
      if (path + "/").utf8.starts(with: (request.mountpoint + "/").utf8) {
        throw StoreError(
          kind: .invalid,
          message: "the \(what) \(path) lies inside the mountpoint \(request.mountpoint): choose a place outside")
      }
    }
  }

  /// Half of what is free when the store is made, remembered from then on.
  private static func defaultMaximum(_ catalog: Catalog, _ folder: StoreFolder) throws(StoreError) -> Int64 {
    if let remembered = try catalog.remembered("maximum_size") { return remembered }
    let maximum = Int64(clamping: try folder.space().available / 2)
    try catalog.remember("maximum_size", maximum)
    return maximum
  }
}
