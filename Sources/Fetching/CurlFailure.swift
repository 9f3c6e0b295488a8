import CCurl

/// Translates a libcurl error into a ``TransferFailure``. Pure.
///
/// - Parameters:
///   - code: libcurl's result; not CURLE_OK.
///   - detail: libcurl's own words, from CURLOPT_ERRORBUFFER; may be empty.
///   - url: the requested URL, redacted.
///   - progress: how much of an accepted body has arrived; nil before mediafs accepted one.
///   - connectStatus: the status with which a proxy answered CONNECT; 0 if none did.
func failure(
  of code: CURLcode, detail: String, url: String, progress: String?, connectStatus: Int = 0
) -> TransferFailure {
  // When a proxy cannot be used, libcurl's words contain its whole URL, with the login.
  let isPlain = !detail.isEmpty && !detail.utf8.contains(UInt8(ascii: "@")) && !detail.contains("://")
  let words = isPlain ? detail : String(cString: curl_easy_strerror(code))
  if let progress, code != CURLE_OPERATION_TIMEDOUT {
    return TransferFailure(kind: .transient, message: "\(url): the connection closed after \(progress) (\(words))")
  }
  if let refusal = refusal(ofProxy: connectStatus) {
    return TransferFailure(kind: .permanent, message: "\(url): \(refusal) (\(words))")
  }
  let (kind, what): (TransferFailure.Kind, String) =
    switch code {
    case CURLE_COULDNT_RESOLVE_HOST: (.transient, "the host's name cannot be resolved")
    case CURLE_COULDNT_RESOLVE_PROXY: (.transient, "the proxy's name cannot be resolved; check the proxy variables")
    case CURLE_COULDNT_CONNECT: (.transient, "cannot connect")
    case CURLE_OPERATION_TIMEDOUT: (.transient, "the connection was not established in time")
    case CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE: (.transient, "the server closed the connection before it responded")
    case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_HTTP2, CURLE_HTTP2_STREAM: (.transient, "the connection broke")
    case CURLE_PROXY: (.transient, "the proxy failed")
    case CURLE_SSL_CONNECT_ERROR: (.transient, "the TLS handshake failed")
    case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS:
      (
        .permanent,
        "the host's certificate is not trusted; if it is a certificate of your own, name its authority with --cacert"
      )
    case CURLE_SSL_CACERT_BADFILE:
      (.permanent, "the trusted certificates cannot be read; check --cacert, or install the package ca-certificates")
    case CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER, CURLE_SSL_CRL_BADFILE, CURLE_SSL_PINNEDPUBKEYNOTMATCH:
      (.permanent, "TLS cannot be used with this host")
    case CURLE_URL_MALFORMAT: (.permanent, "not a valid URL")
    // mediafs requests http and https alone, so this is a response without a status line (HTTP/0.9).
    case CURLE_UNSUPPORTED_PROTOCOL, CURLE_WEIRD_SERVER_REPLY: (.unusable, "the server does not speak HTTP")
    case CURLE_BAD_CONTENT_ENCODING: (.unusable, "the encoding of the response is broken")
    case tooLargeCode: (.unusable, "the header of the response is too long: \(brokenAnswerAdvice)")
    case CURLE_OUT_OF_MEMORY: (.transient, "out of memory")
    default: (.transient, "the transfer failed")
    }
  return TransferFailure(kind: kind, message: "\(url): \(what) (\(words))")
}

/// What a proxy's answer to CONNECT means if the proxy would answer the same again; nil for every other one. libcurl's
/// code says only that the connection broke, or that there was none.
private func refusal(ofProxy status: Int) -> String? {
  switch status {
  case 407: "cannot be reached: the proxy needs a login; put it in the proxy variable"
  case 408, 425, 429: nil
  case 400..<500: "the proxy refuses connections to this host"
  default: nil
  }
}

/// What a user can do about a response that no client could use: neither the request nor a login is wrong.
let brokenAnswerAdvice = "its server is broken or does not serve files there; list another URL for the file"

/// CURLE_TOO_LARGE, which libcurl 7.88 does not define yet.
let tooLargeCode = CURLcode(rawValue: 100)
