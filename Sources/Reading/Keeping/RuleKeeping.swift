import Base
import Manifest
import Storing

/// A walk over the files to which rules that keep apply. It begins when it is first asked.
struct KeptWalk: Sendable {
  var walk: TreeWalk?
}

extension ReadingRoom {
  /// What the user's rules say of a resource. Reads the catalog for its paths only if there are rules.
  ///
  /// Rules are for names: of one that left the list, for those that it had, so that what was kept waits for its line.
  func rules(of key: ResourceKey) throws(StoreError) -> FileRules {
    let rules = self.rules.withLock { $0 }
    if rules.isEmpty { return FileRules() }
    var paths = try store.tree.entries(of: key).map(\.path)
    if paths.isEmpty { paths = try store.tree.formerPaths(of: key) }
    return rules.verdict(for: paths)
  }

  /// Whether nothing of a resource may be evicted, because a user asked for it by name or a rule keeps it.
  func isKept(_ key: ResourceKey) throws(StoreError) -> Bool {
    if try store.notes.isPinned(key) { return true }
    return try rules(of: key).storage == .keep
  }
}

/// Rules: the keeper changes them one client after the other, and finds the files that they keep.
extension Keeper {
  /// How many names a job looks at: a few milliseconds, so that commits are not late.
  private static let seenAtOnce = 256

  /// Stores changes of the rules, all of them or none, durably. From then on they apply to what is loaded. Once they
  /// apply to the files in memory too, `end` follows.
  func changeRules(
    _ change: (Rules) throws(StoreError) -> (rules: Rules, changes: [RuleChange]),
    then end: @escaping @Sendable (Keeper) -> Void = { _ in }
  ) throws(StoreError) {
    let (rules, changes) = try change(room.rules.withLock { $0 })
    if changes.isEmpty { return end(self) }
    try room.store.changes.apply(changes.map { .rule($0) }, durably: true)
    room.rules.withLock { $0 = rules }
    // A thread that loads a file at the moment reads the rules anew.
    let keys = room.table.withLock { table -> [ResourceKey] in
      table.departures += 1
      return Array(table.current.keys)
    }
    each(of: keys[...], { keeper, key in keeper.applyRules(to: key) }) { keeper in
      keeper.room.transfers.post(.rulesChanged)
      end(keeper)
    }
  }

  private func applyRules(to key: ResourceKey) {
    guard let content = room.table.withLock({ $0.current[key] }) else { return }
    do throws(StoreError) {
      let verdict = try room.rules(of: key)
      let isNews = content.guarded.withLock { guarded in
        defer { guarded.rules = verdict }
        return guarded.rules != verdict
      }
      if isNews { room.transfers.post(.ruled(content)) }
    } catch {
      Log.error("\(content.path): the rules apply when it is next loaded: \(error.message)")
    }
  }

  /// Resumes some of the files that rules keep and that are not complete. Returns where to go on; nil at the end.
  func resumeKept(_ kept: KeptWalk, isRetry: Bool) throws(StoreError) -> Resuming.Place? {
    let rules = room.rules.withLock { $0 }
    var walk = kept.walk ?? TreeWalk(rules.folders(.storage, value: StorageRule.keep.rawValue))
    var (seen, resumed) = (0, 0)
    while seen < Self.seenAtOnce, resumed < TransferThread.resumedAtOnce {
      guard let files = try walk.next(in: room.store.tree, limit: TransferThread.resumedAtOnce) else {
        return nil
      }
      seen += files.count + 1
      for (item, path) in files where rules.verdict(for: path).storage == .keep {
        let key = item.node.key
        guard !(try room.rules(of: key)).isPaused, try isLacking(item, isRetry: isRetry), try resume(key) != nil
        else { continue }
        resumed += 1
      }
    }
    return .kept(KeptWalk(walk: walk), isRetry: isRetry)
  }

  /// Whether bytes of a kept file are missing. A copy that a user changed is theirs: no other is fetched beside it.
  private func isLacking(_ item: SurveyedNode, isRetry: Bool) throws(StoreError) -> Bool {
    guard item.isKnown else { return true }
    if isRetry, try room.store.notes.problem(of: item.node.key) != nil { return false }
    guard let known = try room.store.generations.current(of: item.node.key), known.state == .complete,
      let copy = known.copy
    else { return true }
    return isRetry ? false : try room.store.copies.check(copy) == .missing
  }
}

