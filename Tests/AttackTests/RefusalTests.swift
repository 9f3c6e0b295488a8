import Base
import Glibc
import TestSupport
import Testing

/// Servers that answer nothing, one after another: the helper answers with errors (mount-helper/PROTOCOL.md, "The next
/// server").
@Suite("What the helper does while it refuses requests")
struct RefusalTests {
  private func run(_ script: String, limit: Int, timeout: Double) throws -> [Substring] {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let result = try FakeServer.run(
        script, in: folder, mountpoint: mountpoint, options: "--watchdog \(limit)", timeout: timeout)
      #expect(result.status == 0 && !Mounts.isMounted(mountpoint), "\(result.errors)")
      #expect(result.errors.contains("5 in a row answered nothing"), "\(result.errors)")
      return result.errors.split(separator: "\n")
    }
  }

  /// The next server counts what killed the last one, also if the helper has answered it.
  @Test func aDeadlyRequestIsAnsweredAndCounted() throws {
    let lines = try run(
      """
      def place(index): return 4096 + 8192 * index
      def reads(index, number):
          os.pwrite(session, struct.pack('IIQQ16xQQI', 80, 15, number, 42, 1, 65536, 4096), place(index))
      def record(index, died, request=0):
          os.pwrite(session, struct.pack('III', 1, died, request), 2048 + 64 * index + 8)
      def say_what_is_left(helper):
          for _ in range(1000):
              time.sleep(0.02)
              if os.pread(session, 4, place(1)) == bytes(4): break
          for index in 0, 1, 2, 3: say(index, *struct.unpack('IIQ', os.pread(session, 16, place(index))))
          os.kill(helper, signal.SIGTERM)
      if before == 0:
          prepare()
          answer_init()
          ready()
      # The first thread died of its own buffer's request, the third of what an earlier server had left in the fourth's.
      for index in range(4): reads(index, 7 + index)
      record(0, 11)
      record(1, 0)
      record(2, 11, place(3))
      record(3, 0)
      helper = os.getppid()
      if before == 4 and os.fork() == 0:
          say_what_is_left(helper)
          os._exit(0)
      os._exit(3)
      """, limit: 0, timeout: 60)
    let said = lines.filter { !$0.hasPrefix("mediafs: ") }
    #expect(said == ["0 80 15 0", "1 0 15 8", "2 0 15 9", "3 80 15 0"], "\(lines)")
  }

  /// Serves one file to a program, until that ends.
  private static let serve = """
    def serve(data, program):
        while program.poll() is None:
            if not select.select([device], [], [], 0.02)[0]: continue
            request = os.read(device, 1 << 20)
            kind, node = struct.unpack_from('I', request, 4)[0], struct.unpack_from('Q', request, 16)[0]
            if kind == 1: node = 2
            mode = 0o40755 if node == 1 else 0o100444
            attributes = struct.pack('6Q10I', node, len(data), 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
            if kind == 1: answer(request, 0, struct.pack('4Q2I', node, 1, 0, 0, 0, 0) + attributes)
            elif kind == 3: answer(request, 0, struct.pack('Q2I', 0, 0, 0) + attributes)
            elif kind == 14: answer(request, 0, struct.pack('Q2I', 1, 0, 0))
            elif kind == 15: answer(request, 0, data[struct.unpack_from('Q', request, 48)[0]:])
            elif kind not in (2, 36, 42): answer(request, -errno.ENOSYS)

    """

  /// A minute later the helper tries another server. Until that one has the device, readers get errors. Then it serves
  /// them, and if it hangs, they wait no longer than for the first that hung.
  @Test func aRetryLetsNobodyWaitLong() throws {
    let lines = try run(
      Self.serve + """
        if 0 < before < 5: time.sleep(60)
        if before == 5:
            try: say('stat:', subprocess.run(['stat', mountpoint + '/x'], stderr=-1, env={'LC_ALL': 'C'}, timeout=5).stderr)
            except subprocess.TimeoutExpired: say('it waits')
        prepare()
        if before == 0: answer_init()
        ready()
        if before == 0: os._exit(3)
        if before == 5:
            reader = subprocess.Popen(['cat', mountpoint + '/x'], stdout=-1, stderr=-1)
            serve(b'some bytes', reader)
            say('cat:', *reader.communicate())
        server, helper = os.getpid(), os.getppid()
        if os.fork() == 0:
            while os.getppid() == server: time.sleep(0.1)
            time.sleep(1)
            os.kill(helper, signal.SIGTERM)
            os._exit(0)
        os.pwrite(session, struct.pack('IIIIQ', 1, 0, 0, 4, 7), 2048 + 64 * 17 + 8)
        time.sleep(60)
        """, limit: 500, timeout: 200)
    #expect(lines.contains { $0.hasPrefix("stat: ") && $0.contains("Input/output error") }, "\(lines)")
    #expect(lines.contains("cat: b'some bytes' b''"), "\(lines)")
    let limits = lines.compactMap { $0.firstMatch(of: #/for ([0-9.]+) s, and no thread/#).map { String($0.1) } }
    #expect(limits == ["0.5", "1", "2", "4", "0.5"], "\(lines)")
  }
}
