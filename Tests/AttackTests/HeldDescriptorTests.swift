import Glibc
import TestSupport
import Testing

/// Descriptors that keep waiting whoever closes them last: a connection whose owner wants all bytes delivered, a file
/// of a filesystem that does not answer. A hostile server has its helper, which may be root, close them.
@Suite("Descriptors that are held", .enabled(if: geteuid() == 0))
struct HeldDescriptorTests {
  /// `lingering()`: a connection that waits at its last close for a peer that lives until the helper has ended, or
  /// until the helper has waited for 20 s.
  private static let lingering = """
    helper = os.getppid()
    def lingering():
        listener = socket.create_server(('127.0.0.1', 0))
        ours = socket.create_connection(listener.getsockname())
        peer = listener.accept()[0]
        others, alone = os.pipe()
        if os.fork() == 0:
            for number in range(3, 100):
                if number not in (peer.fileno(), alone):
                    try: os.close(number)
                    except OSError: pass
            os.close(alone)
            try:
                for _ in range(400):
                    os.kill(helper, 0)
                    time.sleep(0.05)
                say('the helper waits')
                os.kill(helper, signal.SIGKILL)
            finally: os._exit(0)
        os.close(alone)
        os.read(others, 1)  # its end: that process has closed its copy of ours
        ours.setblocking(False)
        try:
            while True: ours.send(bytes(1 << 20))
        except BlockingIOError: pass
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 1000))
        return ours.detach()
    def stop():
        os.kill(helper, signal.SIGSTOP)
        tasks = '/proc/%d/task/' % helper
        for task in os.listdir(tasks):
            while open(tasks + task + '/stat').read().rpartition(') ')[2][0] != 'T': time.sleep(0.001)
    def give(channel, kind, *files):
        # The helper's are the last ones.
        stop()
        pack(channel, kind, 0, files=files)
        for file in files: os.close(file)
        os.kill(helper, signal.SIGCONT)
    def flood(channel):
        channel.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)  # SO_SNDBUFFORCE
        for _ in range(6000): channel.send(b'')
    def end():
        os.kill(helper, signal.SIGTERM)
        os._exit(0)

    """

  private static func run(_ script: String, in folder: TemporaryFolder) throws -> CommandResult {
    try FakeServer.run(lingering + script, in: folder, mountpoint: folder.makeFolder("mnt"))
  }

  /// Where the kernel closes what nobody took: within a message, at the end of a socket, in a message that comes too
  /// late.
  @Test(arguments: [
    "give(link, 18, os.open('/dev/null', os.O_RDONLY), lingering())",
    "stop(); link_send(99, 0); give(link, 20, lingering()); time.sleep(60)",
    "stop(); notices.send(b''); give(notices, 1, lingering()); notices.shutdown(socket.SHUT_WR)",
    "stop(); files.send(b'?'); give(files, 32, lingering()); files.shutdown(socket.SHUT_WR)",
    "give(files, 32, lingering())",
    "stop(); files.send(b'?'); flood(files); give(files, 32, lingering())",
  ])
  func whatNobodyTakesHoldsNobody(_ way: String) throws {
    try withTemporaryFolder { folder in
      let script = """
        notices, files = prepare()
        if before == 0: answer_init()
        ready()
        if before == 0:
            \(way)
            os._exit(1)
        say('server', before, 'is ready')
        end()
        """
      let result = try Self.run(script, in: folder)
      #expect(result.status == 0 && result.errors.contains("server 1 is ready"), "\(result.errors)")
    }
  }

  /// Root's mount, which is not ready.
  @Test func aMountThatFailsWaitsForNobody() throws {
    try withTemporaryFolder { folder in
      let script = "give(link, 18, os.open('/dev/null', os.O_RDONLY), lingering()); time.sleep(1); os._exit(1)"
      let result = try Self.run(script, in: folder)
      #expect(result.status == 1 && !result.errors.contains("the helper waits"), "\(result.errors)")
    }
  }

  /// More than any number of threads: neither the helper nor its next server has such a descriptor.
  @Test func theNextServerIsBornWithoutThem() throws {
    try withTemporaryFolder(open: true) { folder in
      let silent = try SilentFilesystem(in: folder, waiting: "mount-helper")
      defer { silent.end() }
      let script = """
        notices, files = prepare()
        if before == 0: answer_init()
        ready()
        if before == 0:
            for number in range(40): link_send(20, 0, os.open('\(folder.path)/silent/%d' % number, os.O_RDONLY))
            link_send(18, 0, os.open('\(folder.path)/silent/log', os.O_RDWR))
            pack(files, 32, 0, files=[os.open('\(folder.path)/silent/file', os.O_RDONLY)])
            os._exit(1)
        say('server', before, 'is ready')
        time.sleep(60)
        """
      let helper = try FakeServer.start(script, in: folder, user: "nobody")
      #expect(eventually(timeout: 60) { helper.standardErrorSoFar.contains("server 1 is ready") })
      helper.terminate()
      #expect(eventually(timeout: 60) { !Mounts.isMounted(folder.file("mnt")) }, "\(helper.standardErrorSoFar)")
      silent.end()
      #expect(helper.wait(timeout: 60) != nil)
    }
  }

