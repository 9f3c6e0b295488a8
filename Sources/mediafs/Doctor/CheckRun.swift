import Base
import CSystem
import FoundationEssentials
import Glibc

/// Runs checks in child processes: a disk that hangs, or a mount without a server, holds up the child alone. No thread
/// would do: a process with a thread that the kernel does not let go cannot end.
enum CheckRun {
  /// Runs the checks in their order, each for at most `timeout` seconds, and gives what each one found to `report`.
  /// Called before the process has a second thread.
  static func run(_ checks: [Check], timeout: Double, report: ([Finding]) -> Void) throws(CommandError) {
    var next = 0
    while next < checks.count {
      let child = try Child(checks[next...])
      while next < checks.count, let findings = child.findings(within: timeout) {
        report(findings)
        next += 1
      }
      if next < checks.count {
        let why = child.hangs ? "has not ended within \(Int(timeout)) s: what it asks hangs" : "ended without a result"
        report([.problem("The check of \(checks[next].name) \(why).", toDo: advice)])
        next += 1
      }
    }
  }

  private static let advice = "Look at what the kernel says of the disk and the network filesystems (dmesg)"

  /// A child that runs checks, and writes what each one found as a line of JSON.
  private final class Child {
    private let process: pid_t
    private let output: Int32
    private var received: [UInt8] = []
    /// Whether no line came in time.
    private(set) var hangs = false

    init(_ checks: ArraySlice<Check>) throws(CommandError) {
      var ends: (Int32, Int32) = (-1, -1)
      let made = withUnsafeMutablePointer(to: &ends) {
        $0.withMemoryRebound(to: Int32.self, capacity: 2) { pipe($0) }
      }
      if made != 0 { throw .failed("cannot make a pipe: \(Errno.current)") }
      process = csystem_fork()
      if process == 0 {
        close(ends.0)
        for check in checks { Self.write(check.find(), to: ends.1) }
        _exit(0)
      }
      let error = Errno.current
      close(ends.1)
      output = ends.0
      if process < 0 { throw .failed("cannot start a process for the checks: \(error)") }
    }

    private static func write(_ findings: [Finding], to pipe: Int32) {
      guard var line = try? JSONEncoder().encode(findings) else { _exit(1) }  // the parent sees that nothing came
      line.append(UInt8(ascii: "\n"))
      var rest = Array(line)[...]
      while !rest.isEmpty {
        let count = rest.withUnsafeBytes { Glibc.write(pipe, $0.baseAddress, $0.count) }
        if count < 0, Errno.current != .interrupted { _exit(1) }
        rest = rest.dropFirst(max(count, 0))
      }
    }

    /// What the next check found; nil if no line came in time, or the child has ended.
    func findings(within timeout: Double) -> [Finding]? {
      let deadline = Instant.now.adding(seconds: timeout)
      while true {
        if let end = received.firstIndex(of: UInt8(ascii: "\n")) {
          let line = Data(received[..<end])
          received.removeFirst(end + 1)
          return try? JSONDecoder().decode([Finding].self, from: line)  // nil counts as a child that has ended
        }
        var ready = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
        let rest = Int32(clamping: Int(deadline.seconds(since: .now) * 1000))
        let count = rest > 0 ? poll(&ready, 1, rest) : 0
        if count < 0, Errno.current == .interrupted { continue }
        guard count > 0 else {
          hangs = true
          return nil
        }
        var piece = [UInt8](repeating: 0, count: 4096)
        let length = read(output, &piece, piece.count)
        if length < 0, Errno.current == .interrupted { continue }
        guard length > 0 else { return nil }
        received += piece[..<length]
      }
    }

    /// Ends the child. One that the kernel does not let go is left behind; it ends with what it waits for.
    deinit {
      close(output)
      kill(process, SIGKILL)
      for _ in 0..<50 where waitpid(process, nil, WNOHANG) == 0 { usleep(10_000) }
    }
  }
}
