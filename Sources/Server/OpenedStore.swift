import Base
import Fetching
import Glibc
import Manifest
import Reading
import Storing

/// The store of a mount, ready to serve: locked, recovered after a crash, and with the manifest imported.
struct OpenedStore {
  let catalog: Catalog
  /// Distinguishes the catalog from all others.
  let catalogID: Int64
  let folder: StoreFolder
  let library: LibraryFolder
  /// The most bytes on disk.
  let maximumSize: Int64
  /// The mount that the store lies in.
  let mount: StoreMount
  /// What the list was known by when it was imported; nil: it was not, or came from standard input.
  let listMark: ListMark?
  /// Lists and folders that servers give.
  let lists: ListAccess

  /// Opens or creates the store. Waits a few seconds for another server of the same store that is about to exit.
  ///
  /// `input`: the manifest from standard input, if there is one. `list`: the manifest, if it is open already.
  /// `goesOn`: the mount had a server before. Then the catalog stays as it is: readers hold its names and inodes, and a
  /// list that changed meanwhile is for the next mount. `held`: what the helper holds for it.
  init(
    _ request: MountRequest, input: borrowing FileDescriptor?, list: consuming FileDescriptor?, goesOn: Bool,
    held: StoreMount.Hold?, rootWaits: Bool, isService: Bool, transfers: TransferOptions
  ) throws(ServerError) {
    do throws(StoreError) {
      let environment = processEnvironment()
      let path = try Self.path(request, environment)
      if goesOn { try Self.refuseAnother(path) }
      folder = try StoreFolder.open(path, mountpoint: request.mountpoint, wait: Self.patience, goesOn: goesOn)
      do throws(Errno) { mount = try StoreMount(of: folder.path, held: held) } catch {
        throw .file(error, "cannot look at the store \(folder.path)")
      }
      catalog = try Catalog.open(path: folder.catalogPath, access: goesOn ? .goingOn : .readWrite, mount: mount.name)
      catalogID = try Self.identity(of: catalog)
      let libraryPath = request.storage.library ?? folder.defaultLibraryPath
      do throws(StoreError) {
        library = try KnownLibrary.open(libraryPath, for: catalog)
      } catch {
        // The message advises `mediafs verify`, which must find this library.
        Self.remember(request, store: folder.path, library: libraryPath, environment)
        throw error
      }
      if !goesOn { try Self.settleNames(in: catalog) }
      lists = try ListAccess(request, transfers, in: folder)
      try StoreRecovery.run(catalog: catalog, folder: folder, library: library, keepsSuperseded: goesOn)
      let bound = try Self.defaultMaximum(catalog, folder, library: library)
      maximumSize = request.storage.maxSize ?? bound
      if goesOn {
        listMark = nil
        return
      }
      try lists.bring(patience: isService ? Self.patienceOfServices : 0) { why in
        Log.warning("\(why); the service asks again")
      }
      var request = request
      request.lists = lists
      listMark = try Self.importing(request, lists, rootWaits: rootWaits, input: input, list: list, into: catalog)
      Self.remember(request, store: folder.path, library: library.path, environment)
    } catch {
      throw .failed(error.message)
    }
  }

  /// Imports the list. A copy of a list by URL that is of no use (with other options than before) is asked for again.
  private static func importing(
    _ request: MountRequest, _ lists: ListAccess, rootWaits: Bool, input: borrowing FileDescriptor?,
    list: consuming FileDescriptor?, into catalog: Catalog
  ) throws(StoreError) -> ListMark? {
    if lists.urls.count < request.allLists.count {
      return try ManifestImport.run(request, rootWaits: rootWaits, input: input, list: list, into: catalog)
    }
    do throws(StoreError) {
      return try ManifestImport.run(request, rootWaits: rootWaits, input: nil, list: nil, into: catalog)
    } catch  where error.kind == .invalid {
      try lists.bring(again: true)
      return try ManifestImport.run(request, rootWaits: rootWaits, input: nil, list: nil, into: catalog)
    }
  }

  /// Gives names the extensions that were learned. Rules follow them, also where a killed server left them behind.
  static func settleNames(in catalog: Catalog) throws(StoreError) {
    _ = try catalog.tree.applyPendingExtensions()
    try RuleService.followNames(in: catalog)
  }

