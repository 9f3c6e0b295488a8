import Base
import Fetching

/// Whether a response is of the generation that is known: pure.
enum GenerationCheck {
  /// What a response is, beside a known generation.
  enum Verdict: Equatable, Sendable {
    /// The same bytes.
    case same
    /// Something else: a new generation, a captive portal, another server. Not to be believed yet.
    case different
  }

  /// What is known of a resource's bytes.
  struct Identity: Hashable, Sendable {
    var validators: Validators
    /// Bytes, nil when the origin did not say.
    var size: Int64?
    var mediaType: String?
  }

  /// What a head says of the whole resource.
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
  /// A length that both tell must agree. Then the strong tag decides when both have one; else Last-Modified with the
  /// length; else a weak tag; with no validator in common, the length is all there is.
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
    // One of the two has lost every validator the other had: a proxy or another program answers.
    if head.validators.isEmpty != known.validators.isEmpty { return .different }
    return head.size == nil || known.size == nil || head.size == known.size ? .same : .different
  }

  /// Whether a resource of the `old` type can turn into one of the `new`: a page of HTML where media was is a captive
  /// portal, not a new version.
  static func compatible(_ old: String?, _ new: String?) -> Bool {
    guard let old, let new, old != new else { return true }
    let oldPage = isPage(old)
    let newPage = isPage(new)
    return oldPage == newPage
  }

  static func isPage(_ type: String) -> Bool { type == "text/html" || type == "application/xhtml+xml" }

  /// The value for If-Range of a known generation: a strong tag, else a date; a weak tag may not be used (RFC 9110,
  /// 13.1.5).
  ///
  /// A date counts as strong only when it lies well before the response that gave it; without that response's own date
  /// at hand, the length is compared as well by ``compare(_:with:)``.
  static func ifRange(for validators: Validators) -> String? {
    if let tag = validators.strongETag { return tag }
    return validators.lastModified.flatMap(HTTPDate.format)
  }
}
