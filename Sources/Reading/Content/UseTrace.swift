import Base
import Storing

/// When the blocks of a file were used, as long as it is in memory. A read costs a store for each block of it.
struct UseTrace: Sendable {
  /// The binary logarithm of a block's size.
  private var shift = 0
  /// The time of each block's last use, as ``tick(_:)``; 0: none. Empty until the first use.
  private var ticks: [UInt32] = []
  /// Whether something was used since ``taken(_:date:)``.
  private(set) var isNews = false

  /// About a second.
  private static func tick(_ now: Instant) -> UInt32 { UInt32(truncatingIfNeeded: now.nanoseconds >> 30) }

  /// A program used `range` of a file of `size` bytes, or the bytes have just come.
  @inline(__always)
  mutating func note(_ range: ByteRange, size: Int64, _ now: Instant) {
    if ticks.isEmpty { begin(size) }
    var block = Int(range.start >> Int64(shift))
    let last = min(Int((range.end - 1) >> Int64(shift)), ticks.count - 1)
    let tick = Self.tick(now)
    while block <= last {
      ticks[block] = tick
      block += 1
    }
    isNews = true
  }

  private mutating func begin(_ size: Int64) {
    shift = BlockUses.shift(of: size)
    ticks = [UInt32](repeating: 0, count: Int(size >> Int64(shift)) + 1)
  }

  /// What was used, `now` being `date` in seconds since 1970; nil if nothing was.
  func uses(_ now: Instant, date: Int64) -> BlockUses? {
    if ticks.isEmpty { return nil }
    let present = Int64(Self.tick(now))
    // A tick is 2^30 ns.
    let times = ticks.map { tick -> UInt32 in
      if tick == 0 { return 0 }
      let age = (max(0, present - Int64(tick)) << 30) / 1_000_000_000
      return UInt32(clamping: max(1, date - age))
    }
    return BlockUses(shift: shift, times: times)
  }

  /// The same, for the catalog: nil if it knows.
  mutating func taken(_ now: Instant, date: Int64) -> BlockUses? {
    if !isNews { return nil }
    isNews = false
    return uses(now, date: date)
  }
}
