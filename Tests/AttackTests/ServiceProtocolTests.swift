import Base
import Glibc
import TestSupport
import Testing

/// What reaches a mount helper of a service from its environment, its manager's store and its servers
/// (mount-helper/PROTOCOL.md, "Under a service manager").
@Suite("A service manager and what is said in its name")
struct ServiceProtocolTests {
  /// A manager, and servers that serve nothing. TEST is what the manager does; it begins with a helper that is ready.
  private static let manager = #"""
    import atexit, fcntl, os, signal, socket, struct, subprocess, sys, time
    helper, folder = sys.argv[1:]
    mountpoint, server = folder + '/mnt', folder + '/server'
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(folder + '/notify')
    manager.settimeout(60)
    kept, told, started = {}, [], []
    atexit.register(lambda: [process.kill() for process in started])  # where a check fails
    def hear():
        data, files, _, _ = socket.recv_fds(manager, 9000, 4)
        lines = data.decode().rstrip('\n').split('\n')
        told.extend(lines)
        words = dict(line.split('=', 1) for line in lines if '=' in line)
        if 'FDSTORE' in words: kept[words['FDNAME']] = files[0]
        elif 'FDSTOREREMOVE' in words: kept.pop(words['FDNAME'], None)
        return lines
    def wait(*wanted):
        while not all(any(line.startswith(word) for line in told) for word in wanted): hear()
    def start(files={}, service=True, **more):
        names = list(files)
        table = [os.dup(files[name]) for name in names]
        def place():
            high = [fcntl.fcntl(file, fcntl.F_DUPFD, 100) for file in table]
            for i, file in enumerate(high): os.dup2(file, 3 + i)
            os.dup2(fcntl.fcntl(os.open(folder + '/options', os.O_RDONLY), fcntl.F_DUPFD, 100), 50)
        variables = dict(os.environ, NOTIFY_SOCKET=folder + '/notify', LISTEN_FDS=str(len(names)),
                         LISTEN_FDNAMES=':'.join(names), WATCHDOG_USEC='200000', **more)
        line = 'LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$@"'
        words = [helper, '--mountpoint', mountpoint, '--server', server, '--options-fd', '50', '--foreground']
        found = subprocess.Popen(['sh', '-c', line, 'sh'] + words + (['--service'] if service else []), env=variables,
                                 close_fds=False, preexec_fn=place, stderr=open(folder + '/errors', 'wb'))
        for file in table: os.close(file)
        started.append(found)
        return found
    def errors(): return open(folder + '/errors').read()
    def is_mounted(): return any(line.split()[4] == mountpoint for line in open('/proc/self/mountinfo'))
    def memory(text, seals=15):
        file = os.memfd_create('x', os.MFD_ALLOW_SEALING)
        os.write(file, text)
        fcntl.fcntl(file, 1033, seals)
        return file
    first = start()
    wait('READY=1', 'WATCHDOG=1')
    assert is_mounted()
    TEST
    """#

  private static let server = #"""
    #!/usr/bin/python3
    import os, signal, socket, struct, sys, time
    link = socket.socket(fileno=3)
    def say(*words): print(*words, file=sys.stderr, flush=True)
    def receive():
        data, files, _, _ = socket.recv_fds(link, 9000, 1)
        if not data: os._exit(0)
        return *struct.unpack('II', data[:8]), files[0] if files else -1, data[8:]
    def send(kind, payload=b'', value=0): link.send(struct.pack('II', kind, value) + payload)
    say('environment', sorted(name for name in os.environ if name.split('_')[0] in ('NOTIFY', 'LISTEN', 'WATCHDOG')))
    managed = False
    while True:
        kind, value, file, text = receive()
        if kind == 12: managed = True
        if kind == 5: session = file
        if kind == 3: break
    say('managed', managed, value)
    send(16, value=5)
    receive(); receive(); receive()
    device = receive()[2]
    if value == 0:
        request = os.read(device, 1 << 20)
        body = struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 1 << 18, 12, 9, 4096, 1, 1, 0)
        os.write(device, struct.pack('Ii', 16 + len(body), 0) + request[8:16] + body)
        os.pwrite(session, struct.pack('II', 4, len(request)), 8)
        os.pwrite(session, struct.pack('Q', 7), 24)
    send(17)
    ASKS
    while True:
        kind, value, file, text = receive()
        if kind == 7: os._exit(4)
    """#

  private func run(_ test: String, asks: String = "") throws -> CommandResult {
    try withTemporaryFolder { folder in
      _ = try folder.makeFolder("mnt")
      try folder.write(Self.server.replacing("ASKS", with: asks), to: "server", mode: 0o755)
      try folder.write("options", to: "options")
      let script = Self.manager.replacing("TEST", with: test)
      let result = try Command.run(
        ["/usr/bin/python3", "-c", script, builtProduct("mount-helper"), folder.path], timeout: 120)
      #expect(!Mounts.isMounted(folder.file("mnt")))
      return result
    }
  }

  /// The end of a test: the next helper takes what was kept, and SIGTERM ends it.
  private let end = #"""

    assert is_mounted()
    told.clear()
    latest = start(kept)
    wait('READY=1')
    assert 'goes on with the mount' in errors(), errors()
    latest.terminate()
    assert latest.wait(60) == 0
    while kept: hear()
    assert 'STOPPING=1' in told
    """#

  @Test func aKilledHelperIsFollowedByTheNext() throws {
    let result = try run(
      #"""
      assert sorted(kept) == ['mediafs-device', 'mediafs-mount', 'mediafs-session']
      assert "environment []" in errors() and 'managed True 0' in errors(), errors()
      first.kill(); first.wait()
      """# + end)
    #expect(result.succeeded, "\(result.errors)")
  }

  @Test func aRestartLeavesTheMount() throws {
    let result = try run(
      #"""
      first.send_signal(signal.SIGUSR1)
      assert first.wait(60) == 75, errors()
      wait('STOPPING=1')
      assert len(kept) == 3
      """# + end)
    #expect(result.succeeded, "\(result.errors)")
  }

  /// Whatever is not what a helper gave is not touched, and neither is the mount that it seems to be of.
  @Test(arguments: [
    ("{name: file for name, file in kept.items() if name != 'mediafs-mount'}", "a part of it is missing"),
    ("{name: file for name, file in kept.items() if name != 'mediafs-session'}", "a part of it is missing"),
    ("dict(kept, **{'mediafs-device': os.open('/dev/null', os.O_RDWR)})", "its device is not /dev/fuse"),
    ("dict(kept, **{'mediafs-device': kept['mediafs-session']})", "its device is not /dev/fuse"),
    ("dict(kept, **{'mediafs-mount': memory(b'x' * 20000)})", "its record is none of mediafs"),
    ("dict(kept, **{'mediafs-mount': memory(os.pread(kept['mediafs-mount'], 1 << 20, 0), 0)})", "its record is none"),
    ("dict(kept, **{'mediafs-mount': memory(b'mediafsM' + bytes(9000))})", "its record is of another version"),
    ("dict(kept, **{'mediafs-session': memory(b'x')})", "its memory is none of mediafs"),
    (
      "dict(kept, **{'mediafs-session': memory(bytes(os.fstat(kept['mediafs-session']).st_size), 7)})",
      "another mount's"
    ),
  ])
  func whatNoHelperGaveIsNotTaken(_ files: String, _ why: String) throws {
    let result = try run(
      #"""
      first.kill(); first.wait()
      whole = dict(kept)
      wrong = start(FILES)
      assert wrong.wait(60) == 1, errors()
      assert 'cannot go on with the mount' in errors() and WHY in errors(), errors()
      while kept: hear()
      kept.update(whole)
      """#.replacing("FILES", with: files).replacing("WHY", with: "\"\(why)\"") + end)
    #expect(result.succeeded, "\(result.errors)")
  }

  /// Where the kernel tells whose a /dev/fuse is.
  @Test func aDeviceOfAnotherMountIsNotTaken() throws {
    let result = try run(
      #"""
      one = dict(kept)
      kept.clear()
      told.clear()
      mountpoint = folder + '/other'
      os.mkdir(mountpoint)
      second = start()
      wait('READY=1')
      while len(kept) < 3: hear()
      other = kept['mediafs-device']
      first.kill(); first.wait()
      mountpoint = folder + '/mnt'
      if 'fuse_connection' in open('/proc/self/fdinfo/%d' % other).read():
          wrong = start(dict(one, **{'mediafs-device': other}))
          assert wrong.wait(60) == 1, errors()
          assert "its device is another mount's" in errors(), errors()
      second.terminate()
      assert second.wait(60) == 0
      while kept: hear()
      kept.update(one)
      """# + end)
    #expect(result.succeeded, "\(result.errors)")
  }

  @Test func anotherMountThanWantedIsUnmounted() throws {
    let result = try run(
      #"""
      first.kill(); first.wait()
      old, mountpoint = mountpoint, folder + '/other'
      os.mkdir(mountpoint)
      told.clear()
      latest = start(dict(kept))
      wait('READY=1')
      assert 'the mountpoint is another one now' in errors(), errors()
      assert is_mounted() and not any(line.split()[4] == old for line in open('/proc/self/mountinfo'))
      latest.terminate()
      assert latest.wait(60) == 0
      """#)
    #expect(result.succeeded, "\(result.errors)")
  }

  /// Who is no manager of this user's or of root's gets nothing, and no server is told that the mount is kept.
  @Test func nobodyElseIsTheManager() throws {
    let result = try run(
      #"""
      first.terminate(); first.wait()
      while kept: hear()
      told.clear()
      open(folder + '/file', 'w')
      theirs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
      theirs.bind(folder + '/theirs')
      theirs.setblocking(False)
      if os.geteuid() == 0: os.chown(folder + '/theirs', 65534, 65534)
      else: os.unlink(folder + '/theirs')
      for place, service in [(folder + '/file', True), (folder + '/theirs', True), ('/no-such', True), ('relative', True), ('@abstract', True),
                             (folder + '/notify', False)]:
          os.environ['PLACE'] = place
          line = 'NOTIFY_SOCKET=$PLACE exec "$@" 9<"$0"'
          words = [helper, '--mountpoint', mountpoint, '--server', server, '--options-fd', '9', '--foreground']
          other = subprocess.Popen(['sh', '-c', line, folder + '/options'] + words + (['--service'] if service else []),
                                   stderr=open(folder + '/errors', 'wb'))
          started.append(other)
          end = time.time() + 60
          while 'managed False' not in errors() and time.time() < end: time.sleep(0.02)
          assert 'managed False' in errors() and 'environment []' in errors(), errors()
          assert ('nobody is told' in errors() or 'cannot reach' in errors()) == service, (place, errors())
          other.terminate()
          assert other.wait(60) in (0, 1)
      manager.settimeout(0)
      try: print(hear())
      except BlockingIOError: pass
      assert not told, told
      try: assert not theirs.recv(9000)
      except BlockingIOError: pass
      """#)
    #expect(result.succeeded, "\(result.errors)\(result.output)")
  }

  @Test func aServerTellsNoMoreThanALine() throws {
    let result = try run(
      #"""
      wait('STATUS=fine')
      assert 'STATUS=fine MAINPID=1 FDSTOREREMOVE=1 FDNAME=mediafs-device' in told, told
      wait('RELOADING=1', 'MONOTONIC_USEC=')
      assert not [line for line in told if line.startswith(('MAINPID', 'FDSTOREREMOVE'))], told
      end = time.time() + 60
      while 'breaks the protocol (message 22, value 9)' not in errors() and time.time() < end: time.sleep(0.02)
      assert 'breaks the protocol (message 22, value 9)' in errors(), errors()
      assert max(len(line) for line in told) < 600
      first.kill(); first.wait()
      """# + end,
      asks: #"""
        if value == 0:
            send(22, b'fine\nMAINPID=1\nFDSTOREREMOVE=1\nFDNAME=mediafs-device')
            time.sleep(0.5)
            for i in range(1000): send(22, b'x' * 8000, value=1 if i % 2 else 2)
            send(22, value=1)
            time.sleep(0.5)
            send(22, value=9)
        """#)
    #expect(result.succeeded, "\(result.errors)")
  }
}
