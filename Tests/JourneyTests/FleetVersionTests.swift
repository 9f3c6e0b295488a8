import Base
import Glibc
import TestSupport
import Testing

/// What another version wrote, and two versions of a file that look like one.
@Suite("Mounts that share, and versions", .serialized) struct FleetVersionTests {
  private static let prefix = "\(StoreKeys.bucket)/some/prefix/mfs1"

  @Test(
    "A bucket of another version, or of another program, stays untouched: its mount is alone, and says so",
    arguments: [
      ("mediafs fleet 2\nblock=4194304\nsegment=16\nkey=0123456789abcdef\n", "its format is version 2"),
      ("mediafs fleet 10\nwhatever\n", "its format is version 10"), ("<html>", "mediafs did not write it"),
    ])
  func anotherFormat(_ format: String, _ words: String) throws {
    try withFakeStore { store in
      store.setObject("\(Self.prefix)/format", Array(format.utf8))
      store.setObject("\(Self.prefix)/u/0123456789abcdef0123456789abcdef", Array("of the other\n".utf8))
      let before = store.objects.mapValues(\.etag)
      try withFleet(store.endpoint, rate: nil) { fleet in
        let member = try fleet.mount()
        try fleet.readAll()
        #expect(eventually { (try? member.status().totals.complete) == Fleet.names.count })
        let said = try member.run(["status", member.mountpoint]).output
        #expect(said.contains("not used: ") && said.contains(words), "\(said)")
        #expect(fleet.origin.log.totals.bytesSent >= Fleet.listBytes)
        try member.end()
      }
      #expect(store.objects.mapValues(\.etag) == before, "something was written")
      #expect(store.seen.allSatisfy { ["GET", "HEAD"].contains($0.method) }, "\(store.seen.map(\.method))")
    }
  }

