/// The values by which an origin distinguishes the versions of a resource (RFC 9110, section 8.8).
package struct Validators: Hashable, Sendable {
  /// The opaque tag as sent, with its quotes, without `W/`; nil when the origin sent none.
  package var etag: String?
  /// Whether the tag was sent as weak (`W/"…"`): it then means equivalent bytes, not equal ones.
  package var etagIsWeak: Bool
  /// Last-Modified in seconds since 1970; nil when the origin sent none that can be parsed.
  package var lastModified: Int64?

  /// Validators with those values; without arguments, none.
  package init(etag: String? = nil, etagIsWeak: Bool = false, lastModified: Int64? = nil) {
    self.etag = etag
    self.etagIsWeak = etagIsWeak
    self.lastModified = lastModified
  }

  /// The tag if it is strong.
  package var strongETag: String? { etagIsWeak ? nil : etag }
  /// Whether the origin sent no validator.
  package var isEmpty: Bool { etag == nil && lastModified == nil }
}
