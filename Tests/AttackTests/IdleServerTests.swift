import Base
import TestSupport
import Testing

/// A server that nobody asked has answered nothing, and is no worse for it.
@Suite("A server that nobody asks")
struct IdleServerTests {
  /// A server that is killed as soon as it is ready; the eighth one ends in order.
  private static let server = """
    #!/usr/bin/python3
    import os, signal, socket, struct, sys
    link = socket.socket(fileno=3)
    def receive():
        data, files, _, _ = socket.recv_fds(link, 9000, 1)
        return *struct.unpack('II', data[:8]), files[0] if files else -1
    while True:
        kind, value, file = receive()
        if kind == 3: break
    link.send(struct.pack('II', 16, 2))
    receive()
    device = receive()[2]
    if value == 0:
        request = os.read(device, 1 << 20)
        body = struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 1 << 18, 12, 9, 4096, 1, 1, 0)
        os.write(device, struct.pack('Ii', 16 + len(body), 0) + request[8:16] + body)
    link.send(struct.pack('II', 17, 0))
    print('server', value, 'is ready', file=sys.stderr, flush=True)
    if value == 7: os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    """

  @Test func isFollowedByTheNextHoweverOftenItIsKilled() throws {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let server = try folder.write(Self.server, to: "server", mode: 0o755)
      let options = try folder.write("options", to: "options")
      let line =
        "exec \(builtProduct("mount-helper")) --mountpoint \"$1\" --server \"$2\" --options-fd 9 --foreground 9<\"$3\""
      let result = try Command.run(["sh", "-c", line, "sh", mountpoint, server, options], timeout: 40)
      #expect(result.status == 0 && result.errors.contains("server 7 is ready"), "\(result.errors)")
      #expect(!result.errors.contains("answered nothing"), "\(result.errors)")
    }
  }
}
