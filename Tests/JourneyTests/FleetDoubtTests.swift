import Base
import TestSupport
import Testing

/// A store whose conditions of writes could not be found out at first.
@Suite("Mounts that share through a store in doubt", .serialized) struct FleetDoubtTests {
  @Test("A store that fails while it is probed gives no leases until a later probe shows that it keeps conditions")
  func probesAgain() throws {
    try withFakeStore { good in
      try withFakeStore { bad in
        bad.configure { $0.keepsConditions = false }
        for store in [good, bad] { Self.fail(store) }
        try withFleet(good.endpoint, rate: nil) { first in
          try withFleet(bad.endpoint, rate: nil) { second in
            for (fleet, store) in [(first, good), (second, bad)] {
              let member = try fleet.mount()
              fleet.expect(says(member, "did not show whether it keeps"), "a failed probe is not told")
              store.configure { $0.fault = nil }
              let told = try member.run(["status", member.mountpoint]).output
              #expect(told.contains("best effort, until it shows"), "\(told)")
              try fleet.readAll([member], [Fleet.names[0]])
              #expect(Self.leases(of: store) == 0, "leases of a store in doubt")
            }
            for (fleet, store, words) in [
              (first, good, "nodes share with leases from now on"), (second, bad, "does not keep the conditions"),
            ] {
              fleet.expect(says(fleet.members[0], words), "no later probe")
              try fleet.readAll([fleet.members[0]], [Fleet.names[1]])
              #expect((Self.leases(of: store) > 0) == (store === good), "\(Self.leases(of: store)) writes of leases")
            }
          }
        }
      }
    }
  }

  /// As a busy gateway does.
  private static func fail(_ store: FakeStore) {
    store.configure {
      $0.fault = { request in
        let isProbe = request.method == "PUT" && request.target.contains("/mfs1/probe/")
        return isProbe ? .refuse(500, code: "InternalError") : nil
      }
    }
  }

  private static func leases(of store: FakeStore) -> Int {
    store.seen.count { $0.method == "PUT" && $0.target.contains("/mfs1/l/") }
  }

  private func says(_ member: MountedProgram, _ words: String) -> Bool {
    member.process?.waitForOutput(words, timeout: 100) == true
  }
}
