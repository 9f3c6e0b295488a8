import Base
import Glibc
import TestSupport
import Testing

/// Programs that look at the beginning and the end of many files at once, as a media server's scanner does.
@Suite("Mounts that share, and are scanned", .serialized) struct FleetScanTests {
  /// `MEDIAFS_FLEET_SCAN=10000` scans as many files, and prints what that took.
  private static let count = getenv("MEDIAFS_FLEET_SCAN").flatMap { Int(String(cString: $0)) } ?? 300
  private static let size: Int64 = (5 << 20) + 11

  /// Reads parts of all files of a folder with 32 readers at once, and tells what it read.
  private static let scanner = """
    import concurrent.futures, hashlib, os, sys
    def look(name):
        file = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
        size = os.fstat(file).st_size
        digest = hashlib.sha256()
        for place in (0, size - 5000):
            digest.update(os.pread(file, 5000, place))
        os.close(file)
        return "%s %d %s" % (name, size, digest.hexdigest())
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for line in pool.map(look, sorted(os.listdir(sys.argv[1]))):
            print(line)
    """

  @Test("A second node lists and scans with 32 readers at once, without a request to the origin")
  func scansAtOnce() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        fleet.listed = (0..<Self.count).map { "scan\($0).bin" }
        for name in fleet.listed { fleet.origin.add("/\(name)", size: Self.size) }
        let (told, _) = try scan(fleet, store, "the first node")
        #expect(told.count == Self.count)
        let count = { (kind: String) in store.objects.keys.count { $0.contains("/mfs1/\(kind)/") } }
        let isStored = eventually(timeout: 300, interval: 0.5) {
          count("p") == Self.count && count("u") == Self.count
        }
        fleet.expect(isStored, "\(count("p")) probe sets and \(count("u")) pointers of \(Self.count)")
        let (seen, requests) = try scan(fleet, store, "the second node")
        #expect(seen == told, "the second node read something else")
        fleet.expect(requests == 0, "\(requests) requests to the origin")
      }
    }
  }

  /// Mounts one more, and scans it. Returns what was read, and how many requests the origin got.
  private func scan(_ fleet: Fleet, _ store: FakeStore, _ who: String) throws -> (told: [Substring], requests: Int) {
    let member = try fleet.mountSharing(["--continue", "never"])
    let before = (origin: Int(fleet.origin.log.totals.requests), store: store.seen.count)
    let begun = Instant.now
    let end = try member.runProgram(["python3", "-c", Self.scanner, member.mountpoint], timeout: 800)
    fleet.expect(end.succeeded, end.errors)
    let requests = Int(fleet.origin.log.totals.requests) - before.origin
    print(
      "\(who) scanned \(Self.count) files in \(Instant.now.seconds(since: begun)) s: \(requests) requests to the "
        + "origin, \(store.seen.count - before.store) to the store")
    return (end.output.split(separator: "\n"), requests)
  }
}
