import Base
import CCurl
import Glibc

/// An owned libcurl easy handle and the memory it points to.
struct EasyHandle: ~Copyable {
  /// The size of libcurl's receive buffer: the most that one recv(2) returns. docs/decisions has the measurement.
  static let bufferSize = 128 << 10

  /// Valid as long as this value lives.
  let raw: UnsafeMutableRawPointer
  /// Where libcurl writes the text of an error; allocated with the handle, freed after it.
  private let errorText: UnsafeMutablePointer<CChar>
  private var headers: UnsafeMutablePointer<curl_slist>?

  /// nil when out of memory.
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

  /// Clears the last request and every secret of it. Connections, the DNS cache and TLS sessions stay.
  mutating func reset() {
    curl_easy_reset(raw)
    curl_slist_free_all(headers)
    headers = nil
    errorText[0] = 0
  }

  /// Sets up the next request. The handle must be fresh or reset, and not in use.
  mutating func prepare(_ chain: RedirectChain, _ setup: HandleSetup) throws(CurlError) {
    let (options, trust) = (setup.options, setup.trust)
    set(pointer: errorText, CURLOPT_ERRORBUFFER)
    try set(chain.url.text, CURLOPT_URL)
    try set("http,https", CURLOPT_PROTOCOLS_STR)
    try set(0, CURLOPT_FOLLOWLOCATION)  // `RedirectChain` follows redirects
    try set(0, CURLOPT_UNRESTRICTED_AUTH)
    // libcurl must not use signals in a process with other threads. A transfer that ends early leaves its resolver
    // thread behind: to remove a handle that is stuck in DNS would otherwise block the loop for seconds.
    try set(1, CURLOPT_NOSIGNAL)
    try set(1, CURLOPT_QUICK_EXIT)
    // HTTP/2 where TLS offers it, else HTTP/1.1; never by upgrade. On https a request waits for a connection that is
    // being established: if that turns out to be HTTP/2, the request shares it. On http it would only wait for another
    // request's handshake. On one connection of HTTP/2, an object store's short request would wait behind the blocks of
    // others.
    try set(Int(chain.isAlone ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS), CURLOPT_HTTP_VERSION)
    try set(chain.url.origin.scheme == "https" && !chain.isAlone ? 1 : 0, CURLOPT_PIPEWAIT)
    if chain.isFresh { try set(1, CURLOPT_FRESH_CONNECT) }
    try set(Self.bufferSize, CURLOPT_BUFFERSIZE)
    try set(max(1, Int(min(options.connectTimeout, 86_400) * 1000)), CURLOPT_CONNECTTIMEOUT_MS)
    if chain.object == nil, let rate = setup.rates.limit(of: chain.url.text) {
      try set(offset: rate, CURLOPT_MAX_RECV_SPEED_LARGE)
    }
    // TCP probes a silent peer, so that mediafs notices within about a minute that it vanished.
    try set(1, CURLOPT_TCP_KEEPALIVE)
    try set(20, CURLOPT_TCP_KEEPIDLE)
    try set(5, CURLOPT_TCP_KEEPINTVL)
    try set(1, CURLOPT_SUPPRESS_CONNECT_HEADERS)  // a proxy's response to CONNECT is not the origin's
    try set(ccurl_auth_basic, CURLOPT_HTTPAUTH)
    if let file = trust.file { try set(file, CURLOPT_CAINFO) }
    if trust.fileAlone { try check(ccurl_set_string(raw, CURLOPT_CAPATH, nil)) }
    if let share = setup.sessions.share { set(pointer: share, CURLOPT_SHARE) }
    if let login = setup.login(for: chain) {
      try set(login.user, CURLOPT_USERNAME)
      try set(login.password ?? "", CURLOPT_PASSWORD)
    }
    if let document = chain.document {
      try set("", CURLOPT_ACCEPT_ENCODING)  // what libcurl decodes
      try set(document.method, CURLOPT_CUSTOMREQUEST)
      if let body = document.body { try set(body, CURLOPT_COPYPOSTFIELDS) }
    }
    if let object = chain.object { try prepare(object) }
    for line in chain.headerLines() {
      guard let longer = curl_slist_append(headers, line) else { throw CurlError(code: CURLE_OUT_OF_MEMORY) }
      headers = longer
    }
    try check(ccurl_set_list(raw, CURLOPT_HTTPHEADER, headers))
  }

  private func prepare(_ object: ObjectRequest) throws(CurlError) {
    if object.method == .head { try set(1, CURLOPT_NOBODY) }
    if let body = object.body {
      // As a form, for which libcurl reads the memory itself, again too if a kept connection turns out dead. It only
      // reads, though the option's type does not say so. The slot holds the chain, and so the body, until it resets
      // the handle.
      try set(offset: Int64(body.bytes.count), CURLOPT_POSTFIELDSIZE_LARGE)
      if let start = body.bytes.baseAddress {
        set(pointer: UnsafeMutableRawPointer(mutating: start), CURLOPT_POSTFIELDS)
      }
    }
    if object.method == .put || object.method == .delete { try set(object.method.rawValue, CURLOPT_CUSTOMREQUEST) }
  }

  /// Points libcurl's callbacks at `context`, which must outlive the transfer.
  func setCallbacks(context: UnsafeMutableRawPointer) throws(CurlError) {
    try check(ccurl_set_data_function(raw, CURLOPT_HEADERFUNCTION, receiveHeaderLine))
    try check(ccurl_set_data_function(raw, CURLOPT_WRITEFUNCTION, receiveBody))
    try check(ccurl_set_opensocket_function(raw, openSocket))
    try check(ccurl_set_sockopt_function(raw, prepareSocket))
    for option in [
      CURLOPT_HEADERDATA, CURLOPT_WRITEDATA, CURLOPT_OPENSOCKETDATA, CURLOPT_SOCKOPTDATA, CURLOPT_PRIVATE,
    ] {
      set(pointer: context, option)
    }
  }

  /// Limits the rate of a transfer, also while it runs. If libcurl refuses the value, the earlier limit stays.
  func limit(rate: Int64) { _ = ccurl_set_offset(raw, CURLOPT_MAX_RECV_SPEED_LARGE, curl_off_t(rate)) }

  /// libcurl's text of the error, empty when it has none.
  var detail: String { String(cString: errorText) }

  /// A number that libcurl has about the transfer, 0 if it has none.
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

/// A libcurl error code; not CURLE_OK.
struct CurlError: Error {
  var code: CURLcode
}

/// Which certificates mediafs trusts.
struct TrustStore {
  /// The file of `--cacert`; nil for libcurl's default.
  let file: String?
  /// Whether mediafs trusts the file alone, without libcurl's certificate folder. A user who names a file means that
  /// file only. The system's file is also used alone, if it exists: libcurl caches a parsed file for all connections
  /// only if there is no folder, and parsing 140 certificates at each handshake would block the loop.
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
