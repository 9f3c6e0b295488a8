import Base
import Control
import Manifest
import Reading
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// Walks over all names of a mount.
@Suite struct WalkTests {
  @Test(
    "A folder that leads back to one above it, or to itself, is damage, and ends the walk",
    arguments: [
      "id = 1 WHERE name = 'x'", "inode = 1 WHERE name = 'x'",
      "inode = (SELECT id FROM entry WHERE name = 'x') WHERE name = 'y'",
    ])
  func impossibleFolders(damage: String) throws {
    try withTemporaryFolder { folder in
      let catalog = try Catalog.open(path: folder.file("catalog.sqlite"), access: .readWrite)
      try catalog.list(["a.mkv", "x/y/b.mkv"])
      try catalog.connections.withWriter { (connection, _) throws(StoreError) in
        try connection.run("UPDATE entry SET \(damage)")
      }
      var walk = TreeWalk([""])
      var steps = 0
      var refusal: StoreError?
      do throws(StoreError) {
        while steps < 1000, try walk.next(in: catalog.tree, limit: 10) != nil { steps += 1 }
      } catch {
        refusal = error
      }
      try #require(refusal?.kind == .corrupt, "the walk took \(steps) steps")
      let library = try LibraryFolder(folder.file("library"))
      let status = CatalogStatus(catalog: catalog, store: "", library: library, reports: nil)
      #expect(throws: ControlFailure.self) { _ = try status.page(StatusQuery(all: true)) }
    }
  }
}
