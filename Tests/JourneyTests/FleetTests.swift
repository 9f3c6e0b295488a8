import Base
import Glibc
import TestSupport
import Testing

/// Several mounts of one machine that share through a real object store.
@Suite("Mounts that share", .serialized) struct FleetTests {
  private static let size: Int64 = (20 << 20) + 11
  private static let names = (0..<3).map { "f\($0).bin" }
  private static var listBytes: Int64 { size * Int64(names.count) }
  private static func part(_ bytes: Int64) -> Double { Double(bytes) / Double(listBytes) }

  /// A store, an origin and the mounts, each with a folder of its own.
  private final class Fleet {
    let folder: TemporaryFolder
    let origin: Origin
    private let endpoint: String
    private let key: String
    private(set) var members: [MountedProgram] = []
    private var folders: [TemporaryFolder] = []

    init(_ origin: Origin, endpoint: String, key: String = "a key of the fleet, for tests") throws {
      folder = try TemporaryFolder(open: true)
      (self.origin, self.endpoint, self.key) = (origin, endpoint, key)
      for name in FleetTests.names {
        origin.add("/\(name)", size: FleetTests.size)
        try folder.write(Pattern.bytes(name: "/\(name)", offset: 0, count: Int(FleetTests.size)), to: name)
      }
    }

    /// The keys of the store and of the fleet.
    var environment: [String: String] {
      [
        "AWS_ACCESS_KEY_ID": StoreKeys.key, "AWS_SECRET_ACCESS_KEY": StoreKeys.secret, "MEDIAFS_FLEET_KEY": key,
      ]
    }

    /// Mounts one more, in the foreground.
    @discardableResult
    func mount(_ options: String..., key: String? = nil) throws -> MountedProgram {
      let folder = try TemporaryFolder(open: true)
      folders.append(folder)
      var environment = environment
      if let key { environment["MEDIAFS_FLEET_KEY"] = key }
      let member = MountedProgram(in: folder, program: try Programs.path("mediafs"), environment: environment)
      try folder.write(FleetTests.names.map { origin.url("/\($0)") + "\n" }.joined(), to: "urls.txt")
      members.append(member)
      let words = ["--share", "s3://\(StoreKeys.bucket)/some/prefix", "--share-endpoint", endpoint] + options
      try #require(try member.start(words), "\(member.process?.standardErrorSoFar ?? "")")
      return member
    }

    /// All members read all files at once, and compare each.
    func readAll(_ readers: [MountedProgram]? = nil, while body: () throws -> Void = {}) throws {
      let readers = try (readers ?? members).map { member in
        let names = FleetTests.names.joined(separator: " ")
        let script = "for name in \(names); do cmp \"$1/$name\" \"$2/$name\"; done"
        return try BackgroundProcess(["bash", "-euc", script, "bash", member.mountpoint, folder.path])
      }
      try body()
      for (index, reader) in readers.enumerated() {
        let end = try #require(reader.wait(timeout: 200), "the reader \(index) does not end")
        #expect(end.status == 0, "the reader \(index): \(end.output)\(end.errors)")
      }
    }

    func end() throws {
      for member in members {
        do { try member.end() } catch { Issue.record("\(error)") }
        member.endByForce()
      }
      for folder in folders { try folder.remove() }
      try folder.remove()
    }

    var logs: String { members.map { $0.process?.standardErrorSoFar ?? "" }.joined(separator: "\n---\n") }
  }

  private func withFleet(_ endpoint: String, rate: Double? = 40e6, _ body: (Fleet) throws -> Void) throws {
    var settings = OriginSettings()
    (settings.lineRate, settings.latency) = (rate, 0.01)
    try withWatchdog(280, "a fleet") {
      try withOrigin(settings) { origin in
        let fleet = try Fleet(origin, endpoint: endpoint)
        do { try body(fleet) } catch {
          print("the logs of the fleet:\n\(fleet.logs.suffix(8000))")
          do { try fleet.end() } catch { print("\(error)") }  // the body's error is the one to tell
          throw error
        }
        try fleet.end()
      }
    }
  }

