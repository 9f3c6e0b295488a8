import Base
import Glibc

/// How a process ended and what it wrote.
package struct CommandResult: Sendable {
  /// What was run.
  package let arguments: [String]
  /// The exit status; 128 + the signal's number when a signal ended it.
  package let status: Int32
  /// What it wrote to standard output.
  package let standardOutput: [UInt8]
  /// What it wrote to standard error.
  package let standardError: [UInt8]

  /// Standard output as text.
  package var output: String { String(decoding: standardOutput, as: UTF8.self) }
  /// Standard error as text.
  package var errors: String { String(decoding: standardError, as: UTF8.self) }
  /// Whether the status is 0.
  package var succeeded: Bool { status == 0 }
}

/// Why a command gave no result.
package enum CommandFailure: Error, CustomStringConvertible, Sendable {
  /// It could not be started.
  case notStarted(command: String, error: Errno)
  /// It ran longer than it was given and was killed with its whole process group; `report` says what it hung in.
  case timedOut(command: String, seconds: Double, report: String, output: String)
  /// It ended with another status than 0 where 0 was asked for.
  case failed(command: String, status: Int32, errors: String)

  /// The message.
  package var description: String {
    switch self {
    case .notStarted(let command, let error): "cannot start \(command): \(error)"
    case .timedOut(let command, let seconds, let report, let output):
      "\(command) did not end within \(seconds) s and was killed; it had written: \(output)\n\(report)"
    case .failed(let command, let status, let errors): "\(command) ended with \(status): \(errors)"
    }
  }
}

/// Runs other programs to their end.
///
/// Over posix_spawn: each in a process group of its own, with no descriptor of ours but its three, default signals,
/// none blocked. A program is found by PATH. Every function may be called on any thread.
package enum Command {
  /// Runs `arguments` to the end and gives what came out. Blocks the calling thread.
  ///
  /// - Parameters:
  ///   - input: what it reads from standard input; nil for nothing (/dev/null).
  ///   - environment: variables to set on top of ours; nil takes one away.
  ///   - folder: where it runs, nil for where we are.
  ///   - timeout: after that many seconds its group is killed and `CommandFailure.timedOut` tells where it hung.
  ///   - user: as whom it runs (we must be root then), nil for ourselves.
  package static func run(
    _ arguments: [String], input: [UInt8]? = nil, environment: [String: String?] = [:], folder: String? = nil,
    timeout: Double = 60, user: TestUser? = nil
  ) throws(CommandFailure) -> CommandResult {
    let process = try BackgroundProcess(
      arguments, input: input, environment: environment, folder: folder, user: user)
    if let result = process.wait(timeout: timeout) { return result }
    let report = ProcessReport.describe(process.processID, withGroup: true)
    process.terminate(grace: 0)
    throw .timedOut(
      command: arguments.joined(separator: " "), seconds: timeout, report: report,
      output: process.standardOutputSoFar + process.standardErrorSoFar)
  }

  /// As the one above, without blocking the calling task's thread.
  package static func run(
    _ arguments: [String], input: [UInt8]? = nil, environment: [String: String?] = [:], folder: String? = nil,
    timeout: Double = 60, user: TestUser? = nil
  ) async throws(CommandFailure) -> CommandResult {
    try await onOwnThread { () throws(CommandFailure) in
      try run(arguments, input: input, environment: environment, folder: folder, timeout: timeout, user: user)
    }
  }

  /// Runs `arguments` and gives its standard output; throws unless it ends with 0. Blocks the calling thread.
  @discardableResult
  package static func succeed(
    _ arguments: [String], input: [UInt8]? = nil, environment: [String: String?] = [:], folder: String? = nil,
    timeout: Double = 60, user: TestUser? = nil
  ) throws(CommandFailure) -> String {
    let result = try run(
      arguments, input: input, environment: environment, folder: folder, timeout: timeout, user: user)
    guard result.succeeded else {
      throw .failed(command: arguments.joined(separator: " "), status: result.status, errors: result.errors)
    }
    return result.output
  }

  /// As the one above, without blocking the calling task's thread.
  @discardableResult
  package static func succeed(
    _ arguments: [String], input: [UInt8]? = nil, environment: [String: String?] = [:], folder: String? = nil,
    timeout: Double = 60, user: TestUser? = nil
  ) async throws(CommandFailure) -> String {
    try await onOwnThread { () throws(CommandFailure) in
      try succeed(arguments, input: input, environment: environment, folder: folder, timeout: timeout, user: user)
    }
  }

  /// Whether `name` is found by PATH.
  package static func exists(_ name: String) -> Bool { path(of: name) != nil }

  /// Where PATH (and the folders of the system's own programs, which an ordinary user's PATH lacks) has `name`.
  package static func path(of name: String) -> String? {
    let path = getenv("PATH").map { String(cString: $0) } ?? ""
    let folders =
      path.split(separator: ":").map(String.init) + ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"]
    return folders.lazy.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
  }
}

/// Runs what blocks on a thread of its own, so that it takes none from Swift's pool.
func onOwnThread<Value: Sendable, Failure: Error>(
  _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
  let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
    // Detached by letting go: the thread ends with its body.
    startDetachedThread(name: "blocking") {
      do throws(Failure) {
        continuation.resume(returning: .success(try body()))
      } catch {
        continuation.resume(returning: .failure(error))
      }
    }
  }
  return try result.get()
}

/// A thread that nobody joins.
func startDetachedThread(name: String, _ body: @escaping @Sendable () -> Void) {
  _ = OwnedThread(name: name) {
    pthread_detach(pthread_self())
    body()
  }
}
