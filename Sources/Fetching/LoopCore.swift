import Base
import CCurl
import Glibc

/// The loop: its turns, the transfers under way, and when each is over.
///
/// One turn:
///
///     perform    libcurl moves every transfer it can; its callbacks hand heads and bytes to the client
///     settle     transfers that libcurl is through with follow their redirect or end
///     ask        client.turn: what it wants next, and when to be asked again
///     command    the starts and cancels that the client issued in any of these calls are carried out
///     wait       curl_multi_poll until a socket, a timer of libcurl's, the client's deadline or a wake
///
/// Starts and cancels are always queued: libcurl forbids adding and removing handles from within its callbacks, and one
/// rule for all places is simpler to reason about. Nothing is ever waited for but in the last step.
///
/// `@unchecked Sendable`: made by one thread, then handed to the loop's, which alone touches everything here but
/// `waker`. ``TransferCommands``, which reaches it, stays on that thread; what it calls checks so.
final class LoopCore: @unchecked Sendable {
  /// How long the body of a redirect or a refusal may take to come; it mostly comes with the head.
  private static let discardSeconds = 0.25
  /// Handles kept for reuse; one costs about 10 KiB while idle.
  private static let pooledSlots = 64

  let waker: LoopWaker
  let setup: HandleSetup
  private(set) var multi: MultiHandle
  /// The client, for the time of `run`.
  private(set) var client: any TransferClient = NoClient()

  private var thread: pthread_t?
  private var active: [TransferID: TransferSlot] = [:]
  private var idle: [TransferSlot] = []
  private var commands = QueuedCommands()
  private var discarding: [TransferID: Instant] = [:]
  /// Transfers whose body is the whole, of any length: nobody asks for it piece by piece, as the rate allows.
  private var wholes: Set<TransferID> = []
  private var gathered = GatheredBytes()

  init(options: TransferOptions) throws(FetchError) {
    guard globalInitCode == CURLE_OK else { throw .library(String(cString: curl_easy_strerror(globalInitCode))) }
    setup = try HandleSetup(options: options)
    waker = try LoopWaker()
    multi = try MultiHandle(setup)
  }

  deinit { idle.removeAll() }  // handles before what they share

  // MARK: Commands, from within the client's calls

  func start(_ request: TransferRequest) {
    checkThread()
    commands.start(request)
  }

  func cancel(_ id: TransferID) {
    checkThread()
    active[id]?.isCancelled = true  // no byte more, also while libcurl goes on
    commands.cancel(id)
  }

  func dropConnections() {
    checkThread()
    commands.dropConnections()
  }

  /// The slot reads a body that is not wanted: not for long.
  func expectEnd(of slot: TransferSlot) {
    discarding[slot.id] = Instant.now.adding(seconds: Self.discardSeconds)
  }

  /// The slot's body is a whole one: with the others it gets the rate that is allowed, but for a little, so that
  /// windows that are asked for beside them have their turn.
  func beganWhole(_ slot: TransferSlot) {
    wholes.insert(slot.id)
    shareRate()
  }

  private func shareRate() {
    guard let rate = setup.options.maximumRate, !wholes.isEmpty else { return }
    let share = max(1, rate * 9 / 10 / Int64(wholes.count))
    for id in wholes { active[id]?.easy.limit(rate: share) }
  }

  private func forget(_ id: TransferID) {
    active[id] = nil
    discarding[id] = nil
    if wholes.remove(id) != nil { shareRate() }
  }

  private func checkThread() {
    precondition(
      thread.map { pthread_equal($0, pthread_self()) != 0 } == true,
      "transfers are started and cancelled from within the client's calls")
  }

  // MARK: The loop

  /// Runs until the waker is told to stop; then every transfer has ended.
  func run(_ makeClient: (TransferCommands) -> any TransferClient) {
    thread = pthread_self()
    let client = makeClient(TransferCommands(core: self))
    self.client = client
    while !waker.isStopping {
      perform()
      settle()
      let deadline = client.turn(now: .now)
      let hasNews = obey()
      if !hasNews && !waker.isStopping { wait(until: deadline) }
    }
    finish()
    self.client = NoClient()
    thread = nil
  }

  private func perform() {
    multi.perform()
    handOver()
  }

  // MARK: Bytes

  /// Takes what libcurl brings for `slot`, in pieces of 16 KiB however much it has read, and puts it together for the
  /// client: a write to the store and all that goes with it is made once for eight of them. It is handed over when
  /// libcurl has nothing more at the moment, so nobody waits for it any longer. False: the client wants no more.
  func gather(_ bytes: UnsafeRawBufferPointer, for slot: TransferSlot) -> Bool {
    if !gathered.takes(bytes.count, for: slot) { handOver() }
    if slot.isCancelled || slot.isRefused { return false }
    if bytes.count > GatheredBytes.limit { return client.transfer(slot.id, received: bytes) }
    gathered.add(bytes, for: slot)
    return true
  }

