import Base
import Glibc
import TestSupport
import Testing

/// What a hostile server gets when it has root's helper register files that the kernel then reads by itself: the table
/// in mount-helper/PROTOCOL.md, "Complete files". Needs root, and a kernel with passthrough (Linux 6.9).
@Suite("Files that a hostile server has its helper register", .enabled(if: TestUser.canSwitch && kernelHasPassthrough))
struct BackingTests {
  private static let preamble = """
    folder = os.path.dirname(mountpoint)
    own = folder + '/library/own'
    library = os.open(LIBRARY)
    _, files = prepare(library)
    number = 0
    def register(file):
        global number
        number += 1
        pack(files, 32, number, b'', [file])
        kind, value, payload, _ = receive(files)
        assert (kind, value, len(payload)) == (34, number, 4), (kind, value, payload)
        result = struct.unpack('i', payload)[0]
        return result if result > 0 else errno.errorcode[-result]
    def fill():
        # Registers the own file until it is refused.
        ids = []
        file = os.open(own, os.O_RDONLY)
        while True:
            result = register(file)
            if isinstance(result, str): return ids, result
            ids.append(result)
    if before == 0: answer_init()
    ready()

    """

  /// Runs a server as nobody beside a library with a file of nobody's (`own`), and other files that it might want.
  /// `library`: what it calls its library.
  private func run(
    _ script: String, library name: String = "folder + '/library', os.O_DIRECTORY", user: String? = "nobody"
  ) throws -> [String] {
    let folder = try TemporaryFolder(open: true)
    defer { try? folder.remove() }  // the next test makes its own
    let bound = try folder.makeFolder("bound")
    defer { umount2(bound, Int32(MNT_DETACH)) }
    let library = try folder.makeFolder("library")
    for (name, mode, owner) in [("own", 0o600, 65534), ("secret", 0o600, 0), ("public", 0o644, 0)] {
      let path = try folder.write(name, to: "library/\(name)", mode: mode_t(mode))
      try #require(chown(path, uid_t(owner), uid_t(owner)) == 0)
    }
    try #require(mknod("\(library)/device", S_IFCHR | 0o666, 0x103) == 0)  // /dev/null
    try #require(chmod("\(library)/device", 0o666) == 0)
    try #require(mkfifo("\(library)/fifo", 0o666) == 0 && chown("\(library)/fifo", 65534, 65534) == 0)
    try #require(chown(library, 65534, 65534) == 0)
    // Keeps a descriptor that a server sends it; ends by itself, or with the test.
    let keeper = try BackgroundProcess([
      "/usr/bin/python3", "-c",
      """
      import socket, sys, time
      listener = socket.socket(socket.AF_UNIX)
      listener.bind('\\0' + sys.argv[1])
      listener.listen()
      socket.recv_fds(listener.accept()[0], 4, 1)
      time.sleep(60)
      """, folder.path,
    ])
    defer { keeper.signal(SIGKILL) }
    // 4096: MS_BIND, which two modules give in different types.
    try #require(mount(library, bound, nil, 4096, nil) == 0)
    let result = try FakeServer.run(
      Self.preamble.replacing("LIBRARY", with: name) + script, in: folder, mountpoint: folder.makeFolder("mnt"),
      user: user, timeout: 120)
    #expect(result.status == 0, "\(result.errors)")
    #expect(!Mounts.isMounted(folder.file("mnt")))
    return result.errors.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("mediafs: ") }
  }

  @Test func onlyTheUsersOwnPlainFilesOfTheLibraryAreRegistered() throws {
    let lines = try run(
      """
      at = folder + '/library/'
      elsewhere = '/dev/shm/mediafs-test-%d' % os.getpid()
      os.close(os.open(elsewhere, os.O_CREAT | os.O_WRONLY, 0o600))
      memory = os.memfd_create('memory')
      for name, file in [
          ('own', os.open(own, os.O_RDONLY)),
          ('only a path', os.open(at + 'secret', os.O_PATH)),
          ('own, only a path', os.open(own, os.O_PATH)),
          ('own, to write', os.open(own, os.O_WRONLY)),
          ('own, to read and write', os.open(own, os.O_RDWR)),
          ("another user's", os.open(at + 'public', os.O_RDONLY)),
          ('a folder', os.open(at, os.O_RDONLY)),
          ('a device', os.open(at + 'device', os.O_RDONLY)),
          ('a pipe', os.open(at + 'fifo', os.O_RDONLY | os.O_NONBLOCK)),
          ('a socket', socket.socket().detach()),
          ('/dev/fuse', os.dup(device)),
          ('own, by another mount of the filesystem', os.open(folder + '/bound/own', os.O_RDONLY)),
          ('another filesystem', os.open(elsewhere, os.O_RDONLY)),
          ('a memfd', os.open('/proc/self/fd/%d' % memory, os.O_RDONLY)),
          ('the session memory', session)]:
          result = register(file)
          say(name + ': ' + ('an id' if isinstance(result, int) else result))
      os.unlink(elsewhere)
      os._exit(0)
      """)
    #expect(
      lines == [
        "own: an id", "only a path: EBADF", "own, only a path: EBADF", "own, to write: EBADF",
        "own, to read and write: EBADF", "another user's: EACCES", "a folder: EINVAL", "a device: EINVAL",
        "a pipe: EINVAL", "a socket: EBADF", "/dev/fuse: EBADF", "own, by another mount of the filesystem: EXDEV",
        "another filesystem: EXDEV", "a memfd: EXDEV", "the session memory: EBADF",
      ])
  }

  /// Root may read all of them by itself.
  @Test func aServerOfRootsRegistersFilesOfAnyUser() throws {
    let lines = try run(
      """
      for name in 'own', 'secret':
          say(name, 'an id' if isinstance(register(os.open(folder + '/library/' + name, os.O_RDONLY)), int) else 'none')
      os._exit(0)
      """, user: nil)
    #expect(lines == ["own an id", "secret an id"])
  }

  /// The file is on a filesystem of the user's own (here the mount itself), which answers nothing. To refuse it, the
  /// helper asks that filesystem nothing; only to close the file, its thread has to wait.
  @Test func aFilesystemThatDoesNotAnswerIsNotAsked() throws {
    let lines = try run(
      """
      import threading
      opened = []
      thread = threading.Thread(target=lambda: opened.append(os.open(mountpoint + '/x', os.O_RDONLY)))
      thread.start()
      attributes = struct.pack('6Q10I', 2, 10, 1, 0, 0, 0, 0, 0, 0, 0o100444, 1, 65534, 65534, 0, 4096, 0)
      def take():
          request = os.read(device, 1 << 20)
          return struct.unpack_from('I', request, 4)[0], request
      while thread.is_alive():
          if not select.select([device], [], [], 0.02)[0]: continue
          kind, request = take()
          if kind == 1: answer(request, 0, struct.pack('4Q2I', 2, 1, 0, 0, 0, 0) + attributes)
          elif kind == 14: answer(request, 0, struct.pack('Q2I', 1, 0, 0))
          else: say('it is asked for', kind)
      files.settimeout(10)
      try: say(register(opened[0]))
      except TimeoutError:
          say('no answer')
          os._exit(0)
      pack(files, 32, 7, b'', [os.open(own, os.O_RDONLY)])
      kind, request = take()
      say('asked for', kind)
      say('waits' if not select.select([files], [], [], 0.2)[0] else 'does not wait')
      answer(request, -errno.ENOSYS)  # FLUSH, and the kernel sends no other one
      kind, value, payload, _ = receive(files)
      say('goes on' if struct.unpack('i', payload)[0] > 0 else 'fails')
      os._exit(0)
      """)
    #expect(lines == ["EXDEV", "asked for 25", "waits", "goes on"])
  }

  /// A server that calls a file its library has none.
  @Test(arguments: ["own, os.O_RDONLY", "own, os.O_PATH", "'/dev/null', os.O_RDONLY"])
  func aLibraryIsAFolder(_ library: String) throws {
    let lines = try run("say(register(os.open(own, os.O_RDONLY)))\nos._exit(0)", library: library)
    #expect(lines == ["EXDEV"])
  }

  /// A filesystem that looks at the rights of who opens a file, such as NFS, sees the user's and not root's.
  @Test func theHelpersThreadHasOnlyTheUsersRightsToFiles() throws {
    let lines = try run(
      """
      register(os.open(own, os.O_RDONLY))  # it has them by then
      for task in os.listdir('/proc/%d/task' % os.getppid()):
          status = open('/proc/%d/task/%s/status' % (os.getppid(), task)).read()
          fields = dict(line.split(':', 1) for line in status.splitlines())
          say(*fields['Uid'].split(), *fields['Gid'].split(), 'groups', *fields['Groups'].split(),
              'may read anything' if int(fields['CapEff'], 16) & 0b110 else 'may not')
      os._exit(0)
      """)
    #expect(lines.filter { $0 == "0 0 0 65534 0 0 0 65534 groups may not" }.count == 1, "\(lines)")
  }

  @Test func aFloodEndsAtALimitAndTheNextServerHasRoomAgain() throws {
    let lines = try run(
      """
      ids, refusal = fill()
      say(len(ids), refusal)
      if before == 0:
          # Its own ids it can close, each once; of others' it closes none.
          for id in [ids[0], ids[0], 999999, 0, -1]: pack(files, 33, id)
          say('again:', len(fill()[0]))
          # One handle is noted, among garbage; the rest was given in vain.
          os.pwrite(session, b'\\xff' * 4, 20)
          os.pwrite(session, os.urandom(32 * 1000), 2232320 + 32 * 5000)
          os.pwrite(session, struct.pack('QQi', 77, 9, ids[7]), 2232320 + 32 * 100000)
          die()
      os._exit(0)
      """)
    #expect(lines == ["4096 ENFILE", "again: 1", "4095 ENFILE"])
  }

  @Test func answersThatAreNotReadHoldNobody() throws {
    let lines = try run(
      """
      files.setblocking(False)
      file = os.open(own, os.O_RDONLY)
      end = time.monotonic() + 1
      full = 0
      while time.monotonic() < end:
          try: pack(files, 32, 1, b'', [file])
          except BlockingIOError: full += 1
      say('it is full' if full else 'it never was full')
      if before == 0:
          # Another process keeps the socket: the server's end does not close it.
          other = socket.socket(socket.AF_UNIX)
          other.connect('\\0' + folder)
          socket.send_fds(other, [b'keep'], [files.fileno()])
          die()
      os._exit(0)
      """)
    #expect(lines == ["it is full", "it is full"])
  }

  /// Each server says one thing that is no message, and finds the connection closed; the next one has a new one.
  @Test func whatIsNoMessageEndsTheConnection() throws {
    let lines = try run(
      """
      file = os.open(own, os.O_RDONLY)
      wrong = [
          lambda: files.send(b''), lambda: files.send(b'1234'), lambda: pack(files, 32, 1),
          lambda: pack(files, 32, 1, b'more', [file]), lambda: pack(files, 32, 1, b'x' * 100000, [file]),
          lambda: pack(files, 32, 1, b'', [file, file]), lambda: pack(files, 33, 1, b'', [file]),
          lambda: pack(files, 34, 1), lambda: pack(files, 99, 1, b'', [file]), lambda: files.shutdown(socket.SHUT_WR)]
      say('registered' if isinstance(register(file), int) else 'refused')
      if before == len(wrong): os._exit(0)
      files.settimeout(10)
      wrong[before]()
      try: rest = files.recv(100)
      except ConnectionResetError: rest = b''
      say('closed' if rest == b'' else rest)
      die()
      """)
    let round = ["registered", "closed"]
    #expect(lines == Array([[String]](repeating: round, count: 10).joined()) + ["registered"])
  }
}

/// Whether the kernel is 6.9 or later.
private let kernelHasPassthrough: Bool = {
  var name = utsname()
  guard uname(&name) == 0 else { return false }
  let release = withUnsafeBytes(of: &name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
  let numbers = release.split(whereSeparator: { !$0.isNumber }).prefix(2).compactMap { Int($0) }
  return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 9)
}()
