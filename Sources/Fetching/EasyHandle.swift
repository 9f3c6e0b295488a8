import Base
import CCurl
import Glibc

/// An owned libcurl easy handle and what it points to.
struct EasyHandle: ~Copyable {
  /// The size of libcurl's receive buffer, which is how much one recv(2) can bring. docs/decisions has the measurement.
  static let bufferSize = 128 << 10

  /// Valid as long as this value lives.
  let raw: UnsafeMutableRawPointer
  /// Where libcurl writes its words about a failure; allocated with the handle, freed behind it.
  private let errorText: UnsafeMutablePointer<CChar>
  private var headers: UnsafeMutablePointer<curl_slist>?

  /// nil when there is no memory.
  init?() {
    guard let raw = curl_easy_init() else { return nil }
    self.raw = raw
    errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
    errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
  }

  deinit {
    curl_easy_cleanup(raw)
    curl_slist_free_all(headers)
    errorText.deallocate()
  }

  /// Forgets the request before, and every secret of it. Connections, the DNS cache and TLS sessions stay.
  mutating func reset() {
    curl_easy_reset(raw)
    curl_slist_free_all(headers)
    headers = nil
    errorText[0] = 0
  }

  /// Sets what the next request is. The handle must be fresh or reset, and not in use.
  mutating func prepare(_ chain: RedirectChain, _ setup: HandleSetup) throws(CurlError) {
    let (options, trust) = (setup.options, setup.trust)
    set(pointer: errorText, CURLOPT_ERRORBUFFER)
    try set(chain.url.text, CURLOPT_URL)
    try set("http,https", CURLOPT_PROTOCOLS_STR)
    try set(0, CURLOPT_FOLLOWLOCATION)  // `RedirectChain` follows
    try set(0, CURLOPT_UNRESTRICTED_AUTH)
    // No signals: other threads are none of libcurl's business. Its resolver thread is left behind when a transfer ends
    // early, else removing one that is stuck in DNS would block the loop for seconds.
    try set(1, CURLOPT_NOSIGNAL)
    try set(1, CURLOPT_QUICK_EXIT)
    // HTTP/2 where TLS offers it, else HTTP/1.1; never by upgrade. Waiting for a connection that is being made, to
    // share it, pays where it may turn out to be HTTP/2; on plain http it would put requests behind each other's
    // handshakes for nothing.
    try set(Int(CURL_HTTP_VERSION_2TLS), CURLOPT_HTTP_VERSION)
    try set(chain.url.origin.scheme == "https" ? 1 : 0, CURLOPT_PIPEWAIT)
    try set(Self.bufferSize, CURLOPT_BUFFERSIZE)
    try set(max(1, Int(min(options.connectTimeout, 86_400) * 1000)), CURLOPT_CONNECTTIMEOUT_MS)
    if let rate = options.maximumRate { try set(offset: rate, CURLOPT_MAX_RECV_SPEED_LARGE) }
    // A silent peer is asked for a sign of life, so that one that vanished is noticed within about a minute.
    try set(1, CURLOPT_TCP_KEEPALIVE)
    try set(20, CURLOPT_TCP_KEEPIDLE)
    try set(5, CURLOPT_TCP_KEEPINTVL)
    try set(1, CURLOPT_SUPPRESS_CONNECT_HEADERS)  // a proxy's answer to CONNECT is not the origin's
    try set(ccurl_auth_basic, CURLOPT_HTTPAUTH)
    if let file = trust.file { try set(file, CURLOPT_CAINFO) }
    if trust.fileAlone { try check(ccurl_set_string(raw, CURLOPT_CAPATH, nil)) }
    if let share = setup.sessions.share { set(pointer: share, CURLOPT_SHARE) }
    if let login = setup.login(for: chain) {
      try set(login.user, CURLOPT_USERNAME)
      try set(login.password ?? "", CURLOPT_PASSWORD)
    }
    for line in chain.headerLines() {
      guard let longer = curl_slist_append(headers, line) else { throw CurlError(code: CURLE_OUT_OF_MEMORY) }
      headers = longer
    }
    try check(ccurl_set_list(raw, CURLOPT_HTTPHEADER, headers))
  }

