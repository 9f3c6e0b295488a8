import Base
import Glibc
import TestSupport
import Testing

/// A program that is installed over the running one goes on with a live mount, and no reader notices. If it does not
/// come up, the old one is back.
@Suite(.serialized) struct UpgradeTests {
  private static let upgrades = getenv("MEDIAFS_UPGRADES").flatMap { Int(String(cString: $0)) } ?? 12
  private static let sizes: [Int64] = [1_500_001, 900_000, 3_000_000, 70_000]

  /// Lends a mount by an installed program, and a folder with what its files hold.
  private func lend(
    rate: Double? = nil, _ options: [String] = ["--continue", "never"],
    _ body: (InstalledProgram, ServedStore, Shelf, _ right: String) throws -> Void
  ) throws {
    try withWatchdog(300) {
      var settings = OriginSettings()
      settings.lineRate = rate
      settings.latency = 0.005
      try withOrigin(settings) { origin in
        var shelf = Shelf(origin: origin)
        for size in Self.sizes { _ = shelf.add(size: size) }
        try withTemporaryFolder { folder in
          let program = try InstalledProgram(in: folder)
          let store = try ServedStore(in: folder, program: program.path)
          defer { store.abandon() }
          let right = try folder.makeFolder("right")
          for index in shelf.sizes.indices {
            try folder.write(
              Pattern.bytes(name: Shelf.path(index), offset: 0, count: Int(shelf.sizes[index])),
              to: "right/\(Shelf.name(index))")
          }
          let names = (1000..<1600).map { (name: "folder/\($0).mp4", url: origin.url("/none/\($0).mp4")) }
          try store.list(shelf.sizes.indices.map { shelf.line($0) } + names)
          try #require(try store.start(options, shimmed: false, environment: program.environment), "\(store.errors)")
          try body(program, store, shelf, right)
        }
      }
    }
  }

  private func expectUpgraded(_ store: ServedStore, _ result: CommandResult, from old: pid_t) throws {
    // Root's `--all` finds mounts of other tests, which run another program.
    #expect(result.status == 0 || result.arguments.contains("--all"), "\(result.errors)\n\(store.errors)")
    let server = try #require(store.server)
    #expect(server != old && result.output.contains("served by process \(server) (mediafs "), "\(result)")
  }

  private func expectUnharmed(_ store: ServedStore, _ readers: SurvivalReaders) throws {
    let turns = try readers.end()
    #expect(turns.values.allSatisfy { $0 > 0 }, "\(turns)")
    try store.unmount()
    var audit = StoreAudit()
    try audit.look(at: store.store)
    #expect(audit.problems == [])
  }

  /// Over a slow line, where most reads wait. The soak has a fast one.
  @Test func readersDoNotNotice() throws {
    var random = SeededRandom.fromEnvironment(for: "upgrades")
    try lend(rate: 2_000_000) { program, store, _, right in
      let readers = try SurvivalReaders(mount: store.mountpoint, right: right)
      for _ in 0..<Self.upgrades where readers.problems.isEmpty {
        sleep(seconds: Double.random(in: 0...0.3, using: &random))
        let old = try #require(store.server)
        try program.replace()
        try expectUpgraded(store, store.run(["upgrade", store.mountpoint]), from: old)
      }
      #expect(readers.problems == [], "\(store.errors)")
      #expect(!store.errors.contains("was killed by signal"), "a server did not end by itself: \(store.errors)")
      Figures.add("upgrades of a server under readers", Self.upgrades)
      try expectUnharmed(store, readers)
    }
  }

  @Test func completeFilesStayOpen() throws {
    try lend(["--continue", "always"]) { program, store, shelf, right in
      let names = shelf.sizes.indices.map { Shelf.name($0) }
      for name in names { _ = try store.read(name, at: 0, count: 10) }
      try store.waitForCompletion(names)
      let readers = try SurvivalReaders(
        mount: store.mountpoint, right: right, ways: ["cat", "pread", "map", "idle"])
      for _ in 0..<4 {
        let old = try #require(store.server)
        try program.replace()
        try expectUpgraded(store, store.run(["upgrade"]), from: old)
      }
      try expectUnharmed(store, readers)
    }
  }

  /// A read that waits for an origin that does not answer is no matter of the server's.
  @Test func aReadThatWaitsGoesOn() throws {
    try lend { _, store, shelf, right in
      let name = Shelf.name(0)
      shelf.origin.fault(.stallBeforeHeaders, path: Shelf.path(0))
      let reader = try BackgroundProcess(["cmp", "\(store.mountpoint)/\(name)", "\(right)/\(name)"])
      try waitUntil(timeout: 20, "the read to wait") { !shelf.origin.log.entries(of: Shelf.path(0)).isEmpty }
      let old = try #require(store.server)
      try expectUpgraded(store, store.run(["upgrade", "--all"]), from: old)
      #expect(reader.isRunning)
      shelf.origin.clearFaults(path: Shelf.path(0))
      let end = try #require(reader.wait(timeout: 60))
      #expect(end.succeeded, "\(end)")
    }
  }

