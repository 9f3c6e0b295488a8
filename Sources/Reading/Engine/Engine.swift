import Base
import Fetching
import Glibc
import Manifest
import Storing

/// Brings what readers wait for: plans, starts and follows transfers, stores what they bring and answers.
///
/// Threads: FUSE threads park reads in a ``Content`` and post a ``Command``; everything under "the transfer thread's
/// own" is touched by the thread that calls the ``TransferClient`` methods alone, so that planning needs no lock. The
/// keeper commits, the finisher verifies and places, each on a thread of its own.
final class Engine: @unchecked Sendable {
  // @unchecked: `port` and `service` are written once, before any thread starts; the transfer thread's own fields are
  // reached from its callbacks only; everything else is immutable or guards itself.

  /// What other threads ask of the transfer thread.
  enum Command {
    /// Somebody waits, or what is stored has changed.
    case touched(Content)
    /// A file was opened: a failed one is tried again, a policy may begin to fetch.
    case opened(Content)
    /// A user wants it whole.
    case fetch(Content)
    /// Its size will be asked for soon, as one of many.
    case lookAhead([Content])
    /// It was played before this mount: go on.
    case resume(Content)
    /// Take its bytes away: all transfers end and nothing is written until `thaw`; `then` runs on the keeper.
    case freeze(Content, then: @Sendable () -> Void)
    /// Take its bytes away if nobody has a use for them at the moment.
    case evict(Content)
    /// Its bytes are gone; it can be fetched again.
    case thaw(Content)
    /// Its inode cannot be opened any more: give it another one, and answer the open, which is counted, with ESTALE.
    case renew(Content, Inode, Ticket)
    /// It is verified and in the library.
    case completed(Content)
    /// It is whole, but not what it should be, or it cannot be placed.
    case rejected(Content, message: String, isWrong: Bool)
    /// Its disk lost what was not synced: that is missing again.
    /// `lost`: what was read of it may have been zeros. Nothing is stored of it until then.
    case distrusted(Content, message: String, lost: ByteRange?, pausedUntil: Instant)
    /// Of what was asked for or played before, everything up to this place was looked at; nil: all of it.
    case resumedUntil(Resuming.Place?)
    /// Drop every connection and ask anew: the network changed.
    case reconnect
  }

  let store: StoreAccess
  let options: ReadingOptions
  let clock: Clock
  /// Shown as the time of what has none of its own, in seconds since 1970.
  let mountedAt: Int64
  /// Generations from this id on began in this mount.
  let firstIDOfMount: Int64
  let table = Lock(Table())
  let keeper: Keeper
  let finisher: Finisher
  private let inbox = Lock<[Command]>([])
  private(set) var port: (any ReplyPort)!
  private(set) var service: (any TransferService)!

