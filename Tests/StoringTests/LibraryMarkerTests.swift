import Base
import Glibc
import Manifest
import Testing

@testable import Storing

/// By what a library is known again, and what is refused.
@Suite struct LibraryMarkerTests {
  /// A catalog and a folder for libraries.
  private final class Fixture {
    let catalogs = CatalogFolder()
    let home: TestFolder
    let catalog: Catalog
    var library: String { home.path + "/library" }
    var marker: String { library + "/" + LibraryMarker.name }

    init() throws {
      home = try TestFolder()
      catalog = try catalogs.open()
    }

    /// Notes copies in the catalog, those of the later paths used later; puts a file in the library for each of
    /// `there`.
    func complete(_ paths: [String], there: [String]) throws {
      mkdir(library, 0o755)
      for (number, path) in paths.enumerated() {
        let id = try catalog.changes.nextID()
        let key = ResourceKey(id: path)
        let record = GenerationRecord(
          id: id, key: key, validators: Validators(etag: "\"\(number)\"", lastModified: nil), size: 4, mediaType: nil)
        var copy = LibraryCopy(path: path, size: 4, modified: 0, changed: 0, device: 0, inode: 0)
        if there.contains(path) {
          try home.write("library/" + path, Array("copy".utf8))
          copy = LibraryCopy(at: path, try FileDescriptor.open(library + "/" + path, O_RDONLY).status())
        }
        try catalog.changes.apply(
          [
            .learned(record), .placed(generation: id, copy, adopted: false),
            .used(generation: id, at: Int64(number + 1)),
          ], durably: true
        )
      }
    }

    func open() throws(StoreError) -> LibraryFolder { try KnownLibrary.open(library, for: catalog) }

    /// Opens it, which must be refused as strange, and must leave nothing behind.
    func expectRefused(_ comment: String = "", _ location: SourceLocation = #_sourceLocation) throws {
      let before = try? Folder.open(library).names().sorted()
      let refused = failure { () throws(StoreError) in _ = try open() }
      #expect(refused?.kind == .invalid, "\(comment)", sourceLocation: location)
      let message = refused?.message ?? ""
      for part in [library, "is its disk mounted?", "mediafs verify --repair"] {
        #expect(message.contains(part), "\(comment): \(message)", sourceLocation: location)
      }
      #expect((try? Folder.open(library).names().sorted()) == before, "\(comment)", sourceLocation: location)
    }

    func names() throws -> [String] { try Folder.open(library).names().sorted() }
  }

  @Test func aNewLibraryIsMarkedAndKnownAgain() throws {
    let fixture = try Fixture()
    _ = try fixture.open()
    let text = String(decoding: try #require(contents(fixture.marker)), as: UTF8.self)
    let id = try #require(try fixture.catalog.remembered("library_id"))
    #expect(text == "mediafs library 1\nid=\(id)\n")
    // With it, copies that are gone were removed by somebody.
    try fixture.complete(["a.mp4"], there: [])
    _ = try fixture.open()
    #expect(contents(fixture.marker) == Array(text.utf8))
    #expect(try fixture.catalog.remembered("library_id") == id)
  }

  @Test func aBareMountpointIsRefused() throws {
    let fixture = try Fixture()
    _ = try fixture.open()
    try fixture.complete(["a.mp4", "b.mp4"], there: ["a.mp4"])
    rename(fixture.library, fixture.home.path + "/elsewhere")
    try fixture.expectRefused("no folder")
    mkdir(fixture.library, 0o755)
    try fixture.expectRefused("an empty folder")
    // Another library's disk is there instead.
    try fixture.home.write("library/" + LibraryMarker.name, Array("mediafs library 1\nid=7\n".utf8))
    try fixture.expectRefused("another library")
    #expect(try fixture.catalog.generations.copyCount() == 2)
    unlink(fixture.marker)
    rmdir(fixture.library)
    rename(fixture.home.path + "/elsewhere", fixture.library)
    let library = try fixture.open()
    #expect(try library.check(fixture.catalog.generations.latestCopies(limit: 2)[1]) == .intact)
  }

  @Test(arguments: ["intact", "edited"]) func oneCopyIsEnoughWithoutAMarker(state: String) throws {
    let fixture = try Fixture()
    try fixture.complete(["a.mp4", "b.mp4", "c.mp4"], there: ["b.mp4"])
    if state == "edited" { try fixture.home.write("library/b.mp4", Array("another".utf8)) }
    _ = try fixture.open()
    #expect(try fixture.names() == [LibraryMarker.name, "b.mp4"])
    unlink(fixture.library + "/b.mp4")
    _ = try fixture.open()
  }

  @Test func onlySoManyCopiesAreLookedFor() throws {
    let fixture = try Fixture()
    try fixture.complete((1...70).map { "\($0).mp4" }, there: ["1.mp4"])
    try fixture.expectRefused()
    try fixture.home.write("library/70.mp4", [])
    _ = try fixture.open()
  }

  @Test func aLibraryThatIsSharedIsKnownToBoth() throws {
    let (fixture, other) = (try Fixture(), try Fixture())
    _ = try fixture.open()
    let marker = contents(fixture.marker)
    _ = try KnownLibrary.open(fixture.library, for: other.catalog)
    #expect(contents(fixture.marker) == marker)
    try other.complete(["a.mp4"], there: [])
    _ = try KnownLibrary.open(fixture.library, for: other.catalog)
  }

  static let obstacles: [(String, @Sendable (String) -> Void)] = [
    ("folder", { path in mkdir(path, 0o755) }),
    ("link", { path in symlink("/etc/passwd", path) }),
    ("FIFO", { path in mkfifo(path, 0o644) }),
    ("a file of the user's", { path in try? CatalogFolder.put("mine", at: path) }),
  ]

  /// What is no marker and cannot be replaced, as on a disk that is read-only, costs nobody a mount that works.
  @Test(arguments: obstacles.indices) func aMarkerThatCannotBeWritten(index: Int) throws {
    let (what, obstruct) = Self.obstacles[index]
    let fixture = try Fixture()
    try fixture.complete(["a.mp4"], there: ["a.mp4"])
    obstruct(fixture.marker)
    var before = stat()
    try #require(lstat(fixture.marker, &before) == 0)
    _ = try fixture.open()
    var after = stat()
    #expect(
      lstat(fixture.marker, &after) == 0 && after.st_dev == before.st_dev && after.st_ino == before.st_ino
        && after.st_size == before.st_size, "\(what)")
    #expect(try fixture.catalog.remembered("library_id") == nil)
    unlink(fixture.library + "/a.mp4")
    try fixture.expectRefused(what)
  }

  @Test func anEmptyMarkerIsMadeAnewAndALaterOneAccepted() throws {
    let fixture = try Fixture()
    try fixture.complete(["a.mp4"], there: ["a.mp4"])
    try fixture.home.write("library/" + LibraryMarker.name, [])
    _ = try fixture.open()
    #expect(contents(fixture.marker)?.isEmpty == false)
    let later = Array("mediafs library 2\nname=x\n".utf8)
    try fixture.home.write("library/" + LibraryMarker.name, later)
    unlink(fixture.library + "/a.mp4")
    _ = try fixture.open()
    #expect(contents(fixture.marker) == later)
  }
}

extension CatalogFolder {
  /// Writes a file.
  fileprivate static func put(_ text: String, at path: String) throws {
    let file = try FileDescriptor.open(path, O_WRONLY | O_CREAT)
    try Array(text.utf8).withUnsafeBytes { try file.writeFully($0, at: 0) }
  }
}
