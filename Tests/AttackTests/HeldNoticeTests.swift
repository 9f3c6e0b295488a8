import Base
import Glibc
import TestSupport
import Testing

/// The kernel holds whoever tells it to forget a name in a folder until the lookups there are answered.
@Suite("A notice that the kernel holds")
struct HeldNoticeTests {
  /// A server that leaves a lookup unanswered, in the buffer of its first thread, and sends a notice for its folder.
  /// Then it is killed. The next one answers nothing, and ends in order.
  private static let server = """
    #!/usr/bin/python3
    import os, signal, socket, struct, subprocess, sys, time
    link = socket.socket(fileno=3)
    def receive():
        data, files, _, _ = socket.recv_fds(link, 9000, 1)
        return *struct.unpack('II', data[:8]), data[8:], files[0] if files else -1
    while True:
        kind, value, payload, file = receive()
        if kind == 5: session = file
        if kind == 3: break
    link.send(struct.pack('II', 16, 2))
    notices = receive()[3]
    device = receive()[3]
    def answer(request, error, body=b''):
        os.write(device, struct.pack('Ii', 16 + len(body), error) + request[8:16] + body)
    if value > 0:
        link.send(struct.pack('II', 17, 0))
        print('the next one serves', file=sys.stderr, flush=True)
        time.sleep(0.2)
        os._exit(0)
    answer(os.read(device, 1 << 20), 0, struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 1 << 18, 12, 9, 4096, 1, 1, 0))
    link.send(struct.pack('II', 17, 0))
    subprocess.Popen(['stat', payload.decode() + '/missing'], stdout=2)
    while True:
        request = os.read(device, 1 << 20)
        if struct.unpack_from('I', request, 4)[0] == 1: break
        answer(request, -38)
    if NOTED: os.pwrite(session, request, 4096)
    held = socket.socket(fileno=notices)
    held.send(struct.pack('IiQQII', 16 + 16 + 6, 3, 0, 1, 5, 0) + b'other\\0')
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
    """

  /// `isNoted`: the session memory has the lookup. Otherwise nobody can answer it, and only the connection's end frees
  /// who sent the notice.
  @Test(arguments: [true, false])
  func neitherTheNextServerNorTheEndWaitsForIt(isNoted: Bool) throws {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let text = Self.server.replacing("NOTED", with: isNoted ? "True" : "False")
      let server = try folder.write(text, to: "server", mode: 0o755)
      let options = try folder.write("options", to: "options")
      let line =
        "exec \(builtProduct("mount-helper")) --mountpoint \"$1\" --server \"$2\" --options-fd 9 --foreground 9<\"$3\""
      let result = try Command.run(["sh", "-c", line, "sh", mountpoint, server, options], timeout: 60)
      #expect(result.errors.contains("killed by signal 9") && result.errors.contains("the next one serves"))
      #expect(result.errors.contains("missing"), "the lookup has no answer: \(result.errors)")
      #expect(result.status == 0, "\(result.errors)")
      #expect(!Mounts.isMounted(mountpoint))
    }
  }
}
