import Base
import Control
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// Orders to delete for a store that no server uses.
@Suite struct UnmountedStoreTests {
  /// A store with the complete files `whole`, whose copies are in its library, and the partial files `parts`.
  private func withStore(
    whole: [String], parts: [String] = [], _ body: (MountRecord) throws -> Void
  ) throws {
    try withTemporaryFolder { folder in
      let mount = MountRecord(
        mountpoint: "/m", store: folder.file("store"), library: folder.file("library"), manifest: "/l")
      do {
        let opened = try StoreFolder.open(mount.store, mountpoint: mount.mountpoint, wait: 0)
        let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
        try catalog.list(whole + parts)
        _ = try KnownLibrary.open(mount.library, for: catalog)
        for path in whole + parts {
          let id = try catalog.changes.nextID()
          let record = GenerationRecord(
            id: id, key: ResourceKey(id: path), validators: Validators(etag: "x"), size: 100, mediaType: nil)
          try catalog.changes.apply([.learned(record)], durably: true)
          let bytes = Array(repeating: UInt8(7), count: 100)
          if whole.contains(path) {
            try folder.write(bytes, to: "library/" + path)
            let copy = LibraryCopy(at: path, try FileDescriptor.open(folder.file("library/" + path), O_RDONLY).status())
            try catalog.changes.apply([.placed(generation: id, copy, adopted: false)], durably: true)
          } else {
            let file = try PartialFile(in: opened, id: id, create: true)
            try bytes.withUnsafeBytes { try file.write($0, at: 0) }
            let stored = ByteRangeSet(ByteRange(0, 60))
            try catalog.changes.apply([.extents(generation: id, stored: stored, synced: stored)], durably: true)
          }
        }
        try catalog.close()
      }
      try body(mount)
    }
  }

  private func clear(_ mount: MountRecord, _ files: ClearOrder.Files, isForced: Bool = false) throws -> ClearReport {
    try UnmountedStore(mount).clear(ClearOrder(files, isForced: isForced))
  }

  private func state(_ path: String, _ mount: MountRecord) throws -> GenerationRecord.State? {
    let catalog = try Catalog.open(path: mount.store + "/catalog.sqlite", access: .readOnly)
    return try catalog.generations.current(of: ResourceKey(id: path))?.state
  }

  /// The disk of the library is not mounted: its folder is there, without the copies.
  @Test(arguments: [true, false]) func ofAnotherLibraryNothingFollows(hasFolder: Bool) throws {
    try withStore(whole: ["a.bin", "b.bin"], parts: ["part.bin"]) { mount in
      rename(mount.library, mount.library + "-away")
      if hasFolder { mkdir(mount.library, 0o755) }
      for isForced in [false, true] {
        let report = try clear(mount, .all, isForced: isForced)
        #expect(report.files == (isForced ? 0 : 1) && report.keptFiles == 2, "\(report)")
        #expect(report.kept.allSatisfy { $0.reason.contains("is its disk mounted?") }, "\(report)")
      }
      #expect(try state("a.bin", mount) == .complete && state("b.bin", mount) == .complete)
      rmdir(mount.library)
      rename(mount.library + "-away", mount.library)
      // A copy that the user removed from the library itself is gone.
      unlink(mount.library + "/b.bin")
      let report = try clear(mount, .all)
      #expect(report.files == 1 && report.kept.map(\.path) == ["a.bin"], "\(report)")
      #expect(try state("a.bin", mount) == .complete && state("b.bin", mount) == .partial)
    }
  }

  /// A catalog that cannot be written stands for a kill before the commit.
  @Test func aCopyGoesBeforeItsRow() throws {
    try withStore(whole: ["a.bin"]) { mount in
      func run(_ sql: String) throws {
        try SQLiteConnection(path: mount.store + "/catalog.sqlite", mode: .readWrite).run(sql)
      }
      try run(
        """
        CREATE TRIGGER refused BEFORE UPDATE OF copy_path ON generation WHEN NEW.copy_path IS NULL
        BEGIN SELECT RAISE(ABORT, 'the test refuses it'); END
        """)
      #expect(throws: ControlFailure.self) { try clear(mount, .all, isForced: true) }
      #expect(access(mount.library + "/a.bin", F_OK) != 0, "a copy would stay that nobody knows")
      #expect(try state("a.bin", mount) == .complete)
      try run("DROP TRIGGER refused")
      #expect(try clear(mount, .all).files == 1)
      #expect(try state("a.bin", mount) == .partial)
    }
  }

  /// A user fetched them, and of two nothing came.
  @Test func whatIsClearedIsFetchedNoMore() throws {
    try withStore(whole: [], parts: ["x/part.bin"]) { mount in
      let paths = ["x/part.bin", "x/new.bin", "x/kept.bin", "other.bin"]
      let open = { try Catalog.open(path: mount.store + "/catalog.sqlite", access: .readWrite) }
      let before = try open()
      try before.list(paths)
      let pins: [CatalogChange] = paths.map { .pinned(ResourceKey(id: $0), true) }
      let rule = PathRule(
        subject: .storage, pattern: PathPattern(path: "x/kept.bin"), value: StorageRule.keep.rawValue, number: 1)
      try before.changes.apply(pins + [.rule(.set(rule))], durably: true)
      try before.close()
      #expect(try clear(mount, .at(["x"])) == ClearReport(files: 1, bytes: 60))
      let after = try open()
      let left = try paths.filter { try after.notes.isPinned(ResourceKey(id: $0)) }
      #expect(left == ["x/kept.bin", "other.bin"])
      try after.close()
    }
  }

  @Test func aFormerNameIsCleared() throws {
    try withStore(whole: [], parts: ["x/123"]) { mount in
      let catalog = try Catalog.open(path: mount.store + "/catalog.sqlite", access: .readWrite)
      try catalog.list(["x/123"], mayGain: ["x/123"])
      try catalog.changes.apply([.gainedExtension(ResourceKey(id: "x/123"), "mkv")], durably: true)
      try OpenedStore.settleNames(in: catalog)
      #expect(try catalog.tree.presentPath("x/123") == "x/123.mkv")
      try catalog.close()
      let report = try clear(mount, .at(["x/123"]))
      #expect(report == ClearReport(files: 1, bytes: 60))
    }
  }
}
