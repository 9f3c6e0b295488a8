import Base
import Glibc
import TestSupport
import Testing

/// A server that asks its helper, which may be root, for upgrades (mount-helper/PROTOCOL.md, "An upgrade").
@Suite("A hostile server and upgrades")
struct UpgradeAttackTests {
  /// A server that serves nothing. ASKS is what it does once it has the mount.
  private static let server = """
    #!/usr/bin/python3
    import os, signal, socket, struct, sys, time
    link = socket.socket(fileno=3)
    def say(*words): print(*words, file=sys.stderr, flush=True)
    def receive():
        data, files, _, _ = socket.recv_fds(link, 9000, 1)
        return *struct.unpack('II', data[:8]), files[0] if files else -1, data[8:]
    def send(kind, payload=b'', value=0, file=-1):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', file))] if file >= 0 else []
        link.sendmsg([struct.pack('II', kind, value) + payload], rights)
    def upgrade(path, size=16):
        found = os.stat(path)
        send(19, struct.pack('QQ', found.st_dev, found.st_ino)[:size])
        answer = receive()
        say('verdict', answer[1], answer[3].decode())
    own = os.path.realpath(sys.argv[0])
    while True:
        kind, value, file, text = receive()
        if kind == 8: say('kept', text)
        if kind == 5: session = file
        if kind == 10: say('held', text, os.readlink('/proc/self/fd/%d' % file))
        if kind == 3: break
    BEFORE
    send(16, value=5)
    notices = receive()[2]
    receive()
    receive()
    device = receive()[2]
    if value == 0:
        request = os.read(device, 1 << 20)
        body = struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 1 << 18, 12, 9, WRITE, 1, 1, 0)
        os.write(device, struct.pack('Ii', 16 + len(body), 0) + request[8:16] + body)
    ASKS
    os._exit(0)
    """

