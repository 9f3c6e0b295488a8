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
  /// The most copies that are looked at in one round.
  private static let mostCopies = 4096

  let room: ReadingRoom
  private var nextCheck = Instant(nanoseconds: 0)
  private var nextMeasurement = Instant(nanoseconds: 0)
  /// When files are next looked for that nobody used for `--max-age`.
  private(set) var nextAging = Instant.never
  /// Files in memory of which the transfer thread was asked to let something go, and how many bytes that is.
  private var asked: (files: Int, bytes: Int64) = (0, 0)
  /// Until when nobody is listened to who asks for room: a file was used that seemed to be idle.
  private var notBefore = Instant(nanoseconds: 0)
  /// Whether the filesystem can give back parts of a file.
  var canPunch = true

  init(room: ReadingRoom) {
    self.room = room
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
      if now >= nextMeasurement { try measureStore(now) }
      var lacking = try lacking()
      var shortage = shortage(limits)
      let isRefused = room.health.isRefused(now)
      var oldest: UInt32 = 0
      if now >= nextAging {
        nextAging = limits.maximumAge.map { now.adding(seconds: min(Self.ageInterval, max(1, $0 / 10))) } ?? .never
        oldest = limits.maximumAge.map { UInt32(clamping: room.clock.date - Int64($0)) } ?? 0
      }
      // Background downloads stand still by then, so it is a reader who was refused.
      let isReadersTurn = room.ledger.takeRefusal() && room.health.intake != .everything
      let need = max(lacking, shortage ?? 0, room.health.takeRefusal() ? room.ledger.balance.headroom : 0)
      if need > 0 || oldest > 0, asked.files == 0 {
        // Copies may lie on another disk than the store's: what that lacks they may not give back. And a copy that is
        // being placed has its room already, which no measurement counts before it is there.
        let copiesMayGo = limits.evicts == .complete && need <= shortage ?? 0 && !room.ledger.isChanging
        let freed = try evict(need, oldest: oldest, copies: copiesMayGo, endsDownloads: isReadersTurn, now)
        lacking = .clampedSum(lacking, -freed - asked.bytes)
        shortage = self.shortage(limits)
      }
      noteSpare(lacking)
      judge(lacking: lacking, shortage: shortage, isRefused, limits, now)
    } catch {
      Log.error("no space can be made in the store: \(error.message)")
    }
    // With evictions under way, whoever asks again would be told the same.
    if asked.files == 0, room.health.intake == .everything { room.ledger.answered() }
  }

  /// How many bytes have to go for `--max-size`; nil if there is room.
  private func shortage(_ limits: ReadingLimits) -> Int64? {
    let balance = room.ledger.balance
    let free = Int64.clampedSum(balance.free, asked.bytes)
    if free >= balance.headroom { return nil }
    // Whatever else goes, there is no room: so nothing does.
    if limits.evicts == .partial, balance.copies > balance.limit { return 0 }
    return .clampedSum(balance.goal, -free)
  }

  /// Decides what is stored from now on.
  private func judge(
    lacking: Int64, shortage: Int64?, _ isRefused: Bool, _ limits: ReadingLimits, _ now: Instant
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
    let isScarce = room.health.intake != .everything || shortage(room.limits.withLock { $0 }) != nil
    nextMeasurement = now.adding(seconds: isScarce ? Self.scarceInterval : Self.roomyInterval)
    try room.measureStore()
  }

  /// What was counted is not what the disk has.
  func nextMeasurementIsDue() { nextMeasurement = Instant(nanoseconds: 0) }

  /// The transfer thread has let go what it was asked for, or did not, because the file is used.
  func answered(_ bytes: Int64, isGone: Bool, _ now: Instant) {
    asked.files -= 1
    asked.bytes -= bytes
    if !isGone { notBefore = now.adding(seconds: Self.interval) }
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
    let (candidates, contents) = try candidates(copies: copies, endsDownloads: endsDownloads, now)
    let victims = EvictionPlan.victims(of: candidates, need: need, oldest: oldest) { candidate in
      examine(candidate, contents[candidate.key])
    }
    var freed: Int64 = 0
    var away: [Eviction] = []
    for victim in victims {
      let candidate = candidates[victim.candidate]
      if let content = contents[candidate.key] {
        asked.files += 1
        asked.bytes += victim.bytes
        room.transfers.post(.evict(
            content, victim.ranges, bytes: victim.bytes, endsDownload: endsDownloads, isCopy: candidate.copy != nil))
      } else if let copy = candidate.copy {
        freed += evict(copy, of: candidate) ? victim.bytes : 0
      } else {
        away.append(Eviction(key: candidate.key, generation: candidate.id, ranges: canPunch ? victim.ranges : nil))
      }
    }
    while !away.isEmpty {
      freed += evict(Array(away.prefix(Self.atOnce)))
      away.removeFirst(min(away.count, Self.atOnce))
    }
    if victims.contains(where: { candidates[$0.candidate].copy != nil }) { try room.measureStore() }
    return freed
  }

  /// How many files go with one commit.
  private static let atOnce = 64

  /// What may go, as far as that takes no look at each file's names; and the files in memory among it.
  private func candidates(
    copies: Bool, endsDownloads: Bool, _ now: Instant
  ) throws(StoreError) -> ([EvictionPlan.Candidate], [ResourceKey: Content]) {
    var candidates: [EvictionPlan.Candidate] = []
    var idle: [ResourceKey: Content] = [:]
    let inMemory = room.table.withLock { $0.current }
    let date = room.clock.date
    var known = Dictionary(try room.store.generations.partialsByUse().map { ($0.key, $0) }) { first, _ in first }
    for content in inMemory.values {
      let row = known.removeValue(forKey: content.key)
      guard let candidate = content.candidate(row, endsDownloads: endsDownloads, now, date: date) else { continue }
      candidates.append(candidate)
      idle[content.key] = content
    }
    // A download that is put away for now goes on later.
    for row in known.values where endsDownloads || !row.continues {
      candidates.append(
        .init(
          id: row.id, key: row.key, size: canPunch ? row.size : nil, stored: row.stored,
          usedAt: UInt32(clamping: row.usedAt), uses: row.uses))
    }
    if copies {
      for placed in try room.store.generations.placedCopies(limit: Self.mostCopies) {
        let content = inMemory[placed.key]
        if let content {
          guard content.isUnusedCopy else { continue }
          idle[placed.key] = content
        }
        let all = ByteRangeSet(ByteRange(0, max(1, placed.copy.size)))
        candidates.append(
          .init(
            id: placed.id, key: placed.key, size: placed.copy.size, stored: all,
            usedAt: UInt32(clamping: placed.usedAt), copy: placed.copy))
      }
    }
    // In the same order in every run.
    return (candidates.sorted { $0.id < $1.id }, idle)
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
        let file = ServedFile(partial: try room.store.partials.open(candidate.id, create: false))
        let bytes = StoredBytes(size: size, stored: candidate.stored) { file.fill($0, at: $1) }
        _ = room.films.index(of: candidate.id, bytes)
      }
      return room.films.bytes(of: candidate.id)
    } catch {
      if error.kind == .io(.notFound) { return ByteRangeSet() }  // its claim goes
      Log.error("generation \(candidate.id) cannot be evicted: \(error.message)")
      return nil
    }
  }
}

extension Content {
  /// What may go of it: nil if somebody uses it, or something goes already. `row`: what the catalog has of it.
  fileprivate func candidate(
    _ row: StoredPartial?, endsDownloads: Bool, _ now: Instant, date: Int64
  ) -> EvictionPlan.Candidate? {
    guarded.withLock { guarded in
      guard guarded.isIdle, guarded.rules.storage != .keep, !guarded.held.isPinned, !guarded.held.isSuperseded,
        guarded.activity?.transfers ?? 0 == 0, endsDownloads || guarded.activity?.isWanted != true,
        let generation = guarded.held.generation, !guarded.held.stored.isEmpty
      else { return nil }
      var uses = guarded.uses.uses(now, date: date)
      if let row, row.id == generation.id, let before = row.uses {
        if uses == nil { uses = before } else { uses?.merge(before) }
      }
      return .init(
        id: generation.id, key: key, size: guarded.held.size, stored: guarded.held.stored,
        usedAt: UInt32(clamping: row?.usedAt ?? 0), uses: uses)
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
