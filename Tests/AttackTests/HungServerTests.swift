import Base
import Glibc
import TestSupport
import Testing

/// The mount helper replaces a server that hangs, and no other one. The servers here are scripts that write into the
/// session memory what a server's threads are busy with.
@Suite("The helper's watchdog", .serialized)
struct HungServerTests {
  /// Serves the protocol; then does SCENE, with `value` as the number of servers before it, and ends in order.
  private static let server = """
    import ctypes, mmap, threading
    value = before
    memory = mmap.mmap(session, 0)
    prepare()
    if value == 0: answer_init()
    def busy(index, turn, request=0, died=0):
        struct.pack_into('IIIIQ', memory, 2048 + 64 * index + 8, threading.get_native_id(), died, request, 4, turn)
    def reads(place, number):
        struct.pack_into('IIQQ', memory, place, 80, 15, number, 42)
        struct.pack_into('QQI', memory, place + 40, 1, 65536, 4096)
    for index in range(32): busy(index, 0)
    memory[4096:4096 + 16 * 8192] = bytes(16 * 8192)
    ready()
    def helped(script):
        if os.fork() == 0:
            script(os.getppid())
            os._exit(0)
    def open_later(parent):
        time.sleep(4)
        os.open(fifo, os.O_WRONLY)
    def end_helper_after(server, helper):
        while os.getppid() == server: time.sleep(0.1)
        time.sleep(1)
        os.kill(helper, signal.SIGTERM)
    def go_on(index, seconds):
        for turn in range(int(seconds / 0.02)):
            busy(index, 2 * turn + 1)
            time.sleep(0.02)
    """

