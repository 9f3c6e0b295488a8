import Base
import Fetching

/// A store on a thread of its own: a libcurl loop whose connections nobody else has.
package final class StoreLoop: Sendable {
  private let loop: TransferLoop
  private let setup: StoreSetup

  /// - Parameter options: those of the mount; their header fields and logins never go to the store.
  package init(_ setup: StoreSetup, options: TransferOptions = TransferOptions()) throws(FetchError) {
    loop = try TransferLoop(options: options)
    self.setup = setup
  }

  /// Starts the thread, which makes its client by `makeClient` and drops it after ``stop()``. Call it once.
  package func run(
    name: String = "sharing", record: ThreadRecord? = nil,
    _ makeClient: @escaping @Sendable (StoreClient) -> any ObjectStoreClient
  ) throws(FetchError) {
    try loop.run(name: name, record: record) { [setup] commands in
      let store = StoreClient(setup, commands)
      let client = makeClient(store)
      store.report(to: client)
      return StoreTransfers(store, client)
    }
  }

  /// Ends the thread and waits for that; what runs is given up.
  package func stop() { loop.stop() }

  /// Makes the loop turn soon. From any thread.
  package var waking: @Sendable () -> Void { loop.waking }
}

/// The client of a loop that has a store's transfers alone.
private final class StoreTransfers: TransferClient {
  private let store: StoreClient
  private let client: any ObjectStoreClient

  init(_ store: StoreClient, _ client: any ObjectStoreClient) { (self.store, self.client) = (store, client) }

  /// The loop is over: it tells nothing more of what waits for its turn.
  deinit { store.giveUp() }

  func turn(now: Instant) -> Instant {
    _ = store.turn(now: now)
    let deadline = client.turn(now: now)
    return min(deadline, store.deadline)  // it may have given up a request meanwhile
  }

  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool { store.transfer(id, responded: head) }
  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
    store.transfer(id, received: bytes)
  }
  func transfer(_ id: TransferID, ended end: TransferEnd) { store.transfer(id, ended: end) }
}
