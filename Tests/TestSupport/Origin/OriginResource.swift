/// What the test origin serves at one path.
package struct OriginResource: Sendable {
  /// Where the bytes come from.
  package enum Content: Sendable {
    /// ``Pattern`` bytes of that name and of the resource's generation.
    case pattern(name: String)
    /// These bytes.
    case bytes([UInt8])
    /// A file of the disk; its size is the resource's, whatever ``OriginResource/size`` says.
    case file(path: String)
  }

  /// What is sent as ETag.
  package enum Tag: Sendable {
    /// A strong tag, another one for each generation.
    case strong
    /// A weak tag, another one for each generation.
    case weak
    /// No tag.
    case none
    /// That text, with its quotes, whatever the generation.
    case fixed(String)
  }

  /// How many bytes it has.
  package var size: Int64
  /// Where they come from.
  package var content: Content
  /// The version; a new one has other bytes, another tag and a later Last-Modified.
  package var generation: UInt64 = 1
  /// Content-Type; nil sends none.
  package var contentType: String? = "application/octet-stream"
  /// ETag.
  package var tag = Tag.strong
  /// Last-Modified of generation 0, in seconds since 1970; each generation is an hour later. Nil sends none.
  package var modified: Int64? = 1_700_000_000
  /// Content-Disposition; nil sends none.
  package var disposition: String?
  /// More fields of its responses.
  package var headers: [(name: String, value: String)] = []

  /// `size` bytes of ``Pattern``, named `pattern` (two resources of one name and size have the same bytes, as mirrors
  /// do).
  package init(size: Int64, pattern: String, type: String? = "application/octet-stream") {
    self.size = size
    content = .pattern(name: pattern)
    contentType = type
  }

  /// Those bytes.
  package init(bytes: [UInt8], type: String? = "application/octet-stream") {
    size = Int64(bytes.count)
    content = .bytes(bytes)
    contentType = type
  }

  /// A file of the disk, read anew for each request.
  package init(file: String, type: String? = nil) {
    size = 0
    content = .file(path: file)
    contentType = type ?? mediaType(ofPath: file)
  }

  /// The ETag field of this generation, nil for none. `name` tells resources apart.
  func etag(name: String) -> String? {
    switch tag {
    case .none: return nil
    case .fixed(let text): return text
    case .strong, .weak:
      // From the pattern's own bytes: eight of them name the resource and its generation.
      let bytes = Pattern.bytes(name: name, generation: generation, offset: 1 << 62, count: 8)
      let digits = bytes.map { byte in String(UInt16(byte) + 256, radix: 16).dropFirst() }.joined()
      let quoted = "\"\(digits)-\(generation)\""
      if case .weak = tag { return "W/" + quoted }
      return quoted
    }
  }

  /// Last-Modified of this generation, in seconds since 1970.
  var lastModified: Int64? { modified.map { $0 + Int64(clamping: generation) * 3600 } }
}

/// The media type that a web server would give by the extension.
func mediaType(ofPath path: String) -> String {
  let name = path.split(separator: "/").last ?? ""
  switch name.split(separator: ".").last.map({ $0.lowercased() }) {
  case "mp4", "m4v": return "video/mp4"
  case "mkv": return "video/x-matroska"
  case "webm": return "video/webm"
  case "mp3": return "audio/mpeg"
  case "m4a": return "audio/mp4"
  case "flac": return "audio/flac"
  case "ogg", "oga", "opus": return "audio/ogg"
  case "wav": return "audio/x-wav"
  case "jpg", "jpeg": return "image/jpeg"
  case "txt": return "text/plain"
  case "html": return "text/html"
  default: return "application/octet-stream"
  }
}
