import Base

/// Reads the index of Matroska and WebM files (RFC 9559): the Cues, wherever they are. Until they are stored, the
/// clusters that are stored say when they play.
struct MatroskaReader: Sendable {
  private enum ID {
    static let header: UInt64 = 0x1A45_DFA3
    static let segment: UInt64 = 0x1853_8067
    static let seekHead: UInt64 = 0x114D_9B74
    static let seek: UInt64 = 0x4DBB
    static let seekID: UInt64 = 0x53AB
    static let seekPosition: UInt64 = 0x53AC
    static let info: UInt64 = 0x1549_A966
    static let scale: UInt64 = 0x2A_D7B1
    static let duration: UInt64 = 0x4489
    static let cluster: UInt64 = 0x1F43_B675
    static let timestamp: UInt64 = 0xE7
    static let cues: UInt64 = 0x1C53_BB6B
    static let cuePoint: UInt64 = 0xBB
    static let cueTime: UInt64 = 0xB3
    static let cuePositions: UInt64 = 0xB7
    static let cueCluster: UInt64 = 0xF1
  }

  /// The most elements of the segment that are looked at.
  private static let mostElements = 1 << 20

  private(set) var index: FilmIndex?
  private(set) var needs: [ByteRange] = []
  private var builder = FilmBuilder()
  /// The contents of the segment; nil until its head was read.
  private var segment: ByteRange?
  private var position: Int64 = 0
  private var elements = 0
  /// Nanoseconds of a tick.
  private var scale = 1e6
  /// In ticks; 0: not known.
  private var duration = 0.0
  /// Where the seek head says that the Cues are.
  private var cues: Int64?
  /// The last cluster: when it begins to play, and where it lies.
  private var cluster: (time: Double, start: Int64)?

  var weight: Int { builder.weight }

  private var seconds: Double { duration * scale / 1e9 }

  /// Reads on, as far as bytes are stored.
  mutating func read(_ bytes: StoredBytes) {
    needs = []
    var cursor = ByteCursor(bytes)
    do throws(IndexGap) {
      if segment == nil { segment = try begin(&cursor) }
      guard let segment else { return }
      // The tail may be stored before what comes next.
      if let cues, try readCues(at: cues, &cursor, segment) { return }
      while position <= segment.end - 2, elements < Self.mostElements {
        if try take(&cursor, segment) { return }
        elements += 1
      }
      if let cluster { builder.addGroup(from: cluster.time, to: seconds, bytes: cluster.start, segment.end) }
      index = builder.index(duration: seconds, size: bytes.size, isWhole: true)
    } catch {
      guard case .missing(let range) = error else { return }
      if !needs.contains(range) { needs.append(range) }
      if let cluster, cluster.time > 0 {
        index = builder.index(duration: seconds, size: bytes.size, isWhole: false)
      }
    }
  }

  private mutating func begin(_ cursor: inout ByteCursor) throws(IndexGap) -> ByteRange {
    let size = cursor.bytes.size
    let header = try cursor.element(at: 0, limit: size)
    let segment = try cursor.element(at: header.range.end, limit: size)
    guard header.id == ID.header, header.hasSize, segment.id == ID.segment else { throw .malformed }
    position = segment.body
    return segment.contents
  }

  /// Takes the next element of the segment; true when the index is complete.
  private mutating func take(_ cursor: inout ByteCursor, _ segment: ByteRange) throws(IndexGap) -> Bool {
    let element = try cursor.element(at: position, limit: segment.end)
    // Such a cluster or segment was written without looking back; no index was written either.
    guard element.hasSize else { throw .malformed }
    switch element.id {
    case ID.seekHead:
      try cursor.require(element.range)
      try readSeekHead(element, &cursor, segment)
    case ID.info:
      try cursor.require(element.range)
      try readInfo(element, &cursor)
    case ID.cues:
      try cursor.require(element.range)
      if try readCues(element, &cursor, segment) { return true }
    case ID.cluster:
      if let cues, try readCues(at: cues, &cursor, segment) { return true }
      let time = try timestamp(of: element, &cursor) * scale / 1e9
      if let cluster {
        builder.addGroup(from: cluster.time, to: time, bytes: cluster.start, element.range.start)
      }
      cluster = (time, element.range.start)
    default: break
    }
    position = element.range.end
    return false
  }

