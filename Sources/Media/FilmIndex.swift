import Base

/// Which bytes of a file play when: for every slot of its time, where the bytes lie.
///
/// A lane is a part of the file that a player reads from its start to its end. A file whose tracks are interleaved has
/// one. Where the tracks lie apart, each has its own.
package struct FilmIndex: Sendable, Equatable {
  /// The bytes of one part of the file, slot by slot.
  package struct Lane: Sendable, Equatable {
    /// Where a player begins to read that starts in the slot.
    package internal(set) var starts: [Int64]
    /// Up to where a player must have read to play to the end of the slot. It never falls from slot to slot.
    package internal(set) var ends: [Int64]

    /// All of its bytes.
    var count: Int64 { max(0, (ends.last ?? 0) - (starts.first ?? 0)) }

    /// The bytes of a slot, without those of the slots before it, and without those that lie between two of its pieces
    /// and are no part of it.
    func bytes(of slot: Int) -> ByteRange {
      let start = slot == 0 ? starts[0] : max(ends[slot - 1], starts[slot])
      return ByteRange(min(start, ends[slot]), ends[slot])
    }
  }

  /// No group of pictures is taken to be longer, in seconds.
  static let longestGroup = 10.0

  /// How long it plays, in seconds.
  package let duration: Double
  /// The length of a slot, in seconds.
  package let slot: Double
  /// At least one; all have the same number of slots.
  package let lanes: [Lane]
  /// Whether every slot was found in an index of the file. Else some follow from a mean rate.
  package let isExact: Bool

  /// The number of slots.
  package var slots: Int { lanes[0].ends.count }

  /// The slot that contains a time; the last one for later times.
  package func slot(at time: Double) -> Int {
    guard time > 0 else { return 0 }
    return min(slots - 1, Int(min(time / slot, Double(slots))))
  }

  /// The offset up to which a player must have read that has played from the start to `time`: no byte that belongs to
  /// an earlier time lies behind it. It may be a slot, a cluster or a fragment too far, and is never too low.
  package func needed(at time: Double) -> Int64 {
    let slot = slot(at: time)
    return lanes.reduce(0) { max($0, $1.ends[slot]) }
  }

  /// The bytes of a second of film, counted from 0.
  package func bytes(ofSecond second: Int) -> Int64 {
    lanes.reduce(0) { $0 + Int64(bytes(of: $1, from: Double(second), to: Double(second + 1))) }
  }

  /// The time whose bytes a player reads at `offset`, in the lane that has most of the file's bytes.
  package func time(at offset: Int64) -> Double {
    let there = lanes.filter { $0.starts[0] <= offset && offset < $0.ends[slots - 1] }
    guard let lane = (there.isEmpty ? lanes : there).max(by: { $0.count < $1.count }) else { return 0 }
    var (low, high) = (0, slots)
    while low < high {
      let middle = (low + high) / 2
      if lane.ends[middle] > offset { high = middle } else { low = middle + 1 }
    }
    guard low < slots else { return duration }
    let bytes = lane.bytes(of: low)
    let part = Double(max(0, offset - bytes.start)) / Double(max(1, bytes.count))
    return min(duration, (Double(low) + part * Double(groupEnd(of: lane, from: low) - low)) * slot)
  }

  /// Fragments and clusters give all of their bytes to their first slot; they play evenly up to the next one. The slot
  /// at which the group ends that begins with `slot`.
  func groupEnd(of lane: Lane, from slot: Int) -> Int {
    let limit = min(slots, slot + max(1, Int(Self.longestGroup / self.slot)))
    var next = slot + 1
    while next < limit, lane.ends[next] == lane.ends[slot] { next += 1 }
    return next
  }

  /// How many bytes of a lane play from one time to another, evenly within each group.
  private func bytes(of lane: Lane, from time: Double, to until: Double) -> Double {
    var first = slot(at: time)
    while first > 0, lane.ends[first - 1] == lane.ends[first] { first -= 1 }
    var sum = 0.0
    while first < slots, Double(first) * slot < until {
      let next = groupEnd(of: lane, from: first)
      let played = min(until, Double(next) * slot) - max(time, Double(first) * slot)
      sum += Double(lane.bytes(of: first).count) * max(0, played) / (Double(next - first) * slot)
      first = next
    }
    return sum
  }
}
