import Base

/// Finds out how long a file plays of whose kind no index is read, from its head: then its mean rate is known.
enum HeadReader: Sendable {
  case mp3
  case tagged
  case flac
  case wave
  case ogg
  case aiff
  case wavPack
  case trueAudio
  case avi
  case flash
  case windows

  /// By the file's first four bytes and those from the eighth; nil: another format.
  init?(first: UInt32, third: UInt32) {
    switch first {
    case MP4Box.type("fLaC"): self = .flac
    case MP4Box.type("OggS"): self = .ogg
    case MP4Box.type("RIFF") where third == MP4Box.type("WAVE"), MP4Box.type("RF64"): self = .wave
    case MP4Box.type("RIFF") where third == MP4Box.type("AVI "): self = .avi
    case MP4Box.type("FORM") where third >> 8 == MP4Box.type("AIFF") >> 8: self = .aiff
    case MP4Box.type("wvpk"): self = .wavPack
    case MP4Box.type("TTA1"): self = .trueAudio
    case 0x464C_5601: self = .flash  // FLV, version 1
    case 0x3026_B275: self = .windows
    case _ where first >> 8 == 0x49_4433: self = .tagged
    case _ where MPEGFrame(first) != nil: self = .mp3
    default: return nil
    }
  }

  /// nil: the head does not tell the duration.
  func read(_ bytes: StoredBytes) throws(IndexGap) -> FilmIndex? {
    var cursor = ByteCursor(bytes)
    switch self {
    case .flac: return try flac(&cursor, at: 0)
    case .mp3: return try mp3(&cursor, at: 0)
    case .wave: return try wave(&cursor)
    case .ogg: return try ogg(&cursor)
    case .aiff, .wavPack, .trueAudio, .avi, .flash, .windows:
      // The head is a small part of the file: all of it counts as played evenly.
      return mean(try seconds(&cursor) ?? 0, cursor, from: 0, to: bytes.size)
    case .tagged:
      // An ID3v2 tag: four times seven bits, and a footer if a bit says so.
      let size = try cursor.number(4, at: 6)
      let length = (size >> 24 & 0x7F) << 21 | (size >> 16 & 0x7F) << 14 | (size >> 8 & 0x7F) << 7 | size & 0x7F
      let start = Int64(length) + (try cursor.number(1, at: 5) & 0x10 != 0 ? 20 : 10)
      if try cursor.number(4, at: start) == UInt64(MP4Box.type("fLaC")) { return try flac(&cursor, at: start) }
      return try mp3(&cursor, at: start)
    }
  }

  /// The bytes from `start` to `end` play evenly.
  private func mean(_ duration: Double, _ cursor: ByteCursor, from start: Int64, to end: Int64) -> FilmIndex? {
    guard duration.isFinite, duration > 0, duration < FilmBuilder.longest, start < end else { return nil }
    var builder = FilmBuilder()
    builder.add(lane: 0, from: 0, to: 0, bytes: start, start + 1)
    return builder.index(duration: duration, size: min(end, cursor.bytes.size), isWhole: false)
  }

  private func flac(_ cursor: inout ByteCursor, at start: Int64) throws(IndexGap) -> FilmIndex? {
    guard try cursor.number(1, at: start + 4) & 0x7F == 0 else { return nil }  // STREAMINFO comes first
    // 20 bits of rate, 8 of channels and depth, 36 of samples.
    let word = try cursor.number(8, at: start + 18)
    let (rate, samples) = (Double(word >> 44), Double(word & 0xF_FFFF_FFFF))
    return rate > 0 ? mean(samples / rate, cursor, from: start, to: cursor.bytes.size) : nil
  }

  private func wave(_ cursor: inout ByteCursor) throws(IndexGap) -> FilmIndex? {
    var position: Int64 = 12
    var rate = 0.0
    for _ in 0..<64 {
      let type = UInt32(try cursor.number(4, at: position))
      let size = Int64(try cursor.littleEndian(4, at: position + 4))
      if type == MP4Box.type("fmt ") { rate = Double(try cursor.littleEndian(4, at: position + 16)) }
      if type == MP4Box.type("data") {
        let start = position + 8
        // RF64 has the size elsewhere, and all bits here.
        let end = size == 0xFFFF_FFFF ? cursor.bytes.size : min(start + size, cursor.bytes.size)
        return rate > 0 ? mean(Double(end - start) / rate, cursor, from: start, to: end) : nil
      }
      position += 8 + size + (size & 1)
    }
    return nil
  }

