import Base
import Manifest
import Media
import Storing

/// Keeps what the store has on disk within `--max-size` and the disk above `--min-free`: plans what goes, and sees to
/// it that it goes. Owned by the keeper.
///
/// Nothing goes that is open, waited for, kept or fetched by name. A background download goes only for a reader who
/// finds no room, and ends then (docs/decisions/0019-limits.md).
final class SpaceKeeping {
  /// How often the space is looked at while something is being stored, in seconds.
  private static let interval = 2.0
  /// How often the disk is asked what the store takes, in seconds: often when room is scarce.
  private static let (scarceInterval, roomyInterval) = (10.0, 60.0)
  /// How often `--max-age` is looked at, in seconds.
  private static let ageInterval = 600.0
  /// How many copies are looked at together.
  static let copiesAtOnce = 1024
  /// The share of the keeper's time that looking for what may go takes: a store with a million files has other work.
  private static let share = 0.05
  /// The longest time that the keeper's other work waits for it, in seconds.
  static let mostSeconds = 1.0
  /// How long a copy that cannot be removed is left alone, in seconds.
  private static let stuckSeconds = 600.0

  let room: ReadingRoom
  private var nextCheck = Instant(nanoseconds: 0)
  /// When the disk is next asked: while room is scarce, and while it is not.
  private var nextMeasurement = (scarce: Instant(nanoseconds: 0), roomy: Instant(nanoseconds: 0))
  /// When files are next looked for that nobody used for `--max-age`.
  private(set) var nextAging = Instant.never
  /// Files in memory of which the transfer thread was asked to let something go, and how many bytes that is.
  private var asked: (files: Int, bytes: Int64) = (0, 0)
  /// Until when nobody is listened to who asks for room: a file was used that seemed to be idle.
  private var notBefore = Instant(nanoseconds: 0)
  /// When files are next looked through: a look takes as long as there are many.
  private var nextLook = Instant(nanoseconds: 0)
  /// Whether the last round had to stop before its end.
  private var isCut = false
  /// Copies that cannot be removed, and until when nobody tries.
  private var stuck: [Int64: Instant] = [:]
  /// When this mount began, in seconds since 1970: what was never noted as used counts as used then.
  private var begun: UInt32 {
    UInt32(clamping: room.clock.date - Int64(room.clock.now.seconds(since: beginning)))
  }
  private let beginning: Instant
  /// Whether the filesystem can give back parts of a file.
  var canPunch = true

  init(room: ReadingRoom) {
    self.room = room
    beginning = room.clock.now
    if room.limits.withLock({ $0.maximumAge }) != nil { nextAging = Instant(nanoseconds: 0) }
  }

  /// Measures how many more bytes fit, and evicts nothing.
  func measure() {
    do throws(StoreError) {
      noteSpare(try lacking())
    } catch {
      Log.error("the store's space cannot be measured: \(error.message)")
    }
  }

  /// How many bytes the disk lacks.
  private func lacking() throws(StoreError) -> Int64 {
    .clampedSum(room.options.minimumFree, -Int64(clamping: try room.store.partials.space().available))
  }

  private func noteSpare(_ lacking: Int64) {
    let balance = room.ledger.balance
    room.health.measured(spare: min(.clampedSum(balance.free, -balance.headroom), -lacking))
  }

  /// Makes space, however short the last look is ago.
  func makeSpaceNow(_ now: Instant) {
    nextCheck = now
    nextLook = now
    stuck = [:]
    nextAging = room.limits.withLock { $0.maximumAge } == nil ? .never : now
    makeSpace(now)
  }

  /// A reservation found little room: makes some at once, unless the last look found nothing that could go.
  func makeSpaceSoon(_ now: Instant) {
    if room.health.intake == .everything, now >= notBefore { nextCheck = now }
    makeSpace(now)
  }

