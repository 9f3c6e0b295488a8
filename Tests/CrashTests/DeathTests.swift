import Base
import Glibc
import TestSupport
import Testing

/// What the log says of a server that died.
@Suite(.serialized) struct DeathTests {
  /// Lends a store with one file that is read through the mount, and the bytes of a part of it.
  private func lend(_ body: (ServedStore, _ name: String, _ right: [UInt8]) throws -> Void) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        _ = shelf.add(size: 4_000_000)
        try withServedStore { store in
          try store.list([shelf.line(0)])
          try #require(try store.start(["--continue", "never"]), "\(store.errors)")
          let right = Pattern.bytes(name: Shelf.path(0), offset: 1_000_000, count: 100_000)
          #expect(try store.read(Shelf.name(0), at: 1_000_000, count: 100_000) == right)
          try body(store, Shelf.name(0), right)
          try store.unmount()
        }
      }
    }
  }

  /// A thread that dies of its own signal within a read: where in the program, which build, and what it served.
  @Test func theLogSaysWhereAThreadDied() throws {
    try lend { store, name, right in
      try store.forgetPages(name)
      store.shim.fate(.crashes, ofReadsAt: 1_050_000, count: 1)
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
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

  /// A signal that another process sends is no thread's own.
  @Test func aSignalOfAnotherProcessIsNoThreadsOwn() throws {
    try lend { store, name, right in
      let server = try #require(store.server)
      Glibc.kill(server, SIGABRT)
      try waitUntil(timeout: 60, "the next server") { store.timesServed == 1 }
      try store.forgetPages(name)
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
      #expect(store.errors.contains("signal 6 (SIGABRT) in thread "), "\(store.errors)")
      #expect(store.errors.contains("sent by process \(getpid()); build "), "\(store.errors)")
      #expect(!store.errors.contains("raised the signal"), "\(store.errors)")
    }
  }
}
