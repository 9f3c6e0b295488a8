import Base
import Glibc
import Testing

@testable import Storing

@Suite struct FilesRegistryTests {
  let home: TestFolder
  let registry: MountRegistry
  let environment: [String: String]
  init() throws {
    home = try TestFolder()
    environment = ["XDG_DATA_HOME": home.path + "/data", "HOME": home.path]
    registry = try MountRegistry(environment: environment, uid: 1234567)
  }

  private var mounts: String { "data/mediafs/mounts" }
  private func record(_ mountpoint: String) -> MountRecord {
    MountRecord(mountpoint: mountpoint, store: "/s", library: "/s/lib\nrary", manifest: "/u\\rls.txt")
  }

  @Test func remembersAndForgets() throws {
    #expect(try registry.all().isEmpty)
    try registry.forget(mountpoint: "/nowhere/a")
    try registry.remember(record("/nowhere/b"))
    try registry.remember(record("/nowhere/a/"))
    #expect(try registry.all() == [record("/nowhere/a"), record("/nowhere/b")])
    var changed = record("/nowhere/a")
    changed.store = "/elsewhere"
    try registry.remember(changed)
    #expect(try registry.all() == [changed, record("/nowhere/b")])
    try registry.forget(mountpoint: "/nowhere/b")
    #expect(try registry.all() == [changed])
    for name in try Folder.open(home.path + "/" + mounts).names() {
      #expect(home.status(mounts + "/" + name)?.st_mode == S_IFREG | 0o600)
    }
  }

  @Test func findsWhatAnotherEnvironmentRemembered() throws {
    try MountRegistry(environment: ["HOME": home.path], uid: 1234567).remember(record("/nowhere/a"))
    #expect(try registry.all() == [record("/nowhere/a")])
    try registry.forget(mountpoint: "/nowhere/./a")
    #expect(try registry.all().isEmpty)
    let homeless = failure { () throws(StoreError) in _ = try MountRegistry(environment: [:], uid: 1234567) }
    #expect(homeless?.kind == .invalid)
  }

  @Test func forgetsWhatVanishedAndAsksNothingThatMayHang() throws {
    let there = home.path + "/there"
    mkdir(there, 0o755)
    func remember(_ mountpoint: String, _ store: String) throws {
      try registry.remember(MountRecord(mountpoint: mountpoint, store: store, library: "/l", manifest: "-"))
    }
    try remember("/nowhere/gone", "/nowhere/store")
    try remember("/nowhere/a", there)
    try remember(there, "/nowhere/store")
    try remember("/nowhere/b", home.path + "/nas/store")
    try remember(home.path + "/nas/m", "/nowhere/store")
    try registry.forgetVanished { $0.hasPrefix(home.path + "/nas/") }
    let left = [home.path + "/nas/m", there, "/nowhere/a", "/nowhere/b"]
    #expect(try registry.all().map(\.mountpoint).sorted() == left.sorted())
    try registry.forgetVanished { _ in false }
    #expect(try registry.all().map(\.mountpoint).sorted() == [there, "/nowhere/a"].sorted())
  }

  @Test func unknownVersionsAndDamage() throws {
    try registry.remember(record("/nowhere/a"))
    try registry.remember(record("/nowhere/b"))
    let a = mounts + "/" + (try MountpointName.fileName(for: "/nowhere/a"))
    try home.write(a, Array("mediafs mount 2\nsomething=else\n".utf8))
    #expect(try registry.all() == [record("/nowhere/b")])
    for damage in ["", "mediafs mount 1", "mediafs mount 1\nmountpoint=/nowhere/a\nstore=/s", "mediafs mount 1\nx\n"] {
      try home.write(a, Array(damage.utf8))
      #expect(try registry.all() == [record("/nowhere/b")], "\(damage)")
    }
    // A newer version's file is replaced by what is mounted now.
    try registry.remember(record("/nowhere/a"))
    #expect(try registry.all().count == 2)
  }

  @Test func weirdThingsInTheFolderDoNotHarm() throws {
    try registry.remember(record("/nowhere/a"))
    mkfifo(home.path + "/" + mounts + "/fifo", 0o600)
    mkdir(home.path + "/" + mounts + "/folder", 0o700)
    symlink("/etc/passwd", home.path + "/" + mounts + "/link")
    #expect(try registry.all() == [record("/nowhere/a")])
  }

  @Test(arguments: ["", "\n", "\r", "a\r\nb", "\\", "\\n", "=", "\u{301}x", "日本=\\\n"])
  func valuesSurviveTheText(value: String) throws {
    let text = KeyValueText.encode(kind: "test", version: 3, fields: [("key", value), ("other", "")])
    guard case .fields(let fields) = KeyValueText.decode(text, kind: "test", version: 3) else {
      Issue.record("not read back: \(text)")
      return
    }
    #expect(fields["key"].map { Array($0.utf8) } == Array(value.utf8))
    #expect(fields["other"] == "")
    #expect(KeyValueText.decode(text, kind: "test", version: 2) == .unknownVersion("3"))
    #expect(KeyValueText.decode(text, kind: "lock", version: 3) == .damaged)
  }
}
