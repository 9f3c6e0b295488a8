import Base
import Glibc
import TestSupport
import Testing

/// A store that misbehaves costs readers time, and never a byte; and who asks is told.
@Suite("Mounts that share through a bad store", .serialized) struct FleetFaultTests {
  struct Case: CustomTestStringConvertible, Sendable {
    let name: String
    /// What `status` says while it lasts; empty: nothing of it.
    let words: String
    /// What the log says.
    var log = ""
    /// Whether it concerns a request to the store.
    var concerns: @Sendable (SignatureJudge.Seen) -> Bool = { _ in true }
    let fault: FakeStore.Fault
    var testDescription: String { name }
  }

  private static func isBlock(_ method: String) -> @Sendable (SignatureJudge.Seen) -> Bool {
    { $0.method == method && $0.target.contains("/mfs1/b/") }
  }

  private static let away = "files come from their origins"

  /// A node that reads what another one stored, from when the store misbehaves.
  @Test(arguments: [
    Case(
      name: "503", words: "\(away): the store is busy (HTTP 503, ServiceUnavailable",
      fault: .refuse(503, code: "ServiceUnavailable")),
    Case(
      name: "SlowDown", words: "\(away): the store is busy (HTTP 503, SlowDown",
      fault: .refuse(503, code: "SlowDown", fields: ["Retry-After: 1"])),
    Case(
      name: "500", words: "\(away): the store failed (HTTP 500, InternalError",
      fault: .refuse(500, code: "InternalError")),
    Case(
      name: "403", words: "check the rights of the bucket (HTTP 403, AccessDenied", log: "AccessDenied",
      fault: .refuse(403, code: "AccessDenied")),
    Case(name: "silence", words: "it has not answered for", log: "does not answer", fault: .hang),
    Case(name: "cut bodies", words: "", concerns: isBlock("GET"), fault: .cut(70_000)),
    Case(name: "rotten blocks", words: "", log: "is not what was stored", concerns: isBlock("GET"), fault: .rot),
  ])
  func readersGetTheirBytes(_ case: Case) throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let first = try fleet.mount()
        try fleet.readAll([first])
        try waitForBlocks(of: store)
        let second = try fleet.mount()
        try #require(second.process?.waitForOutput("sharing through", timeout: 60) == true)
        try fleet.readAll([second], [Fleet.names[0]])
        let before = fleet.origin.log.totals.bytesSent
        let (concerns, fault) = (`case`.concerns, `case`.fault)
        let met = Lock(0)
        store.configure {
          $0.fault = { request in
            guard concerns(request) else { return nil }
            met.withLock { $0 += 1 }
            return fault
          }
        }
        try fleet.readAll([second], Array(Fleet.names.dropFirst()))
        #expect(met.withLock { $0 } > 0, "the store did not misbehave")
        #expect(fleet.origin.log.totals.bytesSent > before, "nothing came from the origin")
        let told = try second.run(["status", second.mountpoint]).output
        #expect(told.contains(`case`.words) || `case`.words.isEmpty, "\(told)")
        let log = second.process?.standardErrorSoFar ?? ""
        #expect(log.contains(`case`.log), "\(log.suffix(4000))")

