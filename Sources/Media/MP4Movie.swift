import Base

/// What moov says: how long the film is, its tracks, and whether the samples are in fragments.
struct MP4Movie: Sendable {
  /// A track of pictures or sound. Its tables stay in the file.
  struct Track: Sendable {
    var id: UInt32 = 0
    var scale = 0.0
    var isMedia = false
    /// What the edit list adds to the time of a sample, in seconds.
    var shift = 0.0
    /// Up to where the only edit has the track played, in seconds; nil: all of it may be.
    var until: Double?
    /// Whether a part of it may be played that lies before the first edit's.
    var hasMoreEdits = false
    var times: MP4Box?
    var sizes: MP4Box?
    var chunks: MP4Box?
    var offsets: MP4Box?
    /// The duration of a fragment's sample that names none.
    var usualDuration: UInt64 = 0
  }

  /// The most tracks that are looked at.
  static let mostTracks = 64

  /// In seconds; 0: not known.
  private(set) var duration = 0.0
  private(set) var tracks: [Track] = []
  private(set) var isFragmented = false
  private var scale = 0.0

  /// Reads a moov of which every byte is stored.
  init(_ moov: MP4Box, _ cursor: inout ByteCursor) throws(IndexGap) {
    var defaults: [UInt32: UInt64] = [:]
    var whole = 0.0
    try cursor.boxes(in: moov.contents) { (cursor, box) throws(IndexGap) in
      switch box.type {
      case MP4Box.mvhd:
        let (scale, duration) = try cursor.times(of: box)
        self.scale = scale
        self.duration = scale > 0 ? duration / scale : 0
      case MP4Box.mvex:
        isFragmented = true
        try cursor.boxes(in: box.contents) { (cursor, box) throws(IndexGap) in
          if box.type == MP4Box.mehd {
            let isLong = try cursor.number(1, at: box.body) == 1
            whole = Double(try cursor.number(isLong ? 8 : 4, at: box.body + 4))
          } else if box.type == MP4Box.trex, defaults.count < Self.mostTracks {
            defaults[UInt32(try cursor.number(4, at: box.body + 4))] = try cursor.number(4, at: box.body + 12)
          }
        }
      case MP4Box.trak:
        guard tracks.count < Self.mostTracks else { return }
        tracks.append(try Self.track(box, &cursor, scale: scale))
      default: break
      }
    }
    // mvhd has the duration of the samples in moov alone.
    if isFragmented { duration = scale > 0 ? whole / scale : 0 }
    for index in tracks.indices { tracks[index].usualDuration = defaults[tracks[index].id] ?? 0 }
    tracks.removeAll { !$0.isMedia || $0.scale <= 0 }
  }

  private static func track(
    _ trak: MP4Box, _ cursor: inout ByteCursor, scale: Double
  ) throws(IndexGap) -> Track {
    var track = Track()
    var edits: MP4Box?
    try cursor.boxes(in: trak.contents) { (cursor, box) throws(IndexGap) in
      switch box.type {
      case MP4Box.tkhd:
        let isLong = try cursor.number(1, at: box.body) == 1
        track.id = UInt32(try cursor.number(4, at: box.body + (isLong ? 20 : 12)))
      case MP4Box.edts:
        try cursor.boxes(in: box.contents) { _, box in if box.type == MP4Box.elst { edits = box } }
      case MP4Box.mdia: try media(box, &cursor, &track)
      default: break
      }
    }
    if let edits { try read(edits, &cursor, movie: scale, &track) }
    return track
  }

  private static func media(
    _ mdia: MP4Box, _ cursor: inout ByteCursor, _ track: inout Track
  ) throws(IndexGap) {
    try cursor.boxes(in: mdia.contents) { (cursor, box) throws(IndexGap) in
      switch box.type {
      case MP4Box.mdhd: track.scale = try cursor.times(of: box).scale
      case MP4Box.hdlr:
        let kind = UInt32(try cursor.number(4, at: box.body + 8))
        track.isMedia = kind == MP4Box.vide || kind == MP4Box.soun
      case MP4Box.minf:
        try cursor.boxes(in: box.contents) { (cursor, box) throws(IndexGap) in
          guard box.type == MP4Box.stbl else { return }
          try cursor.boxes(in: box.contents) { _, box in
            switch box.type {
            case MP4Box.stts: track.times = box
            case MP4Box.stsz, MP4Box.stz2: track.sizes = box
            case MP4Box.stsc: track.chunks = box
            case MP4Box.stco, MP4Box.co64: track.offsets = box
            default: break
            }
          }
        }
      default: break
      }
    }
  }

  /// Reads by how much the first edits move the samples: players show the first picture at 0, whatever its decoding
  /// time. A single edit says how much is played, too; where it is 0, all is.
  private static func read(
    _ elst: MP4Box, _ cursor: inout ByteCursor, movie: Double, _ track: inout Track
  ) throws(IndexGap) {
    let isLong = try cursor.number(1, at: elst.body) == 1
    let (field, entry): (Int, Int64) = isLong ? (8, 20) : (4, 12)
    let count = Int64(try cursor.number(4, at: elst.body + 4))
    for index in 0..<min(count, 8) {
      let place = elst.body + 8 + index * entry
      guard place + entry <= elst.range.end else { break }
      let ticks = Double(try cursor.number(field, at: place))
      let length = movie > 0 ? ticks / movie : 0
      let start = try cursor.number(field, at: place + Int64(field))
      if start == (isLong ? UInt64.max : 0xFFFF_FFFF) {
        track.shift += length  // nothing is shown
      } else {
        track.hasMoreEdits = index < count - 1
        if !track.hasMoreEdits, length > 0 { track.until = track.shift + length }
        if track.scale > 0 { track.shift -= Double(start) / track.scale }
        return
      }
    }
  }
}
