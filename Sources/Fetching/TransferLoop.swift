import Base

/// Makes transfers over HTTP: one thread with libcurl's multi handle, every connection and every transfer.
///
/// The ``TransferClient`` is made, called and dropped on that thread alone. It starts and cancels transfers by the
/// ``TransferCommands`` that it is made with; other threads leave word with it and ``wake()`` the loop. `LoopCore` says
/// what the loop does at each turn, `ResponseCheck.swift` which answers it accepts, and `RedirectChain` what it sends
/// where.
///
/// A transfer that is stuck is not judged here, except while it connects: the client sees the bytes and cancels.
package final class TransferLoop: Sendable {
  private let core: LoopCore
  private let thread = Lock<OwnedThread?>(nil)

  /// Checks the options' files and sets up libcurl; nothing runs yet.
  ///
  /// - Throws: `FetchError.unreadable` for a certificate or netrc file that cannot be read, `.library` when libcurl
  /// cannot start.
  package init(options: TransferOptions) throws(FetchError) {
    core = try LoopCore(options: options)
  }

  /// As ``stop()``. On the loop's own thread, where the client may have held the last reference, nobody is waited for:
  /// pthread_join refuses that (EDEADLK), and the thread ends by itself.
  deinit { stop() }

  /// Starts the thread, which makes its client by `makeClient` and drops it when ``stop()`` was called. To be called
  /// once.
  package func run(_ makeClient: @escaping @Sendable (TransferCommands) -> any TransferClient) {
    precondition(thread.withLock { $0 == nil }, "a transfer loop runs once")
    // The thread must not keep `self`, whose end stops it.
    let started = OwnedThread(name: "transfers") { [core] in core.run(makeClient) }
    thread.withLock { $0 = started }
  }

  /// Ends every transfer as cancelled (the client hears of each) and the thread, and waits for that. Transfers that the
  /// client starts in answer to those last ends do not begin and are not heard of again.
  ///
  /// From any thread but the loop's own. Calls after the first return at once.
  package func stop() {
    core.waker.stop()
    thread.withLock { $0.take() }?.join()
  }

  /// Makes the loop call ``TransferClient/turn(now:)`` soon. From any thread, never blocks; wakes that come before the
  /// loop got to the first are one.
  package func wake() { core.waker.wake() }

  /// ``wake()`` for those whom the loop's client keeps: it does not keep the loop, whose end ends the thread.
  package var waking: @Sendable () -> Void { { [waker = core.waker] in waker.wake() } }
}
