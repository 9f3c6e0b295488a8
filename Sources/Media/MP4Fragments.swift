import Base

/// What the boxes of a fragmented MP4 say of when its fragments play.
enum MP4Fragments {
  /// Adds what sidx says of the segments behind it; returns where the last of them ends.
  static func addSegments(
    _ sidx: MP4Box, _ cursor: inout ByteCursor, to builder: inout FilmBuilder
  ) throws(IndexGap) -> Int64 {
    let isLong = try cursor.number(1, at: sidx.body) == 1
    let scale = Double(try cursor.number(4, at: sidx.body + 8))
    guard scale > 0 else { throw .malformed }
    let field = isLong ? 8 : 4
    var place = sidx.body + 12
    var time = Double(try cursor.number(field, at: place)) / scale
    var start = Int64.clampedSum(
      sidx.range.end, Int64(clamping: try cursor.number(field, at: place + Int64(field))))
    place += Int64(2 * field) + 2
    let count = Int64(try cursor.number(2, at: place))
    place += 2
    for _ in 0..<count {
      guard place + 12 <= sidx.range.end else { throw .malformed }
      let size = Int64(try cursor.number(4, at: place) & 0x7FFF_FFFF)
      let until = time + Double(try cursor.number(4, at: place + 4)) / scale
      let end = Int64.clampedSum(start, size)
      builder.addGroup(from: time, to: until, bytes: start, end)
      (time, start) = (until, end)
      place += 12
    }
    return start
  }

  /// When the samples of a fragment play: the first of any track, and the end of the last.
  static func times(
    _ moof: MP4Box, _ cursor: inout ByteCursor, _ tracks: [MP4Movie.Track], _ ends: inout [UInt32: Double]
  ) throws(IndexGap) -> (from: Double, to: Double)? {
    var all: (from: Double, to: Double)?
    var known = ends
    try cursor.boxes(in: moof.contents) { (cursor, box) throws(IndexGap) in
      guard box.type == MP4Box.traf else { return }
      var track: MP4Movie.Track?
      var usual: UInt64 = 0
      var from: Double?
      var ticks = 0.0
      try cursor.boxes(in: box.contents) { (cursor, box) throws(IndexGap) in
        switch box.type {
        case MP4Box.tfhd:
          let flags = try cursor.number(4, at: box.body)
          let id = UInt32(try cursor.number(4, at: box.body + 4))
          track = tracks.first { $0.id == id }
          usual = track?.usualDuration ?? 0
          let place = box.body + 8 + (flags & 1 != 0 ? 8 : 0) + (flags & 2 != 0 ? 4 : 0)
          if flags & 8 != 0 { usual = try cursor.number(4, at: place) }
        case MP4Box.tfdt:
          let isLong = try cursor.number(1, at: box.body) == 1
          let base = Double(try cursor.number(isLong ? 8 : 4, at: box.body + 4))
          if let track { from = base / track.scale + track.shift }
        case MP4Box.trun: ticks += try duration(box, &cursor, usual: usual)
        default: break
        }
      }
      guard let track else { return }
      let start = from ?? known[track.id] ?? track.shift
      let end = start + ticks / track.scale
      known[track.id] = end
      all = (min(all?.from ?? start, start), max(all?.to ?? end, end))
    }
    ends = known
    return all
  }

  /// The duration of a trun's samples, in ticks.
  private static func duration(
    _ trun: MP4Box, _ cursor: inout ByteCursor, usual: UInt64
  ) throws(IndexGap) -> Double {
    let flags = try cursor.number(4, at: trun.body)
    let count = Int64(try cursor.number(4, at: trun.body + 4))
    guard flags & 0x100 != 0 else { return Double(count) * Double(usual) }
    let first = trun.body + 8 + (flags & 1 != 0 ? 4 : 0) + (flags & 4 != 0 ? 4 : 0)
    let width = Int64([0x100, 0x200, 0x400, 0x800].count { flags & $0 != 0 } * 4)
    var ticks = 0.0
    for index in 0..<min(count, max(0, trun.range.end - first) / width) {
      ticks += Double(try cursor.number(4, at: first + index * width))
    }
    return ticks
  }

  /// Adds what mfra, the last box of a file, says of where the fragments begin. Returns the film's duration, to which
  /// the last fragment contributes as much as the others did; nil when there is no mfra.
  static func addTail(
    _ cursor: inout ByteCursor, _ tracks: [MP4Movie.Track], to builder: inout FilmBuilder
  ) throws(IndexGap) -> Double? {
    let size = cursor.bytes.size
    guard size >= 16 else { return nil }
    try cursor.require(ByteRange(size - 16, size))
    guard try cursor.number(4, at: size - 12) == UInt64(MP4Box.mfro) else { return nil }
    let length = Int64(try cursor.number(4, at: size - 4))
    guard length >= 24, length <= size else { return nil }
    try cursor.require(ByteRange(size - length, size))
    let mfra = try cursor.box(at: size - length, limit: size)
    guard mfra.type == MP4Box.mfra else { return nil }
    var duration: Double?
    try cursor.boxes(in: mfra.contents) { (cursor, box) throws(IndexGap) in
      guard box.type == MP4Box.tfra, duration == nil else { return }
      let isLong = try cursor.number(1, at: box.body) == 1
      let id = UInt32(try cursor.number(4, at: box.body + 4))
      guard let track = tracks.first(where: { $0.id == id }) else { return }
      let lengths = Int64(try cursor.number(4, at: box.body + 8))
      let width = (isLong ? 16 : 8) + (lengths >> 4 & 3) + (lengths >> 2 & 3) + (lengths & 3) + 3
      let first = box.body + 16
      let count = min(Int64(try cursor.number(4, at: box.body + 12)), max(0, box.range.end - first) / width)
      var last: (time: Double, start: Int64)?
      for index in 0..<count {
        let place = first + index * width
        let ticks = Double(try cursor.number(isLong ? 8 : 4, at: place))
        let start = Int64(clamping: try cursor.number(isLong ? 8 : 4, at: place + (isLong ? 8 : 4)))
        let time = ticks / track.scale + track.shift
        if let last, start > last.start {
          builder.addGroup(from: last.time, to: time, bytes: last.start, start)
        }
        if start > last?.start ?? -1 { last = (time, start) }
      }
      guard let last else { return }
      let end = last.time * Double(count) / Double(max(1, count - 1))
      builder.addGroup(from: last.time, to: end, bytes: last.start, mfra.range.start)
      duration = end
    }
    return duration
  }
}