  // The transfer thread's own.
  var sources: [ResourceKey: Source] = [:]
  var owners: [TransferID: Source] = [:]
  var hosts: [String: HostState] = [:]
  var dirty: Set<ResourceKey> = []
  /// Resources that failed their checksum and were fetched once more: not again before a user asks for it.
  var refetched: Set<ResourceKey> = []
  var hungry: Set<ResourceKey> = []
  var starts: [PendingStart] = []
  var lastTransfer: UInt64 = 0
  /// The store is at its limit: nothing is fetched that nobody reads. As of this turn.
  var isAtLimit = false
  /// The store takes no more: what readers wait for is kept in memory for a while (P9). As of this turn.
  var isFull = false
  /// What `--limit-rate` leaves.
  var allowance: RateAllowance
  /// Files that are open, as of the last look.
  var openFiles = 0
  /// How long stats may wait for sizes yet.
  var patience: StatPatience
  /// Questions to silent hosts that are out: those of the last look, and those since.
  var questions = 0
  /// Where the list of unfinished files is.
  var resuming = Resuming()
  private var nextTick = Instant.never
  /// When a continuation that stood back for its turn on the line may be asked for.
  var nextTurn = Instant.never
  private var lastTurn: Instant?
  private var nextSweep = Instant(nanoseconds: 0)
  /// The jitter of retries, in 0..<1; a test gives its own.
  var jitter: @Sendable () -> Double = { Double.random(in: 0..<1) }
  /// Replies are read into this: as long as the longest READ.
  let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)

  init(store: StoreAccess, options: ReadingOptions, clock: Clock = .system) throws(StoreError) {
    self.store = store
    self.options = options
    self.clock = clock
    mountedAt = clock.date
    firstIDOfMount = try store.catalog.nextID()
    allowance = RateAllowance(limit: options.rateLimit)
    patience = StatPatience(timeout: options.timeout)
    keeper = Keeper(store: store, options: options, clock: clock)
    finisher = Finisher(store: store)
    keeper.engine = self
    finisher.engine = self
  }

  deinit { scratch.deallocate() }

  /// A line of which nothing is known yet.
  var newHost: HostState { HostState(connections: options.connections) }

  private let ending = Lock(false)
  /// Whether the server ends: nobody is to wait for long work any more.
  var isEnding: Bool { ending.withLock { $0 } }
  func beginEnding() { ending.withLock { $0 = true } }

  func connect(port: any ReplyPort) { self.port = port }

  func connect(service: any TransferService) { self.service = service }

  /// Hands a command to the transfer thread. From any thread.
  func post(_ command: Command) {
    let wasEmpty = inbox.withLock { inbox in
      inbox.append(command)
      return inbox.count == 1
    }
    if wasEmpty { service.wake() }
  }

  /// Drops what was still to be done: it refers back to this object. When every thread has ended.
  func abandon() {
    inbox.withLock { $0 = [] }
    sources = [:]
    owners = [:]
  }

  // MARK: The transfer thread

  /// How often a resource with something going on is looked at, in seconds: fast enough for play-ahead to follow a
  /// reader.
  private static let tick = 0.05
  /// How often resources with nothing going on are put away.
  private static let sweep = 5.0

  func turn(now: Instant) -> Instant {
    noticeGap(now)
    (isAtLimit, isFull) = keeper.room
    let commands = inbox.withLock { inbox in
      let commands = inbox
      inbox.removeAll(keepingCapacity: true)
      return commands
    }
    var isLookDue = now >= nextTick
    for command in commands {
      // A listing of a silent host's files must not cost a look at all of them for each of its stats.
      if case .touched(let content) = command, answersStats(of: source(of: content), now) { continue }
      handle(command, now)
      isLookDue = true
    }
    if isLookDue { look(now) } else if nextTick == .never, !commands.isEmpty { nextTick = nextSweep }
    if now >= nextTurn {
      nextTurn = .never
      feedHungry()
    }
    planDirty(now)
    return min(nextTick, nextTurn)
  }

  /// A machine that slept, or a process that was stopped: nobody is judged by that time. Who knows of the network drops
  /// the connections, a little later (``reconnect(_:)``).
  private func noticeGap(_ now: Instant) {
    defer { lastTurn = now }
    guard let lastTurn, nextTick != .never, now.seconds(since: max(lastTurn, nextTick)) > 5 else { return }
    patience.restart()
    for source in sources.values {
      source.content.guarded.withLock { $0.state.restartWaits(now) }
      for index in source.transfers.indices { source.transfers[index].lastByte = now }
    }
  }

  /// Dead connections are dropped, and nobody is judged by the time that was lost.
  private func reconnect(_ now: Instant) {
    patience.restart()
    for source in sources.values {
      source.content.guarded.withLock { $0.state.restartWaits(now) }
      source.retry.progressed()
      dirty.insert(source.key)
    }
    service.dropConnections()
    for host in hosts.keys { hosts[host]?.forgetOutage(now) }
  }

  /// All sources in an order that does not change from run to run, as that of a dictionary does: for decisions on one
  /// that bear on the next.
  var sourcesInOrder: [Source] { sources.values.sorted { $0.key < $1.key } }

  /// The source of a content; made when there is none, taken over when the content is a newer object of the same
  /// resource.
  func source(of content: Content) -> Source {
    if let source = sources[content.key] {
      let isCurrent = table.withLock { $0.current[content.key] === content }
      if source.content !== content && isCurrent { source.content = content }
      return source
    }
    // The command may be older than a new generation of its resource.
    let current = table.withLock { $0.current[content.key] } ?? content
    let source = Source(content: current, timeout: options.timeout)
    source.pausedUntil = keeper.pause(of: content.key)
    source.lastError = table.withLock { $0.errors[content.key] }
    source.isRequested = current.guarded.withLock(\.isPinned)
    sources[content.key] = source
    return source
  }

  private func handle(_ command: Command, _ now: Instant) {
    switch command {
    case .touched(let content):
      let source = source(of: content)
      if source.failure != nil, content.guarded.withLock({ $0.state.hasWaiters }) { forgive(source) }
      dirty.insert(source.key)
    case .opened(let content):
      let source = source(of: content)
      if source.failure != nil { forgive(source) }
      source.retry.hurry()
      source.cannotBeStored = false
      // It was played, or asked for, before and then put away, as it had failed.
      let goesOn = content.guarded.withLock { guarded in
        guarded.phase == .partial && (guarded.generation?.continues == true || guarded.isPinned)
      }
      if goesOn { source.continues = true }
      if options.continuation == .always { arm(source) }
      dirty.insert(source.key)
    case .fetch(let content):
      let source = source(of: content)
      if source.failure != nil { forgive(source) }
      source.retry.hurry()
      source.cannotBeStored = false
      pin(source)
      refetched.remove(source.key)
      arm(source)
      dirty.insert(source.key)
    case .resume(let content):
      // Put away since it was looked up: its turn comes again.
      if content.guarded.withLock({ $0.isAway }) { return resuming.hasLeftOut = true }
      let source = source(of: content)
      source.continues = true
      dirty.insert(source.key)
    case .lookAhead(let contents):
      for content in contents {
        let source = source(of: content)
        source.wantsHead = true
        dirty.insert(source.key)
      }
    case .freeze(let content, let then):
      let source = source(of: content)
      let isTaken = content.guarded.withLock { guarded -> Bool in
        if guarded.phase == .completing || guarded.isFrozen { return false }
        guarded.isFrozen = true
        return true
      }
      // The finisher (or the keeper) has it in its hands; it is asked again when that is over.
      guard isTaken else { return source.postponed.append(command) }
      for running in source.transfers { cancel(running.active.id, of: source) }
      source.continues = false
      unpin(source)
      keeper.perform(then)
    case .evict(let content):
      guard let source = sources[content.key], source.content === content, source.transfers.isEmpty, !source.continues
      else { return }
      let isTaken = content.guarded.withLock { guarded -> Bool in
        guard guarded.isIdle else { return false }
        guarded.isFrozen = true
        return true
      }
      guard isTaken else { return }
      keeper.perform { [self] in
        discard(content, keepsCopy: true)
        post(.thaw(content))
      }
    case .thaw(let content):
      content.guarded.withLock { $0.isFrozen = false }
      keeper.markDirty(content)  // where it could not be taken away, it is still to be committed
      let source = source(of: content)
      source.cannotBeStored = false
      dirty.insert(source.key)
      carryOutPostponed(source)
    case .renew(let content, let inode, let ticket): renew(content, inode, ticket)
    case .completed(let content):
      let source = source(of: content)
      source.continues = false
      unpin(source)
      forgetError(of: source)
      publish(source, now)
      carryOutPostponed(source)
    case .rejected(let content, let message, let isWrong):
      let source = source(of: content)
      rejected(source, message: message, isWrong: isWrong, now)
      carryOutPostponed(source)
    case .distrusted(let content, let message, let lost, let pausedUntil):
      let source = source(of: content)
      note(message, of: source)
      source.pausedUntil = pausedUntil
      if let lost { forgetPages(of: content, lost) }
      answerParked(content)
      dirty.insert(source.key)
      carryOutPostponed(source)
    case .resumedUntil(let place): resuming.reached(place, now)
    case .reconnect: reconnect(now)
    }
  }

  private func carryOutPostponed(_ source: Source) {
    let postponed = source.postponed
    source.postponed = []
    for command in postponed { post(command) }
  }

  /// Looks at every resource in memory: deadlines, stalls, evidence of playing, and puts idle ones away.
  private func look(_ now: Instant) {
    var lively = false
    let sweeping = now >= nextSweep
    if sweeping { nextSweep = now.adding(seconds: Self.sweep) }
    questions = openQuestions(now)
    openFiles = sources.values.count { $0.content.guarded.withLock { $0.state.opens > 0 } }
    for source in sourcesInOrder {
      if watch(source, now) {
        lively = true
        dirty.insert(source.key)
      } else if sweeping, !source.continues || source.failure != nil || source.cannotBeStored {
        putAway(source)
      }
    }
    if sweeping { resumeNext(now) }
    if lively {
      nextTick = now.adding(seconds: Self.tick)
    } else {
      nextTick = sources.isEmpty && !resuming.goesOn ? .never : nextSweep
    }
  }

  /// Forgets a resource if nobody uses it; the catalog knows all that is worth knowing.
  func putAway(_ source: Source) {
    guard source.transfers.isEmpty else { return }
    let content = source.content
    let isIdle = table.withLock { table -> Bool in
      let idle = content.guarded.withLock { guarded -> Bool in
        // What is not synced yet keeps it: the keeper commits from this object, and a second one would know less.
        let idle =
          guarded.state.opens == 0 && !guarded.state.hasWaiters && !guarded.state.isDirty && guarded.unsynced == 0
          && guarded.phase != .completing && !guarded.isFrozen && !guarded.isCommitting
        guarded.isAway = idle  // nothing can be parked in it from here on
        return idle
      }
      if idle { table.remove(content) }
      return idle
    }
    guard isIdle else { return }
    if source.waitsOn != nil { setWaits(source, false) }
    sources[source.key] = nil
    hungry.remove(source.key)
  }
}

/// What a plan wants started; the engine starts the most urgent first.
struct PendingStart {
  let source: Source
  let range: ByteRange?
  let kind: Running.Kind
  let purpose: Purpose
  /// Since when a read waits for it.
  var waitsSince = Instant.never
}