  /// The path of the store of a mount.
  static func path(_ request: MountRequest, _ environment: [String: String]) throws(StoreError) -> String {
    let path: String
    if let named = request.storage.store {
      path = named
    } else {
      path = try StoreFolder.defaultPath(mountpoint: request.mountpoint, environment: environment, uid: geteuid())
    }
    try refuseInside(request, store: path)
    return path
  }

  /// What the reading room asks.
  var access: StoreAccess { StoreAccess(catalog: catalog, folder: folder, library: library) }

  /// Records the mount, so that `mediafs status MOUNTPOINT` finds its store. If that fails (the user of a service may
  /// have no home), the server still serves the mount.
  private static func remember(
    _ request: MountRequest, store: String, library: String, _ environment: [String: String]
  ) {
    let record = MountRecord(
      mountpoint: request.mountpoint, store: store, library: library,
      manifest: request.readsStandardInput ? "-" : request.listName)
    do throws(StoreError) {
      let registry = try MountRegistry(environment: environment, uid: geteuid())
      try registry.remember(record)
      try registry.forgetVanished(unless: MountTable.mayHang)
    } catch {
      Log.warning("status, fetch and clear cannot find this mount by its mountpoint: \(error.message)")
    }
  }

  /// How long to wait for the lock, in seconds. A server whose mount has just ended may still be saving.
  private static let patience = 5.0
  /// How long a service asks for a list of which it has no copy, in seconds: so long that its manager, which starts it
  /// again and again, does not give up. Nor may the boot wait long for it.
  private static let patienceOfServices = 20.0

  /// Refuses a store, library or manifest inside the mount: the server would access it through its own mount.
  private static func refuseInside(_ request: MountRequest, store: String) throws(StoreError) {
    let places =
      [("store", store), ("library", request.storage.library)]
      + request.allLists.map { ("manifest", $0.place) }
    for (what, path) in places {
      guard let path, path.hasPrefix("/") else { continue }
      if (path + "/").utf8.starts(with: (request.mountpoint + "/").utf8) {
        throw StoreError(
          kind: .invalid,
          message: "the \(what) \(path) lies inside the mountpoint \(request.mountpoint): choose a place outside")
      }
    }
  }

  /// Refuses to go on with a mount without its catalog: a new one would have none of the names that readers see.
  private static func refuseAnother(_ store: String) throws(StoreError) {
    if Glibc.access("\(store)/catalog.sqlite", F_OK) == 0 { return }
    throw StoreError(
      kind: .invalid,
      message: "the store \(store) has no catalog any more (\(Errno.current)): bring it back, or unmount")
  }

  /// Refuses to go on with a mount on a store that was put in the place of its own: the inodes that readers hold would
  /// lead to other files. `number`: of the catalog that the mount began with.
  func refuseAnother(than number: Int64) throws(ServerError) {
    if number == catalogID { return }
    throw .failed("the store \(folder.path) is not the one that was mounted: bring that one back, or unmount")
  }

  private static func identity(of catalog: Catalog) throws(StoreError) -> Int64 {
    if let remembered = try catalog.remembered("catalog_id") { return remembered }
    let identity = Int64.random(in: 1...Int64.max)
    try catalog.remember("catalog_id", identity)
    return identity
  }

  /// What the store had, and half of what was free, when a program that knows this limit first used it: a store of
  /// before is not beyond it. The catalog remembers it.
  /// Where the library is on a disk of its own, half of what is free there counts too.
  private static func defaultMaximum(
    _ catalog: Catalog, _ folder: StoreFolder, library: LibraryFolder
  ) throws(StoreError) -> Int64 {
    if let remembered = try catalog.remembered("limit") { return remembered }
    let held = Int64.clampedSum(try folder.allocated(), try catalog.generations.copyBytes())
    var maximum = Int64.clampedSum(held, Int64(clamping: try folder.space().available / 2))
    if !library.sharesDisk(with: folder) {
      maximum = .clampedSum(maximum, Int64(clamping: try library.space().available / 2))
    }
    try catalog.remember("limit", maximum)
    return maximum
  }
}
