import CCurl

/// A parsed http or https URL, with its userinfo taken off.
///
/// libcurl's own parser does the parsing, so that what is checked here is what is asked for later.
struct WebURL: Hashable, Sendable {
  /// Why a text is not a URL that can be asked.
  enum Problem: Error, Equatable {
    /// Not a URL.
    case malformed
    /// Neither http nor https; the scheme, for the message.
    case scheme(String)
  }

  /// Scheme, host and port: what credentials belong to.
  struct Origin: Hashable, Sendable {
    var scheme: String
    var host: String
    var port: String
  }

  /// A user name and a password, as they are, without percent-encoding.
  struct Credentials: Equatable, Sendable {
    var user: String
    /// nil when the URL has a user and no colon behind it.
    var password: String?
  }

  /// The URL to ask: without userinfo and fragment; spaces and bytes beyond ASCII percent-encoded.
  let text: String
  /// What it belongs to.
  let origin: Origin

  /// Parses `text`; the credentials that it held come apart from it.
  static func parse(_ text: String) throws(Problem) -> (url: WebURL, credentials: Credentials?) {
    let handle = try URLHandle()
    try handle.set(text)
    let credentials = handle.credentials()
    return (try WebURL(handle), credentials)
  }

  /// What `reference`, relative or absolute, means in a response from this URL (RFC 3986, section 5). Userinfo in it is
  /// dropped.
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

  /// Sets the URL; a relative one is resolved against what was set before. Schemes are judged later, to name them.
  func set(_ text: String) throws(WebURL.Problem) {
    // An embedded NUL would cut the text short on its way into C.
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

  /// Takes parts off. Clearing a part cannot fail.
  func clear(_ parts: [CURLUPart]) {
    for part in parts { _ = curl_url_set(handle, part, nil, 0) }
  }
}