  private func mp3(_ cursor: inout ByteCursor, at start: Int64) throws(IndexGap) -> FilmIndex? {
    guard let frame = MPEGFrame(UInt32(try cursor.number(4, at: start))) else { return nil }
    let size = cursor.bytes.size
    let info = start + 4 + frame.sideBytes
    let name = UInt32(try cursor.number(4, at: info))
    if name == MP4Box.type("Xing") || name == MP4Box.type("Info") {
      // Bit 0 of the flags: the number of frames follows.
      guard try cursor.number(4, at: info + 4) & 1 != 0 else { return nil }
      let frames = Double(try cursor.number(4, at: info + 8))
      return mean(frames * frame.samples / frame.rate, cursor, from: start, to: size)
    }
    if try cursor.number(4, at: start + 36) == UInt64(MP4Box.type("VBRI")) {
      let frames = Double(try cursor.number(4, at: start + 50))
      return mean(frames * frame.samples / frame.rate, cursor, from: start, to: size)
    }
    // A constant rate, if the next frame has it too.
    let next = start + frame.length
    guard let second = MPEGFrame(UInt32(try cursor.number(4, at: next))), second.bits == frame.bits,
      second.rate == frame.rate
    else { return nil }
    return mean(Double(size - start) * 8 / frame.bits, cursor, from: start, to: size)
  }

  /// The last page of an Ogg file tells its samples, if that page is stored.
  private func ogg(_ cursor: inout ByteCursor) throws(IndexGap) -> FilmIndex? {
    let size = cursor.bytes.size
    let serial = try cursor.number(4, at: 14)
    let packet = 27 + Int64(try cursor.number(1, at: 26))
    let name = try cursor.number(8, at: packet)
    var (rate, skipped) = (0.0, 0.0)
    if name == 0x4F70_7573_4865_6164 {  // OpusHead
      (rate, skipped) = (48000, Double(try cursor.littleEndian(2, at: packet + 10)))
    } else if name >> 8 == 0x01_766F_7262_6973 {  // vorbis
      rate = Double(try cursor.littleEndian(4, at: packet + 12))
    }
    guard rate > 0 else { return nil }
    // A page has at most 65,307 bytes.
    let tail = ByteRange(max(0, size - 65_307), size)
    try cursor.require(tail)
    var last: Double?
    var position = tail.start
    var word: UInt32 = 0
    while position < tail.end {
      word = word << 8 | UInt32(try cursor.number(1, at: position))
      position += 1
      let page = position - 4
      if word == MP4Box.type("OggS"), page + 18 <= tail.end, try cursor.number(4, at: page + 14) == serial {
        let samples = try cursor.littleEndian(8, at: page + 6)
        if samples != .max { last = Double(samples) }
      }
    }
    guard let last else { return nil }
    return mean((last - skipped) / rate, cursor, from: 0, to: size)
  }
}

/// The head of a frame of MPEG audio, layer III.
private struct MPEGFrame {
  /// Samples a second.
  let rate: Double
  /// Bits a second.
  let bits: Double
  /// The samples of a frame.
  let samples: Double
  /// The bytes of a frame.
  let length: Int64
  /// The bytes between the head and what the first frame may say of all.
  let sideBytes: Int64

  private static let bits1: [Double] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0]
  private static let bits2: [Double] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0]
  private static let rates: [Double] = [44100, 48000, 32000, 0]

  /// nil when the four bytes are no such head.
  init?(_ head: UInt32) {
    let (version, layer) = (head >> 19 & 3, head >> 17 & 3)
    guard head >> 21 == 0x7FF, version != 1, layer == 1 else { return nil }
    let isFirst = version == 3
    bits = (isFirst ? Self.bits1 : Self.bits2)[Int(head >> 12 & 15)] * 1000
    rate = Self.rates[Int(head >> 10 & 3)] / (isFirst ? 1 : version == 2 ? 2 : 4)
    guard bits > 0, rate > 0 else { return nil }
    samples = isFirst ? 1152 : 576
    length = Int64(samples / 8 * bits / rate) + Int64(head >> 9 & 1)
    let isMono = head >> 6 & 3 == 3
    sideBytes = isFirst ? (isMono ? 17 : 32) : (isMono ? 9 : 17)
  }
}
