import Base
import Glibc
import TestSupport
import Testing

/// An origin and mounts of its list that share through a store, each with a folder of its own.
final class Fleet {
  static let size: Int64 = (20 << 20) + 11
  static let names = (0..<3).map { "f\($0).bin" }
  static var listBytes: Int64 { size * Int64(names.count) }
  static func part(_ bytes: Int64) -> Double { Double(bytes) / Double(listBytes) }

  let folder: TemporaryFolder
  let origin: Origin
  let endpoint: String
  private let key: String
  /// What stands behind each URL of the list.
  var query = ""
  /// What the list says below a file's URL.
  var facts: [String: String] = [:]
  /// What else the list has, with its size.
  var more: [(name: String, size: Int64)] = []
  private(set) var members: [MountedProgram] = []
  private var folders: [TemporaryFolder] = []
  /// Other names for the list than the usual ones.
  var listed = Fleet.names

  init(_ origin: Origin, endpoint: String, key: String = "a key of the fleet, for tests") throws {
    folder = try TemporaryFolder(open: true)
    (self.origin, self.endpoint, self.key) = (origin, endpoint, key)
    for name in Fleet.names {
      origin.add("/\(name)", size: Fleet.size)
      try folder.write(Pattern.bytes(name: "/\(name)", offset: 0, count: Int(Fleet.size)), to: name)
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
  func mount(_ options: String..., key: String? = nil) throws -> MountedProgram { try mount(options, key: key) }

  /// Mounts one more, in the foreground: with another key of the fleet, another way to the store, another list.
  @discardableResult
  func mount(
    _ options: [String], key: String? = nil, through endpoint: String? = nil, list: String? = nil
  ) throws -> MountedProgram {
    let folder = try TemporaryFolder(open: true)
    folders.append(folder)
    var environment = environment
    if let key { environment["MEDIAFS_FLEET_KEY"] = key }
    let member = MountedProgram(in: folder, program: try Programs.path("mediafs"), environment: environment)
    for (name, size) in more {
      origin.add("/\(name)", size: size)
      try self.folder.write(Pattern.bytes(name: "/\(name)", offset: 0, count: Int(size)), to: name)
    }
    let names = (more.map(\.name) + listed).map { origin.url("/\($0)\(query)") + "\n" + (facts[$0] ?? "") }
    try folder.write(list ?? names.joined(), to: "urls.txt")
    members.append(member)
    try mountAgain(member, through: endpoint ?? self.endpoint, options)
    return member
  }

  /// Mounts one more, and waits until it shares: a store that has just begun takes its time over the first objects,
  /// and until the bucket has answered a mount reads from the origin alone.
  @discardableResult
  func mountSharing(_ options: [String] = [], through endpoint: String? = nil) throws -> MountedProgram {
    let member = try mount(options, through: endpoint)
    expect(member.process?.waitForOutput("sharing through", timeout: 120) == true, "a member does not share")
    return member
  }

  /// Mounts a member once more, which shares through another store.
  func mountAgain(_ member: MountedProgram, through endpoint: String, _ options: [String] = []) throws {
    let words = ["--share", "s3://\(StoreKeys.bucket)/some/prefix", "--share-endpoint", endpoint] + options
    try #require(try member.start(words), "\(story)")
  }

  /// All members read all files at once, or those, and compare each. A read that has not ended after that many seconds
  /// hangs.
  func readAll(
    _ readers: [MountedProgram]? = nil, _ names: [String] = Fleet.names, timeout: Double = 500,
    while body: () throws -> Void = {}
  ) throws {
    let readers = try (readers ?? members).map { member in
      let names = names.joined(separator: " ")
      let script = "for name in \(names); do cmp \"$1/$name\" \"$2/$name\"; done"
      return try BackgroundProcess(["bash", "-euc", script, "bash", member.mountpoint, folder.path])
    }
    try body()
    for (index, reader) in readers.enumerated() {
      let end = try #require(reader.wait(timeout: timeout), "the reader \(index) does not end\n\(story)")
      expect(end.status == 0, "the reader \(index): \(end.output)\(end.errors)")
    }
  }

  /// Waits until each member has brought all that it has to the store: twice, as what is told is a moment old.
  func waitUntilStored() {
    let names = ["mediafs_share_waiting_bytes 0", "mediafs_share_waiting_pointers 0", "mediafs_share_leases 0"]
    var quiet = 0
    let isStored = eventually(timeout: 500, interval: 1) {
      let isNow = members.allSatisfy { member in
        guard let told = try? member.run(["metrics", member.mountpoint]) else { return false }  // asked again
        let lines = told.output.split(separator: "\n")
        return names.allSatisfy { name in lines.contains { $0 == name } }
      }
      quiet = isNow ? quiet + 1 : 0
      return quiet == 2
    }
    expect(isStored, "not all of it was stored")
  }

  /// Records what is not so, with all that the members tell.
  func expect(_ isSo: Bool, _ message: String) {
    if !isSo { Issue.record("\(message)\n\(story)") }
  }

  /// What each member says of itself, and the end of its log.
  var story: String {
    members.enumerated().map { number, member in
      var status: String
      do { status = try member.run(["status", member.mountpoint], timeout: 20).output } catch { status = "\(error)" }
      let log = member.process?.standardErrorSoFar ?? ""
      return "--- member \(number):\n\(status)\n\(log.suffix(3000))"
    }.joined(separator: "\n")
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

/// Lends a fleet with an origin of its own, and ends both.
func withFleet(_ endpoint: String, rate: Double? = 40e6, _ body: (Fleet) throws -> Void) throws {
  var settings = OriginSettings()
  (settings.lineRate, settings.latency) = (rate, 0.01)
  try withWatchdog(900, "a fleet") {
    try withOrigin(settings) { origin in
      let fleet = try Fleet(origin, endpoint: endpoint)
      do { try body(fleet) } catch {
        print("the fleet:\n\(fleet.story)")
        do { try fleet.end() } catch { print("\(error)") }  // the body's error is the one to tell
        throw error
      }
      try fleet.end()
    }
  }
}
