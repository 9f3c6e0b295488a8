import Base
import Fetching

/// An object store over the loop's transfers. It is a part of the ``TransferClient`` of that loop, which hands it what
/// concerns its transfers (``owns(_:)``), and asks it each turn.
///
/// The loop's thread alone uses it. A request goes once more if a store refuses it for the time that it was signed at,
/// or for keys that are renewed by now.
package final class StoreClient: ObjectStore {
  /// A class, so that bytes are added where they lie.
  private final class Running {
    let request: StoreRequest
    /// When it has no time left: not while it waits for its turn.
    var deadline = Instant.never
    /// What its key says that the object is.
    let kind: ObjectName.Kind
    /// nil while it waits for its turn.
    var transfer: TransferID?
    var signedAt: Int64 = 0
    var credentials: StoreCredentials?
    var wasResigned = false
    var wasRenewed = false
    var head: ResponseHead?
    var object = StoredObject()
    var body: [UInt8] = []
    var checksum = CRC32C()
    var received: Int64 = 0
    /// How it ends, if that is decided before its transfer ends.
    var outcome: StoreOutcome?

    init(_ request: StoreRequest) {
      self.request = request
      kind = ObjectName.kind(of: request.key)
    }

    var isSuccess: Bool { head.map { (200..<300).contains($0.status) } ?? false }
    var isOfHead: Bool { if case .head = request.action { true } else { false } }
    var isOfList: Bool { if case .list = request.action { true } else { false } }
    var isInPieces: Bool { if case .get(_, true) = request.action { isSuccess } else { false } }
  }

  /// The transfers of a store have numbers from here; those of all others are less.
  private static let firstTransfer: UInt64 = 1 << 63
  /// The most bytes of a reason, or of a list.
  private static let largestDocument = 4 << 20

  private let setup: StoreSetup
  private let commands: TransferCommands
  private weak var client: (any ObjectStoreClient)?
  private var signing: StoreSigning
  private var clock = ServerClock()
  private var lanes: StoreLanes
  private var running: [StoreRequestID: Running] = [:]
  private var requests: [TransferID: StoreRequestID] = [:]
  /// Told in the next turn.
  private var ended: [(StoreRequestID, StoreOutcome)] = []
  private var nextTransfer = firstTransfer
  private var isOver = false
  /// Whether the loop is over: what ended since was cancelled because of that.
  var isEnding: Bool { isOver }

  package init(_ setup: StoreSetup, _ commands: TransferCommands) {
    (self.setup, self.commands) = (setup, commands)
    signing = StoreSigning(location: setup.location, credentials: setup.credentials)
    lanes = StoreLanes(setup.limits)
  }

  /// Who hears of the requests; to be set before the first.
  package func report(to client: any ObjectStoreClient) { self.client = client }

  /// Whether a transfer is a store's.
  package static func owns(_ id: TransferID) -> Bool { id.rawValue >= firstTransfer }

  /// This moment by the store's clock, as its last Date tells it, in seconds since 1970; before the first Date, by this
  /// machine's. Each answer tells anew: this machine's clock may be set meanwhile.
  package var time: Int64 { setup.clock() + clock.ahead }

  /// The location, for messages and for bodies.
  package var location: StoreLocation { setup.location }

  package func start(_ request: StoreRequest) {
    precondition(running[request.id] == nil, "a request's id is used once")
    if isOver { return }
    running[request.id] = Running(request)
    lanes.add(request.id, request.lane)
    startNext()
  }

  package func cancel(_ id: StoreRequestID) {
    if running[id] != nil { end(id, .cancelled) }
  }

  /// Ends every request as cancelled at once, because the loop is over. Requests that start from now on are not heard
  /// of again.
  package func giveUp() {
    isOver = true
    requests = [:]  // the loop takes no command any more
    for id in running.keys { end(id, .cancelled) }
    _ = turn(now: .now)
  }

  // MARK: What the loop's client hands over

  /// Tells what ended, and ends what has no time left. Returns the latest time for the next call.
  package func turn(now: Instant) -> Instant {
    for (id, state) in running where state.deadline <= now { end(id, .timedOut) }
    while !ended.isEmpty {
      let told = ended
      ended = []
      for (id, outcome) in told { client?.store(id, ended: outcome) }
    }
    return deadline
  }

  /// The latest time for the next turn.
  package var deadline: Instant {
    ended.isEmpty ? running.values.reduce(.never) { min($0, $1.deadline) } : Instant(nanoseconds: 0)
  }

  package func transfer(_ transfer: TransferID, responded head: ResponseHead) -> Bool {
    guard let state = requests[transfer].flatMap({ running[$0] }), let answer = head.object else { return false }
    if let date = head.date { clock.heard(date, at: setup.clock()) }
    state.head = head
    state.object = Self.object(head, answer)
    if let length = answer.length, length <= most(state), !state.isInPieces, !state.isOfHead {
      state.body.reserveCapacity(Int(length))
    }
    return true
  }

  package func transfer(_ transfer: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
    guard let id = requests[transfer], let state = running[id] else { return false }
    state.received += Int64(bytes.count)
    if state.isSuccess { state.checksum.add(bytes) }
    if state.isInPieces {
      if client?.store(id, received: bytes, of: state.object) == true { return true }
      state.outcome = .cancelled
      return false
    }
    return keep(bytes, state)
  }

  package func transfer(_ transfer: TransferID, ended end: TransferEnd) {
    guard let id = requests.removeValue(forKey: transfer), let state = running[id] else { return }
    let judge = StoreJudge(location: setup.location, credentials: signing.credentials)
    let outcome: StoreOutcome
    switch end {
    case .finished: outcome = state.outcome ?? conclude(state, judge)
    case .cancelled: outcome = state.outcome ?? .cancelled
    case .failed(let failure): outcome = state.outcome ?? judge.failure(failure)
    }
    if case .refused = outcome, isWorthAnother(state) { return again(state) }
    self.end(id, outcome)
    // At once: who waits for it need not wait for the next turn.
    _ = turn(now: .now)
  }

  // MARK: Running

  private func startNext() {
    while !isOver, let id = lanes.next() { send(id) }
  }

  private func send(_ id: StoreRequestID) {
    guard let state = running[id] else { return }
    let transfer = TransferID(nextTransfer)
    nextTransfer += 1
    let now = clock.time(setup.clock())
    (state.transfer, state.signedAt, state.credentials) = (transfer, now, signing.credentials)
    if state.deadline == .never { state.deadline = Instant.now.adding(seconds: state.request.timeout) }
    requests[transfer] = id
    commands.start(signing.transfer(state.request, as: transfer, time: now))
  }

  private func end(_ id: StoreRequestID, _ outcome: StoreOutcome) {
    guard let state = running.removeValue(forKey: id) else { return }
    if let transfer = state.transfer, requests.removeValue(forKey: transfer) != nil { commands.cancel(transfer) }
    lanes.ended(id, state.request.lane, didRun: state.transfer != nil)
    ended.append((id, outcome))
    startNext()
  }

  /// Whether a refused request may be taken now: the clock or the keys it was signed with are others by now.
  private func isWorthAnother(_ state: Running) -> Bool {
    guard let status = state.head?.status, [400, 401, 403].contains(status) else { return false }
    if !state.wasResigned, clock.isOff(state.signedAt, at: setup.clock()) {
      state.wasResigned = true
      return true
    }
    // A HEAD has no body that tells the reason.
    guard !state.wasRenewed, let code = StoreXML.error(state.body).code, StoreJudge.codesOfKeys.contains(code) else {
      return false
    }
    if state.credentials == signing.credentials {
      guard let found = setup.renew(), found != signing.credentials else { return false }
      signing.credentials = found
    }
    state.wasRenewed = true
    return true
  }

  private func again(_ state: Running) {
    (state.head, state.object, state.body) = (nil, StoredObject(), [])
    (state.checksum, state.received, state.outcome) = (CRC32C(), 0, nil)
    send(state.request.id)
  }

  // MARK: Answers

  /// The most bytes of an answer. A store that sends more has no object of ours: that counts as one without bytes,
  /// which no reader takes, and not as a failure of the store.
  private func most(_ state: Running) -> Int {
    guard state.isSuccess, !state.isOfList else { return Self.largestDocument }
    return state.kind.limit ?? setup.largestObject
  }

  private func keep(_ bytes: UnsafeRawBufferPointer, _ state: Running) -> Bool {
    let limit = most(state)
    guard state.body.count + bytes.count <= limit else {
      if state.isSuccess, !state.isOfList, state.kind.limit != nil {
        state.outcome = .found(state.object)
      } else {
        state.outcome = StoreJudge(location: setup.location, credentials: signing.credentials)
          .broken("the answer is longer than \(limit >> 20) MiB")
      }
      return false
    }
    state.body.append(contentsOf: bytes)
    return true
  }

  private func conclude(_ state: Running, _ judge: StoreJudge) -> StoreOutcome {
    guard let head = state.head, let answer = head.object else { return judge.broken("no answer came") }
    if let failure = judge.failure(head.status, answer, state.body, of: state.request.action) { return failure }
    switch state.request.action {
    case .put: return .written(etag: state.object.etag)
    case .delete: return .deleted
    case .head: return .found(state.object)
    case .get: return concludeGet(state)
    case .list(let query):
      switch StoreXML.listing(state.body, from: query.continuation) {
      case .failure(let fault): return judge.broken("its list cannot be read: \(fault.reason)")
      case .success(var listing):
        listing.entries = listing.entries.compactMap { entry in
          var entry = entry
          guard let key = setup.location.key(of: entry.key) else { return nil }
          entry.key = key
          return entry
        }
        listing.folders = listing.folders.compactMap { setup.location.key(of: $0) }
        return .listed(listing)
      }
    }
  }

  private func concludeGet(_ state: Running) -> StoreOutcome {
    var object = state.object
    // The checksum is that of the whole object.
    if object.range == nil {
      object.size = object.size ?? state.received
      if let checksum = object.checksum, checksum != state.checksum.text {
        let reason = "\(setup.location.description): the object \(state.request.key) is not what was stored"
        return .rotten(etag: object.etag, reason: "\(reason) (CRC-32C \(state.checksum.text), not \(checksum))")
      }
    }
    object.body = state.body
    return .found(object)
  }

  private static func object(_ head: ResponseHead, _ answer: ObjectAnswer) -> StoredObject {
    var object = StoredObject(size: answer.length, date: head.date)
    // One that cannot be sent back, or that stands for several objects, is none.
    if let tag = head.validators.etag, tag.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
      !head.validators.etagIsWeak || !tag.hasPrefix("\"")
    {
      object.etag = tag
    }
    if case .part(let range, let total) = head.body { (object.range, object.size) = (range, total) }
    let prefix = "x-amz-meta-"
    for (name, value) in answer.fields where name.hasPrefix(prefix) {
      object.meta[String(name.dropFirst(prefix.count))] = value
    }
    object.checksum = object.meta.removeValue(forKey: StoreSigning.checksumName)
    return object
  }
}