  /// Makes space where there is less than the limits ask for.
  func makeSpace(_ now: Instant) {
    guard now >= nextCheck || now >= nextAging else { return }
    nextCheck = now.adding(seconds: Self.interval)
    do throws(StoreError) {
      let limits = room.limits.withLock { $0 }
      room.ledger.forgetPromises(now)
      try measureStore(now)
      var lacking = try lacking()
      var shortage = shortage()
      let mayLook = asked.files == 0 && now >= nextLook
      let isRefused = room.health.isRefused(now)
      var oldest: UInt32 = 0
      if now >= nextAging, !mayLook {
        nextAging = max(nextLook, now.adding(seconds: Self.interval))
      } else if now >= nextAging {
        nextAging = limits.maximumAge.map { now.adding(seconds: min(Self.ageInterval, max(1, $0 / 10))) } ?? .never
        oldest = limits.maximumAge.map { UInt32(clamping: room.clock.date - Int64($0)) } ?? 0
      }
      // Background downloads stand still by then, so it is a reader who was refused.
      let isReadersTurn = mayLook && room.ledger.takeRefusal() && room.health.intake != .everything
      let isRefusal = mayLook && room.health.takeRefusal()
      let need = max(lacking, shortage ?? 0, isRefusal ? room.ledger.balance.headroom : 0)
      if need > 0 || oldest > 0, mayLook {
        // What the store's disk lacks, copies on another one do not give back.
        let helps = room.store.copiesShareDisk || need <= shortage ?? 0
        let copiesMayGo = limits.evicts == .complete && (helps || need <= 0)
        isCut = false
        stuck = stuck.filter { $0.value > now }
        let freed = try evict(need, oldest: oldest, copies: copiesMayGo, endsDownloads: isReadersTurn, now)
        lacking = .clampedSum(lacking, -freed - asked.bytes)
        // A round that was cut goes on at once if it got anywhere.
        let goesOn = isCut && freed > 0 && !room.isEnding
        nextLook = goesOn ? now : rest(after: now)
        shortage = self.shortage()
        if goesOn {
          nextCheck = now
          if oldest > 0 { nextAging = now }
          room.keeper.post(.measureSpace)
        }
      }
      noteSpare(lacking)
      judge(lacking: lacking, shortage: shortage, isRefused, now)
    } catch {
      Log.error("no space can be made in the store: \(error.message)")
      nextAging = max(nextAging, nextCheck)
    }
    // With evictions under way, whoever asks again would be told the same.
    if asked.files == 0, room.health.intake == .everything { room.ledger.answered() }
  }

  /// When work that began at `begun` may be done again.
  private func rest(after begun: Instant) -> Instant {
    let now = room.clock.now
    return now.adding(seconds: now.seconds(since: begun) / Self.share)
  }

  /// How many bytes have to go for `--max-size`; nil if there is room.
  private func shortage() -> Int64? {
    let balance = room.ledger.balance
    let free = Int64.clampedSum(balance.free, asked.bytes)
    if free >= balance.headroom { return nil }
    // Whatever else goes, there is no room: so nothing does.
    if balance.isHopeless { return 0 }
    return .clampedSum(balance.goal, -free)
  }

  /// Decides what is stored from now on.
  private func judge(
    lacking: Int64, shortage: Int64?, _ isRefused: Bool, _ now: Instant
  ) {
    // Below half of --min-free not even what readers ask for is stored. The ledger sees to --max-size.
    let measured: StoreHealth.Intake =
      shortage == nil && lacking <= 0
      ? .everything : lacking > room.options.minimumFree / 2 ? .nothing : .whatIsRead
    var lack: StoreLack?
    if isRefused {
      lack = .refused
    } else if let shortage {
      lack = shortage == 0 ? .copies : .inUse
    } else if lacking > 0 {
      lack = .disk
    }
    switch room.health.measured(measured, lack, now: now) {
    case .everything?:
      Log.info("the store has space again")
      room.ledger.answered()
    case .whatIsRead?, .nothing?:
      Log.warning("the store is full: background downloads pause: \(room.health.lack?.advice ?? "no space")")
    case nil: break
    }
  }

  private func measureStore(_ now: Instant) throws(StoreError) {
    let isScarce = room.health.intake != .everything || shortage() != nil
    guard now >= (isScarce ? nextMeasurement.scarce : nextMeasurement.roomy) else { return }
    // Also when it fails.
    nextMeasurement.roomy = now.adding(seconds: Self.roomyInterval)
    if !isScarce { try room.measureStore() }
    // What users removed from the library themselves need not be made room for.
    if isScarce || shortage() != nil {
      nextMeasurement.scarce = now.adding(seconds: Self.scarceInterval)
      try room.measureStore(looksAtCopies: true)
      nextMeasurement.scarce = max(nextMeasurement.scarce, rest(after: now))
    }
    nextMeasurement.roomy = max(nextMeasurement.roomy, rest(after: now))
  }

  /// What was counted is not what the disk has.
  func nextMeasurementIsDue() { nextMeasurement = (Instant(nanoseconds: 0), Instant(nanoseconds: 0)) }

  /// The transfer thread has let go what it was asked for, or did not, because the file is used.
  func answered(_ bytes: Int64, isGone: Bool, _ now: Instant) {
    asked.files -= 1
    asked.bytes -= bytes
    if !isGone {
      notBefore = now.adding(seconds: Self.interval)
      room.ledger.answered()
    }
    guard asked.files == 0 else { return }
    if now >= notBefore { nextCheck = now }
    makeSpace(now)
  }

  // MARK: What goes

