import Base
import Glibc
import TestSupport
import Testing

/// What a mount owes the fleet's store outlives its server.
@Suite("Uploads over restarts", .serialized) struct FleetRestartTests {
  @Test(
    "What the store did not take before a server ended goes up from the next one, though nobody opens it",
    arguments: [true, false])
  func goesUpAfterARestart(isKilled: Bool) throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let isWell = Lock(false)
        store.configure { manner in
          manner.fault = { request in
            let isStored = request.target.contains("/mfs1/b/") || request.target.contains("/mfs1/u/")
            return request.method == "PUT" && isStored && !isWell.withLock { $0 }
              ? .refuse(500, code: "InternalError") : nil
          }
        }
        let member = try fleet.mountSharing(["--continue", "never"])
        try fleet.readAll([member], Array(Fleet.names.dropLast()))
        // Of the last one only the first two blocks and a part of the third.
        let compare = "cmp -n 9000000 \"$1\" \"$2\""
        let name = Fleet.names.last!
        try Command.succeed(
          ["bash", "-euc", compare, "bash", "\(member.mountpoint)/\(name)", fleet.folder.file(name)])
        let count = { (kind: String) in store.objects.keys.count { $0.contains("/mfs1/\(kind)/") } }
        fleet.expect(count("b") == 0 && count("u") == 0, "the store was not at fault")
        if isKilled { member.kill() } else { try member.end() }

        let marks = count("s")
        isWell.withLock { $0 = true }
        try fleet.mountAgain(member, through: store.endpoint)
        let blocks = Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
        // A killed server may not have noted yet what it has of a file in part.
        let (part, files) = isKilled ? (0, Fleet.names.count - 1) : (2, Fleet.names.count)
        let isThere = eventually(timeout: 120, interval: 0.5) {
          count("b") >= (Fleet.names.count - 1) * blocks + part && count("u") >= files
        }
        fleet.expect(isThere, "\(count("b")) blocks, \(count("u")) pointers")
        #expect(count("s") == marks, "what nobody opened is marked as used")
        fleet.origin.stop()
        try fleet.readAll([try fleet.mountSharing(["--timeout", "60"])], Array(Fleet.names.dropLast()))
      }
    }
  }

  @Test("An object of another program in a block's place holds up no other block", arguments: [true, false])
  func foreignObject(isRemovable: Bool) throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        fleet.more = [("small.bin", 100_000)]
        let (foreign, isWell) = (Lock("none"), Lock(false))
        store.configure { manner in
          manner.fault = { request in
            guard request.target.contains("/mfs1/b/") else { return nil }
            if request.method == "DELETE" { return isRemovable ? nil : .refuse(403, code: "AccessDenied") }
            let isOther = !request.target.contains(foreign.withLock { $0 })
            return request.method == "PUT" && isOther && !isWell.withLock { $0 }
              ? .refuse(500, code: "InternalError") : nil
          }
        }
        let member = try fleet.mountSharing(["--continue", "never"])
        // Its version is the first one that the mount knows: of what the store lacks it comes first.
        #expect(try member.runProgram(["stat", "\(member.mountpoint)/small.bin"]).succeeded)
        let head = { store.objects.keys.first { $0.contains("/mfs1/g/") } }
        #expect(eventually(timeout: 60) { head() != nil }, "\(store.objects.keys)")
        let name = try #require(head()).replacing("/mfs1/g/", with: "/mfs1/b/") + "/00000000"
        foreign.withLock { $0 = String(name.suffix(41)) }
        store.setObject(name, Array("no block".utf8))
        try fleet.readAll([member], ["small.bin"] + Fleet.names)
        isWell.withLock { $0 = true }
        let blocks = Fleet.names.count * Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
        let whole = { store.objects.count { $0.key.contains("/mfs1/b/") && !$0.value.meta.isEmpty } }
        let expected = isRemovable ? blocks + 1 : blocks
        fleet.expect(
          eventually(timeout: 60, interval: 0.5) { whole() == expected }, "\(whole()) of \(expected) are stored")
        fleet.waitUntilStored()
      }
    }
  }
}
