import Manifest
import Testing

@Suite("File types")
struct FileTypeTests {
  /// Bytes from text (Latin-1) and numbers.
  private static func bytes(_ parts: Any...) -> [UInt8] {
    parts.flatMap { part -> [UInt8] in
      switch part {
      case let text as String: text.unicodeScalars.map { UInt8($0.value) }
      case let number as Int: [UInt8(number)]
      case let array as [UInt8]: array
      default: []
      }
    }
  }

  private static func zeros(_ count: Int) -> [UInt8] { Array(repeating: 0, count: count) }
  private static func packets(_ count: Int, _ distance: Int, _ first: Int) -> [UInt8] {
    zeros(first) + Array(repeating: [0x47] + zeros(distance - 1), count: count).flatMap { $0 }
  }
  /// MPEG-1 layer III, 128 kbit/s, 44.1 kHz: 417 bytes.
  private static let mp3Frame: [UInt8] = [0xFF, 0xFB, 0x90, 0x00] + zeros(413)
  /// MPEG-2 layer III, 64 kbit/s, 22.05 kHz: 208 bytes.
  private static let lowRateFrame: [UInt8] = [0xFF, 0xF3, 0x80, 0x00] + zeros(204)
  private static let adtsFrame: [UInt8] = [0xFF, 0xF1, 0x50, 0x80, 0x02, 0x1F, 0xFC] + zeros(9)  // 16 bytes
  private static func ogg(_ packet: String) -> [UInt8] { bytes("OggS", 0, 2, zeros(20), 1, 30, packet, zeros(20)) }
  private static func mp4(_ brand: String) -> [UInt8] { bytes(0, 0, 0, 0x18, "ftyp", brand, zeros(4), "isomavif") }

  static let heads: [(String, [UInt8])] = [
    ("mp4", mp4("isom")), ("mp4", mp4("mp42")), ("mp4", mp4("dash")), ("m4a", mp4("M4A ")), ("m4b", mp4("M4B ")),
    ("m4v", mp4("M4V ")),
    ("mov", mp4("qt  ")), ("3gp", mp4("3gp5")), ("3g2", mp4("3g2a")), ("avif", mp4("avif")), ("avif", mp4("mif1")),
    ("heic", mp4("heic")), ("mov", bytes(0, 0, 0x10, 0, "moov", zeros(8))),
    ("mov", bytes(0, 0, 0, 1, "mdat", zeros(8))),
    ("webm", bytes(0x1A, 0x45, 0xDF, 0xA3, 0x9F, 0x42, 0x82, 0x84, "webm")),
    ("mkv", bytes(0x1A, 0x45, 0xDF, 0xA3, 0xA3, 0x42, 0x82, 0x88, "matroska")),
    ("mp3", bytes("ID3", 4, 0, 0, 0, 0, 0x7F, 0x7F)),
    ("mp3", mp3Frame + mp3Frame), ("mp3", lowRateFrame + lowRateFrame),
    ("mp3", bytes("ID3", 3, 0, 0, 0, 0, 0, 5, zeros(5)) + mp3Frame + mp3Frame),
    ("flac", bytes("ID3", 3, 0, 0, 0, 0, 0, 5, zeros(5), "fLaC")), ("aac", adtsFrame + adtsFrame),
    ("aac", bytes("ID3", 3, 0, 0, 0, 0, 0, 5, zeros(5)) + adtsFrame + adtsFrame),
    ("flac", bytes("fLaC", 0, 0, 0, 0x22)),
    ("opus", ogg("OpusHead")), ("ogg", ogg("\u{1}vorbis")), ("oga", ogg("\u{7F}FLAC")), ("ogv", ogg("\u{80}theora")),
    ("spx", ogg("Speex   ")),
    ("wav", bytes("RIFF", zeros(4), "WAVEfmt ")), ("wav", bytes("RF64", zeros(4), "WAVE")),
    ("avi", bytes("RIFF", zeros(4), "AVI LIST")),
    ("webp", bytes("RIFF", zeros(4), "WEBP")), ("aiff", bytes("FORM", zeros(4), "AIFF")),
    ("aiff", bytes("FORM", zeros(4), "AIFC")),
    ("ts", packets(4, 188, 0)), ("m2ts", packets(4, 192, 4)), ("mpg", bytes(0, 0, 1, 0xBA, 0x44)),
    ("flv", bytes("FLV", 1, 5)), ("wmv", bytes(0x30, 0x26, 0xB2, 0x75, 0x8E, 0x66, 0xCF, 0x11)),
    (
      "wma",
      bytes(0x30, 0x26, 0xB2, 0x75, 0x8E, 0x66, 0xCF, 0x11, zeros(40), 0x40, 0x9E, 0x69, 0xF8, 0x4D, 0x5B, 0xCF, 0x11)
    ),
    ("jpg", bytes(0xFF, 0xD8, 0xFF, 0xE0)), ("png", bytes(0x89, "PNG\r\n", 0x1A, "\n")), ("gif", bytes("GIF89a")),
    ("pdf", bytes("%PDF-1.7")),
    ("zip", bytes("PK", 3, 4, zeros(30))), ("epub", bytes("PK", 3, 4, zeros(26), "mimetypeapplication/epub+zip")),
    ("odt", bytes("PK", 3, 4, zeros(26), "mimetypeapplication/vnd.oasis.opendocument.text")),
    ("gz", bytes(0x1F, 0x8B, 8)),
    ("zst", bytes(0x28, 0xB5, 0x2F, 0xFD)), ("7z", bytes("7z", 0xBC, 0xAF, 0x27, 0x1C)), ("xz", bytes(0xFD, "7zXZ", 0)),
    ("bz2", bytes("BZh91AY&SY")), ("rar", bytes("Rar!", 0x1A, 7, 1, 0)), ("tar", zeros(257) + bytes("ustar")),
    ("wv", bytes("wvpk")), ("ape", bytes("MAC ")), ("mid", bytes("MThd", 0, 0, 0, 6)), ("parquet", bytes("PAR1")),
    ("ac3", bytes(0x0B, 0x77, 1, 2, 3, 0x40)),
    ("m3u8", bytes("#EXTM3U\n")), ("vtt", bytes("WEBVTT\n")), ("html", bytes("\n<!DOCTYPE html>")),
    ("mpd", bytes("<?xml version=\"1.0\"?><MPD>")),
    ("svg", bytes(0xEF, 0xBB, 0xBF, "<?xml?>\n<svg>")), ("xml", bytes("<?xml version=\"1.0\"?><a>")),
    ("dsf", bytes("DSD ")), ("tif", bytes("II*", 0)),
  ]

