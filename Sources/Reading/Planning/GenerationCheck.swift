import Base
import Fetching

/// Whether a response is of the known generation. Pure.
enum GenerationCheck {
  /// How a response compares with a known generation.
  enum Verdict: Equatable, Sendable {
    /// The same bytes.
    case same
    /// Another generation, a captive portal, or another server: not believed yet.
    case different
  }

  /// What is known of a resource's bytes: validators, size and type.
  struct Identity: Hashable, Sendable {
    var validators: Validators
    /// In bytes; nil when the origin did not tell.
    var size: Int64?
    var mediaType: String?
  }

  /// What a response's head says of the whole resource.
  static func identity(of head: ResponseHead) -> Identity {
    let size: Int64?
    switch head.body {
    case .part(_, let total): size = total
    case .whole(let length): size = length
    }
    return Identity(validators: head.validators, size: size, mediaType: head.mediaType)
  }

  /// Compares what a head says with what is known.
  ///
  /// If both tell a length, it must be equal. Then the strong tag decides when both have one; else Last-Modified; else
  /// a weak tag. The length alone decides only if neither has a validator.
  static func compare(_ head: Identity, with known: Identity) -> Verdict {
    if let size = head.size, let knownSize = known.size, size != knownSize { return .different }
    if let tag = head.validators.strongETag, let knownTag = known.validators.strongETag {
      return tag == knownTag ? .same : .different
    }
    if let time = head.validators.lastModified, let knownTime = known.validators.lastModified {
      return time == knownTime ? .same : .different
    }
    if let tag = head.validators.etag, let knownTag = known.validators.etag {
      return tag == knownTag ? .same : .different
    }
    // They have no validator in common: a proxy or another program answers, if one of them has any.
    return head.validators.isEmpty && known.validators.isEmpty ? .same : .different
  }

  /// Whether a resource of type `old` can become one of type `new`. A web page in place of media is a captive portal,
  /// not a new version.
  static func compatible(_ old: String?, _ new: String?) -> Bool {
    guard let old, let new, old != new else { return true }
    let oldPage = isPage(old)
    let newPage = isPage(new)
    return oldPage == newPage
  }

  static func isPage(_ type: String) -> Bool { type == "text/html" || type == "application/xhtml+xml" }

  /// The value for If-Range of a known generation: a strong tag, else a date. A weak tag is not allowed (RFC 9110,
  /// 13.1.5).
  ///
  /// A date counts as strong only if it lies well before the response that gave it. That response's own date is not at
  /// hand, so ``compare(_:with:)`` compares the length as well.
  static func ifRange(for validators: Validators) -> String? {
    if let tag = validators.strongETag { return tag }
    return validators.lastModified.flatMap(HTTPDate.format)
  }
}
