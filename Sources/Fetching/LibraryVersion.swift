import CCurl

/// The libcurl that this process runs with.
package enum Libcurl {
  /// Its version and those of the libraries below it, as it tells them itself: `7.88.1 OpenSSL/3.0.17 zlib/1.2.13 ...`.
  package static var version: String {
    let text = String(cString: curl_version())
    return text.hasPrefix("libcurl/") ? String(text.dropFirst("libcurl/".count)) : text
  }
}
