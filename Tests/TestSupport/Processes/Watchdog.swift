import Base
import Glibc

/// Runs `body`; when it has not returned after `seconds`, prints where every thread of this process, of each process
/// that was started with ``BackgroundProcess`` or ``Command``, and of `children` is, kills those, unmounts what lies in
/// ``TemporaryFolder``s, and aborts. So a hang is a failure with a backtrace, not a lost night. Nested ones are fine.
package func withWatchdog<Result>(
  _ seconds: Double, _ what: String = #function, children: @escaping @Sendable () -> [pid_t] = { [] },
  _ body: () throws -> Result
) rethrows -> Result {
  let watch = Watch(seconds: seconds, what: what, children: children)
  defer { watch.cancel() }
  return try body()
}

/// As the one above, for a body that suspends.
package func withWatchdog<Result>(
  _ seconds: Double, _ what: String = #function, children: @escaping @Sendable () -> [pid_t] = { [] },
  isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Result
) async rethrows -> Result {
  let watch = Watch(seconds: seconds, what: what, children: children)
  defer { watch.cancel() }
  return try await body()
}

/// Ids of the processes that we started and have not reaped.
enum LiveProcesses {
  private static let all = Lock(Set<pid_t>())
  static func add(_ process: pid_t) { all.withLock { _ = $0.insert(process) } }
  static func remove(_ process: pid_t) { all.withLock { _ = $0.remove(process) } }
  static var list: [pid_t] { all.withLock { $0.sorted() } }
}

/// A thread that waits to be told that all is well.
private final class Watch: Sendable {
  private let cancelled = Lock(false)

  init(seconds: Double, what: String, children: @escaping @Sendable () -> [pid_t]) {
    let deadline = Instant.now.adding(seconds: seconds)
    let cancelled = cancelled
    startDetachedThread(name: "watchdog") {
      while !cancelled.withLock({ $0 }) {
        if Instant.now > deadline { expire(seconds, what, children()) }
        sleep(seconds: min(0.2, max(0.01, deadline.seconds(since: Instant.now))))
      }
    }
  }

  func cancel() { cancelled.withLock { $0 = true } }
}

private func expire(_ seconds: Double, _ what: String, _ children: [pid_t]) -> Never {
  say("\n==== \(what) has not ended within \(seconds) s. ====\n")
  let live = LiveProcesses.list
  for process in live + children where process != getpid() { say(ProcessReport.describe(process)) }
  say(ProcessReport.kernelState(getpid()))
  if Command.exists("gdb") {
    // Straight to our stderr, and timed by a program of its own: gdb stops this process, the threads that would read a
    // pipe or watch a clock among them. Allow it where the kernel lets only parents trace.
    GNUCalls.allowAnyTracer()
    do {
      let gdb = try Spawn.start(
        ProcessReport.backtraceCommand(getpid(), seconds: 60), environment: [:], folder: nil, hasInput: false,
        directOutput: STDERR_FILENO)
      waitpid(gdb.processID, nil, 0)
    } catch {
      say("no backtrace: \(error)\n")
    }
  }
  // The processes first: they may hold the mounts that are taken away then.
  for process in live { killpg(process, SIGKILL) }
  TemporaryFolder.abandonMounts()
  signal(SIGABRT, SIG_DFL)  // Swift's own backtracer has nothing to add, and stumbles over threads that block signals
  abort()
}

private func say(_ text: String) {
  var text = text
  text.withUTF8 { bytes in _ = write(STDERR_FILENO, bytes.baseAddress, bytes.count) }
}
