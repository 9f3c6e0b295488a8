import Base
import Glibc
import Manifest
import Storing

/// Imports the manifest into the catalog, unless the catalog already has this state of it.
enum ManifestImport {
  /// The most bytes of a manifest that root waits for.
  private static let mostForRoot: Int64 = 4 << 30
  /// Seconds during which a changed file may change again without a new modification time.
  private static let settling: Int64 = 2

  /// Returns what the list is known by; nil for one from standard input.
  static func run(
    _ request: MountRequest, rootWaits: Bool, input: borrowing FileDescriptor?, list: consuming FileDescriptor?,
    into catalog: Catalog
  ) throws(StoreError) -> ListMark? {
    let remembered = request.lists?.documents.remembered
    let pending = remembered?.pending ?? [:]
    var mark = ListMark(of: request)
    var fingerprint = try fingerprint(of: request, input)
    let isMoved =
      switch list {
      case .some(let file): isMoved(file, from: request.manifest)
      case .none: false
      }
    // Another file took the place of the one that was opened: the mount looks again.
    if isMoved { (mark, fingerprint) = (nil, []) }
    if !fingerprint.isEmpty, try catalog.importedFingerprint() == fingerprint {
      Log.debug("the manifest is unchanged")
      request.lists?.folders.shows(nil)  // with servers' folders there is no fingerprint
      remembered?.took(pending)
    } else {
      let reader = try reader(of: request, input, list: list, rootWaits: rootWaits)
      _ = try read(request, reader, fingerprint, into: catalog) { remembered?.took(pending) }
    }
    return request.readsStandardInput ? nil : mark
  }

  private static func isMoved(_ file: borrowing FileDescriptor, from path: String) -> Bool {
    do throws(Errno) { return ListMark(try file.status()) != ListMark(path: path) } catch { return true }
  }

  private static func cookies(_ list: NamedList, _ rootWaits: Bool) -> CookieAccess {
    if list.url != nil { return .none(.server) }
    if rootWaits { return .none(.user) }
    let folder = list.place == "-" ? nil : list.place.split(separator: "/").dropLast()
    return .files(below: folder.map { "/" + $0.joined(separator: "/") })
  }

  /// Reads all lists, one after the other. `opened`: the one at the top, if it is open already.
  private static func reader(
    of request: MountRequest, _ input: borrowing FileDescriptor?, list opened: consuming FileDescriptor?,
    rootWaits: Bool, again given: [[UInt8]: OwnedDescriptor]? = nil
  ) throws(StoreError) -> ManifestReader {
    var parts: [ListPart] = []
    for list in request.named {
      let file = try request.calling(for: list) { () throws(StoreError) in
        let file = try open(list, request, nil, rootWaits: rootWaits, again: given)
        if rootWaits { try checkSize(of: file, list) }
        return file
      }
      parts.append(ListPart(try reader(of: list, request, file, rootWaits), folder: list.folder))
    }
    var reader: ManifestReader
    if request.manifest.isEmpty {
      reader = ManifestReader(name: "")
    } else {
      let list = NamedList(folder: "", place: request.manifest)
      switch consume opened {
      case .some(let file): reader = try Self.reader(of: list, request, file, rootWaits)
      case .none:
        let file = try request.calling(for: list) { () throws(StoreError) in
          try open(list, request, input, rootWaits: rootWaits, again: given)
        }
        reader = try Self.reader(of: list, request, file, rootWaits)
      }
    }
    reader.append(parts)
    return reader
  }

  private static func reader(
    of list: NamedList, _ request: MountRequest, _ file: consuming FileDescriptor, _ rootWaits: Bool
  ) throws(StoreError) -> ManifestReader {
    let lists = request.lists
    let document = list.url.flatMap { lists?.documents.remembered.head(of: $0) }
    do throws(ManifestError) {
      if let lists, let document, document.kind == .folder {
        return ManifestReader(folder: ServerFolder(url: document.url), name: list.shown, folders: lists.folders)
      }
      let own = document.map { document in
        let source = ServerFolder(url: document.url)
        return source.isAnswered(by: document.finalURL) ? source.withUserinfo(document.finalURL) : document.finalURL
      }
      let base = try (request.baseURL ?? own).map { (url) throws(ManifestError) in
        try ManifestBase(url: url)
      }
      return try ManifestReader(
        descriptor: file, name: list.formatName, base: base ?? .none, format: request.format,
        cookies: cookies(list, rootWaits), folders: lists?.folders, calls: lists?.calls)
    } catch {
      throw StoreError(kind: .invalid, message: "\(error)")
    }
  }

