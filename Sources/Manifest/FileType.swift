/// A type of file: the extension by which players choose, and its media type.
///
/// Some types share their first bytes (every office document is a ZIP archive). The first bytes then give the general
/// type, and a name may give the exact one.
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

  /// The type that the first bytes show, of which 4 KiB are enough; nil when they show none.
  package static func detect(_ head: UnsafeRawBufferPointer) -> FileType? {
    // Copies at most 4 KiB, so that every access is checked against the bounds.
    let bytes = [UInt8](head.prefix(4096))
    return Signatures.fileExtension(bytes).flatMap { FileType($0) }
  }

  /// The extension (lower case, no dot) of a file from its first bytes `head` (up to 4 KiB), the name that the origin
  /// suggests (Content-Disposition) and its Content-Type; nil when none of them shows one.
  ///
  /// In this order: the first bytes, which cannot lie; the suggested name, if its extension is 1 to 8 letters and
  /// digits; the media type, unless servers send it when they know no better (`application/octet-stream`,
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

  /// The media type of an extension (with or without a dot, in any case); nil when it is unknown.
  package static func mediaType(forExtension fileExtension: String) -> String? {
    let key = fileExtension.lowercased()
    return byExtension[key.hasPrefix(".") ? String(key.dropFirst()) : key]
  }

  /// The extension for a Content-Type, without regard to its parameters; nil for unknown types, and for those that say
  /// nothing about the file.
  package static func fileExtension(forMediaType mediaType: String) -> String? {
    let end = mediaType.firstIndex(of: ";") ?? mediaType.endIndex
    return byMediaType[mediaType[..<end].filter { !$0.isWhitespace }.lowercased()]
  }

  /// The exact types that share their first bytes with a general one: the name or the media type may choose among them.
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
