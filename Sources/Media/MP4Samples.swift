import Base

/// Walks the sample tables of a track, all four side by side, so that none of them has to be in memory.
struct MP4Samples {
  /// The entries of a table that are really there.
  private struct Table {
    let first: Int64
    let width: Int64
    let count: Int64

    /// The entries of `width` bytes from `skipped` bytes behind the contents' start; their number is at `skipped - 4`.
    init(_ box: MP4Box, skipped: Int64, width: Int64, _ cursor: inout ByteCursor) throws(IndexGap) {
      first = box.body + skipped
      self.width = width
      let claimed = Int64(try cursor.number(4, at: first - 4))
      count = min(claimed, max(0, box.range.end - first) / width)
    }

    func offset(_ index: Int64) -> Int64 { first + index * width }
  }

  private var timeCursor: ByteCursor
  private var sizeCursor: ByteCursor
  private var chunkCursor: ByteCursor
  private var offsetCursor: ByteCursor
  private let times: Table
  private let chunks: Table
  private let offsets: Table
  private let sizes: Table
  /// The size of every sample; 0 when each has its own.
  private let equalSize: Int64
  private let scale: Double
  private let shift: Double
  private let until: Double
  /// From when on the samples count: what an edit leaves out before is needed at most for a group of pictures.
  private let from: Double

  /// The place in the table of times: the run's rest, its step, the next run, and the ticks so far.
  private var run: (left: Int64, step: Double, next: Int64) = (0, 0, 0)
  private var ticks = 0.0

  /// nil when a table is missing.
  init?(_ track: MP4Movie.Track, _ bytes: StoredBytes) throws(IndexGap) {
    guard let times = track.times, let sizes = track.sizes, let chunks = track.chunks, let offsets = track.offsets
    else { return nil }
    timeCursor = ByteCursor(bytes, piece: 16 << 10)
    sizeCursor = ByteCursor(bytes, piece: 32 << 10)
    chunkCursor = ByteCursor(bytes, piece: 16 << 10)
    offsetCursor = ByteCursor(bytes, piece: 32 << 10)
    self.times = try Table(times, skipped: 8, width: 8, &timeCursor)
    self.chunks = try Table(chunks, skipped: 8, width: 12, &chunkCursor)
    self.offsets = try Table(offsets, skipped: 8, width: offsets.type == MP4Box.co64 ? 8 : 4, &offsetCursor)
    let word = Int64(try sizeCursor.number(4, at: sizes.body + 4))
    if sizes.type == MP4Box.stz2 {
      // Sizes of half a byte are left out: nobody writes them.
      guard [8, 16].contains(word & 0xFF) else { return nil }
      equalSize = 0
      self.sizes = try Table(sizes, skipped: 12, width: (word & 0xFF) / 8, &sizeCursor)
    } else {
      equalSize = word
      self.sizes = try Table(sizes, skipped: 12, width: 4, &sizeCursor)
    }
    (scale, shift, until) = (track.scale, track.shift, track.until ?? .infinity)
    from = track.hasMoreEdits ? -.infinity : -FilmIndex.longestGroup
  }

  private var time: Double { ticks / scale + shift }

  /// Adds all samples to a lane, up to where the edit list ends.
  mutating func add(to builder: inout FilmBuilder, lane: Int) throws(IndexGap) {
    var sample: Int64 = 0
    var entry: Int64 = 0
    var perChunk: Int64 = 0
    var nextChange: Int64 = 0
    for chunk in 0..<offsets.count where time < until {
      while entry < chunks.count, chunk >= nextChange {
        perChunk = Int64(try chunkCursor.number(4, at: chunks.offset(entry) + 4))
        entry += 1
        nextChange =
          entry < chunks.count ? Int64(try chunkCursor.number(4, at: chunks.offset(entry))) - 1 : .max
      }
      let start = Int64(clamping: try offsetCursor.number(Int(offsets.width), at: offsets.offset(chunk)))
      if equalSize > 0 {
        // Sound without compression has a sample for each tick: the chunk is taken as one piece.
        let begin = time
        let (length, isOver) = perChunk.multipliedReportingOverflow(by: equalSize)
        try advance(perChunk)
        add(to: &builder, lane, from: begin, bytes: start, .clampedSum(start, isOver ? .max : length))
        continue
      }
      var position = start
      for _ in 0..<perChunk {
        guard sample < sizes.count, time < until else { return }
        let size = Int64(try sizeCursor.number(Int(sizes.width), at: sizes.offset(sample)))
        let begin = time
        try advance(1)
        add(to: &builder, lane, from: begin, bytes: position, .clampedSum(position, size))
        position = .clampedSum(position, size)
        sample += 1
      }
    }
  }

  /// Adds bytes that play from `begin` to the time of now, as far as edits do not leave them out.
  private func add(to builder: inout FilmBuilder, _ lane: Int, from begin: Double, bytes start: Int64, _ end: Int64) {
    if time < from { return }
    builder.add(lane: lane, from: begin, to: min(time, until), bytes: start, end)
  }

  /// Moves the time on by `count` samples.
  private mutating func advance(_ count: Int64) throws(IndexGap) {
    var left = count
    while left > 0 {
      if run.left == 0 {
        guard run.next < times.count else { return }  // the time stands still
        run.left = Int64(try timeCursor.number(4, at: times.offset(run.next)))
        run.step = Double(try timeCursor.number(4, at: times.offset(run.next) + 4))
        run.next += 1
        continue
      }
      let taken = min(left, run.left)
      ticks += Double(taken) * run.step
      run.left -= taken
      left -= taken
    }
  }
}
