import Base
import Glibc
import TestSupport
import Testing

/// What the log says of a server that died.
@Suite(.serialized) struct DeathTests {
  /// Lends a store with one file that is read through the mount, and the bytes of a part of it.
  private func lend(
    wrapper: [String] = [], _ body: (ServedStore, _ name: String, _ right: [UInt8]) throws -> Void
  ) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        _ = shelf.add(size: 4_000_000)
        try withServedStore { store in
          try store.list([shelf.line(0)])
          try #require(try store.start(["--continue", "never"], wrapper: wrapper), "\(store.errors)")
          let right = Pattern.bytes(name: Shelf.path(0), offset: 1_000_000, count: 100_000)
          #expect(try store.read(Shelf.name(0), at: 1_000_000, count: 100_000) == right)
          try body(store, Shelf.name(0), right)
          try store.unmount()
        }
      }
    }
  }

  /// Sends SIGABRT to the thread of a process that has a name. A server says that it serves before it starts its
  /// threads, so there may be none of that name yet.
  private static let aim = """
    import ctypes, os, sys, time
    server = int(sys.argv[1])
    for _ in range(3000):
        for thread in os.listdir(f'/proc/{server}/task'):
            try:
                name = open(f'/proc/{server}/task/{thread}/comm').read().strip()
            except OSError:
                continue  # it has ended
            if name != sys.argv[2]: continue
            assert ctypes.CDLL(None).tgkill(server, int(thread), 6) == 0
            sys.exit()
        time.sleep(0.01)
    sys.exit(f'process {server} has no thread {sys.argv[2]}')
    """

  /// A thread that dies of its own signal within a read: where in the program, which build, and what it served.
  @Test func theLogSaysWhereAThreadDied() throws {
    try lend { store, name, right in
      try store.forgetPages(name)
      store.shim.fate(.crashes, ofReadsAt: 1_050_000, count: 1)
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
      try waitUntil("the next server") { store.timesServed == 1 }
      let lines = store.errors.split(separator: "\n")
      let program = builtProduct("mediafs")
      let notes = try Command.succeed(["readelf", "-n", program])
      let build = try #require(notes.firstMatch(of: #/Build ID: ([0-9a-f]{16,})/#).map { String($0.1) })
      #expect(
        lines.contains {
          $0.contains("signal 11 (SIGSEGV) in thread fuse-") && $0.hasSuffix("address 0x8; build \(build)")
        }, "\(store.errors)")
      #expect(lines.contains { $0.contains("#0 \(builtProduct("libdisk-shim.so"))+0x") })
      #expect(lines.count { $0.contains(" \(program)+0x") } > 5)
      #expect(lines.contains { $0.contains("killed by signal 11") })
      #expect(
        lines.contains { $0.contains("was busy with READ (15) of inode") && $0.hasSuffix("and raised the signal") })
      // Swift's own report would start a program, and keep the readers waiting.
      #expect(!store.errors.contains("Backtrac"), "\(store.errors)")

      let log = try store.folder.write(store.errors, to: "log")
      let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
      let named = try Command.succeed(["sh", "-c", "exec '\(root)/Scripts/symbolize' < '\(log)'"])
      #expect(named.contains("meet_fate"), "\(named)")
      #expect(named.contains("MediaFileSystem.read("), "\(named)")
    }
  }

  /// The second time that a request kills its server, it fails. The rest of the file is read as ever.
  @Test func aReadThatKillsTwiceFailsAlone() throws {
    try lend { store, name, right in
      let whole = Pattern.bytes(name: Shelf.path(0), offset: 2_000_000, count: 100_000)
      #expect(try store.read(name, at: 2_000_000, count: 100_000) == whole)
      try store.waitForCommit(of: ByteRange(1_000_000, 1_100_000))
      try store.waitForCommit(of: ByteRange(2_000_000, 2_100_000))
      try store.forgetPages(name)
      store.shim.fate(.crashes, ofReadsAt: 1_050_000, count: 100)
      let file = try FileDescriptor.open("\(store.mountpoint)/\(name)", O_RDONLY)
      #expect(throws: Errno(rawValue: EIO)) { try readPart(file, at: 1_050_000, count: 4096) }
      // The error may come before the server that brought it has written that it serves.
      try waitUntil(timeout: 60, "the next server") { store.timesServed == 2 }
      #expect(store.shim.fated(of: 100) == 2, "\(store.errors)")
      for _ in 0..<3 {
        try store.forgetPages(name)
        #expect(throws: Errno(rawValue: EIO)) { try readPart(file, at: 1_050_000, count: 10) }
        #expect(try readPart(file, at: 2_000_000, count: 100_000) == whole)
        #expect(try readPart(file, at: 1_000_000, count: 10_000) == Array(right[..<10_000]))
      }
      #expect(store.timesServed == 2, "\(store.errors)")
      let told = "killed two servers, and fails until the next mount"
      #expect(store.errors.contains("\(name): a read of bytes ") && store.errors.contains(told), "\(store.errors)")
      let attribute = try Command.succeed(["getfattr", "-n", "user.mediafs.error", "\(store.mountpoint)/\(name)"])
      #expect(attribute.contains(told), "\(attribute)")
      // Deaths of other kinds change nothing.
      store.killServer()
      try waitUntil(timeout: 60, "the next server") { store.timesServed == 3 }
      #expect(throws: Errno(rawValue: EIO)) { try readPart(file, at: 1_050_000, count: 10) }
    }
  }

  /// A signal that another process sends is no thread's own.
  @Test func aSignalOfAnotherProcessIsNoThreadsOwn() throws {
    try lend { store, name, right in
      // In the middle of reads, and often.
      let reader = try BackgroundProcess([
        "sh", "-c", "while cat '\(store.mountpoint)/\(name)' | head -c 1100000 >/dev/null; do :; done",
      ])
      defer { reader.terminate(grace: 0) }
      for count in 1...6 {
        sleep(seconds: 0.1)
        let server = try #require(store.server)
        _ = try Command.succeed(["/usr/bin/python3", "-c", Self.aim, "\(server)", "fuse-\(count % 4)"])
        try waitUntil(timeout: 60, "the next server: \(store.errors)") { store.timesServed == count }
      }
      try store.forgetPages(name)
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
      #expect(store.errors.contains("signal 6 (SIGABRT) in thread fuse-"), "\(store.errors)")
      #expect(store.errors.contains("sent by process "), "\(store.errors)")
      #expect(!store.errors.contains("raised the signal"), "\(store.errors)")
      #expect(!store.errors.contains("killed two servers"), "\(store.errors)")
    }
  }

  /// The disk fails under a mapped file as a thread serves a read. That is no fault of the read.
  @Test func aDiskThatFailsMakesNoSuspect() throws {
    try lend { store, name, right in
      try store.waitForCommit(of: ByteRange(1_000_000, 1_100_000))
      try store.forgetPages(name)
      store.shim.fate(.losesPages, ofReadsAt: 1_050_000, count: 3)
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
      try waitUntil("the fourth server: \(store.errors)") { store.timesServed >= 3 }
      #expect(store.timesServed == 3, "\(store.errors)")
      #expect(store.errors.contains("signal 7 (SIGBUS) in thread fuse-"), "\(store.errors)")
      #expect(!store.errors.contains("raised the signal") && !store.errors.contains("killed two servers"))
    }
  }

  /// The fault may be mended in the program that takes over: it serves what killed the old one twice.
  @Test func aNewProgramBeginsWithoutSuspects() throws {
    try lend { store, name, right in
      try store.waitForCommit(of: ByteRange(1_000_000, 1_100_000))
      try store.forgetPages(name)
      store.shim.fate(.crashes, ofReadsAt: 1_050_000, count: 100)
      #expect(throws: Errno(rawValue: EIO)) { try store.read(name, at: 1_050_000, count: 4096) }
      store.shim.fate(.reads, ofReadsAt: 0, count: 0)
      try waitUntil("the third server: \(store.errors)") { store.timesServed == 2 }
      #expect(throws: Errno(rawValue: EIO)) { try store.read(name, at: 1_050_000, count: 4096) }
      let upgraded = try store.run(["upgrade", store.mountpoint])
      #expect(upgraded.status == 0, "\(upgraded)\n\(store.errors)")
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
      let errors = try Command.run(["getfattr", "-n", "user.mediafs.error", "\(store.mountpoint)/\(name)"])
      #expect(!errors.output.contains("killed two servers"), "\(errors.output)")
    }
  }

  /// Header values and signed links are in the memory of a server. Another program that dies beside it, with the same
  /// limit, leaves a core file. Where the kernel pipes cores to a program, nobody can see that here.
  @Test(.enabled(if: DeathTests.coresAreFiles, "the kernel does not write cores into the folder of who dies"))
  func aDeathLeavesNoCore() throws {
    try withTemporaryFolder { place in
      let limited = ["sh", "-c", "ulimit -c unlimited && cd \"$0\" && exec \"$@\"", place.path]
      try lend(wrapper: limited) { store, name, right in
        try store.forgetPages(name)
        store.shim.fate(.crashes, ofReadsAt: 1_050_000, count: 1)
        #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
        try waitUntil("the next server") { store.timesServed == 1 }
        #expect(store.errors.contains("killed by signal 11"), "\(store.errors)")
        let server = try #require(store.server)
        #expect(try Command.succeed(["readlink", "/proc/\(server)/cwd"]) == place.path + "\n")
        #expect(try Command.succeed(["grep", "core file", "/proc/\(server)/limits"]).contains("unlimited"))
        #expect(try Command.succeed(["ls", place.path]) == "")
        let other = try Command.run(limited + ["sh", "-c", "kill -SEGV $$"])
        #expect(other.status == 128 + SIGSEGV)
        #expect(try Command.succeed(["ls", place.path]).contains("core"))
      }
    }
  }

  /// core(5): a pattern without a folder and without a program.
  private static let coresAreFiles: Bool = {
    guard let bytes = try? readFile("/proc/sys/kernel/core_pattern") else { return false }
    let canLift = try? Command.run(["sh", "-c", "ulimit -c unlimited"]).succeeded
    return bytes.starts(with: Array("core".utf8)) && !bytes.contains(UInt8(ascii: "/")) && canLift ?? false
  }()
}
