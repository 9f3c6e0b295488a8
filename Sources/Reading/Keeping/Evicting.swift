import Base
import Glibc
import Manifest
import Storing

/// What goes of a file that is not in memory.
struct Eviction: Sendable {
  var key: ResourceKey
  var generation: Int64
  /// Whole blocks; nil: all of it.
  var ranges: ByteRangeSet?
}

// The order of every eviction: nobody uses the file or can begin to; the catalog says, durably, that the bytes are
// gone; then the disk gets them back. A kill between the two leaves bytes that the next start trims. Of a complete copy
// it is the other way round: its row says which file it was, and a row without that file is noticed.

extension SpaceKeeping {
  /// Evicts from files that are not in memory, with one commit. Returns the space that the disk got back.
  func evict(_ evictions: [Eviction]) -> Int64 {
    let free = room.table.withLock { table -> [Eviction] in
      let free = evictions.filter { table.current[$0.key] == nil }
      for eviction in free { table.leaving.insert(eviction.key) }
      if !free.isEmpty { table.departures += 1 }
      return free
    }
    if free.isEmpty { return 0 }
    // Each can be opened again as soon as its own bytes are gone, whatever else goes with the same commit.
    defer { for eviction in free { stays(eviction.key) } }
    var changes: [CatalogChange] = []
    var left: [(eviction: Eviction, bytes: ByteRangeSet, kept: ByteRangeSet)] = []
    do throws(StoreError) {
      for eviction in free {
        ThreadRecord.work(.space)
        guard let known = try room.store.generations.current(of: eviction.key), known.id == eviction.generation,
          known.state == .partial
        else { continue }
        let kept = eviction.ranges.map { known.stored.without($0) } ?? ByteRangeSet()
        if kept.isEmpty {
          changes.append(.dropped(generation: known.id))
        } else {
          changes.append(.lost(generation: known.id, stored: kept, synced: known.synced.intersection(kept)))
          // Else the next mount would fetch it again, for which there is no room.
          if known.continues { changes.append(.continues(generation: known.id, false)) }
        }
        left.append((eviction, known.stored.without(kept), kept))
      }
      try room.store.changes.apply(changes, durably: true)
    } catch {
      Log.error("nothing can be evicted: \(error.message)")
      return 0
    }
    return left.reduce(Int64(0)) { sum, gone in
      defer { stays(gone.eviction.key) }
      return sum + giveBack(gone.eviction, gone: gone.bytes, kept: gone.kept)
    }
  }

  /// A file that was about to lose bytes may be opened again.
  private func stays(_ key: ResourceKey) { room.table.withLock { _ = $0.leaving.remove(key) } }

  /// Gives the space of what the catalog does not know any more back to the disk.
  private func giveBack(_ eviction: Eviction, gone: ByteRangeSet, kept: ByteRangeSet) -> Int64 {
    ThreadRecord.work(.space)
    let id = eviction.generation
    var freed: Int64 = 0
    do throws(StoreError) {
      if kept.isEmpty {
        freed = try room.removePartial(id)
        room.films.forget(id)
      } else if try punches(eviction.ranges ?? ByteRangeSet(), stored: gone, id, &freed) == false {
        // The filesystem cannot do it: all of the file goes.
        try room.store.changes.apply([.dropped(generation: id)], durably: true)
        freed = try room.removePartial(id)
        room.films.forget(id)
      }
    } catch {
      let name = room.store.name(of: eviction.key, id)
      Log.error("\(name): the space of what was evicted is not free before the next mount: \(error.message)")
    }
    room.evicted(eviction.key, bytes: freed)
    Log.debug("evicted \(freed) bytes of generation \(id)")
    return freed
  }

  /// False if the filesystem cannot give parts of a file back.
  private func punches(
    _ ranges: ByteRangeSet, stored: ByteRangeSet, _ id: Int64, _ freed: inout Int64
  ) throws(StoreError) -> Bool {
    do throws(StoreError) {
      freed = try punch(ranges, stored: stored, of: try room.store.partials.open(id, create: false))
      return true
    } catch {
      if canPunch { throw error }
      return false
    }
  }

