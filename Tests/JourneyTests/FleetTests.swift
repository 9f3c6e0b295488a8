import Base
import Glibc
import TestSupport
import Testing

/// Several mounts of one machine that share through a real object store.
@Suite("Mounts that share", .serialized) struct FleetTests {
  @Test(
    "Three nodes read all at once: each byte comes once. A fourth reads all without the origin",
    .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed)))
  func sharesThroughSeaweed() throws {
    try withSeaweed { store in
      try withFleet(store.endpoint()) { fleet in
        for _ in 0..<3 { try fleet.mountSharing() }
        try fleet.readAll()
        let sent = fleet.origin.log.totals.bytesSent
        // Beside other tests, a node now and then takes a busy one for dead: a block of 4 MiB is 7 % of this list.
        fleet.expect(sent <= Fleet.listBytes * 5 / 4, "the origin sent \(Fleet.part(sent)) of the list")
        Figures.add("bytes that a fleet's origin sent", Int(sent))
        fleet.waitUntilStored()
        // What is in use is marked, so that nobody removes it.
        let bucket = "s3://\(StoreKeys.bucket)/some/prefix"
        let care = try Command.run(
          [
            try Programs.path("mediafs"), "share", "collect", "--dry-run", "--days", "1", bucket, "--share-endpoint",
            store.endpoint(),
          ], environment: fleet.environment)
        #expect(care.succeeded && care.output.contains("\(Fleet.names.count) noted as used in 1 day"), "\(care)")
        fleet.origin.stop()
        let late = try fleet.mountSharing(["--timeout", "60"])
        let list = try late.runProgram(["stat", "-c", "%s"] + Fleet.names.map { "\(late.mountpoint)/\($0)" })
        fleet.expect(list.output == String(repeating: "\(Fleet.size)\n", count: Fleet.names.count), "\(list)")
        try fleet.readAll([late])
        // Where its bytes came from: nothing from the origin, which is gone.
        let said = try late.run(["status", late.mountpoint]).output
        #expect(said.contains("programs read ") && said.contains(" from there"), "\(said)")
        #expect(!said.contains(" from origins"), "\(said)")
      }
    }
  }

  @Test(
    "A node that is killed while it fetches for all is helped, and taken over",
    .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed)))
  func survivesKills() throws {
    try withSeaweed { store in
      try withFleet(store.endpoint(), rate: 12e6) { fleet in
        for _ in 0..<3 { try fleet.mountSharing() }
        try fleet.readAll {
          for member in fleet.members {
            sleep(seconds: 1.2)
            member.killServer()
          }
        }
        let sent = fleet.origin.log.totals.bytesSent
        // Of three readers each would have it once without sharing.
        #expect(sent <= Fleet.listBytes * 3 / 2, "the origin sent \(Fleet.part(sent)) of the list")
      }
    }
  }

  @Test(
    "Without conditional writes, nodes share as well as they can",
    .enabled(if: StorePrograms.rclone != nil, Comment(rawValue: StorePrograms.noRclone)))
  func sharesThroughRclone() throws {
    try withRcloneStore { store in
      try withFleet(store.endpoint) { fleet in
        for _ in 0..<3 { try fleet.mount() }
        try fleet.readAll()
        let sent = fleet.origin.log.totals.bytesSent
        // Without leases, nodes that begin together fetch blocks twice, on a busy machine most of them. At the worst,
        // each is alone.
        #expect(sent <= Fleet.listBytes * 3 * 51 / 50, "the origin sent \(Fleet.part(sent)) of the list")
        #expect(fleet.logs.contains("does not keep the conditions of writes"))
        fleet.waitUntilStored()
        fleet.origin.stop()
        try fleet.readAll([try fleet.mountSharing(["--timeout", "60"])])
      }
    }
  }

  @Test(
    "What the store does not take at first, or takes too late for readers, is stored all the same",
    arguments: [FakeStore.Fault.refuse(500, code: "InternalError"), .late(1.5)])
  func triesAgain(_ fault: FakeStore.Fault) throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let isWell = Lock(false)
        let isForGood = if case .late = fault { true } else { false }
        let faulty = Lock(0)
        store.configure { manner in
          manner.fault = { request in
            let isBlock = request.target.contains("/mfs1/b/")
            let isStored = request.method == "PUT" && (isBlock || request.target.contains("/mfs1/u/"))
            guard isForGood || isStored && !isWell.withLock({ $0 }) else { return nil }
            if isStored && isBlock { faulty.withLock { $0 += 1 } }
            return fault
          }
        }
        let member = try fleet.mount()
        try fleet.readAll()
        let blocks = Fleet.names.count * Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
        let count = { (kind: String) in store.objects.keys.count { $0.contains("/mfs1/\(kind)/") } }
        // A store that is late may have all of them by now.
        fleet.expect(eventually { faulty.withLock { $0 } > 0 }, "the store was not at fault")
        if !isForGood { fleet.expect(count("b") == 0, "the store took \(count("b")) blocks") }
        let status = { (try? member.run(["status", member.mountpoint]).output) ?? "" }
        let isTold = { status().contains("MiB to be stored, which it does not take now (the store failed (HTTP 500") }
        if !isForGood { fleet.expect(eventually(timeout: 60, interval: 0.5, isTold), "\(status())") }
        isWell.withLock { $0 = true }
        let isThere = eventually(timeout: 200, interval: 0.5) {
          count("b") == blocks && count("u") == Fleet.names.count
        }
        fleet.expect(isThere, "\(count("b")) of \(blocks) blocks, \(count("u")) of \(Fleet.names.count) pointers")
        fleet.waitUntilStored()
        #expect(!status().contains("does not take"))
      }
    }
  }

  @Test("What was complete before the mount shared is stored when it is read")
  func offersWhatWasComplete() throws {
    try withFakeStore { other in
      try withFakeStore { store in
        try withFleet(other.endpoint, rate: nil) { fleet in
          let member = try fleet.mount()
          try fleet.readAll()
          #expect(eventually(timeout: 60) { (try? member.status().totals.complete) == Fleet.names.count })
          try member.end()
          try fleet.mountAgain(member, through: store.endpoint)
          try fleet.readAll()
          fleet.waitUntilStored()
          let blocks = Fleet.names.count * Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
          let count = { store.objects.keys.count { $0.contains("/mfs1/b/") } }
          fleet.expect(eventually(timeout: 60) { count() == blocks }, "\(count()) of \(blocks)")
        }
      }
    }
  }

  @Test("Of machines that find what is known of a file too old, one asks the origin")
  func oneAsks() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        try fleet.mount()
        try fleet.readAll()
        fleet.waitUntilStored()
        // As if the origin had told it long ago.
        for (name, object) in store.objects where name.contains("/mfs1/u/") {
          let lines = String(decoding: object.body, as: UTF8.self).split(separator: "\n")
          let aged = lines.map { $0.hasPrefix("checked=") ? "checked=1000000" : $0 }.joined(separator: "\n")
          store.setObject(name, Array((aged + "\n").utf8))
        }
        let others = try (0..<3).map { _ in try fleet.mount("--fresh", "1h", "--continue", "never") }
        for member in others {
          let isThere = eventually(timeout: 60, interval: 0.2) {
            (try? member.run(["metrics", member.mountpoint]))?.output.contains("mediafs_share_nodes 4\n") ?? false
          }
          fleet.expect(isThere, "the nodes do not see each other")
          let names = Fleet.names.map { member.mountpoint + "/" + $0 }
          #expect(try member.runProgram(["stat"] + names).succeeded)
        }
        let before = fleet.origin.log.totals.requests
        let readers = try others.map { member in
          try BackgroundProcess(["head", "-qc", "1"] + Fleet.names.map { member.mountpoint + "/" + $0 })
        }
        for reader in readers { fleet.expect(reader.wait(timeout: 100)?.status == 0, "a reader fails") }
        // Who waited for 2 s in vain asks too: a busy machine may make one do so.
        let asked = Int(fleet.origin.log.totals.requests) - Int(before)
        fleet.expect((1...5).contains(asked), "\(asked) requests for \(Fleet.names.count) files of 3 machines")
      }
    }
  }

  @Test("A mount that ends gives its leases up")
  func givesUp() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: 2e6) { fleet in
        // It goes on with what was opened once, and has a lease for that.
        let member = try fleet.mountSharing(["--continue", "always"])
        #expect(try member.runProgram(["head", "-c", "1", member.mountpoint + "/" + Fleet.names[0]]).succeeded)
        let leases = {
          store.objects.filter { $0.key.contains("/mfs1/l/") }.map { String(decoding: $0.value.body, as: UTF8.self) }
        }
        fleet.expect(eventually(timeout: 60) { leases().contains { $0.contains("state=held") } }, "no lease")
        // It is told which one that is: of the mount, and of the file.
        var said = ""
        let isTold = eventually(timeout: 60) {
          do {
            let file = "\(member.mountpoint)/\(Fleet.names[0])"
            said = try member.run(["status", member.mountpoint]).output + member.run(["status", file]).output
          } catch { said = "\(error)" }
          return said.contains("lease in hand (0 to 21 MiB of f0.bin)")
            && said.contains("lease: 0 B to 20.0 MiB, fetched for all that share")
        }
        fleet.expect(isTold, "the lease is not told: \(said)")
        try member.end()
        #expect(leases().allSatisfy { $0.contains("state=released") }, "\(leases())")
      }
    }
  }

  @Test("A bucket of another fleet is left alone, and a mount without a key of the fleet is none")
  func refuses() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let first = try fleet.mount()
        try fleet.readAll([first])
        // Until it has stored all, and given up its leases.
        fleet.waitUntilStored()
        #expect(store.objects.keys.contains { $0.contains("/mfs1/b/") })
        let other = try fleet.mount(key: "another key, of another fleet")
        let before = store.objects.mapValues(\.etag)
        try fleet.readAll([other])
        #expect(other.process?.standardErrorSoFar.contains("it was written with another fleet key") == true)
        #expect(store.objects.mapValues(\.etag) == before, "something was written")
        // Neither names nor URLs are in the bucket.
        for (name, object) in store.objects where !name.contains("/mfs1/b/") {
          let text = String(decoding: object.body, as: UTF8.self)
          #expect(!text.contains("http") && !text.contains(".bin"), "\(name): \(text)")
        }
        #expect(store.signatureFaults.isEmpty, "\(store.signatureFaults)")

        let folder = try TemporaryFolder(open: true)
        let keyless = MountedProgram(
          in: folder, program: try Programs.path("mediafs"),
          environment: ["AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "S"])
        try folder.write(fleet.origin.url("/f0.bin"), to: "urls.txt")
        let refused = try keyless.run(
          Array(keyless.mountCommand(["--share", "s3://bucket/x"]).dropFirst()))
        #expect(!refused.succeeded && refused.errors.contains("the fleet's key is missing"), "\(refused.errors)")
        try folder.remove()
      }
    }
  }

  @Test("What a node only looked at, the next one looks at without the origin")
  func looksTwice() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let look = "for name in \(Fleet.names.joined(separator: " ")); do head -c 5000 $name; tail -c 5000 $name; done"
        func looked(_ place: String) throws -> String {
          try Command.succeed(["bash", "-euc", "cd \"$1\"; { \(look); } | sha256sum", "bash", place])
        }
        let expected = try looked(fleet.folder.path)
        #expect(try looked(fleet.mount().mountpoint) == expected)
        let sets = { store.objects.keys.count { $0.contains("/mfs1/p/") } }
        #expect(eventually(timeout: 60) { sets() == Fleet.names.count }, "\(store.objects.keys)")
        fleet.origin.stop()
        let second = try fleet.mount("--timeout", "60")
        #expect(try looked(second.mountpoint) == expected, "\(fleet.logs.suffix(4000))")
        // A set of other bytes counts as none. The list is read, so that the origin is asked, which is gone.
        for (name, object) in store.objects where name.contains("/mfs1/p/") {
          store.setObject(name, object.body.dropLast() + [object.body.last! ^ 1], meta: object.meta)
        }
        let third = try fleet.mount("--timeout", "5")
        let end = try third.runProgram(["head", "-c", "5000", "\(third.mountpoint)/\(Fleet.names[0])"])
        #expect(!end.succeeded && end.output.isEmpty, "\(end)")
      }
    }
  }

  @Test("A block that is not what was stored reaches no reader, and is stored anew")
  func rottenBlocks() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let first = try fleet.mount()
        try fleet.readAll([first])
        let blocks = Fleet.names.count * Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
        let isThere = { store.objects.keys.count { $0.contains("/mfs1/b/") } }
        #expect(eventually(timeout: 500) { isThere() == blocks }, "\(isThere()) of \(blocks)")
        var rotten: [String] = []
        for (name, object) in store.objects where name.contains("/mfs1/b/") && name.hasSuffix("1") {
          var body = object.body
          body[body.count / 2] ^= 1
          store.setObject(name, body, meta: object.meta)
          rotten.append(name)
        }
        #expect(rotten.count == Fleet.names.count)
        let second = try fleet.mount()
        try fleet.readAll([second])
        #expect(second.process?.standardErrorSoFar.contains("is not what was stored") == true)
        let isMended = eventually(timeout: 500) {
          let objects = store.objects
          return rotten.allSatisfy { name in objects[name].map { !$0.etag.contains("set") } ?? false }
        }
        #expect(isMended, "\(rotten.map { store.objects[$0]?.etag ?? "none" })")
      }
    }
  }
}
