import Base
import Glibc
import TestSupport
import Testing

/// What a hostile server gets from a helper that opens lists: the table in mount-helper/PROTOCOL.md, "The lists". Needs
/// root.
@Suite("A hostile server and its lists", .serialized, .enabled(if: TestUser.canSwitch))
struct OpeningAttackTests {
  /// A server that asks, and knows that the helper has taken all that it sent: an upgrade to another file is refused.
  private static let asking = """
    def ask(number, payload=b'', files=[]): pack(link, 23, number, payload, files)
    def settle():
        pack(link, 19, 0, bytes(16))
        while (answer := receive())[0] != 7: say('before the verdict', answer)
    place = os.path.dirname(mountpoint)
    def lines(): return open(place + '/lines').read().split('\\n')[:-1]
    def until(test):
        while not test(): time.sleep(0.01)

    """

  /// What the helper starts for a server: it notes what it is, and waits for the file `go`.
  private static let opener = """
    place = os.path.dirname(sys.argv[0])
    left = signal.alarm(0)
    status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
    kept = ' '.join(sorted(os.readlink('/proc/self/fd/%s' % n).split(':')[0] for n in ('3', '4')))
    with open(place + '/lines', 'a') as file:
        print(sys.argv[7], os.getresuid(), set(os.getresgid()) - {65534, 65533}, os.getgroups(), status['CapEff'].strip(),
            status['NoNewPrivs'].strip(), 0 < left <= 10, kept.replace(place, ''),
            len([n for n in os.listdir('/proc/self/fd') if int(n) > 4]), file=file)
    WAIT
    link = socket.socket(fileno=3)
    socket.send_fds(link, [struct.pack('II', 13, int(sys.argv[7]))], [os.open('/etc/passwd', os.O_RDONLY)])
    """

  private func run(
    _ script: String, waiting: String = "while not os.path.exists(place + '/go'): time.sleep(0.01)",
    user: String? = "nobody"
  ) throws -> (lines: [String], errors: String) {
    try withTemporaryFolder(open: true) { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let noted = try folder.write("", to: "lines")
      try folder.write(Self.opener.replacing("WAIT", with: waiting), to: "server.opener")
      try #require(chmod(folder.path, 0o777) == 0 && chmod(noted, 0o666) == 0)
      let result = try FakeServer.run(Self.asking + script, in: folder, mountpoint: mountpoint, user: user)
      #expect(!Mounts.isMounted(mountpoint))
      let lines = result.errors.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("mediafs: ") }
      return (lines, result.errors)
    }
  }

  @Test func whoAsksTenThousandTimesHasOneProcessAtATime() throws {
    let ran = try run(
      FakeServer.serving + """
        for number in range(10000): ask(number)
        settle()
        open(place + '/go', 'w')
        answers = []
        while answers[-1:] != [9999]:
            kind, number, payload, file = receive()
            answers.append(number)
            if kind != 13 or payload or not os.path.samestat(os.fstat(file), os.stat('/etc/passwd')): say('not a list')
        say(answers, [line.split()[0] for line in lines()], len(set(line.split(' ', 1)[1] for line in lines())))
        say(lines()[0])
        os._exit(0)
        """)
    #expect(
      ran.lines == [
        "server 0 is ready", "[0, 9999] ['0', '9999'] 1",
        "0 (65534, 65534, 65534) set() [65534] 0000000000000000 1 True /options socket 2",
      ], "\(ran.errors)")
  }

  /// Before the mount is ready, with words, for a mount without another user: such a server is killed.
  @Test(arguments: [
    ("link_send(23, 0)", true), ("prepare(); answer_init(); ask(0)", true),
    (FakeServer.serving + "if before > 0: os._exit(0)\nask(0, b'/etc/shadow')", true),
    (FakeServer.serving + "if before > 0: os._exit(0)\nask(0, bytes(8000))", true),
    (FakeServer.serving + "if before > 0: os._exit(0)\nask(0, files=[os.open('/', os.O_RDONLY)])", true),
    (FakeServer.serving + "if before > 0: os._exit(0)\nask(0)", false),
  ])
  func whoAsksWronglyIsKilled(script: String, isForUser: Bool) throws {
    let ran = try run(script + "\nreceive(); say('ali' + 've', lines())", user: isForUser ? "nobody" : nil)
    #expect(ran.errors.contains("breaks the protocol (message 23"), "\(ran.errors)")
    #expect(!ran.errors.contains("alive"), "\(ran.errors)")
  }

  /// A process that its user stopped, so that no alarm ends it: the next request after its time has another one.
  @Test func aProcessThatIsStoppedIsReplaced() throws {
    let ran = try run(
      FakeServer.serving + """
        ask(1)
        until(lambda: os.path.exists(place + '/stopped'))
        ask(2)
        settle()
        say(len(lines()))
        asked = 3
        while not os.path.exists(place + '/go'):
            ask(asked)
            asked += 1
            time.sleep(0.5)
            if len(lines()) > 1: open(place + '/go', 'w')
        while receive()[0] != 13: pass
        stopped = open(place + '/stopped').read()
        say('answered', os.path.exists('/proc/' + stopped))
        os._exit(0)
        """,
      waiting: """
        if not os.path.exists(place + '/stopped'):
            open(place + '/stopped', 'w').write(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        """)
    #expect(ran.lines == ["server 0 is ready", "1", "answered False"], "\(ran.errors)")
  }

  /// A process that does not end, as of a disk that does not answer: the mount goes on, has the next server, and ends.
  @Test func aDiskThatDoesNotAnswerHoldsNobody() throws {
    let ran = try run(
      FakeServer.serving + """
        if before == 0:
            ask(1)
            until(lines)
            ask(2)
            settle()
            say(len(lines()))
            die()
        ask(1)
        settle()
        stopped = open(place + '/stopped').read()
        say(len(lines()), os.path.exists('/proc/' + stopped))
        say(stopped)
        os._exit(0)
        """,
      waiting: "open(place + '/stopped', 'w').write(str(os.getpid())); os.kill(os.getpid(), signal.SIGSTOP)")
    #expect(ran.lines.dropLast() == ["server 0 is ready", "1", "server 1 is ready", "1 True"], "\(ran.errors)")
    let stopped = try #require(ran.lines.last.flatMap { pid_t($0) })
    #expect(eventually { kill(stopped, 0) != 0 })
  }
}