  static func run(_ asks: String, before: String = "", longestWrite: Int = 4096) throws -> CommandResult {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let text = server.replacing("BEFORE", with: before).replacing("ASKS", with: asks)
        .replacing("WRITE", with: "\(longestWrite)")
      let path = try folder.write(text, to: "server", mode: 0o755)
      let options = try folder.write("options", to: "options")
      let line =
        "exec \(builtProduct("mount-helper")) --mountpoint \"$1\" --server \"$2\" --options-fd 9 --foreground 9<\"$3\""
      let result = try Command.run(["sh", "-c", line, "sh", mountpoint, path, options], timeout: 60)
      #expect(!Mounts.isMounted(mountpoint))
      return result
    }
  }

  @Test func theHelperTakesNoOtherProgram() throws {
    let result = try Self.run("send(17); upgrade('/bin/sh'); upgrade('/'); upgrade('/dev/null')")
    #expect(result.status == 0, "\(result.errors)")
    let refusals = result.errors.split(separator: "\n").count {
      $0.hasPrefix("verdict 1 the program of this mount is /")
    }
    #expect(refusals == 3, "\(result.errors)")
    #expect(!result.errors.contains("ended for an upgrade"), "\(result.errors)")
  }

  /// Nothing is there to be run: the file was removed, or is none.
  @Test(arguments: [
    ("os.unlink(own); upgrade('/bin/sh')", "cannot open /"), ("os.chmod(own, 0o644); upgrade(own)", "can be run"),
    ("os.unlink(own); os.mkdir(own); upgrade(own)", "can be run"),
  ])
  func theHelperRunsNoSuchFile(_ asks: String, _ why: String) throws {
    let result = try Self.run("send(17); " + asks)
    #expect(result.status == 0, "\(result.errors)")
    #expect(result.errors.contains("verdict 1 ") && result.errors.contains(why), "\(result.errors)")
    #expect(!result.errors.contains("ended for an upgrade"), "\(result.errors)")
  }

  /// Out of order, twice, of another size: such a server is killed, and followed by the next one.
  @Test(arguments: [
    "upgrade(own)", "send(17); upgrade(own, 15)", "send(17); upgrade(own); send(19, bytes(16)); receive()",
    "send(17); send(19, bytes(8000)); receive()",
  ])
  func theHelperKeepsToTheOrder(_ asks: String) throws {
    let result = try Self.run("if value > 0: send(17); os._exit(0)\n" + asks)
    #expect(result.errors.contains("breaks the protocol (message 19"), "\(result.errors)")
    #expect(!result.errors.contains("verdict 0") || asks.contains("upgrade(own);"), "\(result.errors)")
    // One that the mount is not ready with ends it.
    #expect(result.status == (asks.hasPrefix("upgrade") ? 1 : 0), "\(result.errors)")
  }

  /// What the helper holds is a place on a disk, and nothing that it could read, write or wait for.
  @Test(arguments: [
    "send(21, bytes(8), file=os.open('/', os.O_RDONLY))", "send(21, bytes(8), file=os.open('/dev/zero', os.O_RDWR))",
    "send(21, bytes(8))", "send(21, bytes(7), file=place('/'))", "send(21, bytes(8000), file=place('/'))",
    "send(21, file=place('/'))",
  ])
  func theHelperHoldsAPlaceOnly(_ hold: String) throws {
    let result = try Self.run("send(17)", before: Self.place + hold)
    #expect(result.status == 1 && result.errors.contains("breaks the protocol (message 21"), "\(result.errors)")
  }

  /// The last one alone, until the next server replaces it.
  @Test(.enabled(if: geteuid() == 0)) func whatIsHeldGoesToEachServer() throws {
    let before = """
      if value == 0: send(21, b'0' * 8, file=place('/')); send(21, b'1' * 8, file=place('/proc'))
      if value == 2: send(21, b'2' * 8, file=place('/sys'))
      """
    let asks = """
      send(17)
      if value == 0: say('holds', len([name for name in os.listdir('/proc/%d/fd' % os.getppid())
          if os.readlink('/proc/%d/fd/%s' % (os.getppid(), name)) in ('/', '/proc')]))
      if value < 3: os._exit(1)
      """
    let result = try Self.run(asks, before: Self.place + before)
    #expect(result.status == 0, "\(result.errors)")
    let said = result.errors.split(separator: "\n").filter { $0.hasPrefix("held ") || $0.hasPrefix("holds ") }
    let (first, second) = ("held b'11111111' /proc", "held b'22222222' /sys")
    #expect(said == ["holds 1", first[...], first[...], second[...]], "\(result.errors)")
    // Not once the mount is there: what it is for has been decided then.
    let late = try Self.run(
      "send(17)\nif value == 0: send(21, bytes(8), file=place('/')); time.sleep(60)", before: Self.place)
    #expect(late.errors.contains("breaks the protocol (message 21"), "\(late.errors)")
  }

  static let place = "def place(path): return os.open(path, os.O_PATH)\n"

  /// What a new server says goes to the log and to other servers: bounded, and without control characters.
  @Test func wordsAreTamed() throws {
    let asks = """
      if value == 0: send(17); upgrade(own); os._exit(4)
      if value == 1: send(20, b'\\x1b[2J\\n' + b'x' * 7000); os._exit(1)
      send(17)
      """
    let result = try Self.run(asks)
    #expect(result.status == 0, "\(result.errors)")
    let kept = result.errors.split(separator: "\n").first { $0.hasPrefix("kept") } ?? ""
    #expect(kept.hasPrefix("kept b'?[2J?xxx") && kept.count < 1100, "\(result.errors)")
    #expect(!result.errors.contains("\u{1b}"))
  }

  /// What killed servers of the old program is no suspect of the new one's, and is one again if the old one is back.
  @Test func suspectsBelongToAProgram() throws {
    let asks = """
      suspects, died = os.pread(session, 256, 1088), os.pread(session, 4, 2048 + 12)
      say('server', value, set(suspects), set(died))
      if value == 0:
          send(17)
          os.pwrite(session, b'\\1' * 256, 1088)
          os.pwrite(session, struct.pack('I', 11), 2048 + 12)
          upgrade(own)
          os._exit(4)
      if value == 1: os._exit(1)
      send(17)
      """
    let result = try Self.run(asks)
    #expect(result.status == 0, "\(result.errors)")
    let said = result.errors.split(separator: "\n").filter { $0.hasPrefix("server ") }
    #expect(said == ["server 0 {0} {0}", "server 1 {0} {0}", "server 2 {1} {0}"], "\(result.errors)")
  }

  /// The log names the signal of every death, also of one that an upgrade makes good.
  @Test func aDeathDuringAnUpgradeIsLogged() throws {
    let asks = """
      if value == 0:
          send(17)
          os.pwrite(session, struct.pack('II', os.getpid(), 11), 2048 + 8)
          os.pwrite(session, struct.pack('IIQQ', 80, 15, 7, 42), 4096)
          upgrade(own)
          signal.raise_signal(signal.SIGKILL)
      if value == 1:
          send(20, b'no room')
          signal.raise_signal(signal.SIGSEGV)
      os.pwrite(session, bytes(8192), 4096)
      send(17)
      """
    let result = try Self.run(asks)
    #expect(result.status == 0, "\(result.errors)")
    let lines = result.errors.split(separator: "\n")
    #expect(lines.contains { $0.contains("the server was killed by signal 9 (Killed) before it had ended for an") })
    #expect(lines.contains { $0.contains("thread fuse-0 (") && $0.contains("was busy with READ (15) of inode 42") })
    #expect(lines.contains { $0.contains("the new server was killed by signal 11 (Segmentation fault)") })
    #expect(lines.contains { $0.contains("failed: no room. The old program goes on") }, "\(result.errors)")
  }

  /// Why the new server failed is its own to say: the old one's words are not passed off as it.
  @Test func wordsOfAnotherServerAreNotKept() throws {
    let asks = """
      if value == 0: send(17); send(20, b'early words'); upgrade(own); send(20, b'late words'); os._exit(4)
      if value == 1: os._exit(1)
      send(17)
      """
    let result = try Self.run(asks)
    #expect(result.status == 0, "\(result.errors)")
    let kept = result.errors.split(separator: "\n").filter { $0.hasPrefix("kept") }
    #expect(kept == ["kept b'the new server ended with status 1'"], "\(result.errors)")
  }

  /// The right program is started, with the right of every server.
  @Test func theProgramAtItsPathTakesOver() throws {
    let result = try Self.run("say('server', value); send(17)\nif value == 0: upgrade(own); os._exit(4)")
    #expect(result.status == 0, "\(result.errors)")
    #expect(result.errors.contains("verdict 0") && result.errors.contains("server 1"), "\(result.errors)")
  }
}
