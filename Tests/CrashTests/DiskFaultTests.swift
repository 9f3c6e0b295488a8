import Base
import Glibc
import TestSupport
import Testing

/// A disk that is full, fails, is read-only or goes away under a running server: right bytes or an error, no crash, and
/// storing goes on when it can (promise P9).
@Suite(.serialized) struct DiskFaultTests {
  private static let size: Int64 = 6_000_000
  private static let name = "film.mp4"
  /// Of everything that is written.
  private static let writes: [DiskShim.Kind] = [.partial, .log, .database, .other, .rename, .unlink]

  /// Lends a mounted file of which the beginning is stored.
  private func lend(wrapper: [String] = [], _ body: (ServedStore, Origin) throws -> Void) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        origin.add("/\(Self.name)", size: Self.size)
        origin.add("/small.mp4", size: 50_000)
        try withServedStore { store in
          try store.list([(Self.name, origin.url("/\(Self.name)")), ("small.mp4", origin.url("/small.mp4"))])
          store.shim.losesUnsynced = true
          try #require(
            try store.start(["--continue", "playing", "--timeout", "20"], wrapper: wrapper), "\(store.errors)")
          try read(store, 0..<200_000)
          try body(store, origin)
        }
      }
    }
  }

  private func read(_ store: ServedStore, _ range: Range<Int64>) throws {
    let bytes = try store.read(Self.name, at: range.lowerBound, count: Int(range.upperBound - range.lowerBound))
    #expect(bytes.count == range.count)
    #expect(Pattern.check(bytes, name: "/\(Self.name)", offset: range.lowerBound) == nil)
  }

  /// Reads to the end in pieces: each is right, or an error that is among `allowed`. How many failed.
  private func play(_ store: ServedStore, allowed: [Int32], from start: Int64 = 0) throws -> Int {
    var failed = 0
    for offset in stride(from: start, to: Self.size, by: 500_000) {
      do throws(Errno) {
        let bytes = try store.read(Self.name, at: offset, count: 100_000)
        #expect(bytes.count == 100_000)
        #expect(Pattern.check(bytes, name: "/\(Self.name)", offset: offset) == nil)
      } catch {
        #expect(allowed.contains(error.rawValue), "\(error)")
        failed += 1
      }
    }
    return failed
  }

  /// Reads everything once the disk is well again: it becomes complete, and the store is clean.
  private func recover(_ store: ServedStore) throws {
    #expect(store.isRunning)
    // A file that failed is tried again when it is opened.
    try waitUntil(timeout: 120, interval: 0.2, "the file to be read") {
      (try? store.read(Self.name)).map { Pattern.check($0, name: "/\(Self.name)", offset: 0) == nil } ?? false
    }
    try Command.succeed(
      [builtProduct("mediafs"), "fetch", "--wait", "\(store.mountpoint)/\(Self.name)"],
      environment: store.environment, timeout: 120)
    try store.waitForCompletion([Self.name])
    try store.unmount()
    let verified = try store.verify()
    #expect(verified.succeeded, "\(verified.output)\(verified.errors)")
  }

  @Test(arguments: [ENOSPC, EDQUOT, EIO, EROFS] as [Int32])
  func writesFail(_ error: Int32) throws {
    try lend { store, _ in
      store.shim.fail(Self.writes, with: error)
      let failed = try play(store, allowed: [])
      print("writes fail with \(Errno(rawValue: error)): \(failed) of \(Self.size / 500_000) reads failed")
      // What was stored before is served all the while.
      try read(store, 0..<100_000)
      store.shim.succeed()
      try recover(store)
    }
  }

  /// What cannot be synced is never called complete, and what was written since the last sync that succeeded is fetched
  /// again: here the disk has lost it. With the disk well again it goes on, also without a mount in between.
  @Test(arguments: [true, false]) func syncsFail(_ isMountedAgain: Bool) throws {
    try lend { store, _ in
      store.shim.fail([.sync], with: EIO)
      // Nobody reads meanwhile: what a disk loses before it says so is past help.
      try Command.succeed(
        [builtProduct("mediafs"), "fetch", "\(store.mountpoint)/\(Self.name)"], environment: store.environment,
        timeout: 60)
      try waitUntil(timeout: 60, "a sync to fail") { store.errors.contains("cannot be synced") }
      store.shim.losesUnsynced = false
      let all = try store.read(Self.name)
      #expect(all.count == Int(Self.size) && Pattern.check(all, name: "/\(Self.name)", offset: 0) == nil)
      let sees = try store.read("small.mp4")
      #expect(Pattern.check(sees, name: "/small.mp4", offset: 0) == nil)
      for _ in 0..<2 {
        try store.forgetPages(Self.name)
        #expect(try play(store, allowed: []) == 0)
      }
      #expect(access("\(store.library)/\(Self.name)", F_OK) != 0, "placed without having been synced")
      if isMountedAgain { try store.unmount() }
      store.shim.succeed()
      if isMountedAgain { try #require(try store.start(), "\(store.errors)") }
      try recover(store)
    }
  }

  /// A disk that loses bytes and takes nothing, up to the unmount: the catalog cannot be told, and claims them still.
  @Test func nothingCanBeTold() throws {
    try lend { store, _ in
      try store.waitForCommit(of: ByteRange(0, 200_000))  // which is not synced
      store.shim.fail([.sync, .log, .database], with: EIO)
      try store.unmount()
      #expect(store.errors.contains("cannot be synced"), "\(store.errors)")
      store.shim.succeed()
      try #require(try store.start(["--continue", "never"]), "\(store.errors)")
      try read(store, 0..<200_000)
      #expect(try play(store, allowed: []) == 0)
      try recover(store)
    }
  }

  /// The same, and the server is killed before it can be told.
  @Test func killedBeforeItCouldBeTold() throws {
    try lend { store, _ in
      try store.waitForCommit(of: ByteRange(0, 200_000))  // which is not synced
      store.shim.fail([.sync, .log, .database], with: EIO)
      try Command.succeed(
        [builtProduct("mediafs"), "fetch", "\(store.mountpoint)/\(Self.name)"], environment: store.environment,
        timeout: 60)
      try waitUntil(timeout: 60, "the catalog to refuse") { store.errors.contains("cannot be told yet") }
      sleep(seconds: 0.5)
      store.kill()
      try store.waitForEnd()
      store.shim.succeed()
      try #require(try store.start(["--continue", "never"]), "\(store.errors)")
      try read(store, 0..<200_000)
      #expect(try play(store, allowed: []) == 0)
      try recover(store)
    }
  }

  /// A limit that only one file meets: it is played without being stored, and the others are stored.
  @Test func oneFileIsTooLarge() throws {
    try lend(wrapper: ["prlimit", "--fsize=3000000:unlimited"]) { store, _ in
      #expect(try play(store, allowed: []) == 0)
      #expect(store.errors.contains("cannot store"), "\(store.errors)")
      try Command.succeed(
        [builtProduct("mediafs"), "fetch", "--wait", "\(store.mountpoint)/small.mp4"],
        environment: store.environment, timeout: 60)
      try store.waitForCompletion(["small.mp4"])
      try read(store, 0..<100_000)
      #expect(access("\(store.library)/\(Self.name)", F_OK) != 0)
      let server = try #require(store.server)
      try Command.succeed(["prlimit", "--pid", "\(server)", "--fsize=unlimited:unlimited"])
      try recover(store)
    }
  }

  /// Killed while bytes are taken away: the catalog does not claim what is not there.
  @Test(arguments: DiskShim.Phase.allCases.filter { $0 != .half }, ["clear", "evict"])
  func killedInARemoval(_ phase: DiskShim.Phase, _ way: String) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        let files = (0..<2).map { _ in shelf.add(size: 6_000_000) }
        try withServedStore { store in
          try store.list(files.map { shelf.line($0) })
          let limit = way == "evict" ? ["--max-size", "5M"] : []
          try #require(try store.start(["--continue", "never"] + limit), "\(store.errors)")
          _ = try store.read(Shelf.name(files[0]), at: 0, count: way == "evict" ? 4_000_000 : 300_000)
          // Under a limit, what is stored goes as it comes.
          if way == "evict" { sleep(seconds: 1.5) } else { try store.waitForCommit(of: ByteRange(0, 300_000)) }
          store.shim.kill(in: .unlink, after: 0, phase)
          if way == "clear" {
            _ = try Command.run(
              [builtProduct("mediafs"), "clear", "\(store.mountpoint)/\(Shelf.name(files[0]))"],
              environment: store.environment, timeout: 60)
          } else {
            _ = try? readPart(
              FileDescriptor.open("\(store.mountpoint)/\(Shelf.name(files[1]))", O_RDONLY), at: 0, count: 3_000_000)
          }
          try waitUntil(timeout: 60, "the server to be killed") { store.shim.hasKilled }
          store.kill()
          try store.waitForEnd()
          var audit = StoreAudit()
          try audit.look(at: store.store)
          #expect(audit.problems.isEmpty, "\(audit.problems)")
        }
      }
    }
  }

  @Test func readsFail() throws {
    try lend { store, _ in
      try Command.succeed(
        [builtProduct("mediafs"), "fetch", "--wait", "\(store.mountpoint)/\(Self.name)"],
        environment: store.environment, timeout: 120)
      store.shim.fail([.read], with: EIO)
      // Complete files may be read by the kernel itself, past the server.
      _ = try play(store, allowed: [EIO])
      store.shim.succeed()
      try recover(store)
    }
  }

  @Test(arguments: [34_560_000, -34_560_000] as [Int64])
  func clockJumps(_ seconds: Int64) throws {
    try lend { store, _ in
      store.shim.moveClock(seconds)
      #expect(try play(store, allowed: []) == 0)
      store.shim.moveClock(-seconds)
      try recover(store)
    }
  }

  @Test func storeIsDeleted() throws {
    try lend { store, origin in
      try Command.succeed(["rm", "-rf", store.store])
      print("a deleted store: \(try play(store, allowed: [])) reads failed")
      _ = try? store.read("small.mp4")  // an error is as good as the bytes
      #expect(store.isRunning)
      try store.unmount()
      // A store anew.
      try #require(try store.start(shimmed: false), "\(store.errors)")
      try recover(store)
    }
  }

  /// A small filesystem of memory as the store. Only root can mount one; for others the shim's full disk has to do.
  @Test func fullFilesystem() throws {
    guard geteuid() == 0 else { return }
    try withWatchdog(300) {
      try withOrigin { origin in
        origin.add("/\(Self.name)", size: Self.size)
        try withServedStore { store in
          try store.folder.makeFolder("store")
          try Command.succeed(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", store.store])
          defer { umount2(store.store, Int32(MNT_DETACH)) }
          try store.list([(Self.name, origin.url("/\(Self.name)"))])
          try #require(
            try store.start(["--continue", "always", "--max-size", "1G"], shimmed: false), "\(store.errors)")
          let failed = try play(store, allowed: [])
          print("a full filesystem: \(failed) of \(Self.size / 500_000) reads failed")
          #expect(store.isRunning)
          try Command.succeed(["mount", "-o", "remount,size=64m", store.store])
          try recover(store)
        }
      }
    }
  }

  @Test func readOnlyStoreIsRefused() throws {
    try lend { store, _ in
      try store.unmount()
      store.shim.fail(Self.writes, with: EROFS)
      #expect(try !store.start())
      try store.waitForEnd()
      #expect(store.errors.contains(store.store), "\(store.errors)")
      store.shim.succeed()
      try #require(try store.start(), "\(store.errors)")
      try recover(store)
    }
  }

  /// A disk that is full when it is mounted: what is stored is played.
  @Test(arguments: [ENOSPC, EDQUOT] as [Int32])
  func fullDiskAtTheStart(_ error: Int32) throws {
    try lend { store, origin in
      try store.unmount()
      origin.stop()
      store.shim.fail([.partial, .log, .database, .other], with: error)
      let isMounted = try store.start()
      print("mounting with a full disk: \(isMounted ? "mounted" : store.errors)")
      if isMounted {
        try read(store, 0..<100_000)
        try store.unmount()
      } else {
        try store.waitForEnd()
        #expect(store.errors.contains("\(Errno(rawValue: error)); free space"), "\(store.errors)")
      }
    }
  }
}
