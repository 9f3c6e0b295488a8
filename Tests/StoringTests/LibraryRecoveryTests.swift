import Base
import Glibc
import Testing

@testable import Storing

@Suite struct LibraryRecoveryTests {
  let bytes = sampleBytes(2_500_000)
  var size: Int64 { Int64(bytes.count) }

  @Test func aCrashBetweenIntentAndRename() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    let crash = StoreError(kind: .full, message: "the intent could not be noted")
    let thrown = failure { () throws(StoreError) in
      _ = try fixture.library.place(partial, as: "a/b.mp3", size: size, modified: 5) { _ throws(StoreError) in
        throw crash
      }
    }
    #expect(thrown?.kind == .full)
    #expect(try Folder.open(fixture.library.path + "/a").names().isEmpty)
    let recovered = try fixture.library.recover(intent: "a/b.mp3", size: size, modified: 5, partialExists: true)
    #expect(recovered == nil)
    #expect(try fixture.place(partial, as: "a/b.mp3", size: bytes.count).copy.path == "a/b.mp3")
  }

  @Test func aCrashBetweenRenameAndCommit() throws {
    let fixture = try LibraryFixture()
    let placed = try fixture.place(fixture.partial(1, bytes), as: "a/b.mp3", size: bytes.count, modified: 5)
    let recovered = try fixture.library.recover(intent: "a/b.mp3", size: size, modified: 5, partialExists: false)
    #expect(recovered == placed.copy)
    #expect(
      try fixture.library.recover(intent: "a/b.mp3", size: size, modified: nil, partialExists: false) == placed.copy)
    // Neither another file nor another place is taken for ours.
    #expect(try fixture.library.recover(intent: "a/b.mp3", size: size - 1, modified: 5, partialExists: false) == nil)
    #expect(try fixture.library.recover(intent: "a/b.mp3", size: size, modified: 9, partialExists: false) == nil)
    #expect(try fixture.library.recover(intent: "a/c.mp3", size: size, modified: 5, partialExists: false) == nil)
    #expect(try fixture.library.recover(intent: "b/b.mp3", size: size, modified: 5, partialExists: false) == nil)
    #expect(try fixture.library.recover(intent: "a", size: 4096, modified: nil, partialExists: false) == nil)
  }

  /// Notes that a whole file is about to be placed as `a/b.mp3`; its generation.
  private func intent(in catalog: Catalog) throws -> Int64 {
    let id = try catalog.changes.nextID()
    let generation = GenerationRecord(id: id, key: key(1), validators: Validators(), size: size, mediaType: nil)
    let all = ByteRangeSet(ByteRange(0, size))
    try catalog.changes.apply(
      [
        .learned(generation), .extents(generation: id, stored: all, synced: all),
        .placing(generation: id, path: "a/b.mp3"),
      ], durably: true)
    return id
  }

  @Test func theNextStartFinishesAPlacing() throws {
    let fixture = try LibraryFixture()
    let catalog = try Catalog.open(path: fixture.store.catalogPath, access: .readWrite)
    let id = try intent(in: catalog)
    let placed = try fixture.place(fixture.partial(id, bytes), as: "a/b.mp3", size: bytes.count, modified: nil)
    try StoreRecovery.run(catalog: catalog, folder: fixture.store, library: fixture.library)
    let found = try #require(try catalog.generations.find(id))
    #expect(found.state == .complete && found.copy == placed.copy)
    #expect(try catalog.generations.placements().isEmpty)
    try catalog.close()
  }

  /// What is at the path of an intent is no copy once the catalog knows that the file lost bytes.
  @Test func whatLostBytesSinceIsNoCopy() throws {
    let fixture = try LibraryFixture()
    let catalog = try Catalog.open(path: fixture.store.catalogPath, access: .readWrite)
    let id = try intent(in: catalog)
    _ = try fixture.place(fixture.partial(id, bytes), as: "a/b.mp3", size: bytes.count, modified: nil)
    let kept = ByteRangeSet(ByteRange(0, 1 << 20))
    try catalog.changes.apply([.lost(generation: id, stored: kept, synced: kept)], durably: true)
    try StoreRecovery.run(catalog: catalog, folder: fixture.store, library: fixture.library)
    let found = try #require(try catalog.generations.find(id))
    #expect(found.state == .partial && found.copy == nil && found.stored.isEmpty)
    #expect(try catalog.generations.placements().isEmpty)
    #expect(fixture.bytes("a/b.mp3") == bytes, "it is the user's")
    try catalog.close()
  }

  /// No mount can recover the store before a repair has deleted that row.
  /// `isCopy`: the row is that of a complete file, by which a library without its marker is recognized.
  @Test(arguments: [false, true]) func aRepairGoesOnBehindARowThatCannotBeRead(isCopy: Bool) throws {
    let home = try TestFolder()
    let (store, library) = (home.path + "/store", home.path + "/library")
    _ = try LibraryFolder(library)
    do {
      let folder = try StoreFolder.open(store, mountpoint: "/m", wait: 0)
      let catalog = try Catalog.open(path: folder.catalogPath, access: .readWrite)
      for number: UInt64 in 1...2 {
        let id = try catalog.changes.nextID()
        let record = GenerationRecord(id: id, key: key(number), validators: Validators(), size: size, mediaType: nil)
        let all = ByteRangeSet(ByteRange(0, size))
        try catalog.changes.apply(
          [.learned(record), .extents(generation: id, stored: all, synced: all)], durably: true)
        try PartialFile(in: folder, id: id, create: true).put(bytes)
        if number == 2 { continue }
        try catalog.connections.write(durably: true) { (connection) throws(StoreError) in
          try connection.run("UPDATE generation SET synced = x'80', state = \(isCopy ? 1 : 0) WHERE id = \(id)")
        }
      }
      try catalog.close()
    }
    func verify(repairs: Bool) throws -> StoreVerificationReport {
      try StoreVerification.run(store: store, mountpoint: "/m", library: library, repairs: repairs)
    }
    if !isCopy { #expect(try verify(repairs: false).findings.map(\.kind) == [.catalog]) }
    let repaired = try verify(repairs: true)
    #expect(repaired.findings.map(\.kind) == [.catalog] && repaired.findings.first?.repair != nil, "\(repaired)")
    let after = try verify(repairs: false)
    #expect(after.findings.isEmpty && after.partials == 1, "\(after)")
  }

  /// A damaged catalog may claim all bytes that there can be.
  @Test func aClaimUpToTheGreatestOffsetEndsNoStart() throws {
    let fixture = try LibraryFixture()
    let catalog = try Catalog.open(path: fixture.store.catalogPath, access: .readWrite)
    let id = try catalog.changes.nextID()
    let record = GenerationRecord(id: id, key: key(1), validators: Validators(), size: nil, mediaType: nil)
    let claimed = ByteRangeSet(ByteRange(0, .max))
    try catalog.changes.apply(
      [.learned(record), .extents(generation: id, stored: claimed, synced: claimed)], durably: true)
    _ = try fixture.partial(id, bytes)
    try StoreRecovery.run(catalog: catalog, folder: fixture.store, library: fixture.library)
    #expect(try catalog.generations.find(id)?.stored == claimed)
    try catalog.close()
  }

  @Test func aCrashBetweenLinkAndUnlink() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    try #require(link(fixture.store.path + "/partial/1", fixture.library.path + "/b.mp3") == 0)
    let placed = try fixture.place(partial, as: "b.mp3", size: bytes.count)
    #expect(placed.copy.path == "b.mp3" && !placed.adopted)
    #expect(fixture.intents == ["b.mp3"], "a crash now would leave a copy that nobody looks for")
    #expect(try fixture.store.partialIDs().isEmpty)
    try partial.remove()
    #expect(try fixture.library.check(placed.copy) == .intact)
    #expect(try fixture.names() == ["b.mp3"])
  }

  @Test func placingTwiceIsPlacingOnce() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    let first = try fixture.place(partial, as: "b.mp3", size: bytes.count)
    let second = try fixture.place(partial, as: "b.mp3", size: bytes.count)
    #expect(first.copy.inode == second.copy.inode && first.copy.path == second.copy.path)
    #expect(try fixture.library.check(second.copy) == .intact)
  }

  @Test func anotherFilesystemGetsACopy() throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture(across: other)
      let partial = try fixture.partial(1, bytes)
      let placed = try fixture.place(partial, as: "a/b.mp3", size: bytes.count)
      #expect(!placed.adopted && fixture.bytes("a/b.mp3") == bytes)
      #expect(placed.copy.modified == 1_700_000_001_000_000_000)
      #expect(other.status("library/a/b.mp3")?.st_mode == S_IFREG | (0o644 & ~processUmask()))
      #expect(try fixture.library.check(placed.copy) == .intact)
      #expect(try fixture.store.partialIDs() == [1], "the caller removes it once the copy is committed")
      // A crash before the commit: the next start finds the copy.
      #expect(try fixture.library.recover(intent: "a/b.mp3", size: size, modified: nil, partialExists: true) == nil)
      let again = try fixture.place(partial, as: "a/b.mp3", size: bytes.count)
      #expect(again.adopted && again.copy.inode == placed.copy.inode)
      try IncomingCopy.removeLeftovers(of: fixture.store, in: fixture.library)
      #expect(try fixture.names() == ["a"])
    }
  }

  /// A kill in the midst of placing on another disk, which is not mounted at the next start: nothing is given up, and
  /// nothing lands under the bare mountpoint. With the disk back it is placed, once.
  @Test(arguments: ["before the copy", "within the copy", "before the commit"])
  func aCrashAndTheDiskIsNotMounted(_ moment: String) throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture(across: other)
      let catalog = try Catalog.open(path: fixture.store.catalogPath, access: .readWrite)
      let id = try catalog.changes.nextID()
      let partial = try fixture.partial(id, bytes)
      let all = ByteRangeSet(ByteRange(0, size))
      let generation = GenerationRecord(id: id, key: key(1), validators: Validators(), size: size, mediaType: nil)
      try catalog.changes.apply(
        [.learned(generation), .extents(generation: id, stored: all, synced: all)], durably: true)
      func place(in library: LibraryFolder, broken: Bool) throws(StoreError) -> Placement {
        try library.place(
          partial, as: "a/b.mp3", size: size, modified: nil, isCancelled: { broken && moment == "within the copy" }
        ) { (path) throws(StoreError) in
          try catalog.changes.apply([.placing(generation: id, path: path)], durably: true)
          if broken, moment == "before the copy" { throw StoreError(kind: .full, message: "killed") }
        }
      }
      let broken = failure { () throws(StoreError) in _ = try place(in: fixture.library, broken: true) }
      #expect((broken == nil) == (moment == "before the commit"))

      let path = other.path + "/library"
      try #require(rename(path, other.path + "/unmounted") == 0)
      let bare = try LibraryFolder(path)
      try StoreRecovery.run(catalog: catalog, folder: fixture.store, library: bare)
      let kept = try #require(try catalog.generations.find(id))
      #expect(kept.state == .partial && kept.stored == all && kept.synced == all && kept.continues)
      #expect(try fixture.store.partialIDs() == [id])
      #expect(try Folder.open(path).names().isEmpty)

      try #require(rmdir(path) == 0 && rename(other.path + "/unmounted", path) == 0)
      let library = try LibraryFolder(path)
      try StoreRecovery.run(catalog: catalog, folder: fixture.store, library: library)
      let placed = try place(in: library, broken: false)
      #expect(placed.adopted == (moment == "before the commit") && placed.copy.path == "a/b.mp3")
      #expect(try Folder.open(path + "/a").names() == ["b.mp3"])
      try catalog.close()
    }
  }

  @Test func aCopyThatIsBrokenOffLeavesNothing() throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture(across: other)
      let partial = try fixture.partial(1, bytes)
      var asked = 0
      let ended = failure { () throws(StoreError) in
        _ = try fixture.library.place(
          partial, as: "b.mp3", size: size, modified: nil,
          isCancelled: {
            asked += 1
            return asked == 2
          }, recordIntent: { _ in })
      }
      #expect(ended?.kind == .io(Errno(rawValue: ECANCELED)))
      #expect(try fixture.names() == [LibraryFolder.incoming])
      #expect(try Folder.open(fixture.library.path + "/" + LibraryFolder.incoming).names().isEmpty)
    }
  }

  @Test func whatACrashLeftOfACopyIsCleaned() throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture(across: other)
      let folder = fixture.library.path + "/" + LibraryFolder.incoming
      mkdir(folder, 0o755)
      let ours = try IncomingCopy.tag(of: fixture.store) + "1"
      try fixture.occupy(LibraryFolder.incoming + "/" + ours, [1, 2])
      try fixture.occupy(LibraryFolder.incoming + "/0123456789ab-1", [1, 2])
      // Placing goes over what is left of an earlier attempt.
      let placed = try fixture.place(fixture.partial(1, bytes), as: "b.mp3", size: bytes.count)
      #expect(fixture.bytes("b.mp3") == bytes && !placed.adopted)
      try fixture.occupy(LibraryFolder.incoming + "/" + ours, [1, 2])
      try IncomingCopy.removeLeftovers(of: fixture.store, in: fixture.library)
      #expect(try Folder.open(folder).names() == ["0123456789ab-1"], "another store's stays")
      unlink(folder + "/0123456789ab-1")
      try IncomingCopy.removeLeftovers(of: fixture.store, in: fixture.library)
      try IncomingCopy.removeLeftovers(of: fixture.store, in: fixture.library)
      #expect(try fixture.names() == ["b.mp3"])
    }
  }

  @Test func aCopyIsNumberedToo() throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture(across: other)
      let partial = try fixture.partial(1, bytes)
      // The name is taken while the copy is made: between the first attempt and the second.
      var intents: [String] = []
      let placed = try fixture.library.place(partial, as: "b.mp3", size: size, modified: nil) { path in
        intents.append(path)
        guard intents.count == 2 else { return }
        do { try fixture.occupy("b.mp3", [9]) } catch { Issue.record(error) }
      }
      #expect(placed.copy.path == "b (2).mp3" && intents == ["b.mp3", "b.mp3", "b (2).mp3"])
      #expect(fixture.bytes("b.mp3") == [9] && fixture.bytes("b (2).mp3") == bytes)
    }
  }

  @Test func aCopyThatCannotFitIsNotBegun() throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture(across: other)
      let partial = try PartialFile(in: fixture.store, id: 1, create: true)
      // Sparse, and larger than any free space.
      let folder = try FileDescriptor.open(other.path, O_RDONLY | O_DIRECTORY)
      let size = Int64(clamping: try StoreSpace.measure(descriptor: folder.rawValue).available) + (1 << 30)
      try partial.put([1], at: size - 1)
      let refused = failure { () throws(StoreError) in _ = try fixture.place(partial, as: "a", size: Int(size)) }
      #expect(refused?.kind == .full)
      #expect(try Folder.open(fixture.library.path + "/" + LibraryFolder.incoming).names().isEmpty)
    }
  }
}
