/// A kind of file: the extension players choose by, and its media type.
///
/// Some kinds share their first bytes (every office document is a ZIP archive): then the kind is the general one, and
/// a name may say it more precisely.
package struct FileType: Sendable, Equatable {
  /// The usual extension, in lower case, without a dot.
  package let fileExtension: String
  /// The media type (RFC 6838), in lower case, without parameters.
  package let mediaType: String

  init?(_ fileExtension: String) {
    guard let mediaType = Self.mediaType(forExtension: fileExtension) else { return nil }
    self.fileExtension = fileExtension
    self.mediaType = mediaType
  }

  /// What the file is by its first bytes, of which 4 KiB are enough; nil when they show nothing.
  package static func detect(_ head: UnsafeRawBufferPointer) -> FileType? {
    // A copy of at most 4 KiB: then every look at it is checked against its bounds.
    let bytes = [UInt8](head.prefix(4096))
    return Signatures.fileExtension(bytes).flatMap { FileType($0) }
  }

  /// The extension (lower case, no dot) for a file that begins with `head` (up to 4 KiB of it), which the origin calls
  /// `suggestedName` (Content-Disposition) and whose Content-Type is `mediaType`; nil when nothing tells.
  ///
  /// In this order: the first bytes, which cannot lie; the suggested name, if its extension is 1 to 8 letters and
  /// digits; the media type, unless it is one that servers send for want of a better (`application/octet-stream`,
  /// `text/plain`).
  package static func fileExtension(
    head: UnsafeRawBufferPointer, suggestedName: String?, mediaType: String?
  ) -> String? {
    let suggested = suggestedName.flatMap { SafeName.fileExtension($0) }
    let declared = mediaType.flatMap { Self.fileExtension(forMediaType: $0) }
    if let found = detect(head)?.fileExtension {
      let finer = refinements[found] ?? []
      return [suggested, declared].compactMap { $0 }.first { finer.contains($0) } ?? found
    }
    return suggested ?? declared
  }

  /// The media type of files with that extension (with or without a dot, in any case); nil when it is not known.
  package static func mediaType(forExtension fileExtension: String) -> String? {
    let key = fileExtension.lowercased()
    return byExtension[key.hasPrefix(".") ? String(key.dropFirst()) : key]
  }

  /// The extension for a Content-Type, whose parameters do not matter; nil for types that say nothing, or are not
  /// known.
  package static func fileExtension(forMediaType mediaType: String) -> String? {
    let end = mediaType.firstIndex(of: ";") ?? mediaType.endIndex
    return byMediaType[mediaType[..<end].filter { !$0.isWhitespace }.lowercased()]
  }

  /// What may stand behind the same first bytes: if the name or the media type says one of these, it is believed.
  private static let refinements: [String: Set<String>] = [
    "zip": [
      "cbz", "docx", "xlsx", "pptx", "odt", "ods", "odp", "odg", "jar", "apk", "kmz", "usdz", "xpi", "epub", "whl",
      "npz",
    ],
    "mp4": ["m4v", "m4a", "m4b", "m4s", "mov", "f4v"],
    "m4a": ["m4b"],
    "mov": ["mp4", "m4a", "m4v"],
    "mkv": ["mka", "mk3d", "mks"],
    "ogg": ["oga", "ogv", "opus", "spx"],
    "oga": ["ogg"],
    "opus": ["ogg", "oga"],
    "ogv": ["ogg"],
    "ts": ["mts", "m2ts"],
    "m2ts": ["mts"],
    "mpg": ["mpeg", "vob", "m2v", "m1v"],
    "wmv": ["wma", "asf"],
    "tif": ["tiff", "dng", "nef", "cr2", "arw"],
    "jpg": ["jpeg"],
    "gz": ["tgz", "svgz"],
    "bz2": ["tbz2"],
    "xz": ["txz"],
    "rar": ["cbr"],
    "7z": ["cb7"],
    "xml": ["rss", "svg", "mpd", "gpx", "kml", "xspf", "opml"],
    "html": ["htm", "xhtml"],
    "mid": ["midi"],
    "aiff": ["aif", "aifc"],
    "m3u8": ["m3u"],
  ]
}
