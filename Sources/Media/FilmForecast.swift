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
  /// How the missing bytes come; nil: not known.
  package let supply: FilmSupply?
  /// For every slot the bytes that are not stored and that it needs.
  private let missing: [Double]
  /// For every slot the missing bytes behind it that come with its last ones: a program gets the bytes of a read at
  /// once.
  private let behind: [Double]
  /// The last slot of which bytes are missing.
  private let lastHole: Int

  /// `stored`: the bytes that are there.
  package init(index: FilmIndex, stored: ByteRangeSet, supply: FilmSupply?) {
    self.index = index
    self.supply = supply.flatMap { $0.rate > 0 ? $0 : nil }
    var missing = [Double](repeating: 0, count: index.slots)
    var bytes = missing
    // Lanes may lie one in the other: what a slot has fetched for one of them is there for all.
    var counted = ByteRangeSet()
    var groups = [Int](repeating: 0, count: index.lanes.count)
    for slot in 0..<index.slots {
      for (number, lane) in index.lanes.enumerated() where groups[number] == slot {
        // The player reads a group's bytes while it plays the group.
        let next = index.groupEnd(of: lane, from: slot)
        groups[number] = next
        let range = lane.bytes(of: slot)
        let parts = Double(next - slot)
        while let new = counted.firstGap(in: range) {
          counted.insert(new)
          let share = Double(new.count - stored.count(in: new)) / parts
          for place in slot..<next {
            missing[place] += share
            bytes[place] += Double(new.count) / parts
          }
        }
      }
    }
    self.missing = missing
    lastHole = missing.lastIndex { $0 > 0 } ?? 0
    behind = Self.behind(missing, bytes, unit: Double(self.supply?.unit ?? 0))
  }

  /// For every slot the sum of what is missing in the next `unit` bytes.
  private static func behind(_ missing: [Double], _ bytes: [Double], unit: Double) -> [Double] {
    var result = missing
    // The slots up to `end` are within the unit.
    var (end, size, sum) = (0, 0.0, 0.0)
    for slot in missing.indices {
      if end <= slot {
        (end, size, sum) = (slot + 1, 0, 0)
      } else {
        size -= bytes[slot]
        sum -= missing[slot]
      }
      while end < missing.count, size + bytes[end] <= unit {
        size += bytes[end]
        sum += missing[end]
        end += 1
      }
      let part = end < missing.count ? max(0, unit - size) / max(bytes[end], 1) : 0
      result[slot] = max(0, sum) + (end < missing.count ? min(part, 1) * missing[end] : 0)
    }
    return result
  }

  /// The time up to which all is stored without a hole from `time` on; the duration when no byte is missing.
  package func holds(from time: Double) -> Double {
    let slot = index.slot(at: time)
    guard let hole = missing[slot...].firstIndex(where: { $0 > 0 }) else { return index.duration }
    return min(index.duration, max(max(0, time), Double(hole) * index.slot))
  }

  /// The seconds in which the missing bytes of a slot arrive.
  private func seconds(_ slot: Int) -> Double {
    if missing[slot] == 0 { return 0 }
    return supply.map { missing[slot] / $0.rate } ?? .infinity
  }

  /// By how many seconds later than its own bytes a slot is there: what comes with them is missing too.
  private func delay(_ slot: Int) -> Double {
    guard let supply, missing[slot] + behind[slot] > 0 else { return 0 }
    return supply.delay + behind[slot] / supply.rate
  }

  /// By how many seconds later a slot is there because the window behind its own is in flight too, and takes a part of
  /// the line.
  private func overtaken(_ slot: Int) -> Double {
    missing[slot] > 0 && slot < lastHole ? Self.overlap * (supply?.start ?? 0) : 0
  }
  /// As a part of what two windows take: simulated plays on slow lines are late by about that.
  private static let overlap = 0.25

  /// When what takes `seconds` of the line is there for a play that has just begun: it shares the line with what was
  /// requested before, until that is there.
  private func shared(_ seconds: Double) -> Double { seconds + min(seconds, supply?.start ?? 0) }

  /// For how long a play that begins at `first` waits until it shows something.
  private func start(_ first: Int) -> Double { min(shared(seconds(first)) + delay(first), Self.longestStart) }

  /// What becomes of a play from `time` on. `readTo`: the play shows that now, and its reads up to there were answered;
  /// nil: it starts now.
  package func verdict(from time: Double, readTo: Double? = nil) -> Verdict {
    let first = index.slot(at: time)
    let start = readTo == nil ? start(first) : 0
    let unread = readTo.map { index.slot(at: $0) } ?? first
    var (fetched, late) = (0.0, 0.0)
    var stallsAt: Double?
    for slot in first..<index.slots {
      fetched += seconds(slot)
      if fetched == .infinity {
        return Verdict(stallsAt: stallsAt ?? max(time, Double(slot) * index.slot), readyIn: nil)
      }
      let whole = readTo == nil ? shared(fetched) : fetched
      let isFirst = readTo == nil && slot == first
      let there = whole + (slot < unread ? 0 : delay(slot) + (isFirst ? 0 : overtaken(slot)))
      // All of a slot has to be there when it ends.
      let lack = there - start - (Double(slot + 1) * index.slot - max(0, time))
      late = max(late, lack)
      if lack > 0, stallsAt == nil { stallsAt = max(time, Double(slot) * index.slot) }
    }
    return Verdict(stallsAt: stallsAt, readyIn: late)
  }

  /// Whether a play that starts now with a slot stalls: as ``verdict(from:readTo:)``, but it ends at the first stall.
  private func stalls(from first: Int) -> Bool {
    let start = start(first)
    var fetched = 0.0
    for slot in first..<index.slots {
      fetched += seconds(slot)
      let there = shared(fetched) + delay(slot) + (slot == first ? 0 : overtaken(slot))
      if there - start > Double(slot + 1 - first) * index.slot { return true }
    }
    return false
  }

  /// The earliest time of the film from which a play that starts now never stalls; nil: there is none.
  package var playsFrom: Double? {
    // For how long a play that starts with the slot would have to wait if it had the line for itself.
    var wait = 0.0
    var candidates: [Int] = []
    for slot in (0..<index.slots).reversed() {
      let own = seconds(slot)
      wait = max(own + delay(slot), own + wait) - index.slot
      if shared(own) + delay(slot) <= Self.longestStart, wait <= start(slot) { candidates.append(slot) }
    }
    let earliest = candidates.last { !stalls(from: $0) }
    // The last moments of a film always come in time.
    return earliest.map { Double($0) * index.slot }.flatMap { $0 < index.duration - Self.longestStart ? $0 : nil }
  }
}

/// How the missing bytes of a film come.
package struct FilmSupply: Sendable, Equatable {
  /// Bytes a second.
  package var rate: Double
  /// How many bytes a program gets at once: it waits for all of a read.
  package var unit: Int64
  /// Seconds from a request to its first byte.
  package var delay: Double
  /// For how many seconds the line brings what was requested before, when a play begins: it is not thrown away.
  package var start: Double

  package init(rate: Double, unit: Int64 = 0, delay: Double = 0, start: Double = 0) {
    self.rate = rate
    self.unit = unit
    self.delay = delay
    self.start = start
  }
}