  /// Gives whole blocks of a file back, of which `stored` had bytes. Returns the space that the disk got.
  @discardableResult
  func punch(_ ranges: ByteRangeSet, stored: ByteRangeSet, of file: any OpenPartialFile) throws(StoreError) -> Int64 {
    room.ledger.changes()
    var released: Int64 = 0
    defer { room.ledger.changed(released: released) }
    do throws(Errno) {
      let before = try file.allocated()
      for range in ranges.ranges { try file.punch(range) }
      released = max(0, before - (try file.allocated()))
      // Some filesystems tell late what a file takes.
      if released == 0 { released = min(before, stored.count) }
      return released
    } catch {
      if error.rawValue == EOPNOTSUPP {
        canPunch = false  // from now on files go as a whole
        nextMeasurementIsDue()
      }
      throw .file(error, "the blocks of partial file \(file.id) cannot be freed")
    }
  }

  /// Evicts all of a file that is not in memory; false when it is, or is kept. `isUnlisted`: a user asked for
  /// it to go, and means what is kept as well.
  func evict(_ key: ResourceKey, generation: Int64, isUnlisted: Bool = false) -> Bool {
    do throws(StoreError) {
      if !isUnlisted, try room.isKept(key) { return false }  // it would be fetched again
      if room.table.withLock({ $0.current[key] != nil }) { return false }
      _ = evict([Eviction(key: key, generation: generation)])
      return try room.store.generations.current(of: key).map { $0.id != generation || $0.stored.isEmpty } ?? true
    } catch {
      Log.error("\(room.store.name(of: key, generation)): it cannot be evicted: \(error.message)")
      return false
    }
  }

  /// Evicts a complete copy that is not in memory, whose content is unchanged and that has no other name.
  func evict(_ copy: LibraryCopy, of candidate: EvictionPlan.Candidate) -> Bool {
    let isFree = room.table.withLock { table -> Bool in
      guard table.current[candidate.key] == nil else { return false }
      table.leaving.insert(candidate.key)
      table.departures += 1
      return true
    }
    guard isFree else { return false }
    defer { stays(candidate.key) }
    ThreadRecord.work(.space)
    do throws(StoreError) {
      guard try room.remove(copy, of: candidate.id) else { return false }
      try room.store.changes.apply([.dropped(generation: candidate.id)], durably: true)
      Log.info("evicted the complete copy \(copy.path)")
      room.evicted(candidate.key, bytes: copy.size)
      return true
    } catch {
      Log.error("the copy \(copy.path) cannot be evicted: \(error.message)")
      return false
    }
  }
}

extension Keeper {
  /// Evicts blocks of a frozen content, or all of it, then has it thawed. `bytes`: what was asked for.
  func evict(_ content: Content, _ ranges: ByteRangeSet, bytes: Int64) {
    let held = content.guarded.withLock { $0.held }
    let kept = held.stored.without(ranges)
    if held.isCopy || kept.isEmpty || !space.canPunch {
      discard(content)
    } else {
      letGo(ranges, of: content, held, kept: kept)
    }
    let freed = held.stored.count - content.guarded.withLock { $0.held.stored.count }
    if freed > 0 { room.evicted(content.key, bytes: freed) }
    space.answered(bytes, isGone: freed > 0, room.clock.now)
  }

  private func letGo(_ ranges: ByteRangeSet, of content: Content, _ held: FileState, kept: ByteRangeSet) {
    defer { room.transfers.post(.thaw(content)) }
    guard let generation = held.generation, let old = held.file, let partial = old.partial else { return }
    do throws(StoreError) {
      try room.store.changes.apply(
        [.lost(generation: generation.id, stored: kept, synced: held.synced.intersection(kept))], durably: true)
      let isGone = content.guarded.withLock { guarded in
        guarded.waiters.forgetRuns()
        return guarded.held.evicted(ranges, file: ServedFile(partial: partial))
      }
      if !isGone { return }
      old.invalidate()  // a thread that reads from it at the moment may get zeros
      try space.punch(ranges, stored: held.stored.intersection(ranges), of: partial)
    } catch {
      Log.error("\(content.path): nothing of it can be evicted: \(error.message)")
    }
  }
}
