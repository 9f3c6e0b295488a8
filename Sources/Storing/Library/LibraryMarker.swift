import Base
import Glibc

/// The hidden file `.mediafs-library` by which a library is known again (docs/STORE-FORMAT.md, "Folder").
///
/// A disk that is not mounted leaves an empty folder. Without the marker all copies would look as if a user had removed
/// them, and would be fetched again, under the bare mountpoint.
struct LibraryMarker: Equatable {
  static let name = ".mediafs-library"
  private static let version = 1

  /// Tells it from other libraries; nil when a later version wrote it in another way.
  var id: Int64?

  /// The marker of a new library.
  static func random() -> LibraryMarker { LibraryMarker(id: Int64.random(in: 1...Int64.max)) }

  /// The marker in `folder`; nil when there is none, or what has its name is none.
  static func read(in folder: borrowing Folder) throws(Errno) -> LibraryMarker? {
    // First by name: opening a device in its place could have effects.
    guard let status = try folder.status(of: name), status.isPlainFile else { return nil }
    let text = try smallText(of: folder.file(name, O_RDONLY), limit: 4 << 10)
    switch KeyValueText.decode(text, kind: "library", version: version) {
    case .damaged: return nil
    case .unknownVersion: return LibraryMarker(id: nil)
    case .fields(let fields):
      guard let id = fields["id"].flatMap({ Int64($0) }), id > 0 else { return nil }
      return LibraryMarker(id: id)
    }
  }

  /// Writes it, durably. Replaces nothing but an empty file, which a power loss may leave of it.
  func write(in folder: borrowing Folder, mode: mode_t) throws(Errno) {
    let file = try folder.file(Self.name, O_WRONLY | O_CREAT, mode: mode)
    let status = try file.status()
    guard status.isPlainFile, status.st_size == 0 else { throw .exists }
    var text = KeyValueText.encode(kind: "library", version: Self.version, fields: [("id", "\(id ?? 0)")])
    let failure: Errno? = text.withUTF8 { bytes in
      do throws(Errno) {
        try file.writeFully(UnsafeRawBufferPointer(bytes), at: 0)
        return nil
      } catch {
        return error
      }
    }
    if let failure { throw failure }
    try file.sync()
    try folder.sync()
  }
}

extension LibraryFolder {
  /// What the catalog remembers the library by.
  private static let rememberedName = "library_id"
  /// How many copies are looked for where the marker does not tell.
  private static let mostLooked = 64

  /// Opens the library for a mount, as ``init(_:)`` does, and marks it. Throws, and makes nothing, when it cannot be
  /// the one in which the catalog's copies are: it has neither its marker nor any of them.
  ///
  /// To be called before anything is made of copies that are not there.
  package static func open(_ path: String, for catalog: Catalog) throws(StoreError) -> LibraryFolder {
    if let reason = try isStrange(path, to: catalog) { throw StoreError(kind: .invalid, message: reason) }
    let library = try LibraryFolder(path)
    try library.mark(in: catalog)
    return library
  }

  /// Why the folder at `path` cannot be the library in which the catalog's copies are; nil when it may be.
  static func isStrange(_ path: String, to catalog: Catalog) throws(StoreError) -> String? {
    var status = stat()
    let isThere = stat(path, &status) == 0 || Errno.current != .notFound
    if isThere {
      let library = try LibraryFolder(path)
      if let marker = library.marker(), try library.isKnown(marker, to: catalog) { return nil }
      let copies = try catalog.generations.latestCopies(limit: mostLooked)
      if copies.isEmpty || copies.contains(where: { library.mayHave($0) }) { return nil }
    }
    let count = try catalog.generations.copyCount()
    if count == 0 { return nil }
    let copies = count == 1 ? "the complete file" : "any of the \(count) complete files"
    return
      "the library \(path) \(isThere ? "does not have" : "is not there, nor") \(copies) that the store knows in it: "
      + "is its disk mounted? If it was moved, name its folder with --library; if its files are gone for good, "
      + "`mediafs verify --repair` makes the store forget them, and they are fetched again"
  }

  /// Notes the library's marker in the catalog; makes it when there is none.
  private func mark(in catalog: Catalog) throws(StoreError) {
    if let marker = marker() {
      if let id = marker.id, try catalog.remembered(Self.rememberedName) != id {
        try catalog.remember(Self.rememberedName, id)
      }
      return
    }
    let marker = LibraryMarker.random()
    do throws(Errno) {
      try marker.write(in: Folder.open(path), mode: fileMode)
    } catch {
      // A library that is only read, or on a disk that is full, does without.
      Log.warning("cannot mark the library as \(path)/\(LibraryMarker.name): \(error); its copies have to tell it")
      return
    }
    if let id = marker.id { try catalog.remember(Self.rememberedName, id) }
  }

  private func marker() -> LibraryMarker? {
    do throws(Errno) {
      return try LibraryMarker.read(in: Folder.open(path))
    } catch {
      Log.warning("cannot read \(path)/\(LibraryMarker.name): \(error)")
      return nil
    }
  }

  private func isKnown(_ marker: LibraryMarker, to catalog: Catalog) throws(StoreError) -> Bool {
    guard let id = marker.id else { return true }
    return try catalog.remembered(Self.rememberedName) == id
  }

  /// Whether something is where a copy was placed, or that cannot be told.
  private func mayHave(_ copy: LibraryCopy) -> Bool {
    do throws(StoreError) {
      return try check(copy) != .missing
    } catch {
      Log.warning(error.message)
      return true
    }
  }
}
