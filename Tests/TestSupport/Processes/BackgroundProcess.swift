import Base
import Glibc

/// A program that runs beside us, in a process group of its own; what it writes is collected as it comes.
///
/// Any thread may call. One thread of ours a process moves its input and output and reaps it. When the process ends,
/// what it has written until then is the result, though a child it left behind may still hold its output open.
package final class BackgroundProcess: Sendable {
  /// What was run.
  package let arguments: [String]
  /// Its id, which is its group's id too.
  package let processID: pid_t

  fileprivate struct State {
    var output: [UInt8] = []
    var errors: [UInt8] = []
    /// Set once, when it was reaped: from then on its id may belong to another process.
    var status: Int32?
  }

  private let state = Lock(State())
  /// Its other end closes when the process was reaped and its output read.
  private let finished: FileDescriptor

  /// Starts `arguments`; the parameters are those of
  /// ``Command/run(_:input:environment:folder:timeout:user:)-swift.type.method``.
  package init(
    _ arguments: [String], input: [UInt8]? = nil, environment: [String: String?] = [:], folder: String? = nil,
    user: TestUser? = nil
  ) throws(CommandFailure) {
    let line = (user?.commandPrefix ?? []) + arguments
    self.arguments = arguments
    do throws(Errno) {
      var variables = environment
      if let user { variables.merge(user.environment) { given, _ in given } }
      let child = try Spawn.start(line, environment: variables, folder: folder, hasInput: input != nil)
      let end = try Spawn.makePipe()
      processID = child.processID
      finished = FileDescriptor(owning: end.read)
      LiveProcesses.add(child.processID)
      let state = state
      startDetachedThread(name: "process") {
        pump(child, input: input ?? [], into: state)
        close(end.write)
      }
    } catch {
      throw .notStarted(command: line.joined(separator: " "), error: error)
    }
  }

  /// Kills what is still there: a test that forgot it leaves nothing running.
  deinit { signalGroup(SIGKILL) }

  /// What it has written to standard output so far.
  package var standardOutputSoFar: String { String(decoding: state.withLock { $0.output }, as: UTF8.self) }
  /// What it has written to standard error so far.
  package var standardErrorSoFar: String { String(decoding: state.withLock { $0.errors }, as: UTF8.self) }
  /// Whether it has not ended.
  package var isRunning: Bool { state.withLock { $0.status == nil } }

  /// Waits until it ended, at most `timeout` seconds: nil when it has not. Blocks the calling thread.
  package func wait(timeout: Double) -> CommandResult? {
    let deadline = Instant.now.adding(seconds: timeout)
    while isRunning {
      let rest = deadline.nanoseconds - Instant.now.nanoseconds
      if rest <= 0 { return nil }
      _ = pollUntil([(finished.rawValue, Int16(POLLIN))], nanoseconds: rest)
    }
    return state.withLock { state in
      CommandResult(
        arguments: arguments, status: state.status ?? -1, standardOutput: state.output, standardError: state.errors)
    }
  }

  /// As ``wait(timeout:)``, without blocking the calling task's thread.
  package func wait(timeout: Double) async -> CommandResult? {
    await onOwnThread { () throws(Never) in self.wait(timeout: timeout) }
  }

  /// Waits until its output or its errors contain `text`: false when that does not happen in time or it ends without.
  package func waitForOutput(_ text: String, timeout: Double = waitBound) -> Bool {
    let wrote = { self.standardOutputSoFar.contains(text) || self.standardErrorSoFar.contains(text) }
    _ = eventually(timeout: timeout) { wrote() || !isRunning }
    return wrote()
  }

  /// Sends `signal` to the process alone, if it still runs.
  package func signal(_ signal: Int32) {
    // Under the lock that the reaping takes too: a reaped id may be someone else's. kill(2) does not block.
    state.withLock { if $0.status == nil { kill(processID, signal) } }
  }

  /// Stops it with SIGSTOP, and waits until every thread stands still: another one may answer until then.
  package func standStill() throws {
    signal(SIGSTOP)
    try waitUntil("process \(processID) to stand still") { isStopped(processID) }
  }

  /// Sends `signal` to its whole group, if the process still runs.
  package func signalGroup(_ signal: Int32) {
    state.withLock { if $0.status == nil { killpg(processID, signal) } }
  }

  /// Ends it: SIGTERM to its group, SIGKILL `grace` seconds later if it is still there (at once for 0). False when it
  /// could not even be killed within ``waitBound`` (it hangs in the kernel). Blocks the calling thread.
  @discardableResult
  package func terminate(grace: Double = 5) -> Bool {
    if grace > 0 {
      signalGroup(SIGTERM)
      if wait(timeout: grace) != nil { return true }
    }
    signalGroup(SIGKILL)
    return wait(timeout: waitBound) != nil
  }
}

/// Moves input and output until the process ended; reaps it. Owns the child's descriptors.
private func pump(_ child: Spawn.Child, input: [UInt8], into state: Lock<BackgroundProcess.State>) {
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  var unwritten = input[...]
  var inputEnd = child.input
  var open = (output: true, errors: true)

  /// Reads what is there; false at the end.
  func drain(_ descriptor: Int32, isOutput: Bool) -> Bool {
    while true {
      let count = read(descriptor, &buffer, buffer.count)
      if count > 0 {
        state.withLock {
          if isOutput { $0.output += buffer[..<count] } else { $0.errors += buffer[..<count] }
        }
      } else if count == 0 {
        return false
      } else if errno != EINTR {
        return errno == EAGAIN
      }
    }
  }

  while true {
    if inputEnd >= 0, unwritten.isEmpty {
      close(inputEnd)
      inputEnd = -1
    }
    // poll(2) passes over negative descriptors.
    let happened = pollUntil(
      [
        (child.exit, Int16(POLLIN)), (open.output ? child.output : -1, Int16(POLLIN)),
        (open.errors ? child.errors : -1, Int16(POLLIN)), (inputEnd, Int16(POLLOUT)),
      ], nanoseconds: 60_000_000_000)
    if happened[1] != 0 { open.output = drain(child.output, isOutput: true) }
    if happened[2] != 0 { open.errors = drain(child.errors, isOutput: false) }
    if happened[3] != 0 {
      let count = unwritten.withUnsafeBytes { write(inputEnd, $0.baseAddress, $0.count) }
      // EPIPE: it does not want the rest. SIGPIPE does not come: our own threads block every signal.
      if count > 0 { unwritten = unwritten.dropFirst(count) } else if errno != EAGAIN { unwritten = [] }
    }
    if happened[0] != 0 { break }
  }
  // It has ended: what it wrote is in the pipes by now.
  if open.output { _ = drain(child.output, isOutput: true) }
  if open.errors { _ = drain(child.errors, isOutput: false) }
  for descriptor in [child.exit, child.output, child.errors, inputEnd] where descriptor >= 0 { close(descriptor) }
  LiveProcesses.remove(child.processID)
  // Reaped under the lock, so that nobody signals an id that is no longer its. It has ended: this does not wait.
  state.withLock { state in
    var raw: Int32 = 0
    while waitpid(child.processID, &raw, 0) == -1, errno == EINTR {}
    let signal = raw & 0x7f  // as the macros of <sys/wait.h> take it apart
    state.status = signal == 0 ? (raw >> 8) & 0xff : 128 + signal
  }
}
