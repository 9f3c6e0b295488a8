import Base
import Glibc

/// A FUSE filesystem at `disk` in a folder, with one file: the text of another one. A test has it fall silent, as the
/// disk of a machine that is away does: whoever asks it anything waits.
package final class SilentDisk {
  /// The path of the file.
  package let file: String
  private let folder: TemporaryFolder
  private let daemon: BackgroundProcess
  private var held: String { folder.file("disk-held") }

  /// `start`: starts the program that it is, as the one who is to use it.
  package init(in folder: TemporaryFolder, _ text: String, _ start: ([String]) throws -> BackgroundProcess) throws {
    self.folder = folder
    let path = try folder.makeFolder("disk")
    file = path + "/urls.txt"
    chmod(path, 0o777)
    try folder.write(text, to: "disk-text")
    chmod(folder.file("disk-text"), 0o644)
    daemon = try start([
      "/usr/bin/python3", "-S", "-c", Self.script, path, folder.file("disk-text"), folder.file("disk-held"),
    ])
    guard daemon.waitForOutput("mounted", timeout: 60) else {
      throw MountFailure(description: "no disk: \(daemon.standardErrorSoFar)")
    }
  }

  /// What the file has from now on.
  package func write(_ text: String) throws { try folder.write(text, to: "disk-text") }

  /// It answers nothing any more.
  package func stop() { daemon.signalGroup(SIGSTOP) }

  /// It answers all but reads.
  package func holdReads() throws { try folder.write("", to: "disk-held") }

  /// It answers each read after so many seconds.
  package func slowReads(seconds: Int) throws { try folder.write("\(seconds)", to: "disk-held") }

  /// It answers again.
  package func goOn() {
    unlink(held)
    daemon.signalGroup(SIGCONT)
  }

  /// Takes it away.
  package func end() {
    goOn()
    daemon.signalGroup(SIGTERM)
    if daemon.wait(timeout: 60) == nil { daemon.terminate(grace: 0) }
  }

  private static let script = """
    import os, signal, socket, struct, subprocess, sys, threading, time
    path, source, held = sys.argv[1:]
    ours, theirs = socket.socketpair()
    subprocess.run(['fusermount3', '-o', 'fsname=silent', '--', path], check=True, pass_fds=[theirs.fileno()],
                   env=dict(os.environ, _FUSE_COMMFD=str(theirs.fileno())))
    device = socket.recv_fds(ours, 1, 1)[1][0]
    def leave(*_):
        subprocess.run(['fusermount3', '-u', '-z', '--', path])
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    def attributes(node):
        found = os.stat(source)
        time, part = divmod(found.st_mtime_ns, 10**9)
        size, mode = (0, 0o40755) if node == 1 else (found.st_size, 0o100644)
        return struct.pack('6Q10I', node, size, 8, time, time, time, part, part, part, mode, 1, os.getuid(), 0, 0, 4096, 0)
    def seconds():
        try: return float(open(held).read() or 'inf')
        except OSError: return 0
    def read(number, offset, size):
        began = time.monotonic()
        while time.monotonic() < began + seconds(): time.sleep(0.05)
        body = open(source, 'rb').read()[offset:offset + size]
        os.write(device, struct.pack('IiQ', 16 + len(body), 0, number) + body)
    print('mounted', flush=True)
    while True:
        request = os.read(device, 1 << 17)
        _, kind, number, node = struct.unpack('IIQQ', request[:24])
        body, error = b'', 0
        if kind == 26: body = struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 0, 12, 9, 4096, 1, 1, 0)
        elif kind == 1 and request[40:-1] == b'urls.txt': body = struct.pack('4QII', 2, 0, 0, 0, 0, 0) + attributes(2)
        elif kind == 1: error = -2
        elif kind == 3: body = struct.pack('QII', 0, 0, 0) + attributes(node)
        elif kind in (14, 27): body = struct.pack('QII', 1, 1, 0)
        elif kind == 15:
            threading.Thread(target=read, args=(number, *struct.unpack('QI', request[48:60])), daemon=True).start()
            continue
        elif kind in (2, 42, 36): continue
        elif kind not in (18, 25, 28, 29): error = -38
        os.write(device, struct.pack('IiQ', 16 + len(body), error, number) + body)
    """
}
