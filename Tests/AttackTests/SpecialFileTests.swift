import Base
import Glibc
import TestSupport
import Testing

/// A FIFO or a device under the name of a store's file: a program that opens a FIFO waits for another one, perhaps for
/// ever.
@Suite("Special files in the store", .serialized)
struct SpecialFileTests {
  @Test(arguments: ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm", "catalog.sqlite-journal"])
  func aFIFOInPlaceOfTheCatalogIsRefusedUnopened(name: String) throws {
    try withStore { victim in
      try replace(name, in: victim) { try #require(mkfifo($0, 0o600) == 0) }
      let watch = try OpenWatch(victim.store + "/" + name)
      try expectRefused(victim, commands: ["mount", "status", "verify", "verify --repair"], name, "a FIFO")
      #expect(try victim.run(["clear", "--all", victim.mountpoint]).status == 1)
      #expect(!watch.wasOpened)
    }
  }

  @Test func aFIFOInPlaceOfTheLockIsRefusedUnopened() throws {
    try withStore { victim in
      try replace("lock", in: victim) { try #require(mkfifo($0, 0o600) == 0) }
      let watch = try OpenWatch(victim.store + "/lock")
      try expectRefused(victim, commands: ["mount", "verify"], "lock", "a FIFO")
      #expect(!watch.wasOpened)
    }
  }

  @Test func aFIFOInPlaceOfTheLogIsRefusedUnopened() throws {
    try withStore { victim in
      try replace("mediafs.log", in: victim) { try #require(mkfifo($0, 0o600) == 0) }
      let watch = try OpenWatch(victim.store + "/mediafs.log")
      try expectRefused(victim, commands: ["mount"], "mediafs.log", "a FIFO")
      let fifo = victim.store + "/mediafs.log"
      try expectRefused(victim, commands: ["mount --log-file \(fifo)"], "mediafs.log", "a FIFO")
      #expect(!watch.wasOpened)
    }
  }

  /// By a link, so that an ordinary user can put it there.
  @Test func aDeviceIsRefusedUnlessTheUserNamesItAsTheLog() throws {
    try withStore { victim in
      try replace("catalog.sqlite", in: victim) { try #require(symlink("/dev/null", $0) == 0) }
      try expectRefused(victim, commands: ["mount", "status", "verify"], "/dev/null", "a device")
      try #require(unlink(victim.store + "/catalog.sqlite") == 0)
      try replace("mediafs.log", in: victim) { try #require(symlink("/dev/null", $0) == 0) }
      try expectRefused(victim, commands: ["mount"], "mediafs.log", "a device")
      let named = try victim.run(command("mount --log-file /dev/null", victim))
      #expect(named.succeeded, "\(named.errors)")
    }
  }

  // MARK: Support

  /// A store that was served once and is not now.
  private func withStore(_ body: (Victim) throws -> Void) throws {
    try withVictim { victim in
      _ = try victim.mount("http://127.0.0.1:1/a.bin\n")
      try victim.unmount()
      try body(victim)
    }
  }

  private func replace(_ name: String, in victim: Victim, by make: (String) throws -> Void) throws {
    let path = victim.store + "/" + name
    try #require(unlink(path) == 0 || errno == ENOENT)
    try make(path)
  }

  private func command(_ text: String, _ victim: Victim) -> [String] {
    let words = text.split(separator: " ").map(String.init)
    let files = ["--manifest", victim.folder.file("urls.txt"), "--store", victim.store]
    return [words[0], victim.mountpoint] + words.dropFirst() + (words[0] == "mount" ? files : [])
  }

  /// Each command ends by itself (one that hangs is killed, and the test fails), and names the file, what it is, and
  /// what to do.
  private func expectRefused(_ victim: Victim, commands: [String], _ name: String, _ kind: String) throws {
    for text in commands {
      let result = try Command.run(
        [victim.mediafs] + command(text, victim), environment: victim.environment, timeout: 60)
      #expect(
        result.status == 1 && result.errors.contains("\(name) is \(kind), no plain file: ")
          && result.errors.lowercased().contains("move it away"),
        "\(text): \(result.status) \(result.output)\(result.errors)")
    }
  }
}

/// Tells whether a file was opened since (inotify).
private final class OpenWatch {
  private let queue: FileDescriptor

  init(_ path: String) throws {
    queue = FileDescriptor(owning: try retrying { inotify_init1(O_NONBLOCK | O_CLOEXEC) })
    _ = try retrying { inotify_add_watch(queue.rawValue, path, UInt32(IN_OPEN)) }
  }

  var wasOpened: Bool {
    var space = [UInt8](repeating: 0, count: 4096)
    return read(queue.rawValue, &space, space.count) > 0
  }
}