  private func handOver() {
    guard let (slot, bytes) = gathered.take() else { return }
    if slot.isCancelled || client.transfer(slot.id, received: bytes) { return }
    slot.refuse()
    commands.cancel(slot.id)  // for when libcurl has no byte more, and so does not ask
  }

  private func settle() {
    tellEnds()
    while let (slot, code) = multi.nextDone() { conclude(slot, code) }
    if discarding.isEmpty { return }
    let now = Instant.now
    for (id, deadline) in discarding where deadline <= now {
      if let slot = active[id] { conclude(slot, nil) }
    }
  }

  private func conclude(_ slot: TransferSlot, _ code: CURLcode?) {
    let conclusion = slot.conclude(code ?? CURLE_OK)
    slot.detach(from: multi.raw, code)
    discarding[slot.id] = nil
    switch conclusion {
    case .ended(let end): retire(slot, end)
    case .redirected(let location, let mayStore):
      do throws(TransferFailure) {
        try slot.follow(location, mayStore: mayStore)
        try slot.connect()
      } catch {
        retire(slot, .failed(error))
      }
    }
  }

  /// Tells the client that a transfer is over, and takes its slot back.
  private func retire(_ slot: TransferSlot, _ end: TransferEnd) {
    let id = slot.id
    forget(id)
    pool(slot)
    tell(id, end)
  }

  private func pool(_ slot: TransferSlot) {
    slot.end()
    if !slot.isSpent && idle.count < Self.pooledSlots { idle.append(slot) }
  }

  private func tell(_ id: TransferID, _ end: TransferEnd) {
    switch end {
    case .finished: Log.debug("transfer \(id.rawValue): finished")
    case .cancelled: Log.debug("transfer \(id.rawValue): cancelled")
    case .failed(let failure): Log.debug("transfer \(id.rawValue): failed (\(failure.kind)): \(failure.message)")
    }
    client.transfer(id, ended: end)
  }

  private func tellEnds() {
    for (id, end) in commands.takeEnds() { tell(id, end) }
  }

  /// Carries out the commands. Returns whether there is something to do before waiting.
  private func obey() -> Bool {
    let obeyed = commands.take()
    for command in obeyed {
      switch command {
      case .start(let request): begin(request)
      case .cancel(let id): drop(id, .cancelled)
      case .dropConnections: replaceMulti()
      }
    }
    return !obeyed.isEmpty
  }

  private func begin(_ request: TransferRequest) {
    precondition(active[request.id] == nil, "a transfer's name is used once")
    do throws(TransferFailure) {
      let chain = try RedirectChain(request, options: setup.options)
      guard let slot = idle.popLast() ?? TransferSlot(loop: self) else {
        throw TransferFailure(kind: .transient, message: "\(Log.redacted(url: request.url)): out of memory")
      }
      slot.begin(request, chain)
      active[request.id] = slot
      try slot.connect()
    } catch {
      if let slot = active.removeValue(forKey: request.id) { pool(slot) }
      commands.ended(request.id, .failed(error))
    }
  }

  /// Takes a transfer out; its end is told in the next turn.
  private func drop(_ id: TransferID, _ end: TransferEnd) {
    guard let slot = active[id] else { return }
    forget(id)
    slot.detach(from: multi.raw, nil)
    pool(slot)
    commands.ended(id, end)
  }

  /// libcurl 7.88 closes connections only with the handle that has them.
  private func replaceMulti() {
    for (id, slot) in active {
      let message = "\(slot.redactedURL): the connection was dropped, as the network may have changed"
      drop(id, slot.isCancelled ? .cancelled : .failed(TransferFailure(kind: .transient, message: message)))
    }
    do throws(FetchError) {
      multi = try MultiHandle(setup)
    } catch {
      Log.warning("the idle connections cannot be dropped: \(error)")
    }
  }

  /// Waits for the next thing to do. libcurl's own timers shorten this inside curl_multi_poll.
  private func wait(until deadline: Instant) {
    let next = discarding.values.reduce(deadline, min)
    let nanoseconds = next.nanoseconds.subtractingReportingOverflow(Instant.now.nanoseconds)
    // Rounded up, so as not to turn several times within the last millisecond; at least one, so that a deadline which
    // has passed can never make the loop spin.
    let left = nanoseconds.overflow ? Int64.max : nanoseconds.partialValue
    let milliseconds = Int32(clamping: max(1, left / 1_000_000 + 1))
    if multi.wait(milliseconds: milliseconds, or: waker.descriptor) { waker.clear() }
  }

  private func finish() {
    commands.refuse()
    for id in active.keys { drop(id, .cancelled) }
    tellEnds()
    idle.removeAll()
  }
}

/// libcurl's global state, made once for the process and never taken down, since others may use libcurl too.
private let globalInitCode: CURLcode = curl_global_init(Int(CURL_GLOBAL_DEFAULT))

/// Stands in while the loop does not run.
private final class NoClient: TransferClient {
  func turn(now: Instant) -> Instant { .never }
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool { false }
  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool { false }
  func transfer(_ id: TransferID, ended end: TransferEnd) {}
}
