import Base
import Glibc
import TestSupport
import Testing

/// What a server needs goes away, or runs out, while a killed one is followed by the next (promise P12): readers get
/// the right bytes or a clear error, nothing hangs, and nothing stored is lost.
@Suite(.serialized) struct RecoveryFaultTests {
  private static let size: Int64 = 4_000_000

  /// Lends a mount of two files: the first is complete, the second stored up to its middle. `held`: both, open.
  private func lend(_ body: (ServedStore, Shelf, _ held: [Int32]) throws -> Void) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        for _ in 0..<2 { _ = shelf.add(size: Self.size) }
        try withServedStore { store in
          try store.list([shelf.line(0), shelf.line(1)])
          let environment = store.shim.environment.merging(["MEDIAFS_START": store.folder.file("start")]) { $1 }
          try #require(
            try store.start(["--continue", "never"], shimmed: false, environment: environment), "\(store.errors)")
          #expect(try store.run(["fetch", "--wait", "\(store.mountpoint)/\(Shelf.name(0))"]).succeeded)
          _ = try store.read(Shelf.name(1), at: 0, count: Int(Self.size / 2))
          try store.waitForCommit(of: ByteRange(0, Self.size / 2))
          let held = (0..<2).map { open("\(store.mountpoint)/\(Shelf.name($0))", O_RDONLY | O_CLOEXEC) }
          do {
            defer { for file in held { close(file) } }  // or the unmount waits for them
            try body(store, shelf, held)
          }
          try isSound(store)
        }
      }
    }
  }

  /// Kills the server, has the helper wait while `change` runs, and lets it start the next one.
  private func kill(_ store: ServedStore, changing change: () throws -> Void) throws {
    let helper = try #require(store.helper)
    store.holdHelper()
    let server = try #require(store.server)
    store.killServer()
    try waitUntil(timeout: 30, "the server's end") { store.hasEnded(server) }
    try change()
    #expect(Glibc.kill(helper, SIGCONT) == 0)
  }

  private func waitForNext(_ store: ServedStore, after served: Int, timeout: Double = 60) throws {
    try waitUntil(timeout: timeout, "the next server") { store.timesServed > served }
  }

  /// What the file has, over that handle, past what the kernel remembers.
  private func isRight(_ shelf: Shelf, _ index: Int, _ file: Int32, at offset: Int64 = 0) throws -> Bool {
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)
    var bytes = [UInt8](repeating: 0, count: Int(Self.size - offset))
    var done = 0
    while done < bytes.count {
      let count = bytes.withUnsafeMutableBytes {
        pread(file, $0.baseAddress! + done, $0.count - done, Int(offset) + done)
      }
      if count <= 0 { throw Errno.current }
      done += count
    }
    return shelf.isRight(bytes, index, at: offset)
  }

  private func isAllRight(_ store: ServedStore, _ shelf: Shelf, _ held: [Int32]) throws {
    for index in 0..<2 {
      #expect(try isRight(shelf, index, held[index]), "over the handle")
      try store.forgetPages(Shelf.name(index))
      #expect(shelf.isRight(try store.read(Shelf.name(index)), index, at: 0), "opened anew")
    }
  }

  private func isSound(_ store: ServedStore) throws {
    try store.unmount()
    var audit = StoreAudit()
    try audit.look(at: store.store)
    #expect(audit.problems == [])
  }

  /// The list is of no use to the next server. What else is gone is fetched again.
  @Test(arguments: ["list", "partial file", "copy", "lock", "control", "log of the catalog's index"])
  func whatIsRemovedMeanwhile(_ what: String) throws {
    try lend { store, shelf, held in
      let served = store.timesServed
      try kill(store) {
        switch what {
        case "list": try #require(unlink(store.folder.file("urls.txt")) == 0)
        case "partial file": try Command.succeed(["rm", "-r", "\(store.store)/partial"])
        case "copy": try #require(unlink("\(store.library)/\(Shelf.name(0))") == 0)
        case "log of the catalog's index": try #require(unlink("\(store.store)/catalog.sqlite-shm") == 0)
        default: try #require(unlink("\(store.store)/\(what)") == 0)
        }
      }
      try waitForNext(store, after: served)
      try isAllRight(store, shelf, held)
    }
  }

  /// The library's disk is away when the next server begins, and comes back: readers wait.
  @Test func theLibraryIsAwayMeanwhile() throws {
    try lend { store, shelf, held in
      let served = store.timesServed
      let away = store.library + "-away"
      try kill(store) { try #require(rename(store.library, away) == 0) }
      try waitUntil(timeout: 60, "the refusal") { store.errors.contains("\(store.library) is not there") }
      #expect(store.timesServed == served && access(store.library, F_OK) != 0)
      try #require(rename(away, store.library) == 0)
      try waitForNext(store, after: served)
      try isAllRight(store, shelf, held)
    }
  }

  /// No write of the store succeeds, before a server is killed and long after.
  @Test(arguments: [ENOSPC, EIO] as [Int32]) func theDiskTakesNothing(_ error: Int32) throws {
    try lend { store, shelf, held in
      let served = store.timesServed
      store.shim.fail([.partial, .log, .database, .other], with: error)
      store.killServer()
      try waitForNext(store, after: served)
      try isAllRight(store, shelf, held)
      store.killServer()
      try waitForNext(store, after: served + 1)
      try isAllRight(store, shelf, held)
      store.shim.succeed()
      #expect(try store.run(["fetch", "--wait", "\(store.mountpoint)/\(Shelf.name(1))"]).succeeded)
    }
  }

  /// A filesystem without a single page left.
  @Test func theDiskIsFull() throws {
    guard geteuid() == 0 else { return }
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        for _ in 0..<2 { _ = shelf.add(size: Self.size) }
        try withServedStore { store in
          try store.folder.makeFolder("store")
          try Command.succeed(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", store.store])
          defer { umount2(store.store, Int32(MNT_DETACH)) }
          try store.list([shelf.line(0), shelf.line(1)])
          try #require(try store.start(["--continue", "never", "--max-size", "1G"], shimmed: false), "\(store.errors)")
          #expect(try store.run(["fetch", "--wait", "\(store.mountpoint)/\(Shelf.name(0))"]).succeeded)
          _ = try store.read(Shelf.name(1), at: 0, count: Int(Self.size / 2))
          try store.waitForCommit(of: ByteRange(0, Self.size / 2))
          let held = (0..<2).map { open("\(store.mountpoint)/\(Shelf.name($0))", O_RDONLY | O_CLOEXEC) }
          for round in 0..<3 {
            let served = store.timesServed
            fill(store)
            store.killServer()
            for _ in 0..<50 {
              fill(store)  // also what the dead server leaves, and what the next one frees as it begins
              sleep(seconds: 0.01)
            }
            try waitForNext(store, after: served)
            try isAllRight(store, shelf, held)
            if round == 1 { try #require(unlink("\(store.store)/filling") == 0) }
          }
          unlink("\(store.store)/filling")
          #expect(try store.run(["fetch", "--wait", "\(store.mountpoint)/\(Shelf.name(1))"]).succeeded)
          for file in held { close(file) }
          try isSound(store)
        }
      }
    }
  }

  private func fill(_ store: ServedStore) {
    let file = open("\(store.store)/filling", O_WRONLY | O_CREAT | O_APPEND, 0o600)
    defer { close(file) }
    let page = [UInt8](repeating: 0, count: 4096)
    while write(file, page, page.count) == page.count {}
  }

  /// The helper may open no more files than it has. Readers wait, and go on once it may.
  @Test func tooFewDescriptorsToStartAServer() throws {
    try lend { store, shelf, held in
      let helper = try #require(store.helper)
      for few in [3, 12, 16] {
        let served = store.timesServed
        try Command.succeed(["prlimit", "--pid", "\(helper)", "--nofile=\(few):"])
        store.killServer()
        sleep(seconds: 0.5)
        try Command.succeed(["prlimit", "--pid", "\(helper)", "--nofile=1024:"])
        try waitForNext(store, after: served)
        try isAllRight(store, shelf, held)
      }
    }
  }

  /// It never may: in the end readers get an error, and the mount stays.
  @Test func noServerCanBeStarted() throws {
    try lend { store, shelf, held in
      let helper = try #require(store.helper)
      try Command.succeed(["prlimit", "--pid", "\(helper)", "--nofile=3:"])
      store.killServer()
      do {
        _ = try isRight(shelf, 1, held[1])
        Issue.record("read without a server")
      } catch {
        #expect((error as? Errno)?.rawValue == EIO, "\(error)")
      }
      let status = try store.run(["status", store.mountpoint])
      #expect(status.succeeded && status.output.contains("no server could be started"), "\(status)")
      #expect(Mounts.isMounted(store.mountpoint))
      try Command.succeed(["prlimit", "--pid", "\(helper)", "--nofile=1024:"])
    }
  }

  /// The next server has few descriptors: it cannot begin, or its reads fail until another one follows.
  @Test func tooFewDescriptorsToServe() throws {
    try lend { store, shelf, held in
      for few in stride(from: 4, through: 44, by: 5) {
        let (served, last) = (store.timesServed, try #require(store.server))
        try store.folder.write("starve\(few)", to: "start")
        store.killServer()
        try waitForNext(store, after: served)
        for index in 0..<2 {
          do { #expect(try isRight(shelf, index, held[index])) } catch {
            let number = (error as? Errno)?.rawValue
            // If the former server was killed before it had noted the second file as complete, this one fetches it
            // again, and cannot connect.
            let isTimeout = index == 1 && number == ETIMEDOUT
            #expect(number == EMFILE || number == EIO || isTimeout, "\(error) with \(few)")
          }
          _ = try? store.read(Shelf.name(index))
        }
        try waitUntil(timeout: 60, "a server that serves") { store.server.map { $0 != last } ?? false }
        let again = store.timesServed
        store.killServer()
        try waitForNext(store, after: again)
        try isAllRight(store, shelf, held)
      }
    }
  }
}
