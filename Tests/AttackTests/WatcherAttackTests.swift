import Base
import Glibc
import TestSupport
import Testing

/// What a hostile server gets from the helper's waker, and what others get while there is one: the table in
/// mount-helper/PROTOCOL.md, "Watchers". Needs root.
@Suite("Orders of a hostile server for the waker", .serialized, .enabled(if: TestUser.canSwitch))
struct WatcherAttackTests {
  /// A server with a file, a folder and a link in its root. It does what the waker asks, and refuses what others do,
  /// unless it `permits` that. `opened`: the flags and the backing file of each open.
  static let serving = #"""
    _, files = prepare(*library)
    if before == 0: answer_init()
    ready()
    names = {'old': (2, 0o100444), 'folder': (3, 0o40755), 'link': (4, 0o120777)}
    modes = {2: 0o100444, 4: 0o120777, 70: 0o100444}
    waker = 0
    asked = []
    permits = False
    opened = 0, 0
    def attributes(node, mode):
        return struct.pack('6Q10I', *[node] + [0] * 8, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)
    def entry(node, mode): return struct.pack('4Q2I', node, *[0] * 5) + attributes(node, mode)
    def created(): return entry(70, 0o100444) + struct.pack('Q2I', 1, 0, 0)
    def serve_one(silent=None):
        # Returns a request of the waker's that it leaves unanswered.
        global waker
        request = os.read(device, 1 << 20)
        kind, node, process = struct.unpack_from('4xI8xQ8xI', request)
        is_named = kind in (1, 9, 10, 11, 35)
        name = request[40 + {35: 16, 9: 8}.get(kind, 0):].split(b'\0')[0].decode('latin1') if is_named else ''
        if kind == 1 and name == 'password': waker = process
        if process == waker and kind in (1, 4, 9, 10, 11, 35): asked.append(('%d %s' % (kind, name)).strip())
        if kind == silent and process == waker: return request
        changed = struct.pack('Q2I', 0, 0, 0) + attributes(node, modes.get(node, 0o40755))
        if kind in (2, 36, 42): return
        if kind == 1: answer(request, 0, entry(*names[name])) if name in names else answer(request, -errno.ENOENT)
        elif kind == 3: answer(request, 0, changed)
        elif kind == 5: answer(request, 0, os.path.dirname(mountpoint).encode())
        elif kind in (4, 8, 9, 10, 11, 35) and process != waker and not permits: answer(request, -errno.EROFS)
        elif kind == 4: answer(request, 0, changed)
        elif kind == 35: answer(request, 0, created())
        elif kind == 9: answer(request, 0, entry(71, 0o40755))
        elif kind in (10, 11, 18, 28, 29): answer(request, 0)
        elif kind == 14: answer(request, 0, struct.pack('QIi', 1, *opened))
        elif kind == 27: answer(request, 0, struct.pack('Q2I', 1, 0, 0))
        else: answer(request, -errno.ENOSYS)
    def order(*orders): pack(waking, 35, 1, b''.join(order.encode() + b'\0' for order in orders))
    def result():
        while not select.select([waking], [], [], 0)[0]:
            if select.select([device], [], [], 0.02)[0]: serve_one()
        return errno.errorcode.get(struct.unpack('I', receive(waking)[2])[0], 'done')
    def wake(*orders):
        order(*orders)
        return result()
    def hold(*orders):
        order(*orders)
        while not (request := serve_one(silent=35)): pass
        return request

