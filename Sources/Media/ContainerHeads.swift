import Base

extension HeadReader {
  /// The most chunks, objects or bytes of metadata that are looked at.
  private static let mostChunks = 256
  private static let mostMetadata: Int64 = 16 << 10

  /// How long a file of one of these kinds plays; nil: its head does not tell.
  func seconds(_ cursor: inout ByteCursor) throws(IndexGap) -> Double? {
    switch self {
    case .aiff: return try aiff(&cursor)
    case .wavPack: return try wavPack(&cursor)
    case .trueAudio:
      let rate = Double(try cursor.littleEndian(4, at: 10))
      return Double(try cursor.littleEndian(4, at: 14)) / rate
    case .avi: return try avi(&cursor)
    case .flash: return try flash(&cursor)
    case .windows: return try windows(&cursor)
    case .mp3, .tagged, .flac, .wave, .ogg: return nil
    }
  }

  /// The chunk COMM of AIFF: channels, frames, bits, and the rate as a floating-point number of ten bytes.
  private func aiff(_ cursor: inout ByteCursor) throws(IndexGap) -> Double? {
    var position: Int64 = 12
    for _ in 0..<Self.mostChunks {
      let size = Int64(try cursor.number(4, at: position + 4))
      if try cursor.number(4, at: position) == UInt64(MP4Box.type("COMM")) {
        let frames = Double(try cursor.number(4, at: position + 10))
        let exponent = Int(try cursor.number(2, at: position + 16) & 0x7FFF) - 16383 - 63
        let fraction = Double(try cursor.number(8, at: position + 18))
        return frames / Double(sign: .plus, exponent: exponent, significand: fraction)
      }
      position += 8 + size + (size & 1)
    }
    return nil
  }

  /// The first block of WavPack has the number of all samples, unless it was written to a pipe, and an index of rates.
  private func wavPack(_ cursor: inout ByteCursor) throws(IndexGap) -> Double? {
    let rates: [Double] = [
      6000, 8000, 9600, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000, 192_000,
    ]
    let samples = try cursor.littleEndian(4, at: 12)
    let rate = Int(try cursor.littleEndian(4, at: 24) >> 23 & 15)
    return samples == 0xFFFF_FFFF || rate >= rates.count ? nil : Double(samples) / rates[rate]
  }

  /// AVI: the longest of the streams that its list `hdrl` describes. `avih` has the frames of the first gigabyte alone.
  private func avi(_ cursor: inout ByteCursor) throws(IndexGap) -> Double? {
    var position: Int64 = 12
    var longest: Double?
    for _ in 0..<Self.mostChunks {
      let type = UInt32(try cursor.number(4, at: position))
      let size = Int64(try cursor.littleEndian(4, at: position + 4))
      if type == MP4Box.type("LIST") {
        let list = UInt32(try cursor.number(4, at: position + 8))
        if list == MP4Box.type("movi") { return longest }
        if list == MP4Box.type("hdrl") || list == MP4Box.type("strl") {
          position += 12
          continue
        }
      } else if type == MP4Box.type("strh") {
        let scale = Double(try cursor.littleEndian(4, at: position + 28))
        let rate = Double(try cursor.littleEndian(4, at: position + 32))
        let length = Double(try cursor.littleEndian(4, at: position + 40))
        if rate > 0 { longest = max(longest ?? 0, length * scale / rate) }
      }
      position += 8 + size + (size & 1)
    }
    return longest
  }

  /// FLV: the number `duration` in the first tag, the metadata (AMF0: the name's length, the name, 0, eight bytes).
  private func flash(_ cursor: inout ByteCursor) throws(IndexGap) -> Double? {
    let tag = Int64(try cursor.number(4, at: 5)) + 4
    guard try cursor.number(1, at: tag) == 18 else { return nil }
    let end = tag + 11 + min(Int64(try cursor.number(3, at: tag + 1)), Self.mostMetadata)
    var (position, last) = (tag + 11, UInt64(0))
    while position + 9 <= end {
      last = last << 8 | (try cursor.number(1, at: position))
      position += 1
      if last == 0x6475_7261_7469_6F6E, try cursor.number(1, at: position) == 0 {  // duration
        return Double(bitPattern: try cursor.number(8, at: position + 1))
      }
    }
    return nil
  }

  /// ASF, which WMV and WMA are: the file properties have the time in tenths of microseconds. It includes the
  /// milliseconds that a player waits first.
  private func windows(_ cursor: inout ByteCursor) throws(IndexGap) -> Double? {
    var position: Int64 = 30
    for _ in 0..<Self.mostChunks {
      let size = Int64(clamping: try cursor.littleEndian(8, at: position + 16))
      if try cursor.number(8, at: position) == 0xA1DC_AB8C_47A9_CF11 {
        let time = Double(try cursor.littleEndian(8, at: position + 64)) / 1e7
        return time - Double(try cursor.littleEndian(8, at: position + 80)) / 1e3
      }
      guard size >= 24, size < cursor.bytes.size - position else { return nil }
      position += size
    }
    return nil
  }
}
