import Base
import Glibc
import TestSupport
import Testing

/// The kernel holds whoever tells it to forget a name in a folder until the lookups there are answered.
@Suite("A notice that the kernel holds")
struct HeldNoticeTests {
  /// A server that leaves a lookup unanswered, in the buffer of its first thread, and sends a notice for its folder.
  /// Then it is killed. The next one answers nothing, and ends in order.
  private static let server = """
    if before > 0:
        print('the next one serves', file=sys.stderr, flush=True)
        time.sleep(0.2)
        os._exit(0)
    subprocess.Popen(['stat', mountpoint + '/missing'], stdout=2)
    while True:
        request = os.read(device, 1 << 20)
        if struct.unpack_from('I', request, 4)[0] == 1: break
        answer(request, -38)
    if NOTED: os.pwrite(session, request, 4096)
    notices.send(struct.pack('IiQQII', 16 + 16 + 6, 3, 0, 1, 5, 0) + b'other\\0')
    time.sleep(0.5)
    die()
    """

  /// `isNoted`: the session memory has the lookup. Otherwise nobody can answer it, and only the connection's end frees
  /// who sent the notice.
  @Test(arguments: [true, false])
  func neitherTheNextServerNorTheEndWaitsForIt(isNoted: Bool) throws {
    try withTemporaryFolder { folder in
      let text = Self.server.replacing("NOTED", with: isNoted ? "True" : "False")
      let helper = try FakeServer.start(FakeServer.serving + text, in: folder)
      let result = try #require(helper.wait(timeout: 60), "\(helper.standardErrorSoFar)")
      #expect(result.errors.contains("killed by signal 9") && result.errors.contains("the next one serves"))
      // stat(1) is no child of the helper, which need not wait for it.
      let isAnswered = eventually(timeout: 60) { helper.standardErrorSoFar.contains("missing") }
      #expect(isAnswered, "the lookup has no answer: \(helper.standardErrorSoFar)")
      #expect(result.status == 0, "\(result.errors)")
      #expect(!Mounts.isMounted(folder.file("mnt")))
    }
  }

  /// A server that has the kernel forget a name by a notice, after an empty packet, and ends once the kernel looks that
  /// name up again.
  private static let emptyPacket = """
    attributes = struct.pack('6Q10I', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0o100444, 1, 0, 0, 0, 4096, 0)
    def stat():
        lookups = 0
        program = subprocess.Popen(['stat', '-c', '%n', mountpoint + '/name'], stdout=2)
        while program.poll() is None:
            if not select.select([device], [], [], 0.02)[0]: continue
            request = os.read(device, 1 << 20)
            length, kind, _, node = struct.unpack_from('IIQQ', request)
            if kind == 1:
                lookups += 1
                answer(request, 0, struct.pack('QQQQII', 2, 0, 3600, 3600, 0, 0) + attributes)
            elif kind not in (2, 42):
                answer(request, -38)
        return lookups
    print('lookups:', stat(), stat(), file=sys.stderr, flush=True)
    notices.send(b'')
    time.sleep(0.2)
    notices.send(struct.pack('IiQQII', 16 + 16 + 5, 3, 0, 1, 4, 0) + b'name\\0')
    for _ in range(100):
        time.sleep(0.05)
        if stat() > 0: os._exit(0)
    os._exit(1)
    """

  @Test func anEmptyPacketIsNoEndOfTheNotices() throws {
    try withTemporaryFolder { folder in
      let helper = try FakeServer.start(FakeServer.serving + Self.emptyPacket, in: folder)
      defer { helper.signal(SIGTERM) }
      try waitUntil(timeout: 60, "the first server to end: \(helper.standardErrorSoFar)") {
        !helper.isRunning || helper.standardErrorSoFar.contains("ended with status")
      }
      let result = try #require(helper.wait(timeout: 20), "the name was not forgotten: \(helper.standardErrorSoFar)")
      #expect(result.status == 0 && result.errors.contains("lookups: 1 0"), "\(result.errors)")
    }
  }
}
