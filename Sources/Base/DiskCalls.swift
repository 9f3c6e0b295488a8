/// The system calls for files whose disk may not answer (a network's, when its server is away): none of them can be
/// given a time limit, and a thread that waits in one tells nobody. So another thread looks here.
///
/// Any thread may call.
package final class DiskCalls: Sendable {
  private struct Call {
    var number: UInt64
    var file: String
    var since: Instant
  }

  /// For how many seconds a call may go on until its disk counts as silent.
  package let patience: Double
  private let calls = Lock<(next: UInt64, open: [Call])>((0, []))

  /// By default, more than a disk takes that stood still, or a server that starts anew.
  package init(patience: Double = 10) { self.patience = patience }

  /// Makes a call for `file`, as messages call it. Returns or throws what the call does.
  package func make<Result: ~Copyable, Failure: Error>(
    _ file: String, _ call: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let now = Instant.now
    let number = calls.withLock { calls in
      calls.next += 1
      calls.open.append(Call(number: calls.next, file: file, since: now))
      return calls.next
    }
    defer { calls.withLock { $0.open.removeAll { $0.number == number } } }
    return try call()
  }

  /// The file whose disk has been silent for the longest time; nil: each answers.
  package var silent: String? { silent(for: patience) }

  /// The same with another patience, in seconds.
  package func silent(for patience: Double) -> String? {
    let now = Instant.now
    return calls.withLock { $0.open.first }.flatMap { now.seconds(since: $0.since) > patience ? $0.file : nil }
  }
}