  private mutating func readSeekHead(
    _ head: EBMLElement, _ cursor: inout ByteCursor, _ segment: ByteRange
  ) throws(IndexGap) {
    var found: Int64?
    try cursor.elements(in: head.contents) { (cursor, seek) throws(IndexGap) in
      guard seek.id == ID.seek else { return }
      var (id, place): (UInt64, UInt64?) = (0, nil)
      try cursor.elements(in: seek.contents) { (cursor, element) throws(IndexGap) in
        switch element.id {
        case ID.seekID: id = try cursor.unsigned(element)
        case ID.seekPosition: place = try cursor.unsigned(element)
        default: break
        }
      }
      if id == ID.cues, let place { found = .clampedSum(segment.start, Int64(clamping: place)) }
    }
    if let found, found < segment.end { cues = found }
  }

  private mutating func readInfo(_ info: EBMLElement, _ cursor: inout ByteCursor) throws(IndexGap) {
    var (scale, duration) = (scale, duration)
    try cursor.elements(in: info.contents) { (cursor, element) throws(IndexGap) in
      switch element.id {
      case ID.scale: scale = Double(try cursor.unsigned(element))
      case ID.duration: duration = try cursor.float(element)
      default: break
      }
    }
    (self.scale, self.duration) = (scale, duration)
  }

  /// The time of a cluster, in ticks. It is one of its first elements.
  private func timestamp(of cluster: EBMLElement, _ cursor: inout ByteCursor) throws(IndexGap) -> Double {
    var position = cluster.body
    for _ in 0..<8 where position < cluster.range.end {
      let element = try cursor.element(at: position, limit: cluster.range.end)
      if element.id == ID.timestamp { return Double(try cursor.unsigned(element)) }
      position = element.range.end
    }
    throw .malformed
  }

  /// Reads the Cues where the seek head says that they are; false when they are not stored, not there, or of no use.
  private mutating func readCues(
    at place: Int64, _ cursor: inout ByteCursor, _ segment: ByteRange
  ) throws(IndexGap) -> Bool {
    if seconds <= 0 { return false }
    do throws(IndexGap) {
      let element = try cursor.element(at: place, limit: segment.end)
      guard element.id == ID.cues, element.hasSize else { throw .malformed }
      try cursor.require(element.range)
      if try readCues(element, &cursor, segment) { return true }
      cues = nil
      return false
    } catch {
      if case .missing(let range) = error { needs = [range] } else { cues = nil }
      return false
    }
  }

  /// Each cue says where a cluster is; what lies up to the next one plays from its time on.
  private mutating func readCues(
    _ cues: EBMLElement, _ cursor: inout ByteCursor, _ segment: ByteRange
  ) throws(IndexGap) -> Bool {
    var built = FilmBuilder()
    var last: (time: Double, start: Int64)?
    let scale = scale
    try cursor.elements(in: cues.contents) { (cursor, point) throws(IndexGap) in
      guard point.id == ID.cuePoint else { return }
      var (time, place): (UInt64, Int64?) = (0, nil)
      try cursor.elements(in: point.contents) { (cursor, element) throws(IndexGap) in
        if element.id == ID.cueTime { time = try cursor.unsigned(element) }
        guard element.id == ID.cuePositions else { return }
        try cursor.elements(in: element.contents) { (cursor, element) throws(IndexGap) in
          guard element.id == ID.cueCluster else { return }
          let start = Int64.clampedSum(segment.start, Int64(clamping: try cursor.unsigned(element)))
          place = min(place ?? start, start)
        }
      }
      guard let place, place > last?.start ?? -1, place < segment.end else { return }
      let seconds = Double(time) * scale / 1e9
      // The first cluster is needed from the start, also if its first picture comes later.
      built.addGroup(from: last?.time ?? 0, to: seconds, bytes: last?.start ?? place, last == nil ? place + 1 : place)
      last = (seconds, place)
    }
    guard let last, seconds > 0 else { return false }
    let end = cues.range.start > last.start ? cues.range.start : segment.end
    built.addGroup(from: last.time, to: max(seconds, last.time), bytes: last.start, end)
    index = built.index(duration: seconds, size: cursor.bytes.size, isWhole: true)
    needs = []
    return index != nil
  }
}
