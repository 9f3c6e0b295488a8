import Base
import Manifest
import Storing

/// How much the store has on disk, and how much it may have (P14). Any thread may use it.
///
/// Space is reserved before bytes are written, so what is on disk is never more than what is counted here. Where the
/// count may be too high (a write that failed, a file that was replaced), the keeper's next measurement corrects it.
/// It counts what partial files take on the disk, and complete copies, but for those that were there before the store.
final class StoreLedger: Sendable {
  /// Whether there was room.
  struct Answer {
    let isGranted: Bool
    /// Whether the caller asks the keeper to make room: it is scarce, and nobody has asked yet.
    let asks: Bool
  }

  /// What is held, and the limit, in bytes.
  struct Balance: Sendable, Equatable {
    var held: Int64
    var copies: Int64
    var limit: Int64
    /// Whether the copies never go by themselves.
    var copiesStay = true
    /// What a complete file waits for.
    var promised: Int64 = 0
    /// What readers may still store; negative beyond the limit.
    var room: Int64 { .clampedSum(limit, -held) }
    /// What background downloads may.
    var free: Int64 { .clampedSum(room, -promised) }
    /// What is not for copies that stay.
    var forOthers: Int64 { copiesStay ? max(0, .clampedSum(limit, -copies)) : limit }
    /// How much the keeper keeps free, so that readers need not wait for evictions.
    var headroom: Int64 { max(StoreLedger.twoPieces, min(limit / 16, 64 << 20, forOthers / 2)) }
    /// How much the keeper evicts up to, once less than ``headroom`` is free.
    var goal: Int64 { max(headroom, min(limit / 8, 1 << 30, forOthers / 2)) }
    /// Whether the copies that stay leave no room, whatever else goes.
    var isHopeless: Bool { copiesStay && copies > 0 && forOthers < StoreLedger.twoPieces }
  }

  /// Who reserves.
  enum Purpose {
    case background, reader
    /// The copy of a file on another filesystem.
    case copy(ResourceKey)
  }

  private struct State {
    var balance: Balance
    var isAsked = false
    /// Whether a reader's bytes found no room since the keeper last looked.
    var isRefused = false
    /// What each complete file waits for, and until when that holds: whoever waits asks again before.
    var promises: [ResourceKey: (bytes: Int64, until: Instant)] = [:] {
      didSet { balance.promised = promises.values.map(\.bytes).max() ?? 0 }
    }
    /// Removals and placements that have begun, and those that are over: a measurement beside one does not count.
    var changing = 0
    var changes: UInt64 = 0
    /// What is reserved and not yet written.
    var unwritten: Int64 = 0
    /// What was reserved since the measurement began, or was not written then.
    var fresh: Int64 = 0
  }
  private let state: Lock<State>

  init(limit: Int64) { state = Lock(State(balance: Balance(held: 0, copies: 0, limit: limit))) }

  /// Less than this is no room for a reader's next bytes.
  private static let least: Int64 = 64 << 10
  /// Two of the largest pieces that arrive at once.
  private static let twoPieces: Int64 = 256 << 10

  var balance: Balance { state.withLock { $0.balance } }
  /// Whether a reader's next bytes go through memory.
  var isFull: Bool { state.withLock { $0.balance.room < Self.least } }

  /// Reserves space that is about to be taken on the disk.
  func reserve(_ bytes: Int64, for purpose: Purpose) -> Answer {
    state.withLock { state in
      var isGranted = bytes <= max(0, state.balance.room)
      if case .background = purpose { isGranted = bytes <= max(0, state.balance.free) }
      if isGranted, case .copy(let key) = purpose { state.promises[key] = nil }
      let free = state.balance.free
      if isGranted {
        state.balance.held += bytes
        state.unwritten += bytes
        state.fresh += bytes
      }
      let asks = !state.isAsked && free - bytes < state.balance.headroom
      if asks { state.isAsked = true }
      return Answer(isGranted: isGranted, asks: asks)
    }
  }

  /// What was reserved is on the disk.
  func written(_ bytes: Int64) { state.withLock { $0.unwritten -= bytes } }

  /// What was reserved will not be written.
  func release(_ bytes: Int64) {
    state.withLock { state in
      state.unwritten -= bytes
      state.balance.held = max(0, state.balance.held - bytes)
    }
  }

  /// The keeper has made what room there is: whoever lacks some may ask again.
  func answered() { state.withLock { $0.isAsked = false } }

  /// The bytes of a file that a program has open found no room. Returns whether the caller asks the keeper to make
  /// some.
  func lacksRoomForReader() -> Bool {
    state.withLock { state in
      defer { (state.isRefused, state.isAsked) = (true, true) }
      return !state.isAsked
    }
  }

  /// Whether that was so since the last call.
  func takeRefusal() -> Bool {
    state.withLock { state in
      defer { state.isRefused = false }
      return state.isRefused
    }
  }

  /// A complete file waits for so much room. Until then, background downloads do not take it.
  func promise(_ bytes: Int64, to key: ResourceKey, until: Instant) {
    state.withLock { $0.promises[key] = (bytes, until) }
  }

