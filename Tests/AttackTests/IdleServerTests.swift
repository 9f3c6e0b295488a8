import Glibc
import TestSupport
import Testing

/// A server that nobody asked has answered nothing, and is no worse for it.
@Suite("A server that nobody asks")
struct IdleServerTests {
  /// A server that is killed as soon as it is ready; the eighth one ends in order.
  private static let killed = """
    if before == 7: os._exit(0)
    die()
    """

  @Test func isFollowedByTheNextHoweverOftenItIsKilled() throws {
    try withTemporaryFolder { folder in
      let helper = try FakeServer.start(FakeServer.serving + Self.killed, in: folder)
      let result = try #require(helper.wait(timeout: 40), "\(helper.standardErrorSoFar)")
      #expect(result.status == 0 && result.errors.contains("server 7 is ready"), "\(result.errors)")
      #expect(!result.errors.contains("answered nothing"), "\(result.errors)")
    }
  }

  /// The helper itself kills such a server: that excuses nothing.
  @Test func isRefusedAfterFiveThatBreakTheProtocol() throws {
    try withTemporaryFolder { folder in
      let helper = try FakeServer.start(
        FakeServer.serving + "link.send(struct.pack('II', 99, 0))\nsignal.pause()\n", in: folder)
      try waitUntil(timeout: 40, "the helper to refuse: \(helper.standardErrorSoFar)") {
        helper.standardErrorSoFar.contains("5 in a row answered nothing")
      }
      helper.signal(SIGTERM)
      let result = try #require(helper.wait(timeout: 40), "\(helper.standardErrorSoFar)")
      #expect(result.status == 0 && !result.errors.contains("server 5 is ready"), "\(result.errors)")
    }
  }
}
