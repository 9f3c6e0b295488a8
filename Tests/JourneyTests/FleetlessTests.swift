import Base
import Glibc
import TestSupport
import Testing

/// Who shares with nobody, and who cannot, asks as if there were no fleets: to the request.
@Suite("Mounts that share with nobody", .serialized) struct FleetlessTests {
  /// One thing after the other, of one file: how much of a second one is asked for first depends on how fast the
  /// first answer came.
  private static let steps = [
    "stat -c %s b.bin", "head -c 4096 b.bin", "tail -c 4096 b.bin", "dd if=b.bin bs=4096 skip=300 count=1 status=none",
  ]
  /// What the programs before fleets asked the origin for (at commit 56491af). The last one is what a read asks for
  /// around itself, where the program does not close the file at once.
  private static let expected =
    [
      "GET /b.bin?token=1 Range: bytes=0-262143",
      "GET /b.bin?token=1 Range: bytes=3141632-3145727; If-Range: \"bfcba91153602333-1\"",
      "GET /b.bin?token=1 Range: bytes=1228800-1490943; If-Range: \"bfcba91153602333-1\"",
      "GET /b.bin?token=1 Range: bytes=1212416-1228799; If-Range: \"bfcba91153602333-1\"",
    ]
    .map { line in
      line.replacing("=1 ", with: "=1 Accept: */*; Accept-Encoding: identity; ") + "; X-Own: 1; User-Agent: mediafs"
    }

  @Test("The origin is asked the same without --share, and with it when the store is gone", arguments: [false, true])
  func asksAsBefore(shares: Bool) throws {
    var settings = OriginSettings()
    settings.latency = 0.005
    try withOrigin(settings) { origin in
      origin.add("/b.bin", size: 3 << 20)
      let fleet = try Fleet(origin, endpoint: "http://127.0.0.1:\(freePort())")
      try withTemporaryFolder(open: true) { folder in
        let member = MountedProgram(
          in: folder, program: builtProduct("mediafs"), environment: fleet.environment)
        try folder.write(origin.url("/b.bin?token=1") + "\n", to: "urls.txt")
        let options = ["--continue", "never", "--max-connections", "1", "--header", "X-Own: 1"]
        if shares {
          try fleet.mountAgain(member, through: fleet.endpoint, options)
        } else {
          try #require(try member.start(options))
        }
        for step in Self.steps {
          let end = try member.runProgram(["bash", "-euc", "cd \"$1\"; \(step) >/dev/null", "bash", member.mountpoint])
          #expect(end.succeeded, "\(end)")
          Self.waitForQuiet(of: origin)
        }
        try member.end()
      }
      try fleet.end()
      let asked = origin.log.entries.map { entry in
        let fields = entry.request.headers.filter { $0.name != "Host" }.map { "\($0.name): \($0.value)" }
        return "\(entry.request.method) \(entry.request.target) \(fields.joined(separator: "; "))"
      }
      let expected = asked.count < Self.expected.count ? Self.expected.dropLast() : Self.expected[...]
      #expect(asked.joined(separator: "\n") == expected.joined(separator: "\n"))
    }
  }

  /// Waits until what a read asked for behind itself has come too.
  private static func waitForQuiet(of origin: Origin) {
    var (known, since) = (origin.log.totals.requests, Instant.now)
    while Instant.now.seconds(since: since) < 0.3 {
      sleep(seconds: 0.02)
      let totals = origin.log.totals
      if totals.requests != known || totals.openRequests > 0 { (known, since) = (totals.requests, .now) }
    }
  }
}