  /// Nor does libc wait for that thread when another one changes its user ids.
  @Test func aMountIsMadeBesideAThreadThatWaits() throws {
    try withTemporaryFolder(open: true) { folder in
      let silent = try SilentFilesystem(in: folder, waiting: "mount-helper")
      defer { silent.end() }
      let script = """
        prepare(os.open('\(folder.path)/silent/file', os.O_RDONLY))
        answer_init()
        ready()
        say('server', before, 'is ready')
        time.sleep(60)
        """
      let helper = try FakeServer.start(script, in: folder, user: "nobody")
      #expect(helper.waitForOutput("server 0 is ready", timeout: 60), "\(helper.standardErrorSoFar)")
      helper.signal(SIGTERM)
      #expect(eventually(timeout: 60) { !Mounts.isMounted(folder.file("mnt")) }, "\(helper.standardErrorSoFar)")
      silent.end()
      #expect(helper.wait(timeout: 60) != nil)
    }
  }

  /// The threads that wait are not without end.
  @Test func theMountEndsWhenManyWait() throws {
    try withTemporaryFolder(open: true) { folder in
      let silent = try SilentFilesystem(in: folder, waiting: "mount-helper")
      defer { silent.end() }
      let script = "link_send(20, 0, os.open('\(folder.path)/silent/file', os.O_RDONLY)); die()"
      let helper = try FakeServer.start(FakeServer.serving + script, in: folder, user: "nobody")
      let said = "16 descriptors that wait for another program: the mount ends"
      #expect(helper.waitForOutput(said, timeout: 60), "\(helper.standardErrorSoFar)")
      #expect(eventually(timeout: 60) { !Mounts.isMounted(folder.file("mnt")) })
      silent.end()
      #expect(helper.wait(timeout: 60) != nil)
    }
  }

  /// A server that the kernel cannot end: it holds such a file.
  @Test func aServerThatCannotBeKilledHoldsNobody() throws {
    try withTemporaryFolder(open: true) { folder in
      let silent = try SilentFilesystem(in: folder, waiting: "server")
      defer { silent.end() }
      let script = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        held = os.open('\(folder.path)/silent/file', os.O_RDONLY)

        """
      let helper = try FakeServer.start(script + FakeServer.serving + "time.sleep(600)", in: folder, user: "nobody")
      try #require(helper.waitForOutput("server 0 is ready", timeout: 60), "\(helper.standardErrorSoFar)")
      let hasEnded = eventually(timeout: 30, interval: 0.5) {
        kill(helper.processID, SIGTERM)
        return helper.wait(timeout: 0.5) != nil
      }
      #expect(hasEnded, "\(helper.standardErrorSoFar)")
      #expect(!Mounts.isMounted(folder.file("mnt")))
    }
  }

  /// A process of the user's writes to the log, from memory that never comes, and holds the file's lock meanwhile.
  @Test(arguments: [SIGTERM, SIGKILL]) func aLogThatIsLockedHoldsNobody(signal: Int32) throws {
    try withTemporaryFolder(open: true) { folder in
      let silent = try SilentFilesystem(in: folder, waiting: "nobody")
      defer { silent.end() }
      let log = try folder.write("", to: "log")
      let said = try folder.makeFolder("said")
      try #require(chmod(log, 0o666) == 0 && chmod(said, 0o777) == 0)
      let script = """
        log = os.open('\(log)', os.O_RDWR)
        notices, files = prepare()
        if before == 0: answer_init()
        link_send(18, 0, log)
        with open('\(said)/%d' % before, 'w') as file: file.write('%d %d' % (os.getppid(), os.getpid()))
        ready()
        select.select([link], [], [])
        """
      let mounted = try FakeServer.mount(script, in: folder, user: "nobody")
      try #require(mounted.status == 0, "\(mounted.errors)")
      let processes = text(of: said + "/0").split(separator: " ").compactMap { pid_t($0) }
      let (helper, server) = (try #require(processes.first), try #require(processes.last))
      let hold = """
        import ctypes, mmap, os, sys
        file, log = os.open(sys.argv[1] + '/silent/memory', os.O_RDWR), os.open(sys.argv[1] + '/log', os.O_WRONLY)
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        print('writing', flush=True)
        libc.write(log, libc.mmap(None, 4096, 1, 1, file, 0), 4096)
        """
      let holder = try BackgroundProcess(["/usr/bin/python3", "-S", "-c", hold, folder.path])
      defer { holder.terminate() }
      try #require(holder.waitForOutput("writing", timeout: 60))
      try #require(
        eventually(timeout: 60) { text(of: "/proc/\(holder.processID)/wchan") == "request_wait_answer" })
      kill(server, SIGKILL)  // the helper has something to say
      let next = eventually(timeout: 60) {
        text(of: "/proc/\(helper)/task/\(helper)/children").split(separator: " ").contains {
          $0 != "\(server)" && text(of: "/proc/\($0)/comm") == "server\n"
        }
      }
      #expect(next, "no next server")
      // The next server's messages go to the log, too: it cannot end.
      let hasEnded = eventually(timeout: 30, interval: 0.5) {
        kill(helper, signal)
        return !Mounts.isMounted(folder.file("mnt"))
      }
      #expect(hasEnded)
      silent.end()
      #expect(eventually(timeout: 60) { kill(helper, 0) != 0 })
    }
  }

  /// What the helper says of a server, it says once.
  @Test func aServerCannotFillTheLog() throws {
    try withTemporaryFolder { folder in
      let script = """
        notices, files = prepare()
        answer_init()
        ready()
        memory = os.memfd_create('log')
        link.setblocking(False)
        for _ in range(20000):
            try: link_send(18, 0, memory)
            except BlockingIOError: select.select([], [link], [], 1)
        end()
        """
      let result = try Self.run(script, in: folder)
      #expect(result.status == 0 && result.errors.count { $0 == "\n" } < 20, "\(result.errors.prefix(2000))")
    }
  }
}