    """#

  private func run(_ script: String, user: String?, options: String = "", asNobody: Bool = false) throws -> [String] {
    let folder = try TemporaryFolder(open: true)
    defer { try? folder.remove() }  // the next test makes its own
    let mountpoint = try folder.makeFolder("mnt")
    if asNobody { try #require(chown(mountpoint, 65534, 65534) == 0 && deviceMode != nil) }
    let result = try FakeServer.run(
      "library = []\n" + Self.serving + script, in: folder, mountpoint: mountpoint, user: user, options: options,
      asNobody: asNobody)
    #expect(result.status == 0, "\(result.errors)")
    #expect(!Mounts.isMounted(folder.file("mnt")))
    return result.errors.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("mediafs: ") }
  }

  private static let modes = "-o ro,subtype=mediafs,default_permissions"

  /// Root's mount; a user's, whom the kernel alone lets in; one for everybody; and one of an ordinary user.
  @Test(arguments: [
    (nil as String?, "", false), ("nobody", modes, false), ("nobody", "-o ro,subtype=mediafs,allow_other", false),
    (nil, "-o rw,subtype=mediafs", true),
  ])
  func theWakerDoesWhatIsOrderedAsTheUser(user: String?, options: String, asNobody: Bool) throws {
    let lines = try run(
      """
      table = next(line for line in open('/proc/self/mounts') if mountpoint in line).split()
      say(table[2], table[3].split(',')[0])
      request = hold('wpassword', 'p', 'cnew')
      status = dict(line.split(':', 1) for line in open('/proc/%d/status' % waker).read().splitlines())
      say(status['Uid'].split() == [str(os.getuid())] * 4, status['Gid'].split() == [str(os.getgid())] * 4,
          status['CapEff'].strip().lstrip('0'), status['CapPrm'].strip().lstrip('0'), status['NoNewPrivs'].strip())
      answer(request, 0, created())
      say(result())
      asked.clear()
      say(wake('wpassword', 'p', 'uold', 'mdir', 'rfolder', 't', 'pfolder', 'cin', 'p', 'alink'),
          '/'.join(asked))
      os._exit(0)
      """, user: user, options: options, asNobody: asNobody)
    #expect(
      lines == [
        "fuse.mediafs \(asNobody ? "rw" : "ro")", "True True \(asNobody ? "  1" : "2 2 1")", "done",
        "done 1 password/1 old/10 old/1 dir/9 dir/1 folder/11 folder/4/1 folder/1 in/35 in/1 link/4",
      ])
  }

  /// The mount is read-only all the time, and its filesystem but for the waker's life: also after one that was killed,
  /// and once a server that held one has died.
  @Test func theFilesystemIsWritableForTheWakerAlone() throws {
    let lines = try run(
      """
      def flags():
          table = next(line for line in open('/proc/self/mountinfo') if mountpoint in line).split()
          return table[5].split(',')[0] + ' ' + table[-1].split(',')[0]
      def restored():
          while flags() != 'ro ro':
              if select.select([device], [], [], 0.02)[0]: serve_one()
          return flags()
      if before == 0:
          say(flags())
          request = hold('wpassword', 'p', 'cnew')
          say(flags())
          answer(request, 0, created())
          say(result(), restored())
          request = hold('wpassword', 'p', 'cother')
          say(errno.errorcode[struct.unpack('I', receive(waking)[2])[0]], flags())
          answer(request, 0, created())
          say(restored())
          os.pwrite(session, hold('wpassword', 'p', 'cnew'), 4096)
          die()
      answer(os.pread(session, 8192, 4096), -errno.EROFS)
      say(restored())
      os._exit(0)
      """, user: nil)
    #expect(lines == ["ro ro", "ro rw", "done ro ro", "ETIMEDOUT ro rw", "ro ro", "ro ro"])
  }

  @Test func noOrderLeadsOutOfTheMount() throws {
    let lines = try run(
      """
      place = os.path.dirname(mountpoint)
      there = sorted(os.listdir(place))
      for orders in (['p..', 'cx'], ['p' + place, 'cx'], ['plink', 'cx'], ['pfolder/../..', 'cx'], ['p', 'c../x'],
                     ['p', 'c.'], ['p', 'c..'], ['p', 'c'], ['p', 'clink/x'], ['wlink/x'], ['w..'], ['tx'], ['z'],
                     [''], ['p', 'l/etc'], ['p', 'alink/x'], ['p', 'a..']):
          say(wake('wpassword', *orders))
      pack(waking, 35, 1, b'p\\0cx')
      say(result())
      say(*[request for request in asked if request.startswith('35')], sorted(os.listdir(place)) == there)
      os._exit(0)
      """, user: nil)
    #expect(
      lines == ["done", "done", "ELOOP", "done"] + Array(repeating: "EINVAL", count: 14) + ["True"])
  }

  @Test(arguments: [(nil as String?, false), ("nobody", false), (nil, true)])
  func aServerThatIsSilentHoldsNobody(user: String?, asNobody: Bool) throws {
    let lines = try run(
      """
      if before == 0:
          request = hold('wpassword', 'p', 'cnew')
          say(errno.errorcode[struct.unpack('I', receive(waking)[2])[0]], wake('wpassword'))
          answer(request, 0, created())
          say(wake('wpassword', 'p', 'cother'))
          os.pwrite(session, hold('wpassword', 'p', 'cnew'), 4096)
          die()
      answer(os.pread(session, 8192, 4096), -errno.EROFS)
      say('next', wake('wpassword', 'p', 'cnew'))
      hold('wpassword', 'p', 'cnew')
      os._exit(0)
      """, user: user, options: asNobody ? "-o rw,subtype=mediafs" : "", asNobody: asNobody)
    #expect(lines == ["ETIMEDOUT EBUSY", "done", "next done"])
  }

  /// Each server says one thing that is no order, and finds the connection closed; the next one has a new one.
  @Test func whatIsNoOrderEndsTheConnection() throws {
    let lines = try run(
      """
      wrong = [lambda: waking.send(b''), lambda: waking.send(b'1234'), lambda: pack(waking, 36, 1),
               lambda: pack(waking, 35, 1, b'x' * 100000), lambda: pack(waking, 35, 1, b'', [device]),
               lambda: pack(waking, 35, 1, b'', [device, device]), lambda: waking.shutdown(socket.SHUT_WR)]
      say(wake('wpassword'))
      if before == len(wrong): os._exit(0)
      waking.settimeout(10)
      wrong[before]()
      try: rest = waking.recv(100)
      except ConnectionResetError: rest = b''
      say('closed' if rest == b'' else rest)
      die()
      """, user: "nobody")
    #expect(lines == Array([[String]](repeating: ["done", "closed"], count: 7).joined()) + ["done"])
  }

  /// Each line is what a program says that is refused.
  @Test func everybodyElseGetsEROFS() throws {
    let lines = try run(
      """
      bound = os.path.dirname(mountpoint) + '/bound'
      os.mkdir(bound)
      subprocess.run(['mount', '--make-shared', '--bind', mountpoint, bound], check=True)
      def writes(where): return 'cd ' + where + ''' && { touch new; mkdir m; ln -s x l; mknod p p; echo x >old; rm -f old
          mv old o; chmod 600 old; chown 1 old; truncate -s 0 old; touch old; rmdir folder; touch folder; ln old hard
          setfattr -n user.x -v 1 old; : <>old; }'''
      def attack(*words):
          program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd='/')
          while program.poll() is None:
              if select.select([device], [], [], 0.02)[0]: serve_one()
          lines = program.stdout.read().decode().splitlines()
          return len(lines), [line for line in lines if 'Read-only file system' not in line]
      attacks = [['sh', '-c', writes(mountpoint)], ['sh', '-c', writes(bound)]]
      attacks.append(['unshare', '-m', '--propagation', 'slave'] + attacks[0])
      for words in attacks: say(*attack(*words))
      for words in attacks:
          request = hold('wpassword', 'pfolder', 'cnew')
          say(*attack(*words))
          answer(request, 0, created())
          say(result())
      attack('umount', bound)
      os._exit(0)
      """, user: nil)
    let meanwhile = Array([[String]](repeating: ["16 []", "done"], count: 3).joined())
    #expect(lines == Array(repeating: "16 []", count: 3) + meanwhile)
  }
}

/// The mode of /dev/fuse before it was opened to everybody, as where users mount; restored at exit.
private let deviceMode: mode_t? = {
  var status = stat()
  guard stat("/dev/fuse", &status) == 0, chmod("/dev/fuse", 0o666) == 0 else { return nil }
  atexit { chmod("/dev/fuse", deviceMode ?? 0o600) }
  return status.st_mode & 0o777
}()
