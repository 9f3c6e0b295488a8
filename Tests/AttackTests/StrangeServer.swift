import TestSupport

/// The mount helper, with a program of a test's own as its server.
enum StrangeServer {
  /// What the programs begin with. Then a program has its `link`, the socket for `notices`, and the `device` of the
  /// mount at `mountpoint`. `number`: how many servers the mount had before.
  static let beginning = """
    #!/usr/bin/python3
    import os, select, signal, socket, struct, subprocess, sys, time
    link = socket.socket(fileno=3)
    def receive():
        data, files, _, _ = socket.recv_fds(link, 9000, 1)
        return *struct.unpack('II', data[:8]), data[8:], files[0] if files else -1
    while True:
        kind, number, payload, file = receive()
        if kind == 5: session = file
        if kind == 3: break
    mountpoint = payload.decode()
    link.send(struct.pack('II', 16, 3))
    notices = receive()[3]
    device = receive()[3]
    def answer(request, error, body=b''):
        os.write(device, struct.pack('Ii', 16 + len(body), error) + request[8:16] + body)
    if number == 0:
        init = os.read(device, 1 << 20)
        answer(init, 0, struct.pack('IIIIHHIIHH32x', 7, 31, 4096, 1 << 18, 12, 9, 4096, 1, 1, 0))
    link.send(struct.pack('II', 17, 0))
    print('server', number, 'is ready', file=sys.stderr, flush=True)

    """

  /// Starts the helper in the foreground.
  static func start(_ program: String, in folder: TemporaryFolder) throws -> BackgroundProcess {
    let mountpoint = try folder.makeFolder("mnt")
    let server = try folder.write(beginning + program, to: "server", mode: 0o755)
    let options = try folder.write("options", to: "options")
    let line =
      "exec \(builtProduct("mount-helper")) --mountpoint \"$1\" --server \"$2\" --options-fd 9 --foreground 9<\"$3\""
    return try BackgroundProcess(["sh", "-c", line, "sh", mountpoint, server, options])
  }
}
