import TestSupport
import Testing

/// A server that was killed and cannot end yet, because one of its threads waits in the kernel.
@Suite("A server that ends late")
struct LateEndTests {
  /// The kernel takes no signal for a thread that waits for an answer of a filesystem. Until the thread has it, the
  /// process has its locks, and a server that started meanwhile could not open the store.
  @Test func theNextServerWaitsForItsLocks() throws {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let result = try FakeServer.run(
        """
        import threading
        lock = open(os.path.dirname(mountpoint) + '/lock', 'w')
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            say('server', before, 'has the lock')
        except OSError: say('server', before, 'has no lock')
        prepare()
        if before == 0: answer_init()
        ready()
        if before > 0: os._exit(0)
        thread = threading.Thread(target=os.path.exists, args=(mountpoint + '/x',))
        thread.start()
        request = bytes(8)
        while struct.unpack_from('I', request, 4)[0] != 1: request = os.read(device, 1 << 20)
        if os.fork() == 0:
            os.close(3)
            parent = os.getppid()
            while open(f'/proc/{parent}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': time.sleep(0.01)
            time.sleep(0.5)
            say('it is answered')
            answer(request, -errno.ENOENT)
            os._exit(0)
        die()
        """, in: folder, mountpoint: mountpoint)
      #expect(result.status == 0 && !Mounts.isMounted(mountpoint), "\(result.errors)")
      let lines = result.errors.split(separator: "\n").filter { !$0.hasPrefix("mediafs: ") }
      #expect(lines == ["server 0 has the lock", "it is answered", "server 1 has the lock"], "\(result.errors)")
    }
  }
}
