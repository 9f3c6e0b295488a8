import Base

/// Makes transfers over HTTP: one thread with libcurl's multi handle, every connection and every transfer.
///
/// The thread alone makes, calls and drops the ``TransferClient``. The client starts and cancels transfers by the
/// ``TransferCommands`` that it is made with; other threads post to its mailbox and ``wake()`` the loop. `LoopCore`
/// says what the loop does at each turn, `ResponseCheck.swift` which responses it accepts, and `RedirectChain` what it
/// sends where.
///
/// The loop ends a transfer only if connecting takes too long. The client detects other stalls and cancels.
package final class TransferLoop: Sendable {
  private let core: LoopCore
  private let thread = Lock<OwnedThread?>(nil)

  /// Checks the options' files and sets up libcurl; starts nothing yet.
  ///
  /// - Throws: `FetchError.unreadable` for a certificate or netrc file that mediafs cannot read, `.library` when
  /// libcurl does not start.
  package init(options: TransferOptions) throws(FetchError) {
    core = try LoopCore(options: options)
  }

  /// Calls ``stop()``. On the loop's own thread, where the client may have held the last reference, nothing waits:
  /// pthread_join refuses that (EDEADLK), and the thread ends by itself.
  deinit { stop() }

  /// Starts the thread, which makes its client by `makeClient` and drops it after ``stop()``. Call it once. `record`:
  /// where the thread notes what it is busy with.
  ///
  /// - Throws: `FetchError.noThread` if the system refuses the thread.
  package func run(
    name: String = "transfers", record: ThreadRecord? = nil,
    _ makeClient: @escaping @Sendable (TransferCommands) -> any TransferClient
  ) throws(FetchError) {
    precondition(thread.withLock { $0 == nil }, "a transfer loop runs once")
    // The thread must not retain `self`, whose `deinit` stops it.
    let started: OwnedThread
    do throws(Errno) {
      started = try OwnedThread(ifPossible: name, record: record) { [core] in core.run(makeClient) }
    } catch { throw .noThread(error) }
    thread.withLock { $0 = started }
  }

  /// Ends every transfer as cancelled (the client is called about each) and then the thread, and waits for that.
  /// Transfers that the client starts in response to those last ends do not begin, and the client hears no more of
  /// them.
  ///
  /// Any thread but the loop's own may call it. Calls after the first return at once.
  package func stop() {
    core.waker.stop()
    thread.withLock { $0.take() }?.join()
  }

  /// Makes the loop call ``TransferClient/turn(now:)`` soon. Any thread may call it; it never blocks. Several wakes
  /// before the loop handles the first count as one.
  package func wake() { core.waker.wake() }

  /// ``wake()`` for objects that the client holds: it does not retain the loop, whose `deinit` ends the thread.
  package var waking: @Sendable () -> Void { { [waker = core.waker] in waker.wake() } }
}
