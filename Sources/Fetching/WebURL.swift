import CCurl

/// A parsed http or https URL, with its userinfo removed.
///
/// libcurl's own parser parses it, so that mediafs checks the same URL that libcurl requests later.
struct WebURL: Hashable, Sendable {
  /// Why mediafs cannot request a URL.
  enum Problem: Error, Equatable {
    /// Not a URL.
    case malformed
    /// Neither http nor https; the scheme, for the message.
    case scheme(String)
  }

  /// Scheme, host and port, to which credentials belong.
  struct Origin: Hashable, Sendable {
    var scheme: String
    var host: String
    var port: String
  }

  /// A user name and a password, without percent-encoding.
  struct Credentials: Equatable, Sendable {
    var user: String
    /// nil when the URL has a user without a colon after it.
    var password: String?
  }

  /// The URL to request: without userinfo and fragment; spaces and non-ASCII bytes percent-encoded.
  let text: String
  /// The origin of the URL.
  let origin: Origin

  /// Parses `text`. Returns the credentials that it contained apart from the URL.
  static func parse(_ text: String) throws(Problem) -> (url: WebURL, credentials: Credentials?) {
    let handle = try URLHandle()
    try handle.set(text)
    let credentials = handle.credentials()
    return (try WebURL(handle), credentials)
  }

  /// Resolves `reference`, relative or absolute, from a response of this URL (RFC 3986, section 5). Drops its userinfo.
  func resolving(_ reference: String) throws(Problem) -> WebURL {
    let handle = try URLHandle()
    try handle.set(text)
    try handle.set(reference)
    return try WebURL(handle)
  }

  private init(_ handle: borrowing URLHandle) throws(Problem) {
    guard let scheme = handle.part(CURLUPART_SCHEME)?.lowercased() else { throw .malformed }
    guard scheme == "http" || scheme == "https" else { throw .scheme(scheme) }
    handle.clear([CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS, CURLUPART_FRAGMENT])
    guard let host = handle.part(CURLUPART_HOST), !host.isEmpty,
      let port = handle.part(CURLUPART_PORT, UInt32(CURLU_DEFAULT_PORT)), let text = handle.part(CURLUPART_URL)
    else { throw .malformed }
    self.text = text
    self.origin = Origin(scheme: scheme, host: host.lowercased(), port: port)
  }
}

/// An owned `CURLU`.
private struct URLHandle: ~Copyable {
  private let handle: OpaquePointer

  init() throws(WebURL.Problem) {
    guard let handle = curl_url() else { throw .malformed }  // out of memory
    self.handle = handle
  }

  deinit { curl_url_cleanup(handle) }

  /// Sets the URL; libcurl resolves a relative one against the URL before. `WebURL` checks the scheme later, to name
  /// it.
  func set(_ text: String) throws(WebURL.Problem) {
    // An embedded NUL would end the C string early.
    guard !text.utf8.contains(0) else { throw .malformed }
    let code = curl_url_set(handle, CURLUPART_URL, text, UInt32(CURLU_URLENCODE | CURLU_NON_SUPPORT_SCHEME))
    guard code == CURLUE_OK else { throw .malformed }
  }

  func part(_ part: CURLUPart, _ flags: UInt32 = 0) -> String? {
    var text: UnsafeMutablePointer<CChar>?
    guard curl_url_get(handle, part, &text, flags) == CURLUE_OK, let text else { return nil }
    defer { curl_free(text) }
    return String(cString: text)
  }

  func credentials() -> WebURL.Credentials? {
    guard let user = part(CURLUPART_USER, UInt32(CURLU_URLDECODE)) else { return nil }
    return WebURL.Credentials(user: user, password: part(CURLUPART_PASSWORD, UInt32(CURLU_URLDECODE)))
  }

  /// Removes parts. Clearing a part cannot fail.
  func clear(_ parts: [CURLUPart]) {
    for part in parts { _ = curl_url_set(handle, part, nil, 0) }
  }
}
