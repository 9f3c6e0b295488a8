import Base
import CSystem
import Glibc
import TestSupport
import Testing

/// A store whose filesystem is mounted anew: what was not synced may be gone.
@Suite(.serialized) struct RemountTests {
  private static let canMount = geteuid() == 0 && csystem_unique_mount_id("/") != 0

  /// A disk that was unplugged and comes back within the same boot has only what was synced. Here it has everything, so
  /// that the test sees what the next server believes.
  @Test(.enabled(if: canMount), arguments: [true, false])
  func whatWasNotSyncedIsBelievedInTheSameMountOnly(isMountedAnew: Bool) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        _ = shelf.add(size: 4_000_000)
        try withServedStore { store in
          try store.folder.makeFolder("store")
          func mount() throws { try Command.succeed(["mount", "--bind", store.store, store.store]) }
          try mount()
          defer { umount2(store.store, Int32(MNT_DETACH)) }
          try store.list([shelf.line(0)])
          let right = Pattern.bytes(name: Shelf.path(0), offset: 1_000_000, count: 500_000)
          func read() throws -> Int64 {
            try #require(try store.start(["--continue", "never"], shimmed: false), "\(store.errors)")
            let before = origin.log.bytesSent(of: Shelf.path(0))
            #expect(try store.read(Shelf.name(0), at: 1_000_000, count: 500_000) == right)
            sleep(seconds: 2.5)  // a commit, and no sync yet
            let sent = origin.log.bytesSent(of: Shelf.path(0)) - before
            store.kill()
            try store.waitForEnd()
            return sent
          }
          #expect(try read() >= 500_000)
          if isMountedAnew {
            // The server that was killed may still have files open.
            try waitUntil(timeout: 60, "the store to be free") { umount2(store.store, 0) == 0 }
            try mount()
          }
          let again = try read()
          #expect(isMountedAnew ? again >= 500_000 : again < 100_000, "\(again) bytes were fetched again")
        }
      }
    }
  }
}