  /// What became of a list that was read again.
  struct Reload {
    /// What the list was known by when it was opened; nil: it cannot be opened.
    var mark: ListMark?
    /// Whether it changed while it was read, so that nothing of it was taken.
    var isChanging = false
    var result: Result<ImportReport, StoreError>
  }

  /// Reads the list of a live mount again. `helper`: of a mount that root made for another user; it opens lists that
  /// the server may not. If a disk does not answer, it waits for it, without holding anything, and begins anew. It is
  /// twice as patient then: a disk may be as slow as that each time. `isStopping`: whether nobody wants the result.
  static func again(
    _ request: MountRequest, helper: HelperLink?, into catalog: Catalog, _ watcher: ImportWatcher,
    isStopping: () -> Bool
  ) -> Reload {
    var watcher = watcher
    watcher.disks = request.lists.map { ListDisks($0.calls, patience: $0.calls.patience) }
    while true {
      let reload = once(request, helper: helper, into: catalog, watcher)
      guard case .failure(let error) = reload.result, error.kind == .silent, !isStopping() else { return reload }
      watcher.disks?.patience *= 2
    }
  }

  private static func once(
    _ request: MountRequest, helper: HelperLink?, into catalog: Catalog, _ watcher: ImportWatcher
  ) -> Reload {
    var reload = Reload(result: .failure(StoreError(kind: .invalid, message: "")))
    // Also of one that cannot be opened: it is not tried again before it changes.
    let mark = ListMark(of: request)
    reload.mark = mark
    let remembered = request.lists?.documents.remembered
    let pending = remembered?.pending ?? [:]
    do throws(StoreError) {
      let fingerprint = try fingerprint(of: request, nil)
      let given = try helper.map { (helper) throws(StoreError) in try openedAnew(request, helper) } ?? [:]
      let reader = try reader(of: request, nil, list: nil, rootWaits: helper != nil, again: given)
      let check = { (losses: [ListLoss]) throws(StoreError) in
        // One that is written to in its place may have been read in part.
        guard ListMark(of: request) == mark else {
          reload.isChanging = true
          throw StoreError(
            kind: .invalid, message: "the list \(request.listName) changed while it was read: try again")
        }
        try watcher.compared(losses)
      }
      var checked = watcher
      checked.compared = check
      reload.result = .success(
        try read(request, reader, fingerprint, into: catalog, watcher: checked) { remembered?.took(pending) })
    } catch {
      reload.result = .failure(error)
    }
    return reload
  }

  /// Imports what servers' folders list, without the list that names them; nil: only the list can say what is there.
  static func folders(
    _ scope: ServedFolders.Scope, _ request: MountRequest, into catalog: Catalog, _ watcher: ImportWatcher
  ) throws(StoreError) -> ImportReport? {
    guard let folders = request.lists?.folders else { return nil }
    var log = ProblemLog(request)
    defer { log.end(isWhole: false) }
    let report = try catalog.importFolders(
      scope.roots, shown: folders.shown, folders, resolver: request.resolve, name: request.listName,
      strict: request.strict, report: { log.note($0) }, watcher: watcher)
    if let report { folders.shows(also: report) }
    return report
  }

  /// Whether the tree was made of the list as it is now.
  static func isCurrent(_ request: MountRequest, in catalog: Catalog) -> Bool {
    do throws(StoreError) {
      let fingerprint = try fingerprint(of: request, nil)
      if fingerprint.isEmpty { return false }
      return try catalog.importedFingerprint() == fingerprint
    } catch {
      return false  // the reload tells why
    }
  }

