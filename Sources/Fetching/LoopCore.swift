import Base
import CCurl
import CSystem
import Glibc

/// The loop: its turns, the transfers in flight, and their ends.
///
/// One turn:
///
///     perform    libcurl moves every transfer it can; its callbacks hand heads and bytes to the client
///     settle     transfers that libcurl has finished follow their redirect or end
///     ask        client.turn: the client starts and cancels transfers, and says when to ask again
///     command    the loop executes the starts and cancels that the client issued in any of these calls
///     wait       curl_multi_poll: a socket, a timer of libcurl's, the client's deadline or a wake ends it
///
/// The loop always queues starts and cancels: libcurl forbids adding and removing handles within its callbacks, and one
/// rule for all places is simpler. The loop waits in the last step only.
///
/// `@unchecked Sendable`: one thread makes it and hands it to the loop's thread. From then on that thread alone touches
/// everything here but `waker`; ``TransferCommands`` stays on it too, and its methods check that. `deinit` runs on the
/// thread that drops the last reference: after the join, or on the loop's own thread.
final class LoopCore: @unchecked Sendable {
  /// How long the body of a redirect or a refusal may take to arrive; it mostly comes with the head.
  private static let discardSeconds = 0.25
  /// How many handles are kept for reuse; an idle one costs about 10 KiB.
  private static let pooledSlots = 64

  let waker: LoopWaker
  let setup: HandleSetup
  private(set) var multi: MultiHandle
  let spares: SpareConnections
  /// The client, while `run` runs.
  private(set) var client: any TransferClient = NoClient()

  private var thread: pthread_t?
  private var active: [TransferID: TransferSlot] = [:]
  private var idle: [TransferSlot] = []
  private var commands = QueuedCommands()
  private var discarding: [TransferID: Instant] = [:]
  /// Transfers without a range. The planner cannot pace them, so libcurl limits their rate.
  private var wholes: Set<TransferID> = []
  private var gathered = GatheredBytes()
  /// The sockets that libcurl made: 7.88 tells a socket only then, and closes it without a word. So any of them may be
  /// closed, or another connection's, by now.
  private var made: Set<Int32> = []
  /// Those that were asked for packets out of order, by their local ports.
  private var sockets: [Int: Int32] = [:]
  private static let mostSockets = 256

  init(options: TransferOptions) throws(FetchError) {
    guard globalInitCode == CURLE_OK else { throw .library(String(cString: curl_easy_strerror(globalInitCode))) }
    setup = try HandleSetup(options: options)
    spares = SpareConnections(seconds: options.spareSeconds)
    waker = try LoopWaker()
    multi = try MultiHandle(setup)
  }

  deinit { idle.removeAll() }  // the handles before what they share

  // MARK: Commands, from within the client's calls

  func start(_ request: TransferRequest) {
    checkThread()
    commands.start(request)
  }

  func cancel(_ id: TransferID) {
    checkThread()
    active[id]?.isCancelled = true  // the client gets no byte more, even while libcurl continues
    commands.cancel(id)
  }

  func dropConnections() {
    checkThread()
    commands.dropConnections()
  }

  /// The slot reads a body that nobody wants: the loop gives it a deadline.
  func expectEnd(of slot: TransferSlot) {
    discarding[slot.id] = Instant.now.adding(seconds: Self.discardSeconds)
  }

  /// The slot receives a whole body. All whole-body transfers share nine tenths of the rate limit; the rest is for
  /// windows.
  func beganWhole(_ slot: TransferSlot) {
    wholes.insert(slot.id)
    shareRate()
  }

  private func shareRate() {
    let slots = wholes.compactMap { active[$0] }
    for slot in slots {
      let ofAll = setup.rates.all.map { $0 / 10 * 9 / Int64(slots.count) }
      let ofHost = setup.rates.hosts[slot.host].map { rate in
        rate / 10 * 9 / Int64(slots.count { $0.host == slot.host })
      }
      // 0: no limit.
      slot.easy.limit(rate: [ofAll, ofHost].compactMap { $0 }.min().map { max(1, $0) } ?? 0)
    }
  }

  /// From now on these limits hold, also for whole bodies in flight.
  func limit(_ rates: TransferRates) {
    checkThread()
    setup.rates = rates
    shareRate()
  }

  /// How many packets came out of order over the connection of a transfer; nil: unknown.
  func misorderedPackets(of id: TransferID) -> Int? {
    checkThread()
    guard let port = active[id]?.localPort else { return nil }
    func count(_ socket: Int32) -> Int? {
      let found = csystem_misordered_packets(socket, Int32(port))
      return found < 0 ? nil : Int(found)
    }
    var found = sockets[port].flatMap(count)
    if found == nil {
      if sockets.count >= Self.mostSockets { sockets = [:] }
      sockets[port] = made.first { socket in
        found = count(socket)
        return found != nil
      }
    }
    if let found { Log.debug("transfer \(id.rawValue): \(found) packets out of order so far") }
    return found
  }

