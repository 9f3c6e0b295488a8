import Base

/// A box of an MP4 or MOV file (ISO/IEC 14496-12): where it lies, and its type.
struct MP4Box {
  /// The whole box.
  let range: ByteRange
  /// Where its contents begin.
  let body: Int64
  let type: UInt32

  /// Its contents.
  var contents: ByteRange { ByteRange(body, range.end) }

  /// A type as a number.
  static func type(_ name: StaticString) -> UInt32 {
    name.withUTF8Buffer { $0.reduce(0) { $0 << 8 | UInt32($1) } }
  }

  static let moov = type("moov")
  static let moof = type("moof")
  static let mdat = type("mdat")
  static let sidx = type("sidx")
  static let mvhd = type("mvhd")
  static let mvex = type("mvex")
  static let mehd = type("mehd")
  static let trex = type("trex")
  static let trak = type("trak")
  static let tkhd = type("tkhd")
  static let edts = type("edts")
  static let elst = type("elst")
  static let mdia = type("mdia")
  static let mdhd = type("mdhd")
  static let hdlr = type("hdlr")
  static let minf = type("minf")
  static let stbl = type("stbl")
  static let stts = type("stts")
  static let stsz = type("stsz")
  static let stz2 = type("stz2")
  static let stsc = type("stsc")
  static let stco = type("stco")
  static let co64 = type("co64")
  static let traf = type("traf")
  static let tfhd = type("tfhd")
  static let tfdt = type("tfdt")
  static let trun = type("trun")
  static let tfra = type("tfra")
  static let mfro = type("mfro")
  static let mfra = type("mfra")
  static let vide = type("vide")
  static let soun = type("soun")

  /// What a file may begin with.
  static let first: Set<UInt32> = [
    type("ftyp"), type("styp"), moov, mdat, type("wide"), type("free"), type("skip"), type("pnot"), sidx, moof,
  ]
}

extension ByteCursor {
  /// The box at `offset`, which has to end by `limit`. `isTop`: a box of the file, which may be cut off.
  mutating func box(at offset: Int64, limit: Int64, isTop: Bool = false) throws(IndexGap) -> MP4Box {
    guard offset >= 0, offset <= limit - 8 else { throw .malformed }
    let head = try number(8, at: offset)
    var length = Int64(head >> 32)
    var body = offset + 8
    if length == 1 {
      guard let long = Int64(exactly: try number(8, at: offset + 8)) else { throw .malformed }
      length = long
      body += 8
    } else if length == 0 {
      length = limit - offset
    }
    guard length >= body - offset else { throw .malformed }
    let end = Int64.clampedSum(offset, length)
    guard end <= limit || isTop, body <= limit else { throw .malformed }
    return MP4Box(range: ByteRange(offset, min(end, limit)), body: body, type: UInt32(truncatingIfNeeded: head))
  }

  /// Calls `visit` with each box of `contents`. Fewer than 8 bytes at the end are filling.
  mutating func boxes(
    in contents: ByteRange, _ visit: (inout ByteCursor, MP4Box) throws(IndexGap) -> Void
  ) throws(IndexGap) {
    var position = contents.start
    while position <= contents.end - 8 {
      let box = try box(at: position, limit: contents.end)
      try visit(&self, box)
      position = box.range.end
    }
  }

  /// The timescale and the duration of mvhd and mdhd.
  mutating func times(of box: MP4Box) throws(IndexGap) -> (scale: Double, duration: Double) {
    let isLong = try number(1, at: box.body) == 1
    let scale = try number(4, at: box.body + (isLong ? 20 : 12))
    let duration = try isLong ? number(8, at: box.body + 24) : number(4, at: box.body + 16)
    // All bits: not known.
    let isKnown = duration != (isLong ? UInt64.max : 0xFFFF_FFFF)
    return (Double(scale), isKnown ? Double(duration) : 0)
  }
}