  /// Opens the manifest of a mount that root makes for a user: before the server is restricted, so that no rule has to
  /// name a file that other programs replace.
  static func openForRoot(_ request: MountRequest, _ input: borrowing FileDescriptor?) throws(ServerError)
    -> FileDescriptor
  {
    do throws(StoreError) {
      let list = NamedList(folder: "", place: request.manifest)
      let file = try open(list, request, input, rootWaits: true)
      if list.place != "-" { try checkSize(of: file, list) }
      return file
    } catch {
      throw .failed(error.message)
    }
  }

  /// Opens a list for the server of such a mount, which has run meanwhile and may have put links into the folders that
  /// it writes to: none of those is followed.
  static func openAnew(_ list: NamedList, _ places: ServerPlaces) throws(ServerError) -> FileDescriptor {
    do throws(StoreError) {
      let place = try places.follow(list.place)
      let file: FileDescriptor
      do throws(PlainFileError) {
        guard let place else {
          var status = stat()
          throw .system(stat(list.place, &status) == 0 ? .notFound : .current)
        }
        file = try .openPlain(place, links: false)
      } catch {
        throw failure(error, list)
      }
      try checkSize(of: file, list)
      return file
    } catch {
      throw .failed(error.message)
    }
  }

  /// The lists that the helper opened, by their folders; none, if the server may open all of them itself: the kernel
  /// lets it open those that were there when it restricted itself (Landlock), and no others.
  static func openedAnew(
    _ request: MountRequest, _ helper: HelperLink
  ) throws(StoreError) -> [[UInt8]: OwnedDescriptor] {
    let lists = request.fileLists
    let kept = lists.filter { list in request.calling(for: list) { isKept(list.place) } }
    if kept.isEmpty { return [:] }
    if let files = try helper.openLists(lists.count) {
      return Dictionary(zip(lists.map { Array($0.folder.utf8) }, files)) { first, _ in first }
    }
    // What the user may read is what only the restriction keeps from the server.
    guard let replaced = kept.first(where: { access($0.place, R_OK) == 0 }) else { return [:] }
    throw StoreError(
      kind: .invalid,
      message: "the list \(replaced.shown) was replaced by another file, which the running server may not open: run "
        + "'mediafs upgrade \(request.mountpoint)', or mount anew")
  }

  private static func isKept(_ path: String) -> Bool {
    do throws(PlainFileError) {
      _ = try FileDescriptor.openPlain(path)
      return false
    } catch .system(.accessDenied) {
      return true
    } catch {
      return false  // who opens it next says why
    }
  }

  /// If root mounts for a user, the manifest has a bound: a file of holes may be as large as its filesystem allows.
  private static func checkSize(of file: borrowing FileDescriptor, _ list: NamedList) throws(StoreError) {
    let size: Int64
    do throws(Errno) { size = Int64(try file.status().st_size) } catch {
      throw StoreError(kind: .io(error), message: "cannot look at the manifest \(list.shown): \(error)")
    }
    if size <= mostForRoot { return }
    throw StoreError(
      kind: .invalid,
      message: "the manifest \(list.shown) has \(size) bytes: with user=NAME, mediafs reads at most "
        + "\(mostForRoot >> 30) GiB; split the list")
  }

