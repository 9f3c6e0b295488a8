import Base
import Glibc
import Testing

@testable import Storing

@Suite struct LibraryCheckTests {
  let bytes = sampleBytes(100_000)

  private func placed(_ fixture: LibraryFixture) throws -> LibraryCopy {
    try fixture.place(fixture.partial(1, bytes), as: "a/b.mp3", size: bytes.count).copy
  }

  /// What a user does to a copy, and what it is then.
  static let changes: [(String, @Sendable (String) -> Void, CopyState)] = [
    ("nothing", { _ in }, .intact),
    (
      "read",
      { path in _ = contents(path) }, .intact
    ),
    ("removed", { path in unlink(path) }, .missing),
    (
      "folder renamed",
      { path in
        let folder = Folder.parent(of: path)
        rename(folder, folder + "-old")
      }, .missing
    ),
    (
      "folder replaced by a file",
      { path in
        let folder = Folder.parent(of: path)
        rename(folder, folder + "-old")
        close(creat(folder, 0o644))
      }, .missing
    ),
    (
      "folder moved and linked",
      { path in
        let folder = Folder.parent(of: path)
        rename(folder, folder + "-old")
        symlink(folder + "-old", folder)
      }, .modified
    ),
    ("cut", { path in truncate(path, 10) }, .modified),
    (
      "one byte changed, size and mtime as before",
      { path in
        guard let file = try? FileDescriptor.open(path, O_RDWR), let status = try? file.status() else { return }
        _ = pwrite(file.rawValue, "x", 1, 0)
        futimens(file.rawValue, [status.st_atim, status.st_mtim])
      }, .modified
    ),
    (
      "replaced by a copy",
      { path in
        guard let bytes = contents(path), let file = try? FileDescriptor.open(path + "~", O_RDWR | O_CREAT) else {
          return
        }
        _ = bytes.withUnsafeBytes { pwrite(file.rawValue, $0.baseAddress, $0.count, 0) }
        rename(path + "~", path)
      }, .modified
    ),
    (
      "replaced by a link to itself",
      { path in
        rename(path, path + "~")
        symlink(path + "~", path)
      }, .modified
    ),
    (
      "replaced by a FIFO",
      { path in
        unlink(path)
        mkfifo(path, 0o644)
      }, .modified
    ),
    (
      "replaced by a folder",
      { path in
        unlink(path)
        mkdir(path, 0o755)
      }, .modified
    ),
  ]

  @Test(arguments: changes.indices) func seesWhatAUserDid(index: Int) throws {
    let (what, change, expected) = LibraryCheckTests.changes[index]
    let fixture = try LibraryFixture()
    let copy = try placed(fixture)
    usleep(20_000)  // beyond the coarsest clock tick that a ctime may have
    change(fixture.library.path + "/" + copy.path)
    #expect(try fixture.library.check(copy) == expected, "\(what)")
    let refused = failure { () throws(StoreError) in
      let file = try fixture.library.open(copy)
      _ = file.rawValue
    }
    #expect(refused?.kind == (expected == .intact ? nil : .invalid), "\(what)")
  }

  @Test(arguments: changes.indices) func removesOnlyWhatIsIntact(index: Int) throws {
    let (what, change, expected) = LibraryCheckTests.changes[index]
    let fixture = try LibraryFixture()
    let copy = try placed(fixture)
    usleep(20_000)
    let path = fixture.library.path + "/" + copy.path
    change(path)
    var before = stat()
    let wasThere = lstat(path, &before) == 0
    #expect(try fixture.library.remove(copy) == (expected == .intact), "\(what)")
    var after = stat()
    #expect((lstat(path, &after) == 0) == (wasThere && expected != .intact), "\(what)")
    // A folder that is empty without the copy goes with it.
    #expect(try expected != .intact || fixture.names().isEmpty, "\(what)")
  }

  @Test func anIntactCopyIsRead() throws {
    let fixture = try LibraryFixture()
    let file = try fixture.library.open(try placed(fixture))
    var read = [UInt8](repeating: 0, count: bytes.count + 1)
    #expect(try read.withUnsafeMutableBytes { try file.readFully(at: 0, into: $0) } == bytes.count)
    #expect(Array(read.dropLast()) == bytes)
  }

  @Test func anotherDeviceNumberAloneIsNoChange() throws {
    let fixture = try LibraryFixture()
    var copy = try placed(fixture)
    copy.device &+= 1
    #expect(try fixture.library.check(copy) == .intact)
    copy.inode &+= 1
    #expect(try fixture.library.check(copy) == .modified)
  }

  @Test func aRemovedLibraryHasNoCopies() throws {
    let fixture = try LibraryFixture(library: "x/library")
    let copy = try placed(fixture)
    rename(fixture.library.path, fixture.home.path + "/old")
    #expect(try fixture.library.check(copy) == .missing)
    #expect(failure { () throws(StoreError) in _ = try fixture.library.open(copy).rawValue }?.kind == .invalid)
    #expect(try fixture.library.recover(intent: copy.path, size: copy.size, modified: nil, partialExists: false) == nil)
    try IncomingCopy.removeLeftovers(of: fixture.store, in: fixture.library)
    // The folder above gone as well: as when a disk's mountpoint vanishes. Not a sign that the user removed the copies.
    rmdir(fixture.home.path + "/x")
    #expect(failure { () throws(StoreError) in _ = try fixture.library.check(copy) }?.kind == .io(.notFound))
  }

  @Test func anotherDiskInPlaceOfTheLibraryIsAnError() throws {
    try withOtherFilesystem { other in
      let fixture = try LibraryFixture()
      let copy = try placed(fixture)
      let partial = try fixture.partial(2, [1])
      // As after an unmount: under the path is another filesystem.
      rename(fixture.library.path, fixture.home.path + "/old")
      symlink(other.path, fixture.library.path)
      let gone = StoreError.Kind.io(Errno(rawValue: ENODEV))
      #expect(failure { () throws(StoreError) in _ = try fixture.library.check(copy) }?.kind == gone)
      #expect(failure { () throws(StoreError) in _ = try fixture.place(partial, as: "c", size: 1) }?.kind == gone)
      #expect(try Folder.open(other.path).names().isEmpty)
    }
  }

  @Test func theLibraryMustBeAFolder() throws {
    let home = try TestFolder()
    try home.write("file", [1])
    #expect(failure { () throws(StoreError) in _ = try LibraryFolder(home.path + "/file") }?.kind == .invalid)
    #expect(failure { () throws(StoreError) in _ = try LibraryFolder(home.path + "/file/x") } != nil)
    _ = try LibraryFolder(home.path + "/a/b/library")
    #expect(home.status("a/b/library")?.st_mode == S_IFDIR | (0o755 & ~processUmask()))
  }
}
