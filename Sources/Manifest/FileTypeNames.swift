extension FileType {
  /// Extensions and media types. The first extension of a type is the one a file of that type gets; the first type of an
  /// extension is the one it stands for. From IANA's registry, and what servers send where that has none.
  private static let pairs: [(String, String)] = [
    ("mp4", "video/mp4"), ("m4v", "video/x-m4v"), ("m4a", "audio/mp4"), ("m4a", "audio/x-m4a"), ("m4a", "audio/m4a"),
    ("m4b", "audio/mp4"), ("m4s", "video/iso.segment"), ("mov", "video/quicktime"), ("3gp", "video/3gpp"),
    ("3gp", "audio/3gpp"), ("3g2", "video/3gpp2"), ("f4v", "video/x-f4v"), ("mkv", "video/matroska"),
    ("mkv", "video/x-matroska"), ("mka", "audio/matroska"), ("mka", "audio/x-matroska"), ("mk3d", "video/matroska-3d"),
    ("webm", "video/webm"), ("webm", "audio/webm"), ("weba", "audio/webm"), ("avi", "video/vnd.avi"),
    ("avi", "video/x-msvideo"), ("avi", "video/avi"), ("avi", "video/msvideo"), ("wmv", "video/x-ms-wmv"),
    ("wmv", "video/x-ms-asf"), ("asf", "video/x-ms-asf"), ("wma", "audio/x-ms-wma"), ("flv", "video/x-flv"),
    ("ts", "video/mp2t"), ("mts", "video/mp2t"), ("m2ts", "video/mp2t"), ("mpg", "video/mpeg"), ("mpeg", "video/mpeg"),
    ("m1v", "video/mpeg"), ("m2v", "video/mpeg"), ("vob", "video/mpeg"), ("vob", "video/x-ms-vob"), ("ogv", "video/ogg"),
    ("rm", "application/vnd.rn-realmedia"), ("mxf", "application/mxf"), ("264", "video/h264"), ("265", "video/h265"),
    ("ivf", "video/x-ivf"), ("y4m", "video/x-yuv4mpeg"), ("mjpg", "video/x-motion-jpeg"), ("dv", "video/dv"),
    ("mp3", "audio/mpeg"), ("mp3", "audio/mp3"), ("mp3", "audio/x-mp3"), ("mp3", "audio/mpeg3"), ("mp2", "audio/mpeg"),
    ("flac", "audio/flac"), ("flac", "audio/x-flac"), ("ogg", "audio/ogg"), ("ogg", "application/ogg"), ("oga", "audio/ogg"),
    ("opus", "audio/ogg"), ("opus", "audio/opus"), ("spx", "audio/ogg"), ("wav", "audio/wav"), ("wav", "audio/x-wav"),
    ("wav", "audio/vnd.wave"), ("wav", "audio/wave"), ("aiff", "audio/aiff"), ("aiff", "audio/x-aiff"), ("aif", "audio/aiff"),
    ("aifc", "audio/aiff"), ("aac", "audio/aac"), ("aac", "audio/x-aac"), ("aac", "audio/aacp"), ("ac3", "audio/ac3"),
    ("eac3", "audio/eac3"), ("dts", "audio/vnd.dts"), ("ape", "audio/x-ape"), ("ape", "audio/ape"), ("wv", "audio/x-wavpack"),
    ("wv", "audio/wavpack"), ("tta", "audio/x-tta"), ("mpc", "audio/x-musepack"), ("dsf", "audio/x-dsf"),
    ("dff", "audio/x-dff"), ("tak", "audio/x-tak"), ("caf", "audio/x-caf"), ("au", "audio/basic"), ("amr", "audio/amr"),
    ("mid", "audio/midi"), ("mid", "audio/x-midi"), ("mid", "audio/sp-midi"), ("midi", "audio/midi"),
    ("ra", "audio/x-pn-realaudio"), ("xm", "audio/x-xm"), ("it", "audio/x-it"), ("mod", "audio/x-mod"), ("s3m", "audio/s3m"),
    ("jpg", "image/jpeg"), ("jpg", "image/jpg"), ("jpeg", "image/jpeg"), ("png", "image/png"), ("gif", "image/gif"),
    ("webp", "image/webp"), ("avif", "image/avif"), ("heic", "image/heic"), ("heif", "image/heif"), ("jxl", "image/jxl"),
    ("jp2", "image/jp2"), ("tif", "image/tiff"), ("tiff", "image/tiff"), ("bmp", "image/bmp"), ("bmp", "image/x-ms-bmp"),
    ("ico", "image/vnd.microsoft.icon"), ("ico", "image/x-icon"), ("svg", "image/svg+xml"), ("svgz", "image/svg+xml"),
    ("psd", "image/vnd.adobe.photoshop"), ("dng", "image/x-adobe-dng"), ("nef", "image/x-nikon-nef"),
    ("cr2", "image/x-canon-cr2"), ("cr3", "image/x-canon-cr3"), ("arw", "image/x-sony-arw"), ("exr", "image/x-exr"),
    ("hdr", "image/vnd.radiance"), ("pdf", "application/pdf"), ("pdf", "application/x-pdf"), ("epub", "application/epub+zip"),
    ("mobi", "application/x-mobipocket-ebook"), ("azw3", "application/vnd.amazon.ebook"), ("djvu", "image/vnd.djvu"),
    ("ps", "application/postscript"), ("rtf", "application/rtf"), ("rtf", "text/rtf"),
    ("cbz", "application/vnd.comicbook+zip"), ("cbr", "application/vnd.comicbook-rar"), ("cb7", "application/x-cb7"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("odt", "application/vnd.oasis.opendocument.text"), ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odp", "application/vnd.oasis.opendocument.presentation"), ("odg", "application/vnd.oasis.opendocument.graphics"),
    ("doc", "application/msword"), ("xls", "application/vnd.ms-excel"), ("ppt", "application/vnd.ms-powerpoint"),
    ("zip", "application/zip"), ("zip", "application/x-zip-compressed"), ("gz", "application/gzip"),
    ("gz", "application/x-gzip"), ("tgz", "application/gzip"), ("zst", "application/zstd"), ("zst", "application/x-zstd"),
    ("7z", "application/x-7z-compressed"), ("xz", "application/x-xz"), ("txz", "application/x-xz"),
    ("bz2", "application/x-bzip2"), ("tbz2", "application/x-bzip2"), ("lz4", "application/x-lz4"), ("tar", "application/x-tar"),
    ("rar", "application/vnd.rar"), ("rar", "application/x-rar-compressed"), ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"), ("apk", "application/vnd.android.package-archive"),
    ("kmz", "application/vnd.google-earth.kmz"), ("usdz", "model/vnd.usdz+zip"), ("xpi", "application/x-xpinstall"),
    ("whl", "application/x-wheel+zip"), ("deb", "application/vnd.debian.binary-package"), ("rpm", "application/x-rpm"),
    ("parquet", "application/vnd.apache.parquet"), ("parquet", "application/x-parquet"),
    ("arrow", "application/vnd.apache.arrow.file"), ("avro", "application/avro"), ("orc", "application/x-orc"),
    ("h5", "application/x-hdf5"), ("npy", "application/x-npy"), ("npz", "application/x-npz"),
    ("sqlite", "application/vnd.sqlite3"), ("gguf", "application/x-gguf"), ("glb", "model/gltf-binary"),
    ("csv", "text/csv"), ("tsv", "text/tab-separated-values"), ("json", "application/json"), ("jsonl", "application/jsonl"),
    ("xml", "application/xml"), ("xml", "text/xml"), ("rss", "application/rss+xml"), ("opml", "text/x-opml"),
    ("gpx", "application/gpx+xml"), ("kml", "application/vnd.google-earth.kml+xml"), ("html", "text/html"),
    ("htm", "text/html"), ("xhtml", "application/xhtml+xml"), ("txt", "text/plain"), ("md", "text/markdown"),
    ("css", "text/css"), ("js", "text/javascript"), ("js", "application/javascript"), ("wasm", "application/wasm"),
    ("vtt", "text/vtt"), ("srt", "application/x-subrip"), ("ass", "text/x-ssa"), ("ssa", "text/x-ssa"), ("mks", "video/matroska"),
    ("sup", "application/x-pgs"), ("nfo", "text/x-nfo"), ("m3u8", "application/vnd.apple.mpegurl"),
    ("m3u8", "application/x-mpegurl"), ("m3u", "audio/x-mpegurl"), ("m3u", "audio/mpegurl"), ("pls", "audio/x-scpls"),
    ("xspf", "application/xspf+xml"), ("cue", "application/x-cue"), ("mpd", "application/dash+xml"),
    ("torrent", "application/x-bittorrent"), ("woff2", "font/woff2"), ("woff", "font/woff"), ("ttf", "font/ttf"),
    ("otf", "font/otf"),
  ]

  /// What servers send when they do not know: it says nothing of the file.
  private static let generic: Set<String> = ["text/plain"]

  static let byExtension = Dictionary(pairs, uniquingKeysWith: { first, _ in first })

  static let byMediaType = Dictionary(
    pairs.map { ($0.1, $0.0) }.filter { !generic.contains($0.0) }, uniquingKeysWith: { first, _ in first })
}
