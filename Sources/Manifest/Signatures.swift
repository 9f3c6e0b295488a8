/// File types by first bytes at a fixed place. ContainerSignatures.swift has the types that need parsing.
enum Signatures {
  /// The extension for a file that begins with `head`; nil when it shows no type.
  static func fileExtension(_ head: [UInt8]) -> String? {
    if let found = isoMedia(head) ?? ebml(head) ?? ogg(head) ?? riff(head) ?? zip(head) ?? asf(head) { return found }
    for (offset, magic, fileExtension) in fixed where has(head, magic, at: offset) { return fileExtension }
    // Types with few fixed bits come last, and need several matches in a row.
    return bitmap(head) ?? transportStream(head) ?? id3(head) ?? mpegAudio(head) ?? text(head)
  }

  /// Whether `magic` is at `offset`.
  static func has(_ head: [UInt8], _ magic: [UInt8], at offset: Int) -> Bool {
    offset + magic.count <= head.count && head[offset..<offset + magic.count].elementsEqual(magic)
  }

  /// Whether `magic`, which is ASCII, is at `offset`.
  static func has(_ head: [UInt8], _ magic: String, at offset: Int = 0) -> Bool {
    offset + magic.utf8.count <= head.count && head[offset..<offset + magic.utf8.count].elementsEqual(magic.utf8)
  }

  private static func ascii(_ text: String) -> [UInt8] { Array(text.utf8) }

  /// Offset, bytes, extension. Each has at least three bytes with which no text begins, or other strong evidence.
  private static let fixed: [(Int, [UInt8], String)] = [
    (0, ascii("fLaC"), "flac"), (0, ascii("wvpk"), "wv"), (0, ascii("MAC "), "ape"), (0, ascii("TTA1"), "tta"),
    (0, ascii("MPCK"), "mpc"), (0, ascii("MP+\u{7}"), "mpc"), (0, ascii("DSD "), "dsf"), (0, ascii("FRM8"), "dff"),
    (0, ascii("tBaK"), "tak"), (0, ascii("caff\0"), "caf"), (0, ascii(".snd\0"), "au"), (0, ascii("#!AMR"), "amr"),
    (0, ascii("MThd\0\0\0"), "mid"), (0, ascii("Extended Module:"), "xm"), (0, ascii("IMPM"), "it"),
    (0, [0x7F, 0xFE, 0x80, 0x01], "dts"), (0, ascii("FLV\u{1}"), "flv"), (0, ascii(".RMF"), "rm"),
    (0, ascii(".ra") + [0xFD], "ra"), (0, [0, 0, 1, 0xBA], "mpg"), (0, [0, 0, 1, 0xB3], "mpg"),
    (0, [0x06, 0x0E, 0x2B, 0x34, 0x02, 0x05, 0x01, 0x01, 0x0D, 0x01, 0x02, 0x01], "mxf"), (0, ascii("DKIF\0\0"), "ivf"),
    (0, ascii("YUV4MPEG2"), "y4m"), (0, [0xFF, 0xD8, 0xFF], "jpg"),
    (0, [0x89] + ascii("PNG\r\n") + [0x1A, 0x0A], "png"), (0, ascii("GIF87a"), "gif"), (0, ascii("GIF89a"), "gif"),
    (0, [0x49, 0x49, 0x2A, 0], "tif"), (0, [0x4D, 0x4D, 0, 0x2A], "tif"), (0, ascii("8BPS\0\u{1}"), "psd"),
    (0, [0xFF, 0x0A], "jxl"), (0, [0, 0, 0, 0x0C] + ascii("JXL \r\n") + [0x87, 0x0A], "jxl"),
    (0, [0, 0, 0, 0x0C] + ascii("jP  \r\n") + [0x87, 0x0A], "jp2"), (0, [0x76, 0x2F, 0x31, 0x01], "exr"),
    (0, ascii("AT&TFORM"), "djvu"), (0, ascii("%PDF-"), "pdf"), (0, ascii("%!PS-Adobe"), "ps"),
    (0, ascii("{\\rtf"), "rtf"),
    (60, ascii("BOOKMOBI"), "mobi"), (0, [0x1F, 0x8B, 0x08], "gz"), (0, [0x28, 0xB5, 0x2F, 0xFD], "zst"),
    (0, ascii("7z") + [0xBC, 0xAF, 0x27, 0x1C], "7z"), (0, [0xFD] + ascii("7zXZ\0"), "xz"),
    (0, ascii("BZh") + [0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59], "bz2"), (0, [0x04, 0x22, 0x4D, 0x18], "lz4"),
    (0, ascii("Rar!") + [0x1A, 0x07], "rar"), (257, ascii("ustar"), "tar"), (0, ascii("!<arch>\ndebian"), "deb"),
    (0, [0xED, 0xAB, 0xEE, 0xDB], "rpm"), (0, ascii("PAR1"), "parquet"), (0, ascii("ARROW1\0\0"), "arrow"),
    (0, ascii("Obj\u{1}"), "avro"), (0, [0x89] + ascii("HDF\r\n") + [0x1A, 0x0A], "h5"),
    (0, [0x93] + ascii("NUMPY"), "npy"),
    (0, ascii("SQLite format 3\0"), "sqlite"), (0, ascii("GGUF"), "gguf"), (0, ascii("glTF") + [2, 0, 0, 0], "glb"),
    (0, [0] + ascii("asm") + [1, 0, 0, 0], "wasm"), (0, ascii("wOF2"), "woff2"), (0, ascii("wOFF"), "woff"),
    (0, ascii("OTTO\0"), "otf"),
  ]
}
