import Base
import Glibc
import TestSupport
import Testing

/// What a hostile server can do to its helper, which may be root, by what it sends, or leaves unread.
@Suite("A hostile server and its link")
struct HelperAttackTests {
  /// Then the helper ends the mount, whatever came before.
  private static let end = """

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(600)
    """

  @Test func aServerThatReadsNoAnswerHoldsNobody() throws {
    let asks = """
      send(17)
      link.setblocking(False)
      for _ in range(3000):
          try: send(19, bytes(16))
          except BlockingIOError: time.sleep(0.001)
      link.setblocking(True)
      """
    let result = try UpgradeAttackTests.run(asks + Self.end)
    #expect(result.status == 0, "\(result.errors)")
  }

  /// The last close of a connection waits until the peer has all bytes, if its owner has asked for that.
  @Test(arguments: [18, 20]) func whatLingersHoldsNobody(message: Int) throws {
    let asks = """
      send(17)
      def linger():
          listener = socket.create_server(('127.0.0.1', 0))
          ours = socket.create_connection(listener.getsockname())
          peer = listener.accept()[0]
          ours.setblocking(False)
          try:
              while True: ours.send(bytes(1 << 20))
          except BlockingIOError: pass
          ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 1000))
          os.kill(os.getppid(), signal.SIGSTOP)
          tasks = '/proc/%d/task/' % os.getppid()
          for task in os.listdir(tasks):
              while open(tasks + task + '/stat').read().rpartition(') ')[2][0] != 'T': time.sleep(0.001)
          send(\(message), file=ours.fileno())
          ours.close()
          os.kill(os.getppid(), signal.SIGCONT)
          time.sleep(0.5)
      if value == 0: linger()  # it is killed for a log that is none
      """
    let result = try UpgradeAttackTests.run(asks + Self.end)
    #expect(result.status == 0, "\(result.errors)")
  }

  /// An empty packet looks like the link's end, but for the descriptor that came with it.
  @Test func anEmptyPacketBringsNoDescriptor() throws {
    let asks = """
      if value > 0: send(17); os._exit(0)
      send(17)
      link.sendmsg([b''], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', os.open('/proc', os.O_RDONLY)))])
      time.sleep(60)
      """
    let result = try UpgradeAttackTests.run(asks)
    #expect(result.status == 0 && result.errors.contains("breaks the protocol"), "\(result.errors)")
  }

  /// A server closes the socket of the notices for itself. The next one's takes packets.
  @Test func theNextServerHasNotices() throws {
    let asks = """
      send(17)
      pipe = socket.socket(fileno=notices)
      if value == 0:
          pipe.shutdown(socket.SHUT_RDWR)
          time.sleep(0.3)
          os._exit(1)
      pipe.send(bytes(16))
      os.write(2, b'sent by %d\\n' % value)
      """
    let result = try UpgradeAttackTests.run(asks)
    #expect(result.status == 0 && result.errors.contains("sent by 1"), "\(result.errors)")
  }

  /// Whoever has root's terminal open may read what is typed there, and has it obey.
  @Test(
    "A server of another user has no terminal, and what it says comes to root's without control characters",
    .enabled(if: TestUser.canSwitch), arguments: [true, false])
  func aServerOfAnotherUserHasNoTerminal(foreground: Bool) throws {
    let script = #"""
      prepare()
      answer_init()
      say('terminals:', [number for number in range(100) if os.isatty(number)])
      say('may wait:', [number for number in (1, 2) if os.get_blocking(number)])
      os.write(2, 'a\x1b[6nb\x7fc\x9b6nd é\n'.encode())
      null = os.open('/dev/null', os.O_RDWR)
      for number in (1, 2): os.dup2(null, number)
      ready()
      os._exit(0)
      """#
    try withTemporaryFolder(open: true) { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let result = try FakeServer.runAtTerminal(
        script, in: folder, mountpoint: mountpoint, user: "nobody", foreground: foreground)
      #expect(result.status == 0, "\(result.output)\(result.errors)")
      #expect(result.output.contains("terminals: []\r\n"), "\(result.output)")
      // Of a helper that is stopped, the pipe stays full.
      #expect(result.output.contains("may wait: []\r\n"), "\(result.output)")
      #expect(result.output.contains("a?[6nb?c\u{FFFD}?6nd é\r\n"), "\(result.output)")
      #expect(eventually(timeout: 60) { !Mounts.isMounted(mountpoint) })
    }
  }

  /// Five servers end without an answer; what `then` does once the helper answers by itself, with the mountpoint in
  /// `text`.
  private func refusing(_ then: String, before: String = "", longestWrite: Int = 4096) throws -> CommandResult {
    let asks = """
      send(17)
      \(before)
      if value == 4 and os.fork() == 0:
          link.close()
          time.sleep(1)
          THEN
          os._exit(0)
      os._exit(1)
      """
    return try UpgradeAttackTests.run(asks.replacing("THEN", with: then), longestWrite: longestWrite)
  }

  /// A server has the kernel send longer requests than the helper reads. Then nobody could answer them.
  @Test func requestsThatAreTooLongForTheHelperEndTheMount() throws {
    // Else the helper would go on for ever.
    let result = try refusing("os.path.exists(text.decode() + '/name')", longestWrite: 1 << 20)
    #expect(result.errors.contains("so every request"), "\(result.errors)")
  }

  /// A handle that was noted for an OPEN which the helper then refuses is nobody's.
  @Test func aRefusedOpenLeavesNoHandle() throws {
    let note = """
      if value == 0:
          for number, inode in ((6, 42), (8, 43)):
              os.pwrite(session, struct.pack('QQ', number, inode), 2232320 + 32 * (number - 6))
          os.pwrite(session, struct.pack('I', 3), 20)
          os.pwrite(session, struct.pack('IIQQ', 48, 14, 6, 42), 4096)
      """
    let look = """
      handles = [struct.unpack('Q', os.pread(session, 8, 2232320 + 32 * place))[0] for place in (0, 2)]
          os.write(2, b'handles %d %d\\n' % (handles[0], handles[1]))
          os.kill(helper, signal.SIGTERM)
      """
    let result = try refusing(look, before: "helper = os.getppid()\n" + note)
    #expect(result.errors.contains("handles 0 8"), "\(result.errors)")
  }
}