extension MediaFileSystem {
  /// The user's rules.
  package var rules: Rules { room.rules.withLock { $0 } }

  /// Changes the rules: `change` gets those of now, and returns those from then on and what differs. Two clients never
  /// do so at once. Returns once the change is durable and applies. Blocks for the disk.
  package func changeRules(
    _ change: @escaping @Sendable (Rules) throws(StoreError) -> (rules: Rules, changes: [RuleChange])
  ) throws(StoreError) {
    try onKeeper(until: { (keeper, done) throws(StoreError) in
      try keeper.changeRules(change, then: { _ in done.raise() })
    })
  }

  /// Waits until all files of each fetch that a client asked for before are taken up: what ends downloads comes behind
  /// them.
  package func finishFetches() throws(StoreError) {
    try onKeeper(until: { (keeper, done) throws(StoreError) in keeper.afterParts { _ in done.raise() } })
  }

  /// Deletes the partial file of a resource that is not listed any more; false while a program has it open. Blocks for
  /// the disk.
  package func clearUnlisted(_ known: GenerationRecord) throws(StoreError) -> Bool {
    let isGone = Lock(false)
    try onKeeper { keeper in isGone.withLock { $0 = keeper.evictUnlisted(known) } }
    if isGone.withLock({ $0 }) { return true }
    // It is in memory: idle, if nobody has it open.
    guard let content = room.table.withLock({ $0.current[known.key] }) else { return false }
    let isIdle = content.guarded.withLock { guarded in
      guard guarded.waiters.opens == 0, !guarded.held.isPutAway, guarded.held.generation?.id == known.id else {
        return false
      }
      guarded.waiters.opened()
      return true
    }
    guard isIdle else { return false }
    defer { room.uncount(content) }
    do throws(Errno) { try clear(content) } catch {
      throw StoreError(kind: .io(error), message: "cannot clear \(content.path): \(error)")
    }
    return true
  }

  /// What the store has on disk, how much of that is in complete copies, and why it takes no more, if so.
  package var storeUse: (held: Int64, copies: Int64, lack: StoreLack?) {
    let balance = room.ledger.balance
    return (balance.held, balance.copies, room.health.lack ?? (balance.isHopeless ? .copies : nil))
  }

  /// Changes settings in the catalog, durably, and then the limits: `limits` says what follows from the catalog. Two
  /// clients never do so at once. Blocks for the disk.
  package func changeSettings(
    _ changes: [CatalogChange], limits: @escaping @Sendable () throws(StoreError) -> ReadingLimits
  ) throws(StoreError) {
    try onKeeper { (keeper) throws(StoreError) in
      try keeper.room.store.changes.apply(changes, durably: true)
      let limits = try limits()
      keeper.room.limits.withLock { $0 = limits }
      keeper.room.ledger.limit(limits.maximumSize, copiesStay: limits.evicts == .partial)
      keeper.room.transfers.post(.limitsChanged)
      keeper.makeSpaceNow()
    }
  }

  /// Runs `body` on the keeper's thread and waits for it.
  func onKeeper(_ body: @escaping @Sendable (Keeper) throws(StoreError) -> Void) throws(StoreError) {
    try onKeeper(until: { (keeper, done) throws(StoreError) in
      try body(keeper)
      done.raise()
    })
  }

  /// Runs `body` on the keeper's thread and waits until it, or a later job, raises the signal.
  private func onKeeper(
    until body: @escaping @Sendable (Keeper, Signal) throws(StoreError) -> Void
  ) throws(StoreError) {
    let done = Signal()
    let failure = Lock<StoreError?>(nil)
    room.keeper.post(
      .job { keeper in
        do throws(StoreError) { try body(keeper, done) } catch {
          failure.withLock { $0 = error }
          done.raise()
        }
      })
    while !done.wait(seconds: 0.5) {
      if room.isEnding { throw StoreError(kind: .io(.interrupted), message: "the server is about to exit") }
    }
    if let failure = failure.withLock({ $0 }) { throw failure }
  }
}
