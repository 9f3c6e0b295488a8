/// The types whose recognition needs some parsing of their format.
extension Signatures {
  /// ISO base media files (ISO/IEC 14496-12, section 4.3) and QuickTime, distinguished by the major brand.
  static func isoMedia(_ head: [UInt8]) -> String? {
    guard head.count >= 12 else { return nil }
    let type = String(decoding: head[4..<8], as: UTF8.self)
    if type == "styp" { return "mp4" }
    guard type == "ftyp" else {
      // QuickTime before ftyp. The size is checked too: a text may well have four such letters at that offset.
      let size = bigEndian(head, at: 0, bytes: 4)
      let isAtom = ["moov", "mdat", "wide", "free", "skip", "pnot"].contains(type)
      return isAtom && (size <= 1 || size >= 8) && head[0] < 0x20 ? "mov" : nil
    }
    let brand = String(decoding: head[8..<12], as: UTF8.self)
    switch brand {
    case "qt  ": return "mov"
    case "M4A ", "M4P ": return "m4a"
    case "M4B ": return "m4b"
    case "M4V ", "M4VH", "M4VP": return "m4v"
    case "F4V ": return "f4v"
    case "crx ": return "cr3"
    case "avif", "avis": return "avif"
    case "heic", "heix", "heim", "heis", "hevc", "hevx": return "heic"
    case "mif1", "msf1":
      let brands = stride(from: 16, to: min(head.count - 3, Int(bigEndian(head, at: 0, bytes: 4))), by: 4)
      return brands.contains { has(head, "avif", at: $0) } ? "avif" : "heic"
    case _ where brand.hasPrefix("3gp"): return "3gp"
    case _ where brand.hasPrefix("3g2"): return "3g2"
    default: return "mp4"
    }
  }

  /// Matroska and WebM (RFC 8794): the EBML header names its DocType.
  static func ebml(_ head: [UInt8]) -> String? {
    guard has(head, [0x1A, 0x45, 0xDF, 0xA3], at: 0) else { return nil }
    return contains(head.prefix(64), "webm") ? "webm" : "mkv"
  }

  /// Ogg (RFC 3533): the first page holds the first stream's first packet, which names the codec.
  static func ogg(_ head: [UInt8]) -> String? {
    guard has(head, "OggS"), head.count > 27 else { return nil }
    let packet = 27 + Int(head[26])
    if has(head, "OpusHead", at: packet) { return "opus" }
    if has(head, "\u{1}video", at: packet) || contains(head[...], "\u{80}theora".unicodeScalars.map { UInt8($0.value) })
    {
      return "ogv"
    }
    if has(head, [0x7F] + Array("FLAC".utf8), at: packet) { return "oga" }
    return has(head, "Speex   ", at: packet) ? "spx" : "ogg"
  }

  /// RIFF and similar formats: the form's type follows the size.
  static func riff(_ head: [UInt8]) -> String? {
    if has(head, "RIFF") || has(head, "RF64") || has(head, "BW64") {
      if has(head, "WAVE", at: 8) { return "wav" }
      if has(head, "AVI ", at: 8) { return "avi" }
      if has(head, "WEBP", at: 8) { return "webp" }
      if has(head, "RMID", at: 8) { return "mid" }
      if has(head, "CDXA", at: 8) { return "mpg" }
    }
    return has(head, "FORM") && (has(head, "AIFF", at: 8) || has(head, "AIFC", at: 8)) ? "aiff" : nil
  }

  /// Windows bitmaps. Two letters are weak evidence, so the size of the second header must be one of those that exist.
  static func bitmap(_ head: [UInt8]) -> String? {
    guard has(head, "BM"), head.count >= 18, head[6..<10].allSatisfy({ $0 == 0 }) else { return nil }
    return [12, 40, 52, 56, 64, 108, 124].contains(head[14]) && head[15..<18].allSatisfy { $0 == 0 } ? "bmp" : nil
  }

  /// ZIP archives. The first member of some gives the exact type.
  static func zip(_ head: [UInt8]) -> String? {
    guard has(head, [0x50, 0x4B, 3, 4], at: 0) || has(head, [0x50, 0x4B, 5, 6], at: 0) else { return nil }
    // EPUB (OCF 3.3, section 4.3) and OpenDocument: an uncompressed member `mimetype` comes first.
    guard has(head, "mimetype", at: 30) else { return "zip" }
    if has(head, "application/epub+zip", at: 38) { return "epub" }
    let documents = [("text", "odt"), ("spreadsheet", "ods"), ("presentation", "odp"), ("graphics", "odg")]
    let found = documents.first { has(head, "application/vnd.oasis.opendocument." + $0.0, at: 38) }
    return found?.1 ?? "zip"
  }

  /// ASF: audio only if the header's stream properties name an audio stream and no video stream.
  static func asf(_ head: [UInt8]) -> String? {
    guard has(head, [0x30, 0x26, 0xB2, 0x75, 0x8E, 0x66, 0xCF, 0x11], at: 0) else { return nil }
    let video: [UInt8] = [0xC0, 0xEF, 0x19, 0xBC, 0x4D, 0x5B, 0xCF, 0x11]
    let audio: [UInt8] = [0x40, 0x9E, 0x69, 0xF8, 0x4D, 0x5B, 0xCF, 0x11]
    return contains(head[...], audio) && !contains(head[...], video) ? "wma" : "wmv"
  }

