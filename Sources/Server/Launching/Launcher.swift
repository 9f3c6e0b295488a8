import Base
import CSystem
import Glibc

/// The process behind `mediafs launch`: starts the program of `--on` for the completed files that its server names,
/// runs the resolvers, and ends with that server, however that ends.
///
/// It has one thread, waits for no program, and has nothing open but the socket and the programs' output. It waits for
/// the filesystem of the command alone (``find()``).
package final class Launcher {
  /// How many programs run at a time.
  static let most = 4
  /// How many files wait for their turn.
  static let mostWaiting = 1000
  /// How long programs may go on after SIGTERM, in seconds.
  static let grace = 2.0
  /// How long it then waits for those that it killed: what waits for a disk ends when that answers.
  static let graceOfKilled = 3.0

  private let server: FileDescriptor
  private let children: FileDescriptor
  /// The server's process.
  private let parent = getppid()
  private let mountpoint: String
  /// The program of `--on`; nil for none.
  private let command: [String]?
  private var resolvers: Resolvers
  private var waiting: [CompletedFile] = []
  private var running: [StartedProgram] = []
  private var dropped = 0
  private var packet = [UInt8](repeating: 0, count: LauncherOrder.limit + 1)

  /// `options`: those of the server, in a file that the server cannot change.
  package init(server: consuming FileDescriptor, options: consuming FileDescriptor) throws(ServerError) {
    let request = try MountRequest(reading: options)
    guard request.needsLauncher else { throw .badRequest("the mount has no program to start") }
    // It may outlive the command that mounts, by whose terminal or pipe somebody waits.
    dup2(STDIN_FILENO, STDOUT_FILENO)
    dup2(STDIN_FILENO, STDERR_FILENO)
    // Its end is its server's, and a write to a server that is gone says so by EPIPE.
    for number in [SIGTERM, SIGINT, SIGHUP, SIGPIPE] { signal(number, SIG_IGN) }
    let children = csystem_open_child_watch()
    guard children >= 0, csystem_adopt_orphans() == 0, chdir("/") == 0 else {
      throw .failed("cannot prepare the launcher: \(Errno.current)")
    }
    _ = csystem_fcntl(server.rawValue, F_SETFD, FD_CLOEXEC)
    self.server = server
    self.children = FileDescriptor(owning: children)
    mountpoint = request.mountpoint
    command = request.onComplete
    resolvers = Resolvers(request)
  }

  /// Works until the server has ended.
  package func run() {
    for (words, option) in [(command, MountOption.onComplete)] + resolvers.commands {
      if let words, case .failure(let why) = find(words[0], for: option) { tell(.refused, why.message) }
    }
    tell(.ready, "\(getpid())")
    while true {
      var events = [server.rawValue, children.rawValue].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      events += running.map { pollfd(fd: $0.output, events: Int16(POLLIN), revents: 0) }
      events += resolvers.events
      _ = poll(&events, nfds_t(events.count), -1)
      if events[0].revents != 0, !receive() { break }
      resolvers.work(tell)
      for (program, event) in zip(running, events[2...]) where event.revents != 0 { program.read(tell) }
      reap()
      running.removeAll { $0.isOver }
      while running.count < Self.most, !waiting.isEmpty { start(waiting.removeFirst()) }
    }
    end()
  }

  /// Takes what the server sends; false when that has ended, or sends what it should not.
  private func receive() -> Bool {
    let count = recv(server.rawValue, &packet, packet.count, Int32(MSG_DONTWAIT))
    if count < 0 { return [EAGAIN, EINTR].contains(errno) }
    guard count > 0, let order = LauncherOrder(packet: packet[..<count]) else { return false }
    switch order {
    case .complete(let file): return take(file)
    case .end(let name): return resolvers.end(name)
    case .ask(let name, let line):
      return resolvers.ask(name, line, tell) { words in
        var variables = [("EVENT", "resolve"), ("MOUNTPOINT", mountpoint)]
        variables += ["PATH", "FILE", "URL", "SIZE"].map { ($0, "") }  // of the last completed file
        for (variable, value) in variables {
          if value.isEmpty { unsetenv("MEDIAFS_" + variable) } else { setenv("MEDIAFS_" + variable, value, 1) }
        }
        return find(words[0], for: MountOption.resolver)
      }
    }
  }

  private func take(_ file: CompletedFile) -> Bool {
    guard command != nil else { return false }
    if waiting.count < Self.mostWaiting {
      if dropped > 0 { tell(.warning, "--on: no program was started for \(dropped) completed files") }
      dropped = 0
      waiting.append(file)
      return true
    }
    dropped += 1
    if dropped == 1 {
      let oldest = running.first.map { ", the first for \($0.path) (process \($0.process))" } ?? ""
      tell(
        .warning,
        "--on: \(file.path) gets no program, nor do those after it: \(running.count) programs run\(oldest), and "
          + "\(waiting.count) files wait")
    }
    return true
  }

  private func start(_ file: CompletedFile) {
    guard let command else { return }
    let program: String
    switch find(command[0], for: MountOption.onComplete) {
    case .success(let path): program = path
    case .failure(let why): return tell(.warning, "\(file.path): \(why.message)")
    }
    let variables = [
      ("EVENT", "complete"), ("MOUNTPOINT", mountpoint), ("PATH", "\(mountpoint)/\(file.path)"), ("FILE", file.file),
      ("URL", file.url), ("SIZE", "\(file.size)"),
    ]
    for (name, value) in variables { setenv("MEDIAFS_" + name, value, 1) }
    do throws(Errno) {
      let started = try StartedProgram([program] + command[1...], for: file.path)
      tell(.debug, "\(file.path): \(program) is process \(started.process)")
      running.append(started)
    } catch {
      tell(.warning, "\(file.path): \(program) cannot be started: \(error)")
    }
  }

  /// Takes the ends of programs, and of what they left behind.
  private func reap() {
    var signal = [UInt8](repeating: 0, count: 128)  // a signalfd_siginfo, which says nothing of the children after it
    while read(children.rawValue, &signal, signal.count) > 0 {}
    var status: Int32 = 0
    while true {
      let process = waitpid(-1, &status, WNOHANG)
      if process <= 0 { return }
      running.first { $0.process == process }?.ended(status, tell)
    }
  }

  /// Ends every program and what it started, and waits for that.
  private func end() {
    let left = waiting.count + dropped
    if left > 0 { tell(.warning, "--on: no program was started for \(left) completed files: the server ends") }
    signalAll(SIGTERM)
    let began = Instant.now
    var past = 0.0
    while hasChildren, past < Self.grace + Self.graceOfKilled {
      if past >= Self.grace { signalAll(SIGKILL) }
      var event = pollfd(fd: children.rawValue, events: Int16(POLLIN), revents: 0)
      _ = poll(&event, 1, past < Self.grace ? Int32((Self.grace - past) * 1000) + 1 : 10)
      reap()
      past = Instant.now.seconds(since: began)
    }
  }

  private var hasChildren: Bool {
    var information = siginfo_t()
    return waitid(P_ALL, 0, &information, WEXITED | WNOHANG | WNOWAIT) == 0
  }

  /// Each program is a group of processes of its own; what left its group becomes a child of the launcher when its
  /// parent ends.
  private func signalAll(_ number: Int32) {
    for program in running where !program.hasEnded { kill(-program.process, number) }
    resolvers.signal(number)
    guard let file = try? FileDescriptor.open("/proc/thread-self/children", O_RDONLY) else { return }
    let space = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 1)
    defer { space.deallocate() }
    let count = (try? file.readFully(at: 0, into: space)) ?? 0
    for word in String(decoding: space[..<count], as: UTF8.self).split(separator: " ") {
      if let process = pid_t(word) { kill(process, number) }
    }
  }

  private func tell(_ kind: LauncherWords.Kind, _ words: String) {
    let packet = LauncherWords(kind, words).packet
    _ = send(server.rawValue, packet, packet.count, Int32(MSG_NOSIGNAL))  // it fails when the server is gone
  }

  /// Why a program cannot be run.
  struct NotFound: Error {
    let message: String
  }

  /// The path of the program. If its filesystem does not answer, the kernel ends this process with its server.
  private func find(_ name: String, for option: String) -> Result<String, NotFound> {
    guard csystem_set_death_signal(SIGKILL) == 0 else {
      return .failure(NotFound(message: "cannot prepare the launcher: \(Errno.current)"))
    }
    defer { csystem_set_death_signal(0) }
    if getppid() != parent { return .failure(NotFound(message: "the server has ended")) }
    return Self.find(name, for: option)
  }

  /// The path of a program: itself, or that of a name in PATH.
  static func find(_ name: String, for option: String) -> Result<String, NotFound> {
    if name.utf8.contains(UInt8(ascii: "/")) {
      guard let error = whyNot(name) else { return .success(name) }
      return .failure(NotFound(message: "\(option): cannot run \(name): \(error)"))
    }
    let folders = (getenv("PATH").map { String(cString: $0) } ?? "/usr/local/bin:/usr/bin:/bin").split(separator: ":")
    let paths = folders.filter { $0.hasPrefix("/") }.map { "\($0)/\(name)" }
    if let found = paths.first(where: { whyNot($0) == nil }) { return .success(found) }
    return .failure(NotFound(message: "\(option): there is no program \(name) in PATH"))
  }

  /// Why that is no program that this process may run; nil if it is one.
  private static func whyNot(_ path: String) -> Errno? {
    var status = stat()
    if stat(path, &status) != 0 || access(path, X_OK) != 0 { return .current }
    return status.st_mode & S_IFMT == S_IFREG ? nil : .accessDenied
  }
}
