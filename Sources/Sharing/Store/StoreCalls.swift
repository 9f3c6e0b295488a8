import Base
import Fetching

/// Single requests to a store, from any thread: for commands, and for what is asked once. It has a thread of its own.
package final class StoreCalls: Sendable {
  private struct Call: Sendable {
    var request: StoreRequest
    var received: (@Sendable (UnsafeRawBufferPointer, StoredObject) -> Bool)?
    var done: @Sendable (StoreOutcome) -> Void
  }

  private enum Message: Sendable {
    case start(Call)
    case probe(StoreProbe, @Sendable (StoreProbe.Verdict) -> Void)
  }

  package let location: StoreLocation
  private let loop: StoreLoop
  private let messages: Mailbox<Message>
  /// The next number of a request.
  private let next = Lock<UInt64>(0)
  private let isStopped = Lock(false)

  package init(_ setup: StoreSetup, options: TransferOptions = TransferOptions()) throws(FetchError) {
    location = setup.location
    loop = try StoreLoop(setup, options: options)
    messages = Mailbox(wake: loop.waking)
    try loop.run(name: "store-calls") { [messages] store in Client(store, messages) }
  }

  /// Ends the thread: what runs ends as cancelled.
  package func stop() {
    isStopped.withLock { $0 = true }
    loop.stop()
    cancelPosted()
  }

  /// Starts a request, whose id counts for nothing; `done` is called once, on the store's thread. `received`: gets the
  /// bytes of a body that comes in pieces, there too.
  package func start(
    _ request: StoreRequest, received: (@Sendable (UnsafeRawBufferPointer, StoredObject) -> Bool)? = nil,
    done: @escaping @Sendable (StoreOutcome) -> Void
  ) {
    var request = request
    request.id = StoreRequestID(numbers(1))
    post(.start(Call(request: request, received: received, done: done)))
  }

  /// Asks, and waits for the outcome: on a thread that nobody waits for.
  package func outcome(
    _ request: StoreRequest, received: (@Sendable (UnsafeRawBufferPointer, StoredObject) -> Bool)? = nil
  ) -> StoreOutcome {
    let result = Lock<StoreOutcome>(.cancelled)
    let signal = Signal()
    start(request, received: received) { outcome in
      result.withLock { $0 = outcome }
      signal.raise()
    }
    signal.wait()
    return result.withLock { $0 }
  }

  /// Finds out which conditions the store keeps; `done` is called on the store's thread, once the probe is over.
  package func probe(nonce: String, done: @escaping @Sendable (StoreProbe.Verdict) -> Void) {
    post(.probe(StoreProbe(first: numbers(StoreProbe.requests), nonce: nonce), done))
  }

  /// The id of a request that gets one when it starts.
  package static let anyID = StoreRequestID(.max)

  private func post(_ message: Message) {
    messages.post(message)
    // After the thread's end nobody else takes it.
    if isStopped.withLock({ $0 }) { cancelPosted() }
  }

  private func cancelPosted() {
    for message in messages.takeAll() {
      switch message {
      case .start(let call): call.done(.cancelled)
      case .probe(_, let done): done(.unknown(.cancelled))
      }
    }
  }

  private func numbers(_ count: UInt64) -> UInt64 {
    next.withLock { next in
      defer { next += count }
      return next
    }
  }

  /// On the store's thread.
  private final class Client: ObjectStoreClient {
    private let store: StoreClient
    private let messages: Mailbox<Message>
    private var calls: [StoreRequestID: Call] = [:]
    private var probes: [(probe: StoreProbe, done: @Sendable (StoreProbe.Verdict) -> Void)] = []

    init(_ store: StoreClient, _ messages: Mailbox<Message>) { (self.store, self.messages) = (store, messages) }

    func turn(now: Instant) -> Instant {
      for message in messages.takeAll() {
        switch message {
        case .start(let call):
          calls[call.request.id] = call
          store.start(call.request)
        case .probe(let probe, let done):
          probes.append((probe, done))
          for request in probe.begin() { store.start(request) }
        }
      }
      return .never
    }

    func store(_ id: StoreRequestID, received bytes: UnsafeRawBufferPointer, of object: StoredObject) -> Bool {
      calls[id]?.received?(bytes, object) ?? false
    }

    func store(_ id: StoreRequestID, ended outcome: StoreOutcome) {
      if let call = calls.removeValue(forKey: id) { return call.done(outcome) }
      guard let index = probes.firstIndex(where: { $0.probe.owns(id) }) else { return }
      let requests = probes[index].probe.ended(outcome)
      if !requests.isEmpty {
        for request in requests { store.start(request) }
      } else if let verdict = probes[index].probe.verdict {
        probes.remove(at: index).done(verdict)
      }
    }
  }
}