  /// MPEG transport streams: a sync byte every 188 bytes (on Blu-ray every 192, after a time stamp), at least three
  /// times.
  static func transportStream(_ head: [UInt8]) -> String? {
    func synchronized(_ first: Int, _ distance: Int) -> Bool {
      first + 2 * distance < head.count
        && stride(from: first, to: min(head.count, first + 8 * distance), by: distance).allSatisfy { head[$0] == 0x47 }
    }
    if synchronized(0, 188) { return "ts" }
    return synchronized(4, 192) ? "m2ts" : nil
  }

  /// An ID3v2 tag (id3.org, section 3.1) precedes MP3, but also AAC, FLAC and others.
  static func id3(_ head: [UInt8]) -> String? {
    guard has(head, "ID3"), head.count >= 10, head[3] < 0xFF, head[4] < 0xFF else { return nil }
    guard head[6...9].allSatisfy({ $0 < 0x80 }) else { return nil }
    let size = head[6...9].reduce(0) { $0 << 7 | Int($1) }
    let audio = [UInt8](head.dropFirst(10 + size))  // empty when the tag is longer than the head
    return has(audio, "fLaC") ? "flac" : mpegAudio(audio) ?? "mp3"
  }

  /// MPEG audio frames (ISO/IEC 11172-3, section 2.4.2), AAC in ADTS (ISO/IEC 13818-7, section 6.2) and AC-3 (ATSC
  /// A/52, section 5.3). A sync word is short, so a second one must follow where the first frame ends.
  static func mpegAudio(_ head: [UInt8]) -> String? {
    if let length = layerFrame(head, at: 0) {
      guard length.bytes > 0, layerFrame(head, at: length.bytes)?.layer == length.layer else { return nil }
      return length.layer == 3 ? "mp3" : "mp2"
    }
    if let length = adtsFrame(head, at: 0) { return adtsFrame(head, at: length) != nil ? "aac" : nil }
    // The bit stream id is 8 in AC-3 and 16 in E-AC-3.
    if has(head, [0x0B, 0x77], at: 0), head.count > 5 {
      switch head[5] >> 3 {
      case 6...8: return "ac3"
      case 11...16: return "eac3"
      default: return nil
      }
    }
    return nil
  }

  private static func layerFrame(_ head: [UInt8], at offset: Int) -> (layer: Int, bytes: Int)? {
    guard offset + 4 <= head.count, head[offset] == 0xFF, head[offset + 1] & 0xE0 == 0xE0 else { return nil }
    let version = Int(head[offset + 1] >> 3 & 3)  // 0: MPEG-2.5, 2: MPEG-2, 3: MPEG-1
    let layer = 4 - Int(head[offset + 1] >> 1 & 3)
    let bitrateIndex = Int(head[offset + 2] >> 4)
    let rateIndex = Int(head[offset + 2] >> 2 & 3)
    // Layer I is left out: it is not in use, and a UTF-16 byte order mark looks like it.
    guard version != 1, layer == 2 || layer == 3, (1...14).contains(bitrateIndex), rateIndex != 3 else { return nil }
    let rate = [44100, 48000, 32000][rateIndex] >> [2, 0, 1, 0][version]
    let kilobits =
      version != 3
      ? [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160][bitrateIndex - 1]
      : layer == 3
        ? [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320][bitrateIndex - 1]
        : [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384][bitrateIndex - 1]
    let samples = layer == 3 && version != 3 ? 576 : 1152
    return (layer, samples / 8 * kilobits * 1000 / rate + Int(head[offset + 2] >> 1 & 1))
  }

  private static func adtsFrame(_ head: [UInt8], at offset: Int) -> Int? {
    guard offset + 7 <= head.count, head[offset] == 0xFF, head[offset + 1] & 0xF6 == 0xF0 else { return nil }
    guard head[offset + 2] >> 2 & 15 < 13 else { return nil }
    let length = Int(head[offset + 3] & 3) << 11 | Int(head[offset + 4]) << 3 | Int(head[offset + 5] >> 5)
    return length >= 7 ? offset + length : nil
  }

  /// Texts that begin with their type.
  static func text(_ head: [UInt8]) -> String? {
    let start = has(head, [0xEF, 0xBB, 0xBF], at: 0) ? 3 : 0
    guard let first = head[start...].firstIndex(where: { !$0.isBlank && $0 != 0x0A }) else { return nil }
    let text = String(decoding: head[first...].map(\.lowercased), as: UTF8.self)
    if text.hasPrefix("#extm3u") { return "m3u8" }
    if text.hasPrefix("webvtt") { return "vtt" }
    if text.hasPrefix("[playlist]") { return "pls" }
    if text.hasPrefix("[script info]") { return "ass" }
    if text.hasPrefix("<!doctype html") || text.hasPrefix("<html") { return "html" }
    if text.hasPrefix("<svg") { return "svg" }
    if text.hasPrefix("<mpd") { return "mpd" }
    if text.hasPrefix("<rss") { return "rss" }
    guard text.hasPrefix("<?xml") else { return nil }
    if text.contains("<html") { return "html" }
    if text.contains("<svg") { return "svg" }
    return text.contains("<mpd") ? "mpd" : "xml"
  }

  private static func bigEndian(_ head: [UInt8], at offset: Int, bytes: Int) -> UInt64 {
    head[offset..<offset + bytes].reduce(0) { $0 << 8 | UInt64($1) }
  }

  private static func contains(_ head: ArraySlice<UInt8>, _ magic: String) -> Bool {
    contains(head, Array(magic.utf8))
  }

  private static func contains(_ head: ArraySlice<UInt8>, _ magic: [UInt8]) -> Bool { head.contains(magic) }
}