  private func forget(_ id: TransferID) {
    active[id] = nil
    discarding[id] = nil
    if wholes.remove(id) != nil { shareRate() }
  }

  private func checkThread() {
    precondition(
      thread.map { pthread_equal($0, pthread_self()) != 0 } == true,
      "a client starts and cancels transfers on the loop's thread alone")
  }

  /// libcurl made a socket.
  func made(_ socket: Int32) { made.insert(socket) }

  // MARK: The loop

  /// Runs until the waker is told to stop. Every transfer has ended when it returns.
  func run(_ makeClient: (TransferCommands) -> any TransferClient) {
    thread = pthread_self()
    let client = makeClient(TransferCommands(core: self))
    self.client = client
    while !waker.isStopping || client.isFinishing(now: .now) {
      ThreadRecord.work(.transfers)
      perform()
      settle()
      ThreadRecord.work(.planning)
      let deadline = client.turn(now: .now)
      let hasNews = obey()
      if !hasNews { wait(until: deadline) }
    }
    finish()
    self.client = NoClient()
    thread = nil
  }

  private func perform() {
    multi.perform()
    spares.connect()
    handOver()
  }

  // MARK: Bytes

  /// Joins libcurl's 16 KiB pieces, so that the client writes to the store once for eight of them. The client gets them
  /// as soon as libcurl has no more, so no reader waits longer. Returns false when the client wants no more.
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
    commands.cancel(slot.id)  // in case libcurl gets no more bytes, whose callback would refuse them
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
      request(slot) { slot throws(TransferFailure) in try slot.follow(location, mayStore: mayStore) }
    case .again: request(slot) { _ throws(TransferFailure) in }
    }
  }

  /// Has a slot make its chain's next request.
  private func request(_ slot: TransferSlot, after change: (TransferSlot) throws(TransferFailure) -> Void) {
    do throws(TransferFailure) {
      try change(slot)
      try slot.connect()
    } catch {
      retire(slot, .failed(error))
    }
  }

  /// Reports the end of a transfer to the client, and takes its slot back.
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

  /// Executes the commands. Returns whether there were any: then the loop has work before it waits.
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
    precondition(active[request.id] == nil, "a transfer's id is used once")
    do throws(TransferFailure) {
      let chain = try RedirectChain(request, options: setup.options)
      guard let slot = idle.popLast() ?? TransferSlot(loop: self) else {
        throw TransferFailure(kind: .transient, message: "\(request.shown(request.url)): out of memory")
      }
      slot.begin(request, chain)
      active[request.id] = slot
      try slot.connect()
    } catch {
      if let slot = active.removeValue(forKey: request.id) { pool(slot) }
      commands.ended(request.id, .failed(error))
    }
  }

  /// Removes a transfer. The loop reports its end in the next turn.
  private func drop(_ id: TransferID, _ end: TransferEnd) {
    guard let slot = active[id] else { return }
    forget(id)
    slot.detach(from: multi.raw, nil)
    pool(slot)
    commands.ended(id, end)
  }

  /// libcurl 7.88 closes the connections of a multi handle only together with the handle.
  private func replaceMulti() {
    spares.close()
    for (id, slot) in active {
      let message = "\(slot.redactedURL): mediafs dropped the connection, as the network may have changed"
      drop(id, slot.isCancelled ? .cancelled : .failed(TransferFailure(kind: .transient, message: message)))
    }
    do throws(FetchError) {
      multi = try MultiHandle(setup)
    } catch {
      Log.warning("cannot drop the idle connections: \(error)")
    }
  }

  /// Waits for the next event. libcurl's own timers shorten the wait inside curl_multi_poll.
  private func wait(until deadline: Instant) {
    spares.expire(.now)
    let next = discarding.values.reduce(min(deadline, spares.deadline), min)
    let nanoseconds = next.nanoseconds.subtractingReportingOverflow(Instant.now.nanoseconds)
    // Rounded up, so that the loop does not turn several times within the last millisecond. At least one, so that a
    // deadline in the past never makes the loop spin.
    let left = nanoseconds.overflow ? Int64.max : nanoseconds.partialValue
    let milliseconds = Int32(clamping: max(1, left / 1_000_000 + 1))
    ThreadRecord.rest()
    if multi.wait(milliseconds: milliseconds, or: waker.descriptor) { waker.clear() }
  }

  private func finish() {
    commands.refuse()
    spares.close()
    for id in active.keys { drop(id, .cancelled) }
    tellEnds()
    idle.removeAll()
  }
}

/// libcurl's global state. mediafs initializes it once and never cleans it up, since other code may use libcurl too.
private let globalInitCode: CURLcode = curl_global_init(Int(CURL_GLOBAL_DEFAULT))

/// The client while the loop does not run.
private final class NoClient: TransferClient {
  func turn(now: Instant) -> Instant { .never }
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool { false }
  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool { false }
  func transfer(_ id: TransferID, ended end: TransferEnd) {}
}
