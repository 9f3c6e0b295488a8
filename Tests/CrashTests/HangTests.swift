import Base
import Glibc
import TestSupport
import Testing

/// A server whose thread hangs (promise P12).
@Suite(.serialized) struct HangTests {
  private static let size: Int64 = 4_000_000

  /// Lends a store with one file, of which everything is stored, and whose mount replaces servers that hang.
  private func lend(_ watchdog: String, _ body: (ServedStore, Shelf) throws -> Void) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        _ = shelf.add(size: Self.size)
        try withServedStore { store in
          try store.list([shelf.line(0)])
          try #require(try store.start(["--continue", "never", "--watchdog", watchdog]), "\(store.errors)")
          try body(store, shelf)
        }
      }
    }
  }

  /// A thread that reads from the disk and never returns. The reader gets its bytes from the next server.
  @Test func aReaderOfAThreadThatHangsWaitsForTheNextServer() throws {
    // What a busy machine takes for a read or a start is far from that.
    try lend("5") { store, _ in
      let name = Shelf.name(0)
      let right = Pattern.bytes(name: Shelf.path(0), offset: 1_000_000, count: 100_000)
      #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
      try store.forgetPages(name)
      store.shim.fate(.hangs, ofReadsAt: 1_050_000, count: 1)
      // In a process of its own: a reader that waits for ever is a failure, and not the end of the tests.
      let expected = try store.folder.write(right, to: "right")
      let line = #"dd if="$1" bs=100000 skip=10 count=1 status=none | cmp - "$2""#
      let reader = try BackgroundProcess(["sh", "-c", line, "sh", "\(store.mountpoint)/\(name)", expected])
      let end = try #require(reader.wait(timeout: 60), "the reader waits for ever: \(store.errors)")
      #expect(end.succeeded, "\(end)")
      #expect(store.shim.fated(of: 1) == 1)
      let log = store.errors
      #expect(log.contains("the server hangs: its thread fuse-") && log.contains("busy with READ"), "\(log)")
      // The bytes may come before the server that brought them has written that it serves.
      try waitUntil("the next server") { store.timesServed == 1 }
      // A mount that is well is left alone, also while it works.
      for _ in 0..<40 {
        try store.forgetPages(name)
        #expect(try store.read(name, at: 1_000_000, count: 100_000) == right)
        sleep(seconds: 0.1)
      }
      #expect(store.timesServed == 1, "\(store.errors)")
      try store.unmount()
    }
  }
}
