import Base

/// Reads the index of MP4 and MOV files: the sample tables of moov, wherever it is, or what fragments say of themselves
/// (sidx, mfra, moof).
struct MP4Reader: Sendable {
  /// The most boxes of the file that are looked at: so many fragments of a second play for eleven days.
  private static let mostBoxes = 1 << 20

  private(set) var index: FilmIndex?
  private(set) var needs: [ByteRange] = []
  private var builder = FilmBuilder()
  private var movie: MP4Movie?
  /// Where the next box of the file begins.
  private var position: Int64 = 0
  private var boxes = 0
  /// The fragment whose mdat comes next: where it begins, and when it plays.
  private var fragment: (start: Int64, from: Double, to: Double)?
  /// When the next fragment of each track begins, if it does not say so itself.
  private var ends: [UInt32: Double] = [:]

  var weight: Int { builder.weight + (movie?.tracks.count ?? 0) * 256 }

  /// Whether a file whose first box has that type may be one.
  static func begins(with type: UInt32) -> Bool { MP4Box.first.contains(type) }

  /// Reads on, as far as bytes are stored.
  mutating func read(_ bytes: StoredBytes) {
    needs = []
    var cursor = ByteCursor(bytes)
    do throws(IndexGap) {
      while position <= bytes.size - 8, boxes < Self.mostBoxes {
        if try take(&cursor) { return }
        boxes += 1
      }
      let duration = movie?.duration ?? 0
      index = builder.index(duration: duration > 0 ? duration : builder.lastTime, size: bytes.size, isWhole: true)
    } catch {
      guard case .missing(let range) = error else { return }
      needs = [range]
      guard let movie, movie.isFragmented else { return }
      if movie.duration > 0 {
        index = builder.index(duration: movie.duration, size: bytes.size, isWhole: false)
      } else {
        readTail(&cursor)
      }
    }
  }

  /// Takes the next box of the file; true when the index is complete.
  private mutating func take(_ cursor: inout ByteCursor) throws(IndexGap) -> Bool {
    let size = cursor.bytes.size
    let box = try cursor.box(at: position, limit: size, isTop: true)
    switch box.type {
    case MP4Box.moov where movie == nil:
      try cursor.require(box.range)
      let movie = try MP4Movie(box, &cursor)
      for (lane, track) in movie.tracks.enumerated() {
        // The samples before the fragments are a fragment of their own: fragments have one lane.
        let lane = movie.isFragmented ? 0 : lane
        if var samples = try MP4Samples(track, cursor.bytes) { try samples.add(to: &builder, lane: lane) }
      }
      self.movie = movie
      if !movie.isFragmented {
        // Without an edit list it plays for as long as its samples do, whatever mvhd says.
        let isEdited = movie.tracks.contains { $0.until != nil || $0.hasMoreEdits }
        let duration = isEdited && movie.duration > 0 ? movie.duration : max(movie.duration, builder.lastTime)
        index = builder.index(duration: duration, size: size, isWhole: true)
        return true
      }
    case MP4Box.sidx:
      try cursor.require(box.range)
      let end = try MP4Fragments.addSegments(box, &cursor, to: &builder)
      // What it describes is known.
      if end > box.range.end, end < size {
        position = end
        return false
      }
      if end == size {
        index = builder.index(duration: builder.lastTime, size: size, isWhole: true)
        return true
      }
    case MP4Box.moof:
      try cursor.require(box.range)
      if let movie, let times = try MP4Fragments.times(box, &cursor, movie.tracks, &ends) {
        fragment = (box.range.start, times.from, times.to)
      }
    case MP4Box.mdat:
      // The parts of a fragment lie one behind the other in it: a player needs all of it to play the first.
      if let fragment {
        builder.addGroup(from: fragment.from, to: fragment.to, bytes: fragment.start, box.range.end)
      }
      fragment = nil
    default: break
    }
    position = box.range.end
    return false
  }

  /// Fragments without a duration: mfra at the file's end says when each begins.
  private mutating func readTail(_ cursor: inout ByteCursor) {
    guard let movie else { return }
    var built = builder
    do throws(IndexGap) {
      guard let duration = try MP4Fragments.addTail(&cursor, movie.tracks, to: &built) else { return }
      index = built.index(duration: duration, size: cursor.bytes.size, isWhole: true)
    } catch {
      if case .missing(let range) = error { needs.append(range) }
    }
  }
}
