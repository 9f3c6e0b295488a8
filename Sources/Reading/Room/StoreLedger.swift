import Base
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
    /// What may still be stored; negative beyond the limit.
    var free: Int64 { .clampedSum(limit, -held) }
    /// How much the keeper keeps free, so that readers need not wait for evictions.
    var headroom: Int64 { max(4 * StoreSpace.block, min(limit / 16, 64 << 20)) }
    /// How much the keeper evicts up to, once less than ``headroom`` is free.
    var goal: Int64 { max(headroom, min(limit / 8, 1 << 30)) }
  }

  private struct State {
    var balance: Balance
    var isAsked = false
    /// Whether a reader's bytes found no room since the keeper last looked.
    var isRefused = false
    /// Removals and placements that have begun, and those that are over: a measurement beside one does not count.
    var changing = 0
    var changes: UInt64 = 0
    /// What was reserved since the measurement began.
    var fresh: Int64 = 0
  }
  private let state: Lock<State>

  init(limit: Int64) { state = Lock(State(balance: Balance(held: 0, copies: 0, limit: limit))) }

  /// Less than this is no room for a reader's next bytes.
  private static let least: Int64 = 64 << 10

  var balance: Balance { state.withLock { $0.balance } }
  /// Whether a reader's next bytes go through memory.
  var isFull: Bool { state.withLock { $0.balance.free < Self.least } }

  /// Reserves space that is about to be taken on the disk.
  func reserve(_ bytes: Int64) -> Answer {
    state.withLock { state in
      let free = state.balance.free
      let isGranted = bytes <= max(0, free)
      if isGranted {
        state.balance.held += bytes
        state.fresh += bytes
      }
      let asks = !state.isAsked && free - bytes < state.balance.headroom
      if asks { state.isAsked = true }
      return Answer(isGranted: isGranted, asks: asks)
    }
  }

  /// Space that was reserved is not taken, or was given back.
  func release(_ bytes: Int64) { state.withLock { $0.balance.held = max(0, $0.balance.held - bytes) } }

  /// The keeper has made what room there is: whoever lacks some may ask again.
  func answered() { state.withLock { $0.isAsked = false } }

  /// The bytes of a file that a program has open found no room.
  func lacksRoomForReader() { state.withLock { $0.isRefused = true } }

  /// Whether that was so since the last call.
  func takeRefusal() -> Bool {
    state.withLock { state in
      defer { state.isRefused = false }
      return state.isRefused
    }
  }

  /// From now on another limit holds.
  func limit(_ bytes: Int64) { state.withLock { $0.balance.limit = bytes } }

  // MARK: What changes on the disk

  /// Whether one goes on.
  var isChanging: Bool { state.withLock { $0.changing > 0 } }

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
      state.fresh = 0
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
  func reserve(_ bytes: Int64) -> Bool {
    let answer = ledger.reserve(bytes)
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

  /// Measures what the store has on disk.
  func measureStore() throws(StoreError) {
    try ledger.measure { () throws(StoreError) in
      (try store.partials.allocated(), try store.generations.copyBytes())
    }
  }
}