  /// Evicts `need` bytes, and what was last used before `oldest`. Returns how many bytes are gone. Files in memory
  /// follow, as ``asked`` says.
  private func evict(
    _ need: Int64, oldest: UInt32, copies: Bool, endsDownloads: Bool, _ now: Instant
  ) throws(StoreError) -> Int64 {
    var (candidates, contents) = try partials(endsDownloads: endsDownloads, now)
    var freed: Int64 = 0
    var last: CountedCopy?
    repeat {
      let wanted = need - freed - asked.bytes
      if copies { last = try addCopies(after: last, need: wanted, oldest: oldest, to: &candidates, &contents, now) }
      freed += evict(candidates, contents, need: wanted, oldest: oldest, endsDownloads: endsDownloads, now)
      // Partial files are looked through once.
      (candidates, contents) = ([], [:])
    } while !isCut && room.clock.now.seconds(since: now) < Self.mostSeconds
      && last.map { freed + asked.bytes < need || $0.usedAt < Int64(oldest) } ?? false
    return freed
  }

  private func evict(
    _ candidates: [EvictionPlan.Candidate], _ contents: [ResourceKey: Content], need: Int64, oldest: UInt32,
    endsDownloads: Bool, _ now: Instant
  ) -> Int64 {
    // In the same order in every run.
    let candidates = candidates.sorted { $0.id < $1.id }
    let victims = EvictionPlan.victims(of: candidates, need: need, oldest: oldest) { candidate in
      ThreadRecord.work(.space)
      let index = examine(candidate, contents[candidate.key])
      // A copy that may not go is not looked at again soon: there may be very many.
      if index == nil, candidate.copy != nil { stuck[candidate.id] = now.adding(seconds: Self.stuckSeconds) }
      return index
    }
    // The look took what it took. At least one goes in each round.
    let begun = room.clock.now
    var freed: Int64 = 0
    var away: [Eviction] = []
    for victim in victims {
      let candidate = candidates[victim.candidate]
      if let content = contents[candidate.key] {
        asked.files += 1
        asked.bytes += victim.bytes
        room.transfers.post(
          .evict(
            content, victim.ranges, bytes: victim.bytes, endsDownload: endsDownloads, isCopy: candidate.copy != nil))
      } else if let copy = candidate.copy {
        if isCut { continue }
        let isGone = evict(copy, of: candidate)
        freed += isGone ? victim.bytes : 0
        isCut = takesTooLong(since: begun)
        if !isGone { stuck[candidate.id] = now.adding(seconds: Self.stuckSeconds) }
      } else {
        away.append(Eviction(key: candidate.key, generation: candidate.id, ranges: canPunch ? victim.ranges : nil))
      }
    }
    while !away.isEmpty, !isCut {
      freed += evict(Array(away.prefix(Self.atOnce)))
      away.removeFirst(min(away.count, Self.atOnce))
      isCut = takesTooLong(since: begun)
    }
    return freed
  }

  /// Whether the round that began at `begun` has to stop, and goes on after other work.
  private func takesTooLong(since begun: Instant) -> Bool {
    room.isEnding || room.clock.now.seconds(since: begun) > Self.mostSeconds
  }

  /// How many files go with one commit.
  private static let atOnce = 64

  /// What may go of partial files, as far as that takes no look at each file's names; and the files in memory among it.
  private func partials(
    endsDownloads: Bool, _ now: Instant
  ) throws(StoreError) -> ([EvictionPlan.Candidate], [ResourceKey: Content]) {
    var candidates: [EvictionPlan.Candidate] = []
    var idle: [ResourceKey: Content] = [:]
    let inMemory = room.table.withLock { $0.current }
    let date = room.clock.date
    var known = Dictionary(try room.store.generations.partialsByUse().map { ($0.key, $0) }) { first, _ in first }
    ThreadRecord.work(.space)
    let sparesPlayed = !endsDownloads && room.options.continuation.goesOn(isRequested: false, isOpen: false)
    for content in inMemory.values {
      let row = known.removeValue(forKey: content.key)
      let candidate = content.candidate(
        row, endsDownloads: endsDownloads, sparesPlayed: sparesPlayed, canPunch: canPunch, now, date: date
      ) { lastUse(row?.usedAt ?? 0, $0) }
      guard let candidate else { continue }
      candidates.append(candidate)
      idle[content.key] = content
    }
    // A download that is put away for now goes on later.
    for row in known.values where endsDownloads || !row.continues || !row.isListed {
      candidates.append(
        .init(
          id: row.id, key: row.key, size: canPunch ? row.size : nil, stored: row.stored,
          usedAt: lastUse(row.usedAt, row.uses), uses: row.uses, isListed: row.isListed))
    }
    return (candidates, idle)
  }