  @Test(arguments: heads)
  func detected(_ wanted: String, _ head: [UInt8]) throws {
    let found = try #require(head.withUnsafeBytes { FileType.detect($0) })
    #expect(found.fileExtension == wanted)
    #expect(found.mediaType == FileType.mediaType(forExtension: wanted))
    // What is cut off anywhere is another type, or none; but never a crash.
    for count in 0..<min(head.count, 64) { _ = head.prefix(count).withUnsafeBytes { FileType.detect($0) } }
  }

  @Test(arguments: [
    [], [0x47], [0xFF, 0xFB], [0xFF, 0xFB, 0x90, 0x00], mp3Frame + zeros(10), adtsFrame + zeros(16), packets(2, 188, 0),
    bytes("hello, world"),
    [0xFF, 0xFE, 0x68, 0x00, 0x74, 0x00, 0x74, 0x00], bytes("move to mdat in a text"), zeros(4096), bytes("ftyp"),
    bytes("RIFFxxxxABCD"),
    bytes("https://example.com/a.mp4\n"),
  ])
  func notDetected(_ head: [UInt8]) { #expect(head.withUnsafeBytes { FileType.detect($0) } == nil) }

  @Test(
    arguments: [
      ("pdf", "x.mp3", "audio/flac", "pdf"), ("", "My Film.MKV", "audio/flac", "mkv"),
      ("", "film.mkv/../../x", "audio/flac", "flac"),
      ("", "noext", "audio/flac; charset=x", "flac"), ("", nil, "Audio/MPEG", "mp3"),
      ("", nil, "application/octet-stream", nil),
      ("", nil, "text/plain", nil), ("", nil, "binary/octet-stream", nil), ("", nil, nil, nil),
      ("", "a.sh -x", nil, nil),
      ("", "a.123456789", nil, nil), ("zip", "comic.cbz", nil, "cbz"), ("zip", "a.exe", nil, "zip"),
      ("zip", nil, "application/vnd.comicbook+zip", "cbz"),
      ("mp4", "a.m4v", nil, "m4v"), ("mkv", nil, "audio/x-matroska", "mka"), ("", nil, "video/mp2t", "ts"),
      ("", nil, "image/jpeg", "jpg"),
      ("", nil, "application/vnd.apple.mpegurl", "m3u8"),
    ] as [(String, String?, String?, String?)])
  func chosen(_ kind: String, _ suggested: String?, _ mediaType: String?, _ wanted: String?) {
    let head = Self.heads.first { $0.0 == kind }?.1 ?? Array("nothing known".utf8)
    let found = head.withUnsafeBytes {
      FileType.fileExtension(head: $0, suggestedName: suggested, mediaType: mediaType)
    }
    #expect(found == wanted)
  }

  @Test func mediaTypes() {
    for (name, type) in [
      ("mp4", "video/mp4"), (".MP3", "audio/mpeg"), ("flac", "audio/flac"), ("opus", "audio/ogg"),
      ("txt", "text/plain"),
    ] {
      #expect(FileType.mediaType(forExtension: name) == type)
    }
    #expect(FileType.mediaType(forExtension: "xyz") == nil)
    #expect(FileType.mediaType(forExtension: "") == nil)
  }
}