  @Test("What another version says of files counts as absent, and stays as it is")
  func anotherPointer() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        try fleet.mount()
        try fleet.readAll()
        fleet.waitUntilStored()
        let isSmall = { (name: String) in ["u", "l"].contains { name.contains("/mfs1/\($0)/") } }
        for (name, object) in store.objects where isSmall(name) {
          var words = String(decoding: object.body, as: UTF8.self)
          words.replace(" 1\n", with: " 2\n", maxReplacements: 1)
          store.setObject(name, Array(words.utf8))
        }
        let before = store.objects.filter { isSmall($0.key) }.mapValues(\.etag)
        #expect(before.count == 2 * Fleet.names.count)
        let requests = fleet.origin.log.totals.requests
        try fleet.readAll([try fleet.mountSharing()])
        #expect(fleet.origin.log.totals.requests > requests, "a pointer of another version was believed")
        fleet.waitUntilStored()
        #expect(store.objects.filter { isSmall($0.key) }.mapValues(\.etag) == before, "something was replaced")
      }
    }
  }

  @Test(
    "A file that changes at the origin: the fleet has the new version, also where the store refuses one write of that",
    arguments: [false, true])
  func changedAtTheOrigin(_ isRefused: Bool) throws {
    try withFakeStore { store in
      // Some stores delete without a look at the condition: that costs no lease.
      store.configure { $0.keepsDeleteConditions = false }
      try withFleet(store.endpoint, rate: nil) { fleet in
        let (name, path) = (Fleet.names[0], "/" + Fleet.names[0])
        let first = try fleet.mountSharing(["--continue", "never"])
        let handle = open("\(first.mountpoint)/\(name)", O_RDONLY | O_CLOEXEC)
        defer { close(handle) }
        try #require(handle >= 0)
        /// What the first machine's handle reads there; nil: the read fails.
        func read(at start: Int64, _ count: Int) -> [UInt8]? {
          var bytes = [UInt8](repeating: 0, count: count)
          let come = pread(handle, &bytes, count, Int(start))
          return come < 0 ? nil : Array(bytes.prefix(come))
        }
        let old = Pattern.bytes(name: path, generation: 1, offset: 0, count: Int(Fleet.size))
        #expect(read(at: 0, 1 << 20) == Array(old.prefix(1 << 20)))
        /// The versions that the fleet's pointers name.
        let told = {
          store.objects.filter { $0.key.contains("/mfs1/u/") }.mapValues { object in
            String(decoding: object.body, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("generation=") }
          }
        }
        let said = try first.run(["status", first.mountpoint]).output
        #expect(said.contains("programs read ") && said.contains(" from origins"), "\(said)")
        fleet.expect(eventually(timeout: 60) { told().count == 1 }, "the first version is not told")
        let before = told()
        fleet.origin.nextGeneration(path)
        let refused = Lock(!isRefused)
        store.configure {
          $0.fault = { request in
            guard request.method == "PUT", request.target.contains("/mfs1/u/") else { return nil }
            return refused.withLock { (done: inout Bool) -> FakeStore.Fault? in
              defer { done = true }
              return done ? nil : .refuse(412, code: "PreconditionFailed")
            }
          }
        }
        let second = try fleet.mountSharing(["--fresh", "0"])
        let new = Pattern.bytes(name: path, generation: 2, offset: 0, count: Int(Fleet.size))
        try fleet.folder.write(new, to: "second")
        // The handle that finds it out fails, as on one machine.
        let isSame = {
          (try? second.runProgram(["cmp", "\(second.mountpoint)/\(name)", fleet.folder.file("second")]))?.succeeded
            ?? false
        }
        fleet.expect(eventually(timeout: 60, interval: 0.2, isSame), "the second machine has not got the new version")
        fleet.expect(eventually { told() != before }, "the fleet has the old version")
        #expect(refused.withLock { $0 })
        // Who has the old version open has nothing of the new one.
        for start in stride(from: 0, to: Fleet.size, by: 4 << 20) {
          if let bytes = read(at: start, 4096) { #expect(bytes.elementsEqual(old[Int(start)...].prefix(4096))) }
        }
      }
    }
  }

  @Test("Other bytes under one ETag: no node mixes them, and the one that finds it says so")
  func oneTagForTwo() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let (name, path) = (Fleet.names[0], "/" + Fleet.names[0])
        fleet.origin.change(path) { $0.tag = .fixed("\"the-same\"") }
        // The first node's blocks are on their way until another has stored its own.
        let isOther = Lock(false)
        let isStored: @Sendable () -> Bool = { store.objects.keys.count { $0.contains("/mfs1/b/") } >= 6 }
        store.configure {
          $0.fault = { request in
            let isBlock = request.method == "PUT" && request.target.contains("/mfs1/b/")
            return isBlock && !isOther.withLock { $0 } ? .once(isStored) : nil
          }
        }
        let first = try fleet.mountSharing()
        try fleet.readAll([first], [name])
        let isUnderWay = eventually(timeout: 60) {
          store.seen.contains { $0.method == "PUT" && $0.target.contains("/mfs1/b/") }
        }
        fleet.expect(isUnderWay, "nothing is stored")
        isOther.withLock { $0 = true }
        fleet.origin.nextGeneration(path)
        let others = [try fleet.mountSharing(), try fleet.mountSharing()]
        try fleet.folder.write(
          Pattern.bytes(name: path, generation: 2, offset: 0, count: Int(Fleet.size)), to: "second")
        try others[0].isSame("\(others[0].mountpoint)/\(name)", fleet.folder.file("second"))
        let told = "the origin of a shared file sends other bytes under the same tag"
        fleet.expect(first.process?.waitForOutput(told, timeout: 100) == true, "nobody noticed it")
        // What each has stays as it was: all of one.
        try fleet.readAll([first], [name])
        for member in others { try member.isSame("\(member.mountpoint)/\(name)", fleet.folder.file("second")) }
      }
    }
  }
}

extension MountedProgram {
  /// Two files have the same bytes.
  func isSame(_ file: String, _ other: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let end = try runProgram(["cmp", file, other])
    #expect(end.succeeded, "\(end)", sourceLocation: sourceLocation)
  }
}
