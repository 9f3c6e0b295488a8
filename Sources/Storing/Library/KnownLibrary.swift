import Base
import Glibc

/// A library, and the catalog that may know it: by its marker, or by the copies in it.
package struct KnownLibrary {
  /// The name in `meta` of the library's number.
  private static let rememberedName = "library_id"
  /// How many copies the check looks for if the marker does not decide.
  private static let mostLooked = 64

  private let library: LibraryFolder
  private let catalog: Catalog

  /// Opens the library for a mount, as ``LibraryFolder/init(_:)`` does, and marks it. Throws, and creates nothing, if
  /// the library has neither its marker nor any of the catalog's copies, and so cannot be the right one.
  ///
  /// The server calls it before it draws conclusions from missing copies.
  package static func open(_ path: String, for catalog: Catalog) throws(StoreError) -> LibraryFolder {
    if let reason = try isStrange(path, to: catalog) { throw StoreError(kind: .invalid, message: reason) }
    let library = try LibraryFolder(path)
    try KnownLibrary(library: library, catalog: catalog).mark()
    return library
  }

  /// Why the folder at `path` cannot be the library that contains the catalog's copies; nil if it may be.
  package static func isStrange(_ path: String, to catalog: Catalog) throws(StoreError) -> String? {
    var status = stat()
    let isThere = stat(path, &status) == 0 || Errno.current != .notFound
    if isThere {
      let known = KnownLibrary(library: try LibraryFolder(path), catalog: catalog)
      if let marker = known.marker(), try known.knows(marker) { return nil }
      let copies = try catalog.generations.latestCopies(limit: mostLooked)
      if copies.isEmpty || copies.contains(where: { known.mayHave($0) }) { return nil }
    }
    let count = try catalog.generations.copyCount()
    if count == 0 { return nil }
    let copies = count == 1 ? "the complete file" : "any of the \(count) complete files"
    return
      "the library \(path) \(isThere ? "does not have" : "is not there, nor") \(copies) that the store knows in it: "
      + "is its disk mounted? If it was moved, name its folder with --library; if its files are gone for good, "
      + "`mediafs verify --repair` makes the store forget them, and mediafs downloads them again"
  }

  /// Notes the library's marker in the catalog. Creates the marker if there is none.
  private func mark() throws(StoreError) {
    if let marker = marker() {
      if let id = marker.id, try catalog.remembered(Self.rememberedName) != id {
        try catalog.remember(Self.rememberedName, id)
      }
      return
    }
    let marker = LibraryMarker.random()
    do throws(Errno) {
      try marker.write(in: Folder.open(library.path), mode: library.fileMode)
    } catch {
      // A read-only library, or one on a full disk, gets no marker.
      Log.warning(
        "cannot mark the library with \(library.path)/\(LibraryMarker.name): \(error); its copies alone identify it")
      return
    }
    if let id = marker.id { try catalog.remember(Self.rememberedName, id) }
  }

  private func marker() -> LibraryMarker? {
    do throws(Errno) {
      return try LibraryMarker.read(in: Folder.open(library.path))
    } catch {
      Log.warning("cannot read \(library.path)/\(LibraryMarker.name): \(error)")
      return nil
    }
  }

  private func knows(_ marker: LibraryMarker) throws(StoreError) -> Bool {
    guard let id = marker.id else { return true }
    return try catalog.remembered(Self.rememberedName) == id
  }

  /// Whether something is at a copy's path, or the library cannot be read there.
  private func mayHave(_ copy: LibraryCopy) -> Bool {
    do throws(StoreError) {
      return try library.check(copy) != .missing
    } catch {
      Log.warning(error.message)
      return true
    }
  }
}
