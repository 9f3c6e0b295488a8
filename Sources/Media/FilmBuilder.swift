import Base

/// Gathers which bytes play when, from samples, fragments or clusters in any order. Its size is bounded: when the film
/// turns out to be longer than its slots reach, two slots become one.
struct FilmBuilder: Sendable, Equatable {
  /// The most slots of a lane.
  static let most = 4096
  /// The most lanes; what belongs to further ones is left out.
  static let mostLanes = 8
  /// The most lanes of an index.
  static let keptLanes = 4
  /// The shortest slot, in seconds.
  static let shortest = 0.25
  /// Later times count as this one, in seconds: no film plays for thirty years.
  static let longest = 1e9

  /// The samples that begin in one slot.
  private struct Slot: Sendable, Equatable {
    var start = Int64.max
    var end: Int64 = 0
  }

  private var slot = Self.shortest
  private var lanes: [[Slot]] = []
  /// The end of the last piece, in seconds.
  private(set) var lastTime = 0.0
  /// The end of the last piece, in bytes.
  private(set) var lastByte: Int64 = 0

  /// The bytes from `start` to `end` of a lane play from `time` to `until`. A player needs all of them at `time`.
  mutating func add(lane: Int, from time: Double, to until: Double, bytes start: Int64, _ end: Int64) {
    guard lane < Self.mostLanes, start >= 0, end > start, time.isFinite, until.isFinite else { return }
    let first = min(max(0, time), Self.longest)
    let last = min(max(first, until), Self.longest)
    reach(last)
    while lanes.count <= lane { lanes.append([]) }
    let from = Int(first / slot)
    let to = max(from, Int((last - slot * 1e-6) / slot))
    if lanes[lane].count <= to {
      lanes[lane] += [Slot](repeating: Slot(), count: to + 1 - lanes[lane].count)
    }
    lanes[lane][from].end = max(lanes[lane][from].end, end)
    lanes[lane][to].start = min(lanes[lane][to].start, start)
    lastTime = max(lastTime, last)
    lastByte = max(lastByte, end)
  }

  /// A fragment or a cluster: bytes of all tracks, which a player needs together. The tracks begin a little apart, by
  /// as much as pictures are reordered.
  mutating func addGroup(from time: Double, to until: Double, bytes start: Int64, _ end: Int64) {
    add(lane: 0, from: time - 0.5, to: until, bytes: start, end)
  }

  /// About how many bytes of memory it takes.
  var weight: Int { lanes.reduce(0) { $0 + $1.capacity * 16 } }

  /// Makes the slots long enough for `time`.
  private mutating func reach(_ time: Double) {
    while time / slot >= Double(Self.most) {
      slot *= 2
      for lane in lanes.indices {
        let old = lanes[lane]
        lanes[lane] = stride(from: 0, to: old.count, by: 2).map { index in
          guard index + 1 < old.count else { return old[index] }
          return Slot(
            start: min(old[index].start, old[index + 1].start), end: max(old[index].end, old[index + 1].end))
        }
      }
    }
  }

  /// The index of a film that lasts `duration` seconds. `size`: its file's size; what lies behind the last piece in
  /// time and bytes follows by a mean rate, if `isWhole` is false. nil when nothing was added.
  func index(duration: Double, size: Int64, isWhole: Bool) -> FilmIndex? {
    guard duration.isFinite, duration > 0, lanes.contains(where: { !$0.isEmpty }) else { return nil }
    var built = self
    let duration = min(duration, Self.longest)
    built.reach(duration)
    let count = min(
      Self.most, max(Int((duration / built.slot).rounded(.up)), built.lanes.map(\.count).max() ?? 0, 1))
    let used = built.lanes.filter { !$0.isEmpty }
    var lanes = used.map { Self.lane($0, count, size) }
    if !isWhole { built.extrapolate(&lanes, to: size) }
    // Where a lane has bytes; one that was extrapolated has them to its end.
    let spans = used.map { slots in
      let first = slots.firstIndex { $0.end > 0 } ?? 0
      return first..<(isWhole ? max(first + 1, slots.count) : count)
    }
    lanes = Self.joined(Array(zip(lanes, spans)), size: size)
    return FilmIndex(duration: duration, slot: built.slot, lanes: lanes, isExact: isWhole)
  }

  /// A lane in which no end falls and every start is the lowest of what is left.
  private static func lane(_ slots: [Slot], _ count: Int, _ size: Int64) -> FilmIndex.Lane {
    var ends = [Int64](repeating: 0, count: count)
    var starts = ends
    var end: Int64 = 0
    for index in 0..<count {
      if index < slots.count { end = max(end, min(slots[index].end, size)) }
      ends[index] = end
    }
    var start = end
    for index in (0..<count).reversed() {
      if index < slots.count { start = min(start, slots[index].start) }
      starts[index] = start
    }
    return FilmIndex.Lane(starts: starts, ends: ends)
  }

  /// Spreads the bytes behind the last known one evenly over the time behind the last known one.
  private func extrapolate(_ lanes: inout [FilmIndex.Lane], to size: Int64) {
    guard !lanes.isEmpty, lastByte < size else { return }
    let count = lanes[0].ends.count
    let known = min(count - 1, Int(lastTime / slot))
    for index in known..<count {
      let part = Double(index + 1 - known) / Double(count - known)
      lanes[0].ends[index] = min(size, lastByte + Int64(Double(size - lastByte) * part))
      if index > known { lanes[0].starts[index] = lanes[0].ends[index - 1] }
    }
  }

  /// One lane for tracks that are interleaved: a player reads them in one go. Each has its span, the slots in which it
  /// has bytes: a track may begin later than another, or end sooner.
  private static func joined(_ lanes: [(FilmIndex.Lane, span: Range<Int>)], size: Int64) -> [FilmIndex.Lane] {
    let limit = min(16 << 20, size / 8)
    var joined: [(lane: FilmIndex.Lane, span: Range<Int>)] = []
    for (lane, span) in lanes.sorted(by: { $0.0.count > $1.0.count }) {
      let place = joined.firstIndex { other in
        let both = other.span.clamped(to: span)
        return !both.isEmpty && both.allSatisfy { abs(other.lane.ends[$0] - lane.ends[$0]) <= limit }
      }
      guard let place else {
        if joined.count < keptLanes { joined.append((lane, span)) }
        continue
      }
      for index in lane.ends.indices {
        joined[place].lane.ends[index] = max(joined[place].lane.ends[index], lane.ends[index])
        // What begins behind its span is none of it.
        if index >= span.upperBound { continue }
        joined[place].lane.starts[index] = min(joined[place].lane.starts[index], lane.starts[index])
      }
      let other = joined[place].span
      joined[place].span = min(other.lowerBound, span.lowerBound)..<max(other.upperBound, span.upperBound)
    }
    return joined.map(\.lane)
  }
}
