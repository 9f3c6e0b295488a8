import Base
import Glibc
import Testing

@testable import Storing

@Suite struct FilesStoreTests {
  let home: TestFolder
  init() throws { home = try TestFolder() }

  @Test func opensANewStoreForItsOwnerOnly() throws {
    let path = home.path + "/data/mediafs/store"
    let store = try StoreFolder.open(path, mountpoint: "/mnt/media", wait: 0)
    #expect(store.path == path)
    #expect(store.catalogPath == path + "/catalog.sqlite")
    #expect(home.status("data/mediafs/store")?.st_mode == S_IFDIR | 0o700)
    #expect(home.status("data/mediafs/store/partial")?.st_mode == S_IFDIR | 0o700)
  }

  @Test func aSecondServerIsToldOfTheFirst() throws {
    let path = home.path + "/store"
    let first = try StoreFolder.open(path, mountpoint: "/mnt/a\nb\\n\r", wait: 0)
    let refused = failure { () throws(StoreError) in
      _ = try StoreFolder.open(path, mountpoint: "/mnt/other", wait: 0.05)
    }
    #expect(refused?.kind == .busy(holder: "the server of /mnt/a\nb\\n\r (process \(getpid()))"))
    #expect(refused?.message.contains(path) == true)
    withExtendedLifetime(first) {}
  }

  @Test func theLockEndsWithItsHolderAndTheTextDoesNotCount() throws {
    let path = home.path + "/store"
    do { _ = try StoreFolder.open(path, mountpoint: "/mnt/a/rather/long/mountpoint", wait: 0) }
    #expect(home.bytes("store/lock")?.isEmpty == false)
    let next = try StoreFolder.open(path, mountpoint: "/b", wait: 0)
    let refused = failure { () throws(StoreError) in _ = try StoreFolder.open(path, mountpoint: "/c", wait: 0) }
    #expect(refused?.kind == .busy(holder: "the server of /b (process \(getpid()))"))
    withExtendedLifetime(next) {}
  }

  @Test func waitsForAHolderThatEnds() throws {
    let path = home.path + "/store"
    let first = Lock<StoreFolder?>(try StoreFolder.open(path, mountpoint: "/a", wait: 0))
    let thread = OwnedThread(name: "ending") {
      usleep(100_000)
      let ending = first.withLock { holder in
        defer { holder = nil }
        return holder
      }
      withExtendedLifetime(ending) {}
    }
    defer { thread.join() }
    _ = try StoreFolder.open(path, mountpoint: "/b", wait: 30)
  }

  @Test func aHolderWhoseTextIsDamagedIsStillAHolder() throws {
    let path = home.path + "/store"
    let first = try StoreFolder.open(path, mountpoint: "/a", wait: 0)
    try home.write("store/lock", Array("gibberish".utf8))
    let refused = failure { () throws(StoreError) in _ = try StoreFolder.open(path, mountpoint: "/b", wait: 0) }
    #expect(refused?.kind == .busy(holder: "another server"))
    withExtendedLifetime(first) {}
  }

  @Test func anOpenedUpStoreIsClosedAgain() throws {
    let path = home.path + "/store"
    mkdir(path, 0o755)
    try home.write("store/catalog.sqlite", [])
    chmod(path, 0o755)
    _ = try StoreFolder.open(path, mountpoint: "/a", wait: 0)
    #expect(home.status("store")?.st_mode == S_IFDIR | 0o700)
  }

  @Test("Nothing of a newer program's store changes")
  func aNewerStoreStaysAsItIs() throws {
    let path = home.path + "/store"
    mkdir(path, 0o755)
    chmod(path, 0o755)
    let catalog = path + "/catalog.sqlite"
    try Catalog.open(path: catalog, access: .readWrite).close()
    let connection = try SQLiteConnection(path: catalog, mode: .readWrite)
    try connection.run("PRAGMA journal_mode = DELETE; PRAGMA user_version = \(Schema.version + 1)")
    try home.write("store/lock", Array("of the newer program".utf8))
    let before = home.bytes("store/catalog.sqlite")
    let refused = failure { () throws(StoreError) in _ = try StoreFolder.open(path, mountpoint: "/a", wait: 0) }
    #expect(refused?.kind == .newer)
    #expect(home.status("store")?.st_mode == S_IFDIR | 0o755)
    #expect(home.bytes("store/lock") == Array("of the newer program".utf8))
    #expect(home.bytes("store/catalog.sqlite") == before)
    #expect(try Folder.open(path).names().sorted() == ["catalog.sqlite", "lock"])
  }

  @Test func aFolderWithOtherThingsIsNotClosedToOthers() throws {
    let path = home.path + "/documents"
    mkdir(path, 0o755)
    chmod(path, 0o755)
    try home.write("documents/letter", [1])
    let refused = failure { () throws(StoreError) in _ = try StoreFolder.open(path, mountpoint: "/a", wait: 0) }
    #expect(refused?.kind == .invalid)
    #expect(home.status("documents")?.st_mode == S_IFDIR | 0o755)
    #expect(home.status("documents/lock") == nil)
  }

