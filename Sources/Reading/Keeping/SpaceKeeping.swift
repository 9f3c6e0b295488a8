import Base
import Manifest
import Storing

/// Makes space in the store and on its disk. Owned by the keeper.
final class SpaceKeeping {
  /// How often the space is measured while something is being stored, in seconds.
  private static let interval = 2.0
  /// How far the bytes that readers ask for may exceed `--max-size`, in bytes.
  private static let leeway: Int64 = 64 << 20

  private let room: ReadingRoom
  private var nextCheck = Instant(nanoseconds: 0)

  init(room: ReadingRoom) { self.room = room }

  private var maximumSize: Int64 { room.limits.withLock { $0.maximumSize } }

  /// Measures how many more bytes fit, and evicts nothing.
  func measure() {
    do throws(StoreError) {
      let (_, total, lacking) = try usage()
      noteSpare(total, lacking)
    } catch {
      Log.error("the store's space cannot be measured: \(error.message)")
    }
  }

  /// The partial files, their bytes in all, and how many bytes the disk lacks.
  private func usage() throws(StoreError) -> (partials: [StoredPartial], total: Int64, lacking: Int64) {
    let partials = try room.store.generations.partialsByUse()
    let total = partials.reduce(Int64(0)) { .clampedSum($0, $1.storedBytes) }
    return (partials, total, room.options.minimumFree - Int64(clamping: try room.store.partials.space().available))
  }

  private func noteSpare(_ total: Int64, _ lacking: Int64) {
    room.health.measured(spare: min(maximumSize - total, -lacking))
  }

  /// Makes space, however short the last measurement is ago.
  func makeSpaceNow(_ now: Instant) {
    nextCheck = now
    makeSpace(now)
  }

  /// Keeps the partial files within `--max-size` and the disk above `--min-free`. Evicts the least recently used files
  /// first, but none that is open, waited for or being fetched.
  func makeSpace(_ now: Instant) {
    guard now >= nextCheck else { return }
    nextCheck = now.adding(seconds: Self.interval)
    do {
      let usage = try usage()
      let partials = usage.partials
      var (total, lacking) = (usage.total, usage.lacking)
      for partial in partials {
        if total <= maximumSize && lacking <= 0 { break }
        guard partial.storedBytes > 0 else { continue }
        if evict(partial.key, generation: partial.id) {
          room.evicted(partial.key, bytes: partial.storedBytes)
        } else if !evictFromMemory(partial.key) {
          continue
        }
        total -= partial.storedBytes
        lacking = .clampedSum(lacking, -partial.storedBytes)
      }
      noteSpare(total, lacking)
      let isOver = total > maximumSize || lacking > 0
      // Slightly beyond the limit, the bytes that readers ask for are still stored: evictions are about to make room.
      let isFar = total - Self.leeway > maximumSize || lacking > room.options.minimumFree / 2
      let measured: StoreHealth.Intake = isOver ? (isFar ? .nothing : .whatIsRead) : .everything
      switch room.health.measured(measured, now: now) {
      case .everything?: Log.info("the store has space again")
      case .whatIsRead?, .nothing?:
        Log.warning("the store is at its limit: background downloads pause (--max-size, --min-free)")
      case nil: break
      }
    } catch {
      Log.error("the store's space cannot be measured: \(error.message)")
    }
  }

  /// Evicts a partial file that is not in memory. False when it is.
  /// `isUnlisted`: no name leads to it any more, so nobody keeps it either.
  func evict(_ key: ResourceKey, generation: Int64, isUnlisted: Bool = false) -> Bool {
    let isFree = room.table.withLock { table -> Bool in
      guard table.current[key] == nil else { return false }
      table.leaving.insert(key)
      table.departures += 1
      return true
    }
    guard isFree else { return false }
    defer { room.table.withLock { _ = $0.leaving.remove(key) } }
    do {
      if !isUnlisted, try room.isKept(key) { return false }  // it would be fetched again
      try room.store.changes.apply([.dropped(generation: generation)], durably: true)
      try room.store.partials.remove(generation)
      Log.debug("evicted generation \(generation)")
      return true
    } catch {
      Log.error("generation \(generation) cannot be evicted: \(error.message)")
      return false
    }
  }

  /// Has the transfer thread evict a partial file in memory if nobody uses or wants it. That is told once its bytes are
  /// gone. False when somebody does.
  func evictFromMemory(_ key: ResourceKey) -> Bool {
    guard let content = room.table.withLock({ $0.current[key] }) else { return false }
    let isFree = content.guarded.withLock { guarded in
      let isWanted = guarded.rules.storage == .keep || guarded.held.isPinned || guarded.activity?.isWanted == true
      return guarded.isIdle && !isWanted && guarded.activity?.transfers ?? 0 == 0
    }
    if isFree { room.transfers.post(.evict(content)) }
    return isFree
  }
}
