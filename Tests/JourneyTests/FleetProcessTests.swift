import Base
import Glibc
import TestSupport
import Testing

/// Processes of a fleet that stop or die: each of a real store's, and a node that has a lease.
@Suite("Mounts that share, and processes that stop", .serialized) struct FleetProcessTests {
  @Test(
    "Each process of the store hangs for a while, and dies later: no byte is wrong, and every read ends",
    .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed)),
    arguments: SeaweedStore.Part.allCases)
  func storeLosesOne(_ part: SeaweedStore.Part) throws {
    try withSeaweed { store in
      // A file takes three seconds: also on a busy machine some of it is left when the signal comes.
      try withFleet(store.endpoint(), rate: 6e6) { fleet in
        try fleet.mountSharing()
        try fleet.mountSharing(through: store.endpoint(.gateway2))
        var sent: [Int64] = []
        for (signal, name) in zip([SIGSTOP, SIGKILL], Fleet.names) {
          // The process stays as it is until the reads are over.
          try fleet.readAll(nil, [name], timeout: 100) {
            try waitUntil(timeout: 60, "the origin's first bytes") { fleet.origin.log.bytesSent(of: "/\(name)") > 0 }
            sleep(seconds: 0.3)
            sent.append(fleet.origin.log.bytesSent(of: "/\(name)"))
            store.signal(part, signal)
          }
          #expect(fleet.origin.log.bytesSent(of: "/\(name)") > sent.last ?? .max, "the origin was not asked any more")
          store.signal(part, SIGCONT)
        }
        // What a node stored in that time is not worse for it.
        try store.start(part)
        try fleet.readAll([try fleet.mount()], Array(Fleet.names.prefix(2)), timeout: 100)
        // Who asks the one that stands notices it. Another store may miss nothing without one of the others.
        let talks = zip([SeaweedStore.Part.gateway1, .gateway2], fleet.members).first { $0.0 == part }?.1
        if let talks {
          let log = talks.process?.standardErrorSoFar ?? ""
          #expect(log.contains("the fleet's store does not answer"), "\(fleet.logs.suffix(4000))")
        }
      }
    }
  }

  @Test("A node that has a lease is stopped: another takes over, and the first does no harm when it goes on")
  func holderStops() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: 3e6) { fleet in
        let first = try fleet.mountSharing()
        let name = Fleet.names[0]
        let lease = { (node: String?) in
          store.objects.filter { $0.key.contains("/mfs1/l/") }.contains { _, object in
            let lines = String(decoding: object.body, as: UTF8.self).split(separator: "\n")
            guard lines.contains("state=held"), let holder = lines.first(where: { $0.hasPrefix("node=") }) else {
              return false
            }
            return node.map { $0 != holder } ?? true
          }
        }
        // The first blocks that it fetched are on their way when it stops, and arrive once others have stored all.
        let (isStopped, isSeen, held) = (Lock(false), Lock(false), Lock(0))
        let count = Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
        store.configure {
          $0.fault = { request in
            let isBlock = request.method == "PUT" && request.target.contains("/mfs1/b/")
            guard isBlock, !request.body.isEmpty, !isStopped.withLock({ $0 }) else { return nil }
            held.withLock { $0 += 1 }
            return .once { isSeen.withLock { $0 } }
          }
        }
        var tags: [String: String] = [:]
        let blocks = { store.objects.filter { $0.key.contains("/mfs1/b/") }.mapValues(\.etag) }
        try fleet.readAll([first], [name]) {
          let isReady = eventually(timeout: 60) { lease(nil) && held.withLock { $0 } > 0 }
          fleet.expect(isReady, "no lease is held, or no block was fetched")
          let holder = try #require(
            store.objects.first { $0.key.contains("/mfs1/l/") }.flatMap { _, object in
              String(decoding: object.body, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("node=") }
            })
          let server = try #require(first.server)
          kill(server, SIGSTOP)
          isStopped.withLock { $0 = true }
          let second = try fleet.mountSharing()
          try fleet.readAll([second], [name]) {
            fleet.expect(eventually(timeout: 60) { lease(String(holder)) }, "nobody took the lease over")
          }
          fleet.expect(eventually(timeout: 60) { blocks().count == count }, "\(blocks().count) of \(count) blocks")
          tags = blocks()
          isSeen.withLock { $0 = true }
          kill(server, SIGCONT)
          #expect(first.server == server)
        }
        fleet.waitUntilStored()
        #expect(blocks() == tags, "a block was overwritten")
        fleet.origin.stop()
        try fleet.readAll([try fleet.mount("--timeout", "60")], [name])
      }
    }
  }
}