  @Test func aFolderOfAnotherUserIsRefused() throws {
    // /proc/sys belongs to root; for root itself one is given away.
    var path = "/proc/sys"
    if geteuid() == 0 {
      path = home.path + "/theirs"
      mkdir(path, 0o700)
      chown(path, 65534, 65534)
    }
    let refused = failure { () throws(StoreError) in _ = try StoreFolder.open(path, mountpoint: "/a", wait: 0) }
    #expect(refused?.kind == .invalid)
    #expect(refused?.message.contains("another user") == true)
  }

  @Test(arguments: ["fifo", "folder", "link"]) func somethingElseInPlaceOfTheLock(kind: String) throws {
    let path = home.path + "/store"
    mkdir(path, 0o700)
    switch kind {
    case "fifo": mkfifo(path + "/lock", 0o600)
    case "folder": mkdir(path + "/lock", 0o700)
    default: symlink(home.path + "/elsewhere", path + "/lock")
    }
    let refused = failure { () throws(StoreError) in _ = try StoreFolder.open(path, mountpoint: "/a", wait: 0) }
    #expect(refused?.kind == .invalid && refused?.message.contains("\(path)/lock is ") == true, "\(refused as Any)")
    #expect(home.status("elsewhere") == nil)
  }

  @Test func aFileInPlaceOfTheStore() throws {
    try home.write("store", [1])
    let refused = failure { () throws(StoreError) in
      _ = try StoreFolder.open(home.path + "/store", mountpoint: "/a", wait: 0)
    }
    #expect(refused?.kind == .invalid)
  }

  @Test func measuresTheDisk() throws {
    let space = try StoreFolder.open(home.path + "/store", mountpoint: "/a", wait: 0).space()
    #expect(space.total > 0 && space.available <= space.free && space.free <= space.total)
  }
}

@Suite struct FilesDefaultPathTests {
  @Test func followsTheEnvironment() throws {
    func path(_ environment: [String: String], _ uid: uid_t = 1234567) -> String? {
      try? StoreFolder.defaultPath(mountpoint: "/nowhere/My Films/", environment: environment, uid: uid)
    }
    let name = try MountpointName.fileName(for: "/nowhere/My Films")
    #expect(name.hasPrefix("My-Films-"))
    #expect(path(["XDG_DATA_HOME": "/x/data/", "HOME": "/home/a"]) == "/x/data/mediafs/\(name)")
    #expect(path(["XDG_DATA_HOME": "relative", "HOME": "/home/a"]) == "/home/a/.local/share/mediafs/\(name)")
    #expect(path(["HOME": "/"]) == "/.local/share/mediafs/\(name)")
    #expect(path([:], 0) == "/var/lib/mediafs/\(name)")
    #expect(path(["HOME": "/root"], 0) == "/root/.local/share/mediafs/\(name)")
    #expect(path([:]) == nil, "a user whom the user database does not know")
    // daemon, with /usr/sbin for its home, is in the user database of every Debian.
    #expect(path([:], 1)?.hasSuffix("/.local/share/mediafs/\(name)") == true)
  }

  @Test func mountpointsAreToldApart() throws {
    let names = try ["/a/media", "/b/media", "/", "/日本", "/..x", "/a/media\u{308}"].map { path throws(StoreError) in
      try MountpointName.fileName(for: path)
    }
    #expect(Set(names).count == names.count)
    for name in names {
      let isPlain = name.utf8.allSatisfy {
        $0 == UInt8(ascii: "-") || ($0 > 47 && $0 < 123 && $0 != UInt8(ascii: "\\"))
      }
      #expect(isPlain, "\(name)")
      #expect(!name.hasPrefix("-") && !name.hasPrefix("."))
    }
  }

  @Test func everyWayToWriteAMountpointGivesTheSame() throws {
    let home = try TestFolder()
    mkdir(home.path + "/real", 0o755)
    mkdir(home.path + "/real/media", 0o755)
    symlink("real", home.path + "/alias")
    symlink("real/media", home.path + "/shortcut")
    symlink(home.path + "/loop", home.path + "/loop")
    let resolved = try #require(resolvedPath(home.path))
    let expected = resolved + "/real/media"
    for written in [
      "/real/media", "/real/media///", "/alias/media", "/shortcut", "/alias/../real/media", "/real/media/.",
      "/real/x/../media",
    ] {
      #expect(MountpointName.absolute(home.path + written) == expected, "\(written)")
    }
    #expect(MountpointName.absolute(home.path + "/none/at/all") == home.path + "/none/at/all")
    #expect(MountpointName.absolute(home.path + "/loop").hasSuffix("/loop"))
    #expect(MountpointName.absolute("/") == "/")
    let here = try #require(resolvedPath("."))
    #expect(MountpointName.absolute("none") == MountpointName.absolute(here + "/none"))
  }
}