        // It comes back by itself: at the latest half a minute after a refusal.
        store.configure { $0.fault = nil }
        var said = ""
        let isBack = eventually(timeout: 60, interval: 0.5) {
          do { said = try second.run(["status", second.mountpoint]).output } catch { said = "\(error)" }
          return said.contains("some/prefix: up")
        }
        #expect(isBack, "\(said)")
        // What the others stored is not worse for it.
        try waitForBlocks(of: store)
        fleet.origin.stop()
        try fleet.readAll([try fleet.mount("--timeout", "60")])
        #expect(store.signatureFaults.isEmpty, "\(store.signatureFaults)")
      }
    }
  }

  @Test("A store that is silent, and then refuses, is told so")
  func otherReason() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let member = try fleet.mountSharing()
        store.configure { $0.fault = { _ in .hang } }
        try fleet.readAll()
        let isSilent = member.process?.waitForOutput("the fleet's store does not answer", timeout: 60)
        fleet.expect(isSilent == true, "its silence is not told")
        let words = (member.process?.standardErrorSoFar ?? "").ranges(of: "the fleet's store does not answer").count
        fleet.expect(words == 1, "its silence is told \(words) times")
        store.configure { $0.fault = { _ in .refuse(403, code: "AccessDenied") } }
        let isTold = member.process?.waitForOutput("the fleet's store is still not used", timeout: 60)
        fleet.expect(isTold == true, "the refusal is not told")
        let told = try member.run(["status", member.mountpoint]).output
        #expect(told.contains("AccessDenied") && told.contains("not used for"), "\(told)")
        // One that mounts now has no answer but that.
        let other = try fleet.mount()
        #expect(other.process?.waitForOutput("cannot be shared through yet", timeout: 60) == true)
        let said = try other.run(["status", other.mountpoint]).output
        #expect(said.contains("AccessDenied") && said.contains("files come from their origins"), "\(said)")
      }
    }
  }

  @Test("A store whose blocks trickle: what a reader waits for comes from the origin")
  func tricklingBlocks() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let first = try fleet.mount()
        try fleet.readAll([first])
        try waitForBlocks(of: store)
        let second = try fleet.mountSharing()
        func read(_ name: String, mebibyte: Int) throws {
          let part = "iflag=skip_bytes,count_bytes bs=128K skip=\((mebibyte << 20) + 5) count=600000 status=none"
          let script = "cmp <(dd if=\"$1/\(name)\" \(part)) <(dd if=\"$2/\(name)\" \(part))"
          let reader = try BackgroundProcess(["bash", "-euc", script, "bash", second.mountpoint, fleet.folder.path])
          let end = try #require(reader.wait(timeout: 120), "the reader waits for the store\n\(fleet.story)")
          #expect(end.status == 0, "\(end.output)\(end.errors)")
        }
        // A part of this block is here: the fleet's code believes that it has all of it.
        try read(Fleet.names[1], mebibyte: 8)
        #expect(fleet.origin.log.bytesSent(of: "/\(Fleet.names[1])") <= Fleet.size)
        let isBlock = Self.isBlock("GET")
        let met = Lock(0)
        store.configure {
          $0.fault = { request in
            guard isBlock(request) else { return nil }
            met.withLock { $0 += 1 }
            return .trickle(bytesPerSecond: 60_000)
          }
        }
        for (name, mebibyte) in [(Fleet.names[1], 10), (Fleet.names[2], 8)] {
          let (asked, sent) = (met.withLock { $0 }, fleet.origin.log.bytesSent(of: "/\(name)"))
          let shared = try sharedBytes(of: second)
          try read(name, mebibyte: mebibyte)
          #expect(met.withLock { $0 } > asked, "\(name): the store was not asked")
          #expect(fleet.origin.log.bytesSent(of: "/\(name)") > sent, "\(name): nothing came from the origin")
          #expect(try sharedBytes(of: second) > shared, "\(name): the store had no time")
        }
      }
    }
  }

  @Test("A far store whose answers take a little longer now and then is not given up")
  func farStore() throws {
    try withFakeStore { store in
      // An answer may take four round trips more than from a near store: 3.2 s here, of which a pointer's takes half.
      store.configure { $0.fault = { _ in .late(0.8) } }
      try withFleet(store.endpoint, rate: nil) { fleet in
        let member = try fleet.mountSharing()
        let isPointer: @Sendable (SignatureJudge.Seen) -> Bool = {
          $0.method == "GET" && $0.target.contains("/mfs1/u/")
        }
        // The answer to a list of nodes tells it the round trip, and then it asks for the next.
        let lists = { store.seen.count { $0.target.contains("list-type=2") } }
        try #require(eventually { lists() >= 2 }, "\(lists()) lists of nodes\n\(fleet.story)")
        store.configure { $0.fault = { .late(isPointer($0) ? 1.6 : 0.8) } }
        for name in Fleet.names {
          let end = try member.runProgram(["stat", "\(member.mountpoint)/\(name)"])
          #expect(end.status == 0, "\(end)")
        }
        #expect(store.seen.contains(where: isPointer))
        let log = member.process?.standardErrorSoFar ?? ""
        #expect(!log.contains("does not answer"), "\(log.suffix(4000))")
      }
    }
  }

  private func sharedBytes(of member: MountedProgram) throws -> Int {
    let lines = try member.run(["metrics", member.mountpoint]).output.split(separator: "\n")
    let line = lines.first { $0.hasPrefix("mediafs_shared_bytes_total ") }
    return try #require(line?.split(separator: " ").last.flatMap { Int($0) }, "\(lines)")
  }

  @Test("A store without room: its readers go on, and status says so")
  func fullStore() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let isUpload = Self.isBlock("PUT")
        store.configure { $0.fault = { isUpload($0) ? .refuse(507, code: "XMinioStorageFull") : nil } }
        let members = [try fleet.mount(), try fleet.mount()]
        try fleet.readAll(members)
        let said = try members.map { try $0.run(["status", $0.mountpoint]).output }
        #expect(said.contains { $0.contains("it has no room") }, "\(said)")
        #expect(!store.objects.keys.contains { $0.contains("/mfs1/b/") })
      }
    }
  }

  @Test("A clock that is off by days, the store's or the node's: nodes share", arguments: [-3, 40] as [Int64])
  func clocks(days: Int64) throws {
    try withFakeStore { store in
      store.configure { $0.clockOffset = days * 86_400 }
      try withFleet(store.endpoint, rate: nil) { fleet in
        let first = try fleet.mount()
        try fleet.readAll([first])
        try waitForBlocks(of: store)
        fleet.origin.stop()
        try fleet.readAll([try fleet.mount("--timeout", "60")])
      }
    }
  }

  @Test("Neither the keys nor what is secret in a list are shown, or reach the store")
  func secrets() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        fleet.query = "?X-Amz-Signature=plover-signature&token=plover-token"
        let members = [
          try fleet.mount("-v", "-v", "--header", "Cookie: plover-cookie"),
          try fleet.mount("-v", "-v", "--header", "Cookie: plover-cookie"),
        ]
        var shown = ""
        try fleet.readAll(members) {
          sleep(seconds: 0.5)
          shown += try Command.succeed(["ps", "-eww", "-o", "args"]).split(separator: "\n")
            // The header is on our own command line, where the user put it.
            .filter { !$0.contains("--header") }.joined(separator: "\n")
        }
        try waitForBlocks(of: store)
        // A store that refuses is spoken of.
        store.configure { $0.fault = { _ in .refuse(403, code: "AccessDenied") } }
        for member in members {
          let files = Fleet.names.map { "\(member.mountpoint)/\($0)" }
          shown += try member.runProgram(["getfattr", "-d", "-m", "-"] + files).output
          for words in [["status"], ["status", "--json"], ["metrics"]] {
            shown += try member.run(words + [member.mountpoint]).output
          }
        }
        shown += fleet.logs
        #expect(shown.contains("mediafs_share_up") && shown.contains("user.xdg.origin.url"))
        let stored = store.objects.map { name, object in
          "\(name) \(object.meta) " + (name.contains("/mfs1/b/") ? "" : String(decoding: object.body, as: UTF8.self))
        }
        let asked = store.seen.map { request in
          "\(request.method) \(request.target) "
            + request.headers.map { "\($0.name): \($0.value)" }.joined(separator: " ")
        }
        #expect(stored.count > 5 && asked.count > 20)
        let fleetKey = try #require(fleet.environment["MEDIAFS_FLEET_KEY"])
        for (place, texts) in [
          ("shown", shown.split(separator: "\n").map(String.init)), ("stored", stored), ("asked", asked),
        ] {
          for text in texts {
            for secret in ["plover", StoreKeys.secret, fleetKey] where text.contains(secret) {
              Issue.record("\(secret) is \(place): \(text.prefix(400))")
            }
          }
        }
        for text in stored + asked {
          #expect(
            !Fleet.names.contains { text.contains($0) } && !text.contains(fleet.origin.url("/")), "\(text.prefix(400))")
        }
      }
    }
  }

  /// Waits until all blocks of the list are stored.
  private func waitForBlocks(of store: FakeStore) throws {
    let blocks = Fleet.names.count * Int((Fleet.size + (4 << 20) - 1) / (4 << 20))
    let isThere = { store.objects.keys.count { $0.contains("/mfs1/b/") } }
    try #require(eventually(timeout: 500) { isThere() == blocks }, "\(isThere()) of \(blocks) blocks are stored")
  }
}