  /// Points libcurl's callbacks at `context`, which must outlive the transfer.
  func setCallbacks(context: UnsafeMutableRawPointer) throws(CurlError) {
    try check(ccurl_set_data_function(raw, CURLOPT_HEADERFUNCTION, receiveHeaderLine))
    try check(ccurl_set_data_function(raw, CURLOPT_WRITEFUNCTION, receiveBody))
    try check(ccurl_set_sockopt_function(raw, prepareSocket))
    for option in [CURLOPT_HEADERDATA, CURLOPT_WRITEDATA, CURLOPT_SOCKOPTDATA, CURLOPT_PRIVATE] {
      set(pointer: context, option)
    }
  }

  /// Bounds the rate of a transfer, also while it runs. What libcurl does not take leaves the bound that was.
  func limit(rate: Int64) { _ = ccurl_set_offset(raw, CURLOPT_MAX_RECV_SPEED_LARGE, curl_off_t(rate)) }

  /// libcurl's words about the failure, empty when it has none.
  var detail: String { String(cString: errorText) }

  /// A number that libcurl knows of the transfer, 0 if it does not.
  func info(_ info: CURLINFO) -> Int {
    var value = 0
    return ccurl_get_long(raw, info, &value) == CURLE_OK ? value : 0
  }

  /// A time in microseconds, 0 if unknown.
  func microseconds(_ info: CURLINFO) -> Int64 {
    var value: curl_off_t = 0
    return ccurl_get_offset(raw, info, &value) == CURLE_OK ? Int64(value) : 0
  }

  private func set(_ value: Int, _ option: CURLoption) throws(CurlError) {
    try check(ccurl_set_long(raw, option, value))
  }

  private func set(offset value: Int64, _ option: CURLoption) throws(CurlError) {
    try check(ccurl_set_offset(raw, option, curl_off_t(value)))
  }

  private func set(_ value: String, _ option: CURLoption) throws(CurlError) {
    try check(ccurl_set_string(raw, option, value))
  }

  /// Storing a pointer cannot fail.
  private func set(pointer: UnsafeMutableRawPointer, _ option: CURLoption) {
    _ = ccurl_set_pointer(raw, option, pointer)
  }

  private func check(_ code: CURLcode) throws(CurlError) {
    if code != CURLE_OK { throw CurlError(code: code) }
  }
}

/// A code of libcurl's that is not CURLE_OK.
struct CurlError: Error {
  var code: CURLcode
}

/// Which certificates are trusted.
struct TrustStore {
  /// The file of `--cacert`, nil for libcurl's own.
  let file: String?
  /// Whether the file is all, and libcurl's certificate folder is left out. So it is for a file of the user's, who
  /// means that one; and also for the system's if that is there: libcurl keeps a parsed file for all connections, but
  /// only if there is no folder, and reading 140 certificates at each handshake would hold up the loop.
  let fileAlone: Bool

  init(file: String?) throws(FetchError) {
    self.file = file
    if let file {
      // libcurl opens the file again by its path: only a plain file gives it the same bytes each time.
      do throws(PlainFileError) { _ = try FileDescriptor.openPlain(file) } catch {
        throw .unreadable(option: "--cacert", path: file, reason: error.description)
      }
      fileAlone = true
      return
    }
    guard let easy = EasyHandle() else { throw .library("out of memory") }
    var path: UnsafePointer<CChar>?
    let isKnown = ccurl_get_string(easy.raw, CURLINFO_CAINFO, &path) == CURLE_OK
    fileAlone = isKnown && path.map { access($0, R_OK) == 0 } == true
  }
}
