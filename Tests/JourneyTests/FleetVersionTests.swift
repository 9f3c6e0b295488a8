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
