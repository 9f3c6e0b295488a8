import Base
import Fetching
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// When the store gives up the list that was taken before the last one.
@Suite struct TakenListTests {
  /// A list by URL of which an import took a copy, and the next one is there. `former`: where the former one is kept.
  private func withNextList(_ body: (MountRequest, _ former: String, Catalog) throws -> Void) throws {
    try withTemporaryFolder { folder in
      let store = try StoreFolder.open(folder.file("store"), mountpoint: "/m", wait: 0)
      var request = MountRequest(mountpoint: "/m", manifest: "http://127.0.0.1:1/list")
      let lists = try ListAccess(request, TransferOptions(), in: store)
      request.lists = lists
      let catalog = try Catalog.open(path: store.catalogPath, access: .readWrite)
      let remembered = lists.documents.remembered
      func remember(_ text: String) throws {
        let writer = try remembered.begin(
          DocumentHead(url: request.manifest, finalURL: request.manifest, kind: .list, fetched: 1_700_000_000))
        try text.utf8.span.withUnsafeBytes { bytes throws(StoreError) in try writer.write(bytes) }
        #expect(try writer.place(names: 1))
      }
      try remember("http://h/a\n")
      _ = try ManifestImport.run(request, rootWaits: false, input: nil, list: nil, into: catalog)
      try remember("http://h/a\nhttp://h/b\n")
      let former = remembered.path(of: request.manifest) + ".taken"
      #expect(isThere(former))
      try body(request, former, catalog)
    }
  }

  private func isThere(_ path: String) -> Bool { access(path, F_OK) == 0 }

  @Test("A reload gives up the former list with its commit: after a kill it would show that one again")
  func aReload() throws {
    try withNextList { request, former, catalog in
      var isKept: [Bool] = []
      let watcher = ImportWatcher(
        beforeCommit: { (_) throws(StoreError) in isKept.append(isThere(former)) },
        committed: { _ in isKept.append(isThere(former)) })
      let reload = ManifestImport.again(request, helper: nil, into: catalog, watcher) { false }
      guard case .success(let report) = reload.result else { throw Errno.io }
      #expect(report.files == 2)
      #expect(isKept == [true, false])
    }
  }

  @Test("A mount that takes the next list gives up the former one")
  func aMount() throws {
    try withNextList { request, former, catalog in
      _ = try ManifestImport.run(request, rootWaits: false, input: nil, list: nil, into: catalog)
      #expect(!isThere(former))
      #expect(request.lists?.documents.remembered.pending.isEmpty == true)
    }
  }
}
