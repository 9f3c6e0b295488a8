import Control
import Manifest
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// Orders to delete over the control socket of a running file system.
@Suite struct ClearServiceTests {
  /// A server takes up what a user fetched a few files at a time: of the others nothing is in memory, nor stored.
  @Test func whatIsClearedIsFetchedNoMore() throws {
    try withTemporaryFolder { folder in
      let opened = try StoreFolder.open(folder.file("store"), mountpoint: "/nowhere", wait: 0)
      let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
      let paths = ["x/a.bin", "x/b.bin", "other.bin"]
      try catalog.list(paths)
      let pins: [CatalogChange] = paths.map { .pinned(ResourceKey(id: $0), true) }
      try catalog.changes.apply(pins, durably: true)
      func fetched() throws -> [String] { try paths.filter { try catalog.notes.isPinned(ResourceKey(id: $0)) } }
      try withService(of: catalog, opened, try LibraryFolder(folder.file("library"))) { service in
        let tried = try service.clear(ClearOrder(.at(["x"]), isDryRun: true), isLeft: { false })
        let kept = try fetched()
        #expect(tried == ClearReport() && kept == paths)
        let cleared = try service.clear(ClearOrder(.at(["x"])), isLeft: { false })
        #expect(cleared == ClearReport())
      }
      #expect(try fetched() == ["other.bin"])
    }
  }
}
