import Base
import Storing

/// Shows what is stored here to the second source, also what nobody opens: what an earlier server did not bring to it.
/// A few files at a time, from the first one of the catalog to the last.
struct StoredOffers {
  /// How many are looked up at once.
  static let atOnce = 16

  /// How long the catalog is left alone after it could not be read, in seconds.
  static let pause = 60.0

  /// After which generation it goes on; nil while the keeper looks the next ones up.
  private var cursor: Int64? = 0
  /// Not before that time.
  private(set) var next = Instant(nanoseconds: 0)

  /// The generation after which the keeper looks for more.
  mutating func take() -> Int64? {
    defer { cursor = nil }
    return cursor
  }

  /// The keeper looked up all up to that generation; nil: the catalog has no more. The next round begins anew.
  mutating func reached(_ last: Int64?) { cursor = last ?? 0 }

  /// The catalog could not be read: the round goes on from there, later.
  mutating func failed(after last: Int64, _ now: Instant) { (cursor, next) = (last, now.adding(seconds: Self.pause)) }
}

extension TransferThread {
  /// Has the keeper look up the next files when the second source takes some.
  func offerStored(_ now: Instant) {
    guard storedOffersDue(now) <= now, let cursor = storedOffers.take() else { return }
    room.keeper.post(.job { $0.offerStored(after: cursor) })
  }

  /// When the second source takes more of them.
  func storedOffersDue(_ now: Instant) -> Instant {
    max(scheduler.second?.takesStored(now: now) ?? .never, storedOffers.next)
  }

  func offeredStored(until last: Int64?, _ now: Instant) {
    storedOffers.reached(last)
    if last == nil { scheduler.second?.tookAllStored(now: now) }
  }
}

extension Keeper {
  fileprivate func offerStored(after id: Int64) {
    var last: Int64?
    do throws(StoreError) {
      let found = try room.store.generations.strong(limit: StoredOffers.atOnce, after: id)
      for generation in found { offer(generation) }
      if found.count == StoredOffers.atOnce { last = found.last?.id }
    } catch {
      Log.error("stored files cannot be looked up for the fleet's store: \(error.message)")
      return room.transfers.post(.storedUnread(after: id))
    }
    room.transfers.post(.storedUntil(last))
  }

  private func offer(_ generation: GenerationRecord) {
    do throws(StoreError) {
      guard let entry = try room.store.tree.entries(of: generation.key).first else { return }
      // The log says why a content cannot be loaded. The others are offered.
      guard let content = try? room.content(of: entry.node.inode) else { return }
      room.transfers.post(.stored(content))
    } catch {
      Log.error("a stored file cannot be looked up for the fleet's store: \(error.message)")
    }
  }
}