  /// What keeps a new program from coming up, and what `mediafs upgrade` then says.
  @Test(arguments: [
    ("crash", "was killed by signal 11"), ("exit", "ended with status 1"), ("succeed", "ended with status 0"),
    ("hang", "was not ready within 10 s"), ("version", "speaks version 99 of the mount helper's protocol"),
    ("starve", "Too many open files"),
  ])
  func aProgramThatDoesNotComeUpIsLeft(_ what: String, _ why: String) throws {
    try lend { program, store, _, right in
      let readers = try SurvivalReaders(mount: store.mountpoint, right: right)
      let old = try #require(store.server)
      try program.replace()
      try program.nextServer(what)
      let result = try store.run(["upgrade", store.mountpoint])
      #expect(result.status == 1 && result.errors.contains(why), "\(result.errors)\n\(store.errors)")
      #expect(result.errors.contains("that takes an unmount") == (what == "version"), "\(result.errors)")
      let server = try #require(store.server)
      #expect(server != old)
      // The old file has no name any more: this is what the helper held.
      let runs = try Command.succeed(["readlink", "/proc/\(server)/exe"])
      #expect(runs.contains("(deleted)"), "\(runs)")
      // The next one comes up.
      try expectUpgraded(store, store.run(["upgrade", store.mountpoint]), from: server)
      try expectUnharmed(store, readers)
    }
  }

  /// The new program has raised the store to a format that the old one does not know, and then does not come up.
  @Test func aRaiseIsUndone() throws {
    try lend { program, store, shelf, right in
      let readers = try SurvivalReaders(mount: store.mountpoint, right: right)
      let name = Shelf.name(3)
      _ = try store.read(name)
      try waitUntil(timeout: 20, "a commit") { try store.run(["status", store.mountpoint]).output.contains(name) }
      try program.nextServer("raise")
      let result = try store.run(["upgrade", store.mountpoint])
      #expect(result.status == 1 && result.errors.contains("ended with status 1"), "\(result.errors)")
      #expect(store.errors.contains("put back as it was before the upgrade"), "\(store.errors)")
      #expect(eventually { access(store.store + "/catalog.sqlite-before", F_OK) != 0 })
      let sent = shelf.origin.log.bytesSent(of: Shelf.path(3))
      try store.forgetPages(name)
      #expect(try store.read(name).count == Int(Self.sizes[3]))
      #expect(shelf.origin.log.bytesSent(of: Shelf.path(3)) == sent, "what was stored is forgotten")
      try expectUnharmed(store, readers)
    }
  }

  /// The server is killed at random moments of an upgrade: one of both programs serves in the end.
  @Test func killedMeanwhile() throws {
    var random = SeededRandom.fromEnvironment(for: "killed upgrades")
    try lend { program, store, _, right in
      let readers = try SurvivalReaders(mount: store.mountpoint, right: right)
      for round in 0..<10 where readers.problems.isEmpty {
        let served = store.timesServed
        try program.replace()
        let upgrade = try store.startCommand(["upgrade", store.mountpoint])
        sleep(seconds: Double.random(in: 0...0.4, using: &random))
        store.killServer()
        let end = try #require(upgrade.wait(timeout: 60), "round \(round): \(store.errors)")
        #expect(end.status == 0 || !end.errors.isEmpty)
        try waitUntil(timeout: 60, "round \(round), a server: \(store.errors)") { store.timesServed > served }
      }
      #expect(readers.problems == [], "\(store.errors)")
      try expectUnharmed(store, readers)
    }
  }

  /// A package that is upgraded, or removed, replaces the file. A server that is then killed is followed by the same
  /// program nonetheless.
  @Test func theProgramIsHeld() throws {
    try lend { program, store, _, right in
      let readers = try SurvivalReaders(mount: store.mountpoint, right: right, ways: ["cat", "idle"])
      try program.remove()
      for _ in 0..<2 {
        let (served, last) = (store.timesServed, try #require(store.server))
        store.killServer()
        try waitUntil(timeout: 60, "the next server: \(store.errors)") {
          store.timesServed > served && store.server != last
        }
      }
      // Another program than the mount's own asks, and then the own one is no program.
      let other = try store.run(["upgrade", store.mountpoint], by: builtProduct("mediafs"))
      #expect(other.status == 1 && other.errors.contains("cannot open \(program.path)"), "\(other.errors)")
      try program.replace()
      let foreign = try store.run(["upgrade", store.mountpoint], by: builtProduct("mediafs"))
      #expect(foreign.status == 1 && foreign.errors.contains("the program of this mount is \(program.path)"))
      let old = try #require(store.server)
      try expectUpgraded(store, store.run(["upgrade", store.mountpoint]), from: old)
      try expectUnharmed(store, readers)
    }
  }
}

/// The program as a package installs it, in a folder of the test's: it can be replaced while it runs.
private final class InstalledProgram: Sendable {
  private let folder: TemporaryFolder
  let path: String

  init(in folder: TemporaryFolder) throws {
    self.folder = folder
    try folder.makeFolder("bin")
    path = folder.file("bin/mediafs")
    try replace()
  }

  /// What commands and servers find in their environment.
  var environment: [String: String?] {
    [
      "MEDIAFS_HELPER": builtProduct("mount-helper"), "LD_PRELOAD": builtProduct("libdisk-shim.so"),
      "MEDIAFS_START": folder.file("start"), "MEDIAFS_DISK_STORE": folder.file("store"),
    ]
  }

  /// Installs it anew: another file under the same name.
  func replace() throws {
    try Command.succeed(["cp", builtProduct("mediafs"), path + ".new"])
    try #require(rename(path + ".new", path) == 0)
  }

  func remove() throws { try #require(unlink(path) == 0) }

  /// What the next server does as it starts (Tests/DiskShim/start.c).
  func nextServer(_ does: String) throws { try folder.write(does, to: "start") }
}
