import Base

/// Makes transfers over HTTP: one thread with libcurl's multi handle, every connection and every transfer.
///
/// The ``TransferClient`` is called on that thread alone. It starts and cancels transfers from within those calls;
/// others leave word with the client and ``wake()`` the loop. What one transfer does, and what is done at each turn, is
/// described in `LoopCore`; which answers are accepted, in `ResponseCheck.swift`; what is sent where, in
/// `RedirectChain`.
///
/// A transfer that is stuck is not judged here, except while it connects: the client sees the bytes and cancels.
public final class TransferLoop: Sendable {
  private let core: LoopCore
  private let thread = Lock<OwnedThread?>(nil)

  /// Checks the options' files and sets up libcurl; nothing runs yet.
  ///
  /// - Throws: `FetchError.unreadable` for a certificate or netrc file that cannot be read, `.library` when libcurl
  /// cannot start.
  public init(options: TransferOptions) throws(FetchError) {
    core = try LoopCore(options: options)
  }

  /// The thread ends soon after; it is not waited for (this may be running on it).
  deinit { core.waker.stop() }

  /// Starts the thread. `client` is kept until ``stop()``. To be called once.
  public func run(client: any TransferClient) {
    thread.withLock { thread in
      precondition(thread == nil, "a transfer loop runs once")
      // The thread must not keep `self`, whose end stops it.
      thread = OwnedThread(name: "transfers") { [core] in core.run(client: client) }
    }
  }

  /// Ends every transfer as cancelled (the client hears of each) and the thread, and waits for that. Transfers that the
  /// client starts in answer to those last ends do not begin and are not heard of again.
  ///
  /// From any thread but the loop's own. Calls after the first return at once.
  public func stop() {
    core.waker.stop()
    thread.withLock { $0.take() }?.join()
  }

  /// Makes the loop call ``TransferClient/turn(now:)`` soon. From any thread, never blocks; wakes that come before the
  /// loop got to the first are one.
  public func wake() { core.waker.wake() }

  /// Begins a transfer. Its client hears of it until `ended`, also when it cannot even start.
  ///
  /// On the loop's thread only, from within the client's calls. Precondition: the id is new.
  public func start(_ request: TransferRequest) { core.start(request) }

  /// Ends a transfer: no head and no byte of it come any more, and `ended` with `.cancelled` follows in a later turn.
  /// Nothing happens if it is over. On HTTP/1 this costs the connection.
  ///
  /// On the loop's thread only, from within the client's calls.
  public func cancel(_ id: TransferID) { core.cancel(id) }

  /// Closes every connection, the idle ones too, and forgets resolved names: for after a suspend or a change of
  /// network, when kept connections are dead without anyone having said so. Transfers under way end as `.failed`,
  /// `.transient`, in a later turn.
  ///
  /// On the loop's thread only, from within the client's calls.
  public func dropConnections() { core.dropConnections() }
}
