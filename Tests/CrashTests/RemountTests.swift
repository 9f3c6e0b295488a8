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
    try withBoundStore { shelf, store in
      #expect(try start(store) && fetched(shelf, store) >= 500_000)
      try store.waitForCommit(of: Self.part)  // and no sync yet
      store.kill()
      try store.waitForEnd()
      if isMountedAnew { try mountAnew(store) }
      let again = try start(store) ? fetched(shelf, store) : -1
      #expect(isMountedAnew ? again >= 500_000 : again < 100_000, "\(again) bytes were fetched again")
    }
  }

  /// Before Linux 6.8, the helper holds the mount, so that the next server knows it; another helper's server does not.
  @Test(.enabled(if: geteuid() == 0), arguments: [true, false])
  func beforeMountsHadNamesTheHelperHoldsTheirs(isMountedAnew: Bool) throws {
    try withBoundStore { shelf, store in
      #expect(try start(store, OldKernel.withoutUniqueMounts) && fetched(shelf, store) >= 500_000)
      let mount = try store.waitForCommit(of: Self.part)
      let first = try #require(store.server)
      store.holdHelper()
      store.killServer()
      try waitUntil(timeout: 60, "the server to be gone") { store.hasEnded(first) }
      if isMountedAnew { try mountAnew(store) }
      kill(try #require(store.helper), SIGCONT)
      let again = try fetched(shelf, store)
      #expect(isMountedAnew ? again >= 500_000 : again < 100_000, "\(again) bytes were fetched again")
      #expect(store.server != first)
      if isMountedAnew {
        // From now on, the helper holds that one.
        try store.waitForCommit(of: Self.part, unlike: mount)
        store.killServer()
        #expect(try fetched(shelf, store) < 100_000)
        return
      }
      store.kill()
      try store.waitForEnd()
      #expect(try start(store, OldKernel.withoutUniqueMounts) && fetched(shelf, store) >= 500_000)
    }
  }

  private static let place: Int64 = 1_000_000
  private static let count = 500_000
  private static let part = ByteRange(place, place + Int64(count))

  private func start(_ store: ServedStore, _ wrapper: [String] = []) throws -> Bool {
    let starts = try store.start(["--continue", "never"], shimmed: false, wrapper: wrapper)
    if !starts { Issue.record("\(store.errors)") }
    return starts
  }

  /// Reads the part, and returns how many of its bytes the origin had to send for that. What the reader's look-ahead
  /// fetches behind the part does not count: a server that was killed early had not all of it.
  private func fetched(_ shelf: Shelf, _ store: ServedStore) throws -> Int64 {
    try store.forgetPages(Shelf.name(0))
    let before = shelf.sent(0, of: Self.part)
    let right = Pattern.bytes(name: Shelf.path(0), offset: Self.place, count: Self.count)
    #expect(try store.read(Shelf.name(0), at: Self.place, count: Self.count) == right)
    // The origin counts a piece after it has sent it: nothing, or all of it.
    let sent = { shelf.sent(0, of: Self.part) - before }
    sleep(seconds: 0.5)
    if sent() > 0 { _ = eventually { sent() >= Self.count } }
    return sent()
  }

  private func withBoundStore(_ body: (Shelf, ServedStore) throws -> Void) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        _ = shelf.add(size: 4_000_000)
        try withServedStore { store in
          try store.folder.makeFolder("store")
          try mount(store)
          defer {
            store.abandon()
            umount2(store.store, Int32(MNT_DETACH))
          }
          try store.list([shelf.line(0)])
          try body(shelf, store)
        }
      }
    }
  }

  private func mount(_ store: ServedStore) throws {
    try Command.succeed(["mount", "--bind", store.store, store.store])
  }

  /// At once, also while the server that was killed has files open.
  private func mountAnew(_ store: ServedStore) throws {
    try #require(umount2(store.store, Int32(MNT_DETACH)) == 0)
    try mount(store)
  }
}
