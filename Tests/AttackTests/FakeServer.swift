import TestSupport

/// A server that is none: a Python program that keeps to the link's protocol as far as its test wants.
enum FakeServer {
  /// What each has: the messages up to START are received already. `before` is the number of servers before this one,
  /// `session` the session memory, `mountpoint` the path.
  private static let preamble = """
    #!/usr/bin/python3
    import errno, fcntl, os, select, signal, socket, struct, subprocess, sys, time, warnings
    # Python 3.12 and later warn of a fork beside threads, here of one that waits in the kernel on purpose.
    warnings.simplefilter('ignore', DeprecationWarning)
    if sys.argv[1] == 'open-lists':  # what the helper starts for OPEN: the test's own
        exec(open(sys.argv[0] + '.opener').read())
        sys.exit()
    link = socket.socket(fileno=3)
    device = -1
    def receive(channel=link):
        data, files, _, _ = socket.recv_fds(channel, 9000, 1)
        return *struct.unpack('II', data[:8]), data[8:], files[0] if files else -1
    def say(*words): print(*words, file=sys.stderr, flush=True)
    def prepare(library=None):
        # Until the mount is there: the sockets for notices, for complete files and for watchers, and the device.
        global device, waking
        link_send(16, 5, library)
        notices, files = receive()[3], receive()[3]
        waking = socket.socket(fileno=receive()[3])
        device = receive()[3]
        return socket.socket(fileno=notices), socket.socket(fileno=files)
    def link_send(kind, value, file=None): pack(link, kind, value, b'', [] if file is None else [file])
    def pack(channel, kind, value, payload=b'', files=[]):
        socket.send_fds(channel, [struct.pack('II', kind, value & 0xffffffff) + payload], files)
    def answer(request, error, body=b''):
        os.write(device, struct.pack('Ii', 16 + len(body), error) + request[8:16] + body)
    def answer_init():
        # With passthrough, to files on a stacked filesystem too.
        request = os.read(device, 1 << 20)
        body = struct.pack('IIIIHHIIHHII24x', 7, 40, 4096, 1 << 18 | 1 << 30, 12, 9, 4096, 1, 1, 0, 1 << 5, 2)
        answer(request, 0, body)
    def ready(): link_send(17, 0)
    def die(): signal.raise_signal(signal.SIGKILL)
    while True:
        kind, value, payload, file = receive()
        if kind == 5: session = file
        if kind == 3: break
    before, mountpoint = value, payload.decode()

    """

  /// What a server does that serves from its start on, with a socket for `notices`.
  static let serving = """
    notices, _ = prepare()
    if before == 0: answer_init()
    ready()
    say('server', before, 'is ready')

    """

  /// Runs the helper on a server that goes on with `script`, until the helper ends. `asNobody`: as an ordinary user's.
  static func run(
    _ script: String, in folder: TemporaryFolder, mountpoint: String, user: String? = nil, options: String = "",
    asNobody: Bool = false, timeout: Double = 60
  ) throws -> CommandResult {
    // Of a clone in root's home, an ordinary user can run nothing.
    let helper = asNobody ? folder.file("mount-helper") : builtProduct("mount-helper")
    if asNobody { try Command.succeed(["install", "-m", "755", builtProduct("mount-helper"), helper]) }
    var words = try command(script, in: folder, mountpoint: mountpoint, user: user, options, helper: helper)
    if asNobody { words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] + words }
    return try Command.run(words, timeout: timeout)
  }

  /// Runs the helper on such a server at a terminal, until it ends, or in the background until the mount is ready. What
  /// the terminal shows is the output.
  static func runAtTerminal(
    _ script: String, in folder: TemporaryFolder, mountpoint: String, user: String, foreground: Bool
  ) throws -> CommandResult {
    let words = try command(script, in: folder, mountpoint: mountpoint, user: user, foreground: foreground)
    let terminal = """
      import os, subprocess, sys
      ours, theirs = os.openpty()
      process = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=theirs, stderr=theirs)
      os.close(theirs)
      try:
          while text := os.read(ours, 4096): os.write(1, text)
      except OSError: pass  # no process has the terminal open any more
      sys.exit(process.wait())
      """
    return try Command.run(["/usr/bin/python3", "-S", "-c", terminal] + words, timeout: 60)
  }

  /// Starts the helper on such a server, with the mount at `mnt` or `mountpoint`.
  static func start(
    _ script: String, in folder: TemporaryFolder, mountpoint: String? = nil, user: String? = nil
  ) throws -> BackgroundProcess {
    try BackgroundProcess(
      command(script, in: folder, mountpoint: mountpoint ?? folder.makeFolder("mnt"), user: user))
  }

  /// Returns when the mount is ready, and the helper goes on in the background.
  static func mount(_ script: String, in folder: TemporaryFolder, user: String) throws -> CommandResult {
    let words = try command(script, in: folder, mountpoint: folder.makeFolder("mnt"), user: user, foreground: false)
    return try Command.run(words, timeout: 60)
  }

  private static func command(
    _ script: String, in folder: TemporaryFolder, mountpoint: String, user: String? = nil, _ more: String = "",
    foreground: Bool = true, helper: String = builtProduct("mount-helper")
  ) throws -> [String] {
    let server = try folder.write(preamble + script + "\n", to: "server", mode: 0o755)
    let options = try folder.write("options", to: "options")
    // The shell opens the descriptor that is named; an ordinary caller passes one without a name.
    let line =
      "exec \(helper) --mountpoint \"$1\" --server \"$2\" --options-fd 9 "
      + (foreground ? "--foreground " : "") + (user.map { "--user \($0) -o ro,subtype=mediafs,allow_other " } ?? "")
      + more + " 9<\"$3\""
    return ["sh", "-c", line, "sh", mountpoint, server, options]
  }
}