  /// What the helper says of servers that do `scene`, each a part of the script, with a limit in milliseconds: a busy
  /// machine takes two seconds over the start of a server, and the second one has twice that limit. `early` comes
  /// before they are ready.
  private func log(_ scene: String, limit: Int = 2000, early: String = "") throws -> CommandResult {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let fifo = folder.file("fifo")
      try #require(mkfifo(fifo, 0o600) == 0)
      let server = Self.server.replacing("ready()\n", with: "\(early)\nready()\n")
      let result = try FakeServer.run(
        "\(server)\nfifo = '\(fifo)'\n\(scene)\nos._exit(0)\n", in: folder, mountpoint: mountpoint,
        options: "--watchdog \(limit)")
      #expect(result.status == 0 && !Mounts.isMounted(mountpoint), "\(result.errors)")
      return result
    }
  }

  /// What a thread is busy with, in each way that a server notes it, and how the log tells it.
  @Test(arguments: [
    ("reads(4096 + 8192, 7); busy(1, 0)", "thread fuse-1 (", "READ (15) of inode 42, 4096 bytes at 65536"),
    ("reads(135168 + 128 + 16, 7); busy(2, 0, request=135168 + 128 + 16)", "thread fuse-2 (", "READ (15) of inode 42"),
    ("busy(16, 7)", "thread transfers (", "its transfers"), ("busy(17, 7)", "thread keeper (", "its transfers"),
  ])
  func aServerThatHangsIsReplaced(_ work: String, _ thread: String, _ text: String) throws {
    let result = try log("if value == 0:\n  \(work)\n  time.sleep(60)")
    let lines = result.errors.split(separator: "\n")
    #expect(lines.contains { $0.contains("hangs: its \(thread)") && $0.contains(text) && $0.contains("for 2 s") })
    #expect(lines.contains { $0.contains("killed by signal 9") })
    #expect(lines.contains { $0.hasPrefix("mediafs:   \(thread)") && $0.contains("was busy with \(text)") })
    #expect(lines.count { $0.contains("hangs") } == 1, "\(result.errors)")
  }

  /// A server that does not get as far as to serve.
  @Test func aServerThatHangsAsItStartsIsReplaced() throws {
    let result = try log(
      "if value == 0: die()", limit: 3000, early: "if value == 1: time.sleep(60)")
    #expect(result.status == 0 && result.errors.contains("thread main (0) has been busy with its start"))
  }

  /// Threads that go on, that rest, that a debugger or a signal stopped, or that wait for the disk.
  @Test(arguments: [
    ("goes on", "go_on(17, 4)"), ("rests", "busy(17, 8); time.sleep(4)"),
    ("hangs and then goes on", "busy(17, 7); time.sleep(0.5); go_on(17, 3)"),
    (
      "is stopped by a signal",
      """
      def script(parent):
          os.kill(parent, signal.SIGSTOP)
          time.sleep(4)
          os.kill(parent, signal.SIGCONT)
      helped(script)
      busy(17, 7)
      time.sleep(0.5)
      """
    ),
    (
      "is being debugged",
      """
      libc = ctypes.CDLL(None, use_errno=True)
      libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0)
      libc.ptrace.argtypes = [ctypes.c_long] * 4
      def script(parent):
          assert libc.ptrace(0x4206, parent, 0, 0) == 0, os.strerror(ctypes.get_errno())
          print('traced', file=sys.stderr, flush=True)
          time.sleep(4)
      helped(script)
      time.sleep(0.2)
      busy(17, 7)
      time.sleep(3)
      """
    ),
    (
      "stands still in a debugger",
      """
      libc = ctypes.CDLL(None, use_errno=True)
      libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0)
      libc.ptrace.argtypes = [ctypes.c_long] * 4
      def script(parent):
          assert libc.ptrace(16, parent, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PTRACE_ATTACH
          os.waitpid(parent, 0x40000000)
          assert 'State:\tt' in open(f'/proc/{parent}/status').read()
          print('traced', file=sys.stderr, flush=True)
          busy(17, 7)
          time.sleep(3)
          busy(17, 8)
          assert libc.ptrace(17, parent, 0, 0) == 0
      helped(script)
      os.wait()
      """
    ),
    (
      "waits for the disk",
      """
      # Until its child has a program, a process that vforked sleeps as one that waits for a disk.
      helped(open_later)
      busy(17, 7)
      os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, fifo, os.O_RDONLY, 0)])
      busy(17, 8)
      """
    ),
    (
      "waits for a lock of one that waits for the disk",
      """
      helped(open_later)
      def wait():
          busy(16, 7)
          os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, fifo, os.O_RDONLY, 0)])
          busy(16, 8)
      thread = threading.Thread(target=wait)
      busy(17, 7)
      thread.start()
      thread.join()
      """
    ),
  ])
  func othersAreNot(_ way: String, _ scene: String) throws {
    // A limit far above what a busy machine keeps a thread waiting, and scenes far longer than the limit.
    let result = try log("if value > 0: print('replaced', file=sys.stderr)\n\(scene)", limit: 1500)
    #expect(!result.errors.contains("hangs") && !result.errors.contains("replaced"), "\(result.errors)")
    #expect(result.errors.contains("Traceback") == false, "\(result.errors)")
    #expect(result.errors.contains("traced") == way.contains("debug"))
    let told = result.errors.split(separator: "\n").count { $0.contains("the disk does not answer") }
    #expect(told == (way.hasSuffix("disk") ? 1 : 0), "\(result.errors)")
  }

  @Test func withoutALimitNoneIs() throws {
    let result = try log("busy(17, 7)\ntime.sleep(1.5)", limit: 0)
    #expect(!result.errors.contains("hangs"), "\(result.errors)")
  }

  /// A store so slow that each server seems to hang: the limit grows, so that one of them gets through.
  @Test func eachReplacementDoublesTheLimit() throws {
    let result = try log("if value < 4:\n  busy(17, 7)\n  time.sleep(60)", limit: 500)
    for limit in ["0.5", "1", "2", "4"] {
      #expect(result.errors.contains(" for \(limit) s, and no thread"), "\(limit): \(result.errors)")
    }
  }

  /// Whatever a server writes there, it harms no process but itself.
  @Test func garbageInTheRecords() throws {
    let result = try log(
      """
      if value < 3:
          if value == 0: memory[2048:4096] = b'\\xff' * 2048
          if value == 1: memory[2048:4096] = os.urandom(2048)
          if value == 2:
              for index in range(15): busy(index, 1, request=11 << 20)
              memory[4096:135168] = b'\\xff' * (135168 - 4096)
          time.sleep(3 << value)
          signal.raise_signal(signal.SIGKILL)
      """)
    #expect(result.errors.split(separator: "\n").count { $0.contains("killed by signal 9") } == 3, "\(result.errors)")
  }

  /// A reader of what each server hangs on gets EIO in the end: the helper's own SIGKILL excuses no server.
  @Test func fiveThatHangAndAnswerNothingAreEnough() throws {
    let scene = """
      if value == 4:
          server, helper = os.getpid(), os.getppid()
          helped(lambda parent: end_helper_after(server, helper))
      busy(17, 7)
      time.sleep(60)
      """
    let result = try log(scene, limit: 300)
    #expect(result.errors.contains("5 in a row answered nothing"), "\(result.errors)")
  }

  /// The fault may be mended in another program: it begins with the plain limit.
  @Test func aNewProgramBeginsWithThePlainLimit() throws {
    let scene = """
      if value == 1:
          file = os.stat(os.path.realpath(sys.argv[0]))
          pack(link, 19, 0, struct.pack('QQ', file.st_dev, file.st_ino))
          say('verdict', receive()[1])
          os._exit(4)
      if value != 3:
          busy(17, 7)
          time.sleep(60)
      """
    let result = try log(scene)
    #expect(result.errors.contains("verdict 0"), "\(result.errors)")
    let limits = result.errors.matches(of: #/for ([0-9.]+) s, and no thread/#).map { String($0.1) }
    #expect(limits == ["2", "2"], "\(result.errors)")
  }
}