  @Test(
    "Three nodes read all at once: each byte comes once. A fourth reads all without the origin",
    .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed)))
  func sharesThroughSeaweed() throws {
    try withSeaweed { store in
      try withFleet(store.endpoint()) { fleet in
        for _ in 0..<3 { try fleet.mount() }
        try fleet.readAll()
        let sent = fleet.origin.log.totals.bytesSent
        // Beside other tests, a node now and then takes a busy one for dead: a block of 4 MiB is 7 % of this list.
        #expect(sent <= Self.listBytes * 5 / 4, "the origin sent \(Self.part(sent)) of the list")
        Figures.add("bytes that a fleet's origin sent", Int(sent))
        // What goes up behind the readers is there soon.
        sleep(seconds: 3)
        // What is in use is marked, so that nobody removes it.
        let bucket = "s3://\(StoreKeys.bucket)/some/prefix"
        let care = try Command.run(
          [
            try Programs.path("mediafs"), "share", "collect", "--dry-run", "--days", "1", bucket, "--share-endpoint",
            store.endpoint(),
          ], environment: fleet.environment)
        #expect(care.succeeded && care.output.contains("\(Self.names.count) noted as used in 1 day"), "\(care)")
        fleet.origin.stop()
        let late = try fleet.mount("--timeout", "10")
        let list = try late.runProgram(["stat", "-c", "%s"] + Self.names.map { "\(late.mountpoint)/\($0)" })
        #expect(list.output == String(repeating: "\(Self.size)\n", count: Self.names.count), "\(list)")
        try fleet.readAll([late])
      }
    }
  }

  @Test(
    "A node that is killed while it fetches for all is helped, and taken over",
    .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed)))
  func survivesKills() throws {
    try withSeaweed { store in
      try withFleet(store.endpoint(), rate: 12e6) { fleet in
        for _ in 0..<3 { try fleet.mount() }
        try fleet.readAll {
          for member in fleet.members {
            sleep(seconds: 1.2)
            member.killServer()
          }
        }
        let sent = fleet.origin.log.totals.bytesSent
        // Of three readers each would have it once without sharing.
        #expect(sent <= Self.listBytes * 3 / 2, "the origin sent \(Self.part(sent)) of the list")
      }
    }
  }

  @Test(
    "A store that hangs, and one that dies, take no byte from any reader", arguments: [SIGSTOP, SIGKILL])
  func goesOnAlone(_ signal: Int32) throws {
    guard StorePrograms.weed != nil else { return }
    try withSeaweed { store in
      try withFleet(store.endpoint(), rate: 20e6) { fleet in
        for _ in 0..<2 {
          let member = try fleet.mount()
          // A store that has just begun takes its time over the first objects.
          #expect(member.process?.waitForOutput("sharing through", timeout: 60) == true)
        }
        try fleet.readAll {
          sleep(seconds: 1)
          store.signal(.gateway1, signal)
        }
        for member in fleet.members {
          let isNoticed = member.process?.standardErrorSoFar.contains("the fleet's store does not answer") == true
          #expect(isNoticed, "\(fleet.logs.suffix(4000))")
        }
        store.signal(.gateway1, SIGCONT)
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
        // Without leases, and beside other tests, nodes that begin together fetch some blocks twice.
        #expect(sent <= Self.listBytes * 12 / 5, "the origin sent \(Self.part(sent)) of the list")
        #expect(fleet.logs.contains("does not keep the conditions of writes"))
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
        var writes = 0
        let isQuiet = eventually(timeout: 30, interval: 1.5) {
          let former = writes
          writes = store.seen.count { $0.method != "GET" && $0.method != "HEAD" }
          return writes > 0 && writes == former
        }
        #expect(isQuiet && store.objects.keys.contains { $0.contains("/mfs1/b/") })
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
        let look = "for name in \(Self.names.joined(separator: " ")); do head -c 5000 $name; tail -c 5000 $name; done"
        func looked(_ place: String) throws -> String {
          try Command.succeed(["bash", "-euc", "cd \"$1\"; { \(look); } | sha256sum", "bash", place])
        }
        let expected = try looked(fleet.folder.path)
        #expect(try looked(fleet.mount().mountpoint) == expected)
        let sets = { store.objects.keys.count { $0.contains("/mfs1/p/") } }
        #expect(eventually(timeout: 60) { sets() == Self.names.count }, "\(store.objects.keys)")
        fleet.origin.stop()
        let second = try fleet.mount("--timeout", "10")
        #expect(try looked(second.mountpoint) == expected, "\(fleet.logs.suffix(4000))")
        // A set of other bytes counts as none. The list is read, so that the origin is asked, which is gone.
        for (name, object) in store.objects where name.contains("/mfs1/p/") {
          store.setObject(name, object.body.dropLast() + [object.body.last! ^ 1], meta: object.meta)
        }
        let third = try fleet.mount("--timeout", "5")
        let end = try third.runProgram(["head", "-c", "5000", "\(third.mountpoint)/\(Self.names[0])"])
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
        let blocks = Self.names.count * Int((Self.size + (4 << 20) - 1) / (4 << 20))
        let isThere = { store.objects.keys.count { $0.contains("/mfs1/b/") } }
        #expect(eventually(timeout: 20) { isThere() == blocks }, "\(isThere()) of \(blocks)")
        var rotten: [String] = []
        for (name, object) in store.objects where name.contains("/mfs1/b/") && name.hasSuffix("1") {
          var body = object.body
          body[body.count / 2] ^= 1
          store.setObject(name, body, meta: object.meta)
          rotten.append(name)
        }
        #expect(rotten.count == Self.names.count)
        let second = try fleet.mount()
        try fleet.readAll([second])
        #expect(second.process?.standardErrorSoFar.contains("is not what was stored") == true)
        let isMended = eventually(timeout: 20) {
          let objects = store.objects
          return rotten.allSatisfy { name in objects[name].map { !$0.etag.contains("set") } ?? false }
        }
        #expect(isMended, "\(rotten.map { store.objects[$0]?.etag ?? "none" })")
      }
    }
  }
}
