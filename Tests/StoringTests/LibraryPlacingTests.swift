import Base
import Glibc
import Testing

@testable import Storing

@Suite struct LibraryPlacingTests {
  let bytes = sampleBytes(2_500_000)

  @Test func placesAPlainFileUnderItsPath() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    let placed = try fixture.place(partial, as: "films/new/a talk.mp4", size: bytes.count)
    #expect(!placed.adopted)
    #expect(placed.copy.path == "films/new/a talk.mp4" && placed.copy.size == Int64(bytes.count))
    #expect(placed.copy.modified == 1_700_000_001_000_000_000)
    #expect(fixture.intents == ["films/new/a talk.mp4"])
    #expect(fixture.bytes("films/new/a talk.mp4") == bytes)
    #expect(try fixture.store.partialIDs().isEmpty)
    let status = try #require(fixture.home.status("library/films/new/a talk.mp4"))
    #expect(status.st_mode == S_IFREG | (0o644 & ~processUmask()))
    #expect(status.st_mtim.tv_sec == 1_700_000_001)
    #expect(try fixture.library.check(placed.copy) == .intact)
    try partial.remove()
    #expect(try fixture.library.check(placed.copy) == .intact)
    // Whoever was reading goes on with the same file.
    #expect(try partial.descriptor.status().st_size == bytes.count)
  }

  @Test func withoutADateTheFileKeepsItsOwn() throws {
    let fixture = try LibraryFixture()
    let before = time(nil)
    let placed = try fixture.place(fixture.partial(1, [1]), as: "a", size: 1, modified: nil)
    #expect(placed.copy.modified >= Int64(before - 1) * 1_000_000_000)
  }

  @Test(arguments: [Int64.min, -1, 0, 1 << 40, .max]) func anyDateOfAnOriginIsSurvived(modified: Int64) throws {
    let fixture = try LibraryFixture()
    let placed = try fixture.place(fixture.partial(1, [1]), as: "a", size: 1, modified: modified)
    #expect(try fixture.library.check(placed.copy) == .intact)
  }

  @Test func anEmptyFileIsAFile() throws {
    let fixture = try LibraryFixture()
    let placed = try fixture.place(fixture.partial(1, []), as: "empty", size: 0)
    #expect(fixture.bytes("empty") == [] && placed.copy.size == 0)
  }

  @Test func anIdenticalFileIsAdopted() throws {
    let fixture = try LibraryFixture()
    try fixture.occupy("a.mp3", bytes)
    let theirs = try #require(fixture.home.status("library/a.mp3"))
    let partial = try fixture.partial(1, bytes)
    let placed = try fixture.place(partial, as: "a.mp3", size: bytes.count)
    #expect(placed.adopted && placed.copy.inode == UInt64(theirs.st_ino))
    #expect(fixture.intents.isEmpty)
    #expect(try fixture.store.partialIDs() == [1], "the caller removes it once the copy is committed")
    try partial.remove()
    #expect(try fixture.library.check(placed.copy) == .intact)
    #expect(try fixture.names() == ["a.mp3"])
  }

  @Test func anotherFileIsNeverReplaced() throws {
    let fixture = try LibraryFixture()
    var other = bytes
    other[other.count - 1] ^= 1
    try fixture.occupy("a.mp3", other)
    try fixture.occupy("a (2).mp3", [1, 2, 3])
    mkdir(fixture.library.path + "/a (3).mp3", 0o755)
    symlink("nowhere", fixture.library.path + "/a (4).mp3")
    mkfifo(fixture.library.path + "/a (5).mp3", 0o644)
    let placed = try fixture.place(fixture.partial(1, bytes), as: "a.mp3", size: bytes.count)
    #expect(placed.copy.path == "a (6).mp3" && !placed.adopted)
    #expect(fixture.intents == ["a (6).mp3"])
    #expect(fixture.bytes("a.mp3") == other && fixture.bytes("a (2).mp3") == [1, 2, 3])
    #expect(fixture.bytes("a (6).mp3") == bytes)
    // The same bytes once more find their numbered copy.
    let again = try fixture.place(fixture.partial(2, bytes), as: "a.mp3", size: bytes.count)
    #expect(again.adopted && again.copy.path == "a (6).mp3")
  }

  @Test func aFileThatAppearsAfterTheLookIsNotReplaced() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    var intents: [String] = []
    let placed = try fixture.library.place(partial, as: "a.mp3", size: Int64(bytes.count), modified: nil) { path in
      if intents.isEmpty {
        do { try fixture.occupy(path, [9]) } catch { Issue.record(error) }
      }
      intents.append(path)
    }
    #expect(intents == ["a.mp3", "a (2).mp3"] && placed.copy.path == "a (2).mp3")
    #expect(fixture.bytes("a.mp3") == [9])
  }

  @Test(arguments: [
    ("a.mp4", 2, "a (2).mp4"), ("a", 3, "a (3)"), (".hidden", 2, ".hidden (2)"), ("a.tar.gz", 2, "a.tar (2).gz"),
    ("Vol. 2 of it", 2, "Vol. 2 of it (2)"), ("a.", 2, "a. (2)"), ("a.mp4", 1, "a.mp4"),
    (String(repeating: "é", count: 127) + ".mp4", 2, String(repeating: "é", count: 123) + " (2).mp4"),
  ])
  func numbersStandBeforeTheExtension(name: String, number: Int, expected: String) {
    #expect(numbered(name, number) == expected)
    #expect(numbered(name, number).utf8.count <= 255 || number == 1)
  }

  @Test(arguments: [
    "", "/", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b", "../a", "a/\u{308}../../b/..", "/\u{308}a",
  ])
  func pathsThatLeadElsewhereAreRefused(path: String) throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, [1])
    let refused = failure { () throws(StoreError) in _ = try fixture.place(partial, as: path, size: 1) }
    #expect(refused?.kind == .invalid)
    #expect(try fixture.names().isEmpty && fixture.intents.isEmpty)
  }

  @Test func aSlashWithAnAccentIsASlash() throws {
    let fixture = try LibraryFixture()
    let placed = try fixture.place(fixture.partial(1, [1]), as: "a/\u{308}b", size: 1)
    #expect(try fixture.library.check(placed.copy) == .intact)
    #expect(try fixture.names() == ["a"])
  }

  @Test func aLinkThatLeadsOutIsNotFollowed() throws {
    let fixture = try LibraryFixture()
    mkdir(fixture.home.path + "/outside", 0o755)
    symlink(fixture.home.path + "/outside", fixture.library.path + "/films")
    let partial = try fixture.partial(1, [1])
    let refused = failure { () throws(StoreError) in _ = try fixture.place(partial, as: "films/a", size: 1) }
    #expect(refused?.kind == .invalid)
    #expect(refused?.message.contains("films is a symbolic link") == true)
    #expect(try Folder.open(fixture.home.path + "/outside").names().isEmpty)
    #expect(try fixture.store.partialIDs() == [1])
  }

  @Test(arguments: ["file", "fifo"]) func somethingElseWhereAFolderMustBe(kind: String) throws {
    let fixture = try LibraryFixture()
    if kind == "file" { try fixture.occupy("films", [1]) } else { mkfifo(fixture.library.path + "/films", 0o644) }
    let partial = try fixture.partial(1, [1])
    let refused = failure { () throws(StoreError) in _ = try fixture.place(partial, as: "films/new/a", size: 1) }
    #expect(refused?.kind == .invalid)
    #expect(refused?.message.contains("/library/films is ") == true)
  }

  @Test func aFolderThatMayNotBeWrittenIsAnError() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    mkdir(fixture.library.path + "/films", 0o555)
    for path in [
      fixture.home.path, fixture.store.path, fixture.store.path + "/partial", fixture.store.path + "/partial/1",
    ] {
      try #require(chown(path, unprivilegedUser, gid_t.max) == 0)
    }
    try withoutPrivileges {
      for path in ["films/a", "films/new/a"] {
        let refused = failure { () throws(StoreError) in _ = try fixture.place(partial, as: path, size: bytes.count) }
        #expect(refused?.kind == .io(.accessDenied), "\(refused as Any)")
        #expect(refused?.message.contains("films") == true)
      }
    }
    #expect(try fixture.store.partialIDs() == [1])
    #expect(try Folder.open(fixture.library.path + "/films").names().isEmpty)
  }

  @Test func aFileOfAnotherSizeIsNotPlaced() throws {
    let fixture = try LibraryFixture()
    let partial = try fixture.partial(1, bytes)
    for size in [bytes.count - 1, bytes.count + 1] {
      let refused = failure { () throws(StoreError) in _ = try fixture.place(partial, as: "a", size: size) }
      #expect(refused?.kind == .corrupt)
    }
    #expect(try fixture.names().isEmpty)
  }

  @Test func longWorkCanBeBrokenOff() throws {
    let fixture = try LibraryFixture()
    try fixture.occupy("a", bytes)
    let partial = try fixture.partial(1, bytes)
    let ended = failure { () throws(StoreError) in
      _ = try fixture.library.place(
        partial, as: "a", size: Int64(bytes.count), modified: nil, isCancelled: { true }, recordIntent: { _ in })
    }
    #expect(ended?.kind == .io(Errno(rawValue: ECANCELED)))
  }

  @Test func aRemovedLibraryIsMadeAnew() throws {
    let fixture = try LibraryFixture()
    rmdir(fixture.library.path)
    let placed = try fixture.place(fixture.partial(1, [1]), as: "b/a", size: 1)
    #expect(fixture.bytes("b/a") == [1])
    #expect(try fixture.library.check(placed.copy) == .intact)
  }
}

