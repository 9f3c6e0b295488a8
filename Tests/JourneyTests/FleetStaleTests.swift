import Base
import Glibc
import TestSupport
import Testing

/// A store that answers reads and lists with what was there some seconds ago, also with "not found" for what was just
/// written. Its writes are as they should be.
@Suite("Mounts that share through a store that lags", .serialized) struct FleetStaleTests {
  @Test("Stale reads cost bytes of the origin, and no right byte", arguments: [0.5, 3])
  func stale(seconds: Double) throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: 20e6) { fleet in
        let answers = Lock(0)
        store.configure {
          $0.fault = { request in
            guard ["GET", "HEAD"].contains(request.method) else { return nil }
            answers.withLock { $0 += 1 }
            return .stale(seconds)
          }
        }
        let members = try (0..<3).map { _ in try fleet.mountSharing() }
        try fleet.readAll(timeout: 100)
        let sent = fleet.origin.log.totals.bytesSent
        // At the worst, each was alone.
        fleet.expect(sent <= Fleet.listBytes * 3 * 51 / 50, "the origin sent \(Fleet.part(sent)) of the list")
        fleet.waitUntilStored()
        // Nobody asks in a hurry for what will be there later.
        let asked = Dictionary(grouping: store.seen) { "\($0.method) \($0.target)" }.mapValues(\.count)
        let most = asked.sorted { $0.value > $1.value }.prefix(8)
        #expect(store.seen.count < members.count * 600, "\(store.seen.count) requests: \(most)\n\(fleet.story)")

        // A block that is damaged, and which the store shows for a while after it was removed.
        for (name, object) in store.objects where name.contains("/mfs1/b/") && name.hasSuffix("1") {
          var body = object.body
          body[body.count / 2] ^= 1
          store.setObject(name, body, meta: object.meta)
        }
        sleep(seconds: seconds)
        let before = fleet.origin.log.totals.bytesSent
        try fleet.readAll([try fleet.mountSharing()], timeout: 100)
        let more = fleet.origin.log.totals.bytesSent - before
        // A busy machine's reader takes some of the others from the origin too.
        #expect(more >= 3 << 20 && more <= Fleet.listBytes / 2, "\(more) bytes for 3 damaged blocks")
        #expect(answers.withLock { $0 } > 0 && store.signatureFaults.isEmpty)
      }
    }
  }
}
