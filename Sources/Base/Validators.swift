/// What an origin says that tells one version of a resource from another (RFC 9110, section 8.8).
package struct Validators: Hashable, Sendable {
  /// The opaque tag as sent, with its quotes, without `W/`; nil when none was sent.
  package var etag: String?
  /// Whether the tag was sent as weak (`W/"…"`): equal in meaning, not byte for byte.
  package var etagIsWeak: Bool
  /// Last-Modified in seconds since 1970, nil when none (or none that parses) was sent.
  package var lastModified: Int64?

  /// No validator at all, unless given.
  package init(etag: String? = nil, etagIsWeak: Bool = false, lastModified: Int64? = nil) {
    self.etag = etag
    self.etagIsWeak = etagIsWeak
    self.lastModified = lastModified
  }

  /// The tag when it is a strong one.
  package var strongETag: String? { etagIsWeak ? nil : etag }
  /// Whether the origin sent nothing that tells versions apart.
  package var isEmpty: Bool { etag == nil && lastModified == nil }
}