  /// When a file was used last, as far as anybody noted it.
  private func lastUse(_ usedAt: Int64, _ uses: BlockUses?) -> UInt32 {
    let last = max(UInt32(clamping: usedAt), uses?.times.max() ?? 0)
    return last == 0 ? begun : last
  }

  /// Adds copies that may go, those after `last`, until they are enough. Returns the last one that was looked at; nil
  /// after all.
  private func addCopies(
    after last: CountedCopy?, need: Int64, oldest: UInt32, to candidates: inout [EvictionPlan.Candidate],
    _ idle: inout [ResourceKey: Content], _ now: Instant
  ) throws(StoreError) -> CountedCopy? {
    var (bytes, last): (Int64, CountedCopy?) = (0, last)
    repeat {
      let page = try room.store.generations.copies(limit: Self.copiesAtOnce, after: last, mayGo: true)
      ThreadRecord.work(.space)
      for counted in page where stuck[counted.id].map({ $0 <= now }) ?? true {
        if let content = room.table.withLock({ $0.current[counted.key] }) {
          guard content.isUnusedCopy else { continue }
          idle[counted.key] = content
        }
        let all = ByteRangeSet(ByteRange(0, max(1, counted.copy.size)))
        candidates.append(
          .init(
            id: counted.id, key: counted.key, size: counted.copy.size, stored: all,
            usedAt: counted.usedAt == 0 ? begun : UInt32(clamping: counted.usedAt), copy: counted.copy))
        bytes = .clampedSum(bytes, counted.copy.size)
      }
      last = page.count == Self.copiesAtOnce ? page.last : nil
      if room.clock.now.seconds(since: now) > Self.mostSeconds { break }
    } while last.map { bytes < need || $0.usedAt < Int64(oldest) } ?? false
    return last
  }

  /// The bytes of a file's index; nil if nothing of it may go.
  private func examine(_ candidate: EvictionPlan.Candidate, _ content: Content?) -> ByteRangeSet? {
    do throws(StoreError) {
      if try room.isKept(candidate.key) { return nil }
      if let copy = candidate.copy { return try room.store.copies.isOnlyCopy(copy) ? ByteRangeSet() : nil }
      guard let size = candidate.size else { return ByteRangeSet() }
      if let content {
        _ = room.films.index(of: content)
      } else {
        let isKnown = room.films.known(of: candidate.id) != nil
        let file = ServedFile(partial: try room.store.partials.open(candidate.id, create: false))
        let bytes = StoredBytes(size: size, stored: candidate.stored) { file.fill($0, at: $1) }
        _ = room.films.index(of: candidate.id, bytes)
        // Of a store with a million files, those that are looked at here are not remembered.
        defer { if !isKnown { room.films.forget(candidate.id) } }
        return room.films.bytes(of: candidate.id)
      }
      return room.films.bytes(of: candidate.id)
    } catch {
      if error.kind == .io(.notFound) { return ByteRangeSet() }  // its claim goes
      let name = room.store.name(of: candidate.key, candidate.id)
      Log.error("\(name): it cannot be evicted: \(error.message)")
      return nil
    }
  }
}

extension Content {
  /// What may go of it: nil if somebody uses it, or something goes already. `row`: what the catalog has of it.
  /// `sparesPlayed`: nothing of a file that was played, whose download may be one that is to be resumed later.
  fileprivate func candidate(
    _ row: StoredPartial?, endsDownloads: Bool, sparesPlayed: Bool, canPunch: Bool, _ now: Instant, date: Int64,
    usedAt: (BlockUses?) -> UInt32
  ) -> EvictionPlan.Candidate? {
    guarded.withLock { guarded in
      guard guarded.isIdle, guarded.rules.storage != .keep, !guarded.held.isPinned, !guarded.held.isSuperseded,
        guarded.activity?.transfers ?? 0 == 0, endsDownloads || guarded.activity?.isWanted != true,
        let generation = guarded.held.generation, !guarded.held.stored.isEmpty,
        !sparesPlayed || !generation.continues || guarded.waiters.isUnlisted
      else { return nil }
      var uses = guarded.uses.uses(now, date: date)
      if let row, row.id == generation.id, let before = row.uses {
        if uses == nil { uses = before } else { uses?.merge(before) }
      }
      return .init(
        id: generation.id, key: key, size: canPunch ? guarded.held.size : nil, stored: guarded.held.stored,
        usedAt: usedAt(uses), uses: uses, isListed: !guarded.waiters.isUnlisted)
    }
  }

  /// Whether it is a complete copy that nobody uses.
  var isUnusedCopy: Bool {
    guarded.withLock { guarded in
      guarded.waiters.opens == 0 && guarded.waiters.isEmpty && guarded.held.isCopy && guarded.held.removal == .none
        && guarded.rules.storage != .keep && !guarded.held.isPinned
    }
  }
}