  /// Forgets what nobody waits for any more.
  func forgetPromises(_ now: Instant) {
    state.withLock { if !$0.promises.isEmpty { $0.promises = $0.promises.filter { now < $0.value.until } } }
  }

  /// From now on another limit holds, and the copies may go by themselves, or not.
  func limit(_ bytes: Int64, copiesStay: Bool) {
    state.withLock { ($0.balance.limit, $0.balance.copiesStay) = (bytes, copiesStay) }
  }

  // MARK: What changes on the disk

  /// A removal or a placement begins. Until ``changed(released:copies:)``, no measurement counts.
  func changes() { state.withLock { $0.changing += 1 } }

  /// It is over. `copies`: how many of the bytes that stay are in complete copies from now on, or not any more.
  func changed(released: Int64 = 0, copies: Int64 = 0) {
    state.withLock { state in
      state.changing -= 1
      state.changes += 1
      state.balance.held = max(0, state.balance.held - released)
      state.balance.copies = max(0, state.balance.copies + copies)
    }
  }

  /// Takes over what `measure` finds on the disk. What is reserved meanwhile counts on top. Nothing changes when a
  /// removal or placement goes on beside it.
  func measure(
    _ measure: () throws(StoreError) -> (partials: Int64, copies: Int64)
  ) throws(StoreError) {
    let before = state.withLock { state -> UInt64? in
      state.fresh = state.unwritten
      return state.changing == 0 ? state.changes : nil
    }
    guard let before else { return }
    let found = try measure()
    state.withLock { state in
      guard state.changing == 0, state.changes == before else { return }
      state.balance.copies = found.copies
      state.balance.held = .clampedSum(.clampedSum(found.partials, found.copies), state.fresh)
    }
  }

  // MARK: What a write takes

  /// The space on the disk that a write of `gap` takes, a range without stored bytes, beside those that are `stored`.
  static func space(of gap: ByteRange, in stored: ByteRangeSet) -> Int64 {
    let blocks = gap.blocks(of: StoreSpace.block)
    var space = blocks.count
    let isBegun = blocks.start < gap.start && stored.count(in: ByteRange(blocks.start, gap.start)) > 0
    let isEnded = gap.end < blocks.end && stored.count(in: ByteRange(gap.end, blocks.end)) > 0
    if isBegun { space -= StoreSpace.block }
    if isEnded, !isBegun || blocks.count > StoreSpace.block { space -= StoreSpace.block }
    return space
  }
}

extension ReadingRoom {
  /// Reserves space that is about to be taken on the disk; false when the limit leaves none. Has the keeper make room
  /// when it is scarce.
  func reserve(_ bytes: Int64, for purpose: StoreLedger.Purpose) -> Bool {
    let answer = ledger.reserve(bytes, for: purpose)
    if answer.asks { keeper.post(.measureSpace) }
    return answer.isGranted
  }

  /// Removes the partial file of a generation, if there is one. Returns the space that the disk got back.
  @discardableResult
  func removePartial(_ id: Int64) throws(StoreError) -> Int64 {
    ledger.changes()
    var released: Int64 = 0
    defer { ledger.changed(released: released) }
    released = try store.partials.remove(id)
    return released
  }

  /// Removes an intact copy of a generation; false if there is none. The catalog still has its row.
  @discardableResult
  func remove(_ copy: LibraryCopy, of id: Int64) throws(StoreError) -> Bool {
    let counted = try store.generations.copyBytes(of: id)
    ledger.changes()
    var released: Int64 = 0
    defer { ledger.changed(released: released, copies: -released) }
    guard try store.copies.remove(copy) else { return false }
    released = counted
    return true
  }

  /// Measures what the store has on disk. `looksAtCopies`: those that a user removed or changed do not count, which
  /// takes a look at each.
  func measureStore(looksAtCopies: Bool = false) throws(StoreError) {
    try ledger.measure { () throws(StoreError) in
      let partials = try store.partials.allocated()
      return (partials, looksAtCopies ? try bytesOfIntactCopies() : try store.generations.copyBytes(of: nil))
    }
  }

  /// Of those that a slow library does not show in ``mostSeconds`` it counts all.
  private func bytesOfIntactCopies() throws(StoreError) -> Int64 {
    let begun = clock.now
    var isSlow = false
    var sum: Int64 = 0
    var last: CountedCopy?
    repeat {
      let page = try store.generations.copies(limit: SpaceKeeping.copiesAtOnce, after: last, mayGo: false)
      for counted in page {
        isSlow = isSlow || isEnding || clock.now.seconds(since: begun) > SpaceKeeping.mostSeconds
        ThreadRecord.work(.space)
        do throws(StoreError) {
          if !isSlow, try store.copies.check(counted.copy) != .intact { continue }
        } catch {
          isSlow = true  // the library's disk may be away, and comes back
          Log.debug("\(error.message): all copies count")
        }
        sum = .clampedSum(sum, ByteRange(0, counted.copy.size).blocks(of: StoreSpace.block).count)
      }
      last = page.count == SpaceKeeping.copiesAtOnce ? page.last : nil
    } while last != nil
    return sum
  }
}