@Suite struct LibraryMoveTests {
  /// Every way to move keeps the same promise, whichever the filesystem of the day has.
  @Test(arguments: MoveMethod.allCases) func movesAndNeverReplaces(method: MoveMethod) throws {
    let home = try TestFolder()
    let folder = try Folder.open(home.path)
    try home.write("source", [1, 2, 3])
    try home.write("taken", [9])
    let source = MoveSource(folder: folder.descriptor.rawValue, name: "source")
    #expect(try move(source, to: folder, as: "taken", by: method) == .exists)
    #expect(home.bytes("taken") == [9] && home.bytes("source") == [1, 2, 3])
    #expect(try move(source, to: folder, as: "free", by: method) == .moved)
    #expect(home.bytes("free") == [1, 2, 3] && home.status("source") == nil)
    #expect(try folder.names().sorted() == ["free", "taken"])
  }

  @Test(arguments: MoveMethod.allCases) func tellsAnotherFilesystem(method: MoveMethod) throws {
    try withOtherFilesystem { other in
      let home = try TestFolder()
      let folder = try Folder.open(home.path)
      try home.write("source", [1])
      let source = MoveSource(folder: folder.descriptor.rawValue, name: "source")
      let target = try Folder.open(other.path)
      #expect(try move(source, to: target, as: "a", by: method) == .otherFilesystem)
      #expect(try target.names().isEmpty)
    }
  }

  @Test(arguments: MoveMethod.allCases) func aSourceThatVanishedIsAnError(method: MoveMethod) throws {
    let home = try TestFolder()
    let folder = try Folder.open(home.path)
    let source = MoveSource(folder: folder.descriptor.rawValue, name: "source")
    #expect(throws: Errno.notFound) { _ = try move(source, to: folder, as: "a", by: method) }
    #expect(try folder.names().isEmpty)
  }
}
