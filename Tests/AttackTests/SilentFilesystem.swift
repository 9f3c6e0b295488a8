import TestSupport
import Testing

/// A FUSE filesystem at `silent` in a folder, as a user may have one of their own: a file of any name is there, and
/// nobody gets a byte of it. To one kind of process it does not even answer that a file is closed. Needs root.
final class SilentFilesystem {
  private let daemon: BackgroundProcess

  /// `process`: what the kernel calls the processes that wait when they close a file (/proc/PID/comm).
  init(in folder: TemporaryFolder, waiting process: String) throws {
    let path = try folder.makeFolder("silent")
    daemon = try BackgroundProcess(["/usr/bin/python3", "-S", "-c", Self.script, path, process])
    try #require(daemon.waitForOutput("mounted", timeout: 20), "\(daemon.standardErrorSoFar)")
  }

  /// Lets everybody go.
  func end() { daemon.terminate() }

  private static let script = """
    import ctypes, os, signal, struct, sys
    path, waiting = sys.argv[1].encode(), sys.argv[2]
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open('/dev/fuse', os.O_RDWR)
    options = b'fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other' % device
    if libc.mount(b'silent', path, b'fuse', 6, options) != 0: sys.exit(os.strerror(ctypes.get_errno()))
    def leave(*_):
        libc.umount2(path, 2)
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    def attributes(node):
        return struct.pack('6Q10I', node, 4096, 8, 0, 0, 0, 0, 0, 0, 0o40755 if node == 1 else 0o100666, 1, 0, 0, 0, 512, 0)
    def name(process):
        try: return open('/proc/%d/comm' % process).read().strip()
        except OSError: return ''
    print('mounted', flush=True)
    while True:
        request = os.read(device, 1 << 17)
        _, kind, number, node, _, _, process = struct.unpack('IIQQIII', request[:36])
        body, error = b'', 0
        if kind == 26: body = struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 0, 12, 9, 4096, 1, 1, 0)
        elif kind == 1: body = struct.pack('4QII', 2, 0, 1000, 1000, 0, 0) + attributes(2)
        elif kind == 3: body = struct.pack('QII', 1000, 0, 0) + attributes(node)
        elif kind in (14, 27): body = struct.pack('QII', 1, 0, 0)
        elif kind in (2, 42, 36) or kind in (15, 16): continue
        elif kind == 25 and name(process) == waiting: continue
        elif kind not in (18, 25, 29): error = -38
        os.write(device, struct.pack('IiQ', 16 + len(body), error, number) + body)
    """
}
