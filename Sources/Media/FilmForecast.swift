import Base

/// Whether a film plays without a stall: what is stored of it, and how fast the rest comes, against its bytes for each
/// second. A value; pure.
package struct FilmForecast: Sendable, Equatable {
  /// What becomes of a play.
  package struct Verdict: Sendable, Equatable {
    /// When it stalls, in seconds of the film; nil: it plays through.
    package var stallsAt: Double?
    /// In how many seconds it would play through, at the same rate; nil while that is not known.
    package var readyIn: Double?

    /// Whether it plays through.
    package var playsThrough: Bool { stallsAt == nil }
  }

  /// A start may take that long, in seconds, and is no stall.
  package static let longestStart = 2.0
  package let index: FilmIndex
  /// Bytes a second that arrive; nil: not known.
  package let rate: Double?
  /// For every slot the bytes that are not stored and that it needs.
  private let missing: [Double]
  /// For every slot whether it needs such bytes.
  private let holes: [Bool]

  /// `stored`: the bytes that are there.
  package init(index: FilmIndex, stored: ByteRangeSet, rate: Double?) {
    self.index = index
    self.rate = rate.flatMap { $0 > 0 ? $0 : nil }
    var missing = [Double](repeating: 0, count: index.slots)
    for lane in index.lanes {
      var slot = 0
      while slot < index.slots {
        let bytes = lane.bytes(of: slot)
        // The player reads a group's bytes while it plays the group.
        let next = index.groupEnd(of: lane, from: slot)
        let share = Double(bytes.count - stored.count(in: bytes)) / Double(next - slot)
        if share > 0 { for place in slot..<next { missing[place] += share } }
        slot = next
      }
    }
    self.missing = missing
    holes = missing.map { $0 > 0 }
  }

  /// The time up to which all is stored without a hole from `time` on; the duration when no byte is missing.
  package func holds(from time: Double) -> Double {
    let slot = index.slot(at: time)
    guard let hole = holes[slot...].firstIndex(of: true) else { return index.duration }
    return min(index.duration, max(max(0, time), Double(hole) * index.slot))
  }

  /// The seconds in which the missing bytes of a slot arrive.
  private func seconds(_ slot: Int) -> Double {
    if missing[slot] == 0 { return 0 }
    return rate.map { missing[slot] / $0 } ?? .infinity
  }

  /// What becomes of a play from `time` on that starts now, or that has gone on until now and has `lead` seconds more
  /// than it has shown. nil: it starts now, which may take a moment.
  package func verdict(from time: Double, lead: Double? = nil) -> Verdict {
    let first = index.slot(at: time)
    let start = lead ?? min(seconds(first), Self.longestStart)
    var (fetched, late) = (0.0, 0.0)
    var stallsAt: Double?
    for slot in first..<index.slots {
      fetched += seconds(slot)
      if fetched == .infinity {
        return Verdict(stallsAt: stallsAt ?? max(time, Double(slot) * index.slot), readyIn: nil)
      }
      // All of a slot has to be there when it ends.
      let lack = fetched - start - (Double(slot + 1) * index.slot - max(0, time))
      late = max(late, lack)
      if lack > 0, stallsAt == nil { stallsAt = max(time, Double(slot) * index.slot) }
    }
    return Verdict(stallsAt: stallsAt, readyIn: late)
  }

  /// The earliest time of the film from which a play that starts now never stalls; nil: there is none.
  package var playsFrom: Double? {
    // For how long a play that starts with the slot would have to wait, in all.
    var wait = 0.0
    var earliest: Int?
    for slot in (0..<index.slots).reversed() {
      let own = seconds(slot)
      if own <= Self.longestStart, wait <= index.slot { earliest = slot }
      wait = own - index.slot + max(0, wait)
    }
    // The last moments of a film always come in time.
    return earliest.map { Double($0) * index.slot }.flatMap { $0 < index.duration - Self.longestStart ? $0 : nil }
  }
}
