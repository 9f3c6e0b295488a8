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
        try fleet.readAll([try fleet.mountSharing(["--timeout", "10"])], Array(Fleet.names.dropLast()))
      }
    }
  }
}