  /// Opens a list. A user's own mount may read it from a FIFO, and waits for its writer. If root mounts for a user, the
  /// list must be a plain file, because the user could otherwise make root wait for ever. `given`: for a live mount,
  /// whose thread a pipe must not hold either; what is open already, by its folder.
  private static func open(
    _ list: NamedList, _ request: MountRequest, _ input: borrowing FileDescriptor?, rootWaits: Bool,
    again given: [[UInt8]: OwnedDescriptor]? = nil
  ) throws(StoreError) -> FileDescriptor {
    if let url = list.url, let file = try request.lists?.open(url).file.take() { return file }
    if let file = given?[Array(list.folder.utf8)]?.take() { return file }
    do throws(PlainFileError) {
      var status = stat()
      let isFolder = !rootWaits && stat(list.place, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
      if list.place != "-", rootWaits || given != nil && !isFolder {
        return try FileDescriptor.openPlain(list.place)
      }
      do throws(Errno) {
        guard list.place == "-" else { return try FileDescriptor.open(list.place, O_RDONLY) }
        switch input {
        // A new open file description, so that each server reads the input from its start.
        case .some(let given): return try FileDescriptor.open("/proc/self/fd/\(given.rawValue)", O_RDONLY)
        case .none: throw .invalid
        }
      } catch {
        throw .system(error)
      }
    } catch {
      throw failure(error, list)
    }
  }

  private static func failure(_ error: PlainFileError, _ list: NamedList) -> StoreError {
    switch error {
    case .kind(let kind):
      StoreError(
        kind: .invalid,
        message: "the manifest \(list.shown) is \(kind), and only plain files are read again, or for user=NAME: "
          + "write the list to a plain file")
    case .system:
      StoreError(kind: .invalid, message: "cannot read the manifest \(list.shown): \(error); check --manifest")
    }
  }

  /// `taken`: called at once when the tree is the list's. After a kill, the next server would begin with the lists that
  /// were taken before these.
  private static func read(
    _ request: MountRequest, _ reader: consuming ManifestReader, _ fingerprint: [UInt8], into catalog: Catalog,
    watcher: ImportWatcher? = nil, taken: () -> Void
  ) throws(StoreError) -> ImportReport {
    var reader = reader
    reader.needsEntries = true
    reader.take(ListResolvers(standard: request.resolve, defined: Set(request.resolvers.map(\.name))))
    var log = ProblemLog(request)
    var isTaken = false
    defer { log.end(isWhole: isTaken) }
    let report = try catalog.importManifest(
      reader, fingerprint: fingerprint, strict: request.strict, report: { log.note($0) }, watcher: watcher,
      taken: taken)
    isTaken = true
    Log.debug("\(request.listName): \(report.files) files in \(report.folders) folders")
    request.lists?.shows(report)
    return report
  }

  /// A value that changes with the lists; empty if one changed too recently to tell.
  private static func fingerprint(
    of request: MountRequest, _ input: borrowing FileDescriptor?
  ) throws(StoreError) -> [UInt8] {
    if request.readsStandardInput {
      guard request.named.isEmpty else { return [] }
      switch input {
      case .some(let file):
        let size: Int64
        do throws(Errno) { size = Int64(try file.status().st_size) } catch {
          throw StoreError(kind: .invalid, message: "cannot read the manifest \(request.listName): \(error)")
        }
        return tagged("stdin", request, try Digester.digest(of: file.rawValue, size: size, .sha256) ?? [])
      case .none: return []
      }
    }
    var numbers: [Int64] = []
    for list in request.allLists {
      var status = stat()
      guard request.calling(for: list, { stat(list.path(request.lists), &status) }) == 0,
        status.st_mode & S_IFMT == S_IFREG,
        Int64(time(nil)) - Int64(status.st_mtim.tv_sec) > settling
      else { return [] }
      numbers += [
        Int64(status.st_dev), Int64(status.st_ino), Int64(status.st_size), Int64(status.st_mtim.tv_sec),
        Int64(status.st_mtim.tv_nsec), Int64(status.st_ctim.tv_sec), Int64(status.st_ctim.tv_nsec),
      ]
    }
    let names = request.allLists.map { "\($0.folder)=\($0.place)" }.joined(separator: " ")
    return tagged("file", request, Array("\(numbers) \(names)".utf8))
  }

  /// The fingerprint includes the importer's version and the options that change the result.
  private static func tagged(_ kind: String, _ request: MountRequest, _ rest: [UInt8]) -> [UInt8] {
    let options = [request.baseURL, request.format?.rawValue, request.resolve].map { $0 ?? "" }
    return Array("6 \(kind) \(request.strict) \(options.joined(separator: " ")) ".utf8) + rest
  }
}

/// The environment variables that the store's default path depends on.
func processEnvironment() -> [String: String] {
  var result: [String: String] = [:]
  for name in ["HOME", "XDG_DATA_HOME", "USER"] {
    if let value = getenv(name) { result[name] = String(cString: value) }
  }
  return result
}
