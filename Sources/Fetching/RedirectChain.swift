import Base

/// The URLs that one transfer requests, one after the other, and what may be sent to each. Pure.
///
/// mediafs follows redirects itself: libcurl would forward custom fields and the Referer to any host. The rules
/// (docs/decisions has the reasons): at most ten redirects, no URL twice, http and https only, from https to http too.
/// What the entry brings (userinfo, fields, Referer) goes only to the origin of its own URL. Userinfo in a Location is
/// dropped.
struct RedirectChain {
  /// The most redirects of one transfer (wget allows 20, curl 30 to 50; a media link has 1 to 3).
  static let limit = 10

  /// The URL to request now.
  private(set) var url: WebURL
  /// Whether mediafs may remember the final URL: it is not the entry's own, and no redirect said `no-store`.
  var isRememberable: Bool { mayStore && url.text != home.text }
  /// Whether the entry has something that mediafs does not send to `url`.
  var isWithholding: Bool { !isHome && (homeCredentials != nil || !headers.isEmpty || request.referer != nil) }

  /// What is asked for, if it is a document.
  var document: DocumentRequest? { request.document }
  /// What is asked of an object store.
  var object: ObjectRequest? { request.object }
  /// Whether it shares no connection with others.
  var isAlone: Bool { request.isAlone || request.object != nil }
  /// Whether it leaves the idle connections to others.
  var isFresh: Bool { request.isFresh && visited.count == 1 }
  /// Whether the next request will come at once, and need a connection too.
  var opensAnother: Bool { request.opensAnother && visited.count == 1 }
  /// The request's method.
  var method: String { object?.method.rawValue ?? document?.method ?? "GET" }

  /// The URL to request now, for messages.
  var shown: String { request.shown(url.text) }

  private let request: TransferRequest
  private let userAgent: String
  /// What goes to the home origin: the options' fields, then the entry's, which replace those of the same name.
  private let headers: [HTTPHeader]
  private let home: WebURL
  private let homeCredentials: WebURL.Credentials?
  private var visited: Set<String>
  private var mayStore = true

  private var isHome: Bool { url.origin == home.origin }

  /// The chain's first link is `request.url`.
  init(_ request: TransferRequest, options: TransferOptions) throws(TransferFailure) {
    self.request = request
    userAgent = request.userAgent ?? options.userAgent
    do throws(WebURL.Problem) {
      (home, homeCredentials) = try WebURL.parse(request.homeURL)
      url = try WebURL.parse(request.url).url
    } catch {
      throw Self.failure(error, url: request.shown(request.url), what: "cannot be requested")
    }
    if request.range?.isEmpty == true {
      throw TransferFailure(kind: .unusable, message: "\(request.shown(request.url)): the requested range is empty")
    }
    let own = Set(request.headers.map { $0.name.lowercased() })
    let general = request.isSecret ? [] : options.headers
    headers = general.filter { !own.contains($0.name.lowercased()) } + request.headers
    visited = [url.text]
    for field in headers + (request.document?.headers ?? []) + (request.object?.headers ?? [])
    where !Self.isSendable(field) {
      throw Self.badField(field.name, url: request.shown(request.homeURL))
    }
    let single = [("User-Agent", userAgent), ("Referer", request.referer), ("If-Range", request.ifRange)]
    for (name, value) in single where !Self.isSendable(HTTPHeader(name: name, value: value ?? "")) {
      throw Self.badField(name, url: request.shown(request.homeURL))
    }
  }

  /// Moves on to `location`, as the response of the current URL gave it.
  mutating func follow(_ location: String, mayStore allowed: Bool) throws(TransferFailure) {
    let from = request.shown(url.text)
    let next: WebURL
    do throws(WebURL.Problem) { next = try url.resolving(location) } catch {
      throw Self.failure(error, url: from, what: "redirects to a URL that cannot be requested")
    }
    guard visited.insert(next.text).inserted else {
      throw TransferFailure(
        kind: .permanent, message: "\(from): redirects in a loop, to \(request.shown(next.text)) again")
    }
    guard visited.count <= Self.limit + 1 else {
      throw TransferFailure(kind: .permanent, message: "\(from): more than \(Self.limit) redirects")
    }
    mayStore = mayStore && allowed
    url = next
  }

  /// The login for the current URL, nil for none. At home the URL's own login comes first. Elsewhere only the netrc
  /// entry of that very host's name counts (not `default`), and none on http when the entry is on https.
  func credentials(_ netrc: Netrc?) -> WebURL.Credentials? {
    let host = url.origin.host
    if isHome {
      if let own = homeCredentials {
        if own.password != nil { return own }
        return WebURL.Credentials(user: own.user, password: netrc?.login(host: host, user: own.user)?.password)
      }
      return netrc?.login(host: host) ?? (request.isSecret ? nil : netrc?.defaultLogin)
    }
    if home.origin.scheme == "https", url.origin.scheme == "http" { return nil }
    return netrc?.login(host: host)
  }

  /// The request's header lines, in libcurl's form.
  func headerLines() -> [String] {
    if let object = request.object { return object.headerLines(userAgent: userAgent) }
    // A Range of the entry's own, or a coding, would change which response comes back.
    let reserved: Set = [
      "range", "if-range", "accept-encoding", "te", "transfer-encoding", "content-length", "connection", "expect",
    ]
    // Of a document libcurl says itself what it decodes.
    var lines = request.document == nil ? ["Accept-Encoding: identity"] : []
    for field in request.document?.headers ?? [] { lines.append("\(field.name): \(field.value)") }
    if let range = request.range {
      lines.append("Range: bytes=\(range.start)-" + (range.end == .max ? "" : "\(range.end - 1)"))
      if let ifRange = request.ifRange { lines.append("If-Range: \(ifRange)") }
    }
    var names = Set((request.document?.headers ?? []).map { $0.name.lowercased() })
    if isHome {
      let taken = reserved.union(names)
      for field in headers where !taken.contains(field.name.lowercased()) {
        names.insert(field.name.lowercased())
        // `Name:` would make libcurl omit the field; `Name;` sends it empty.
        lines.append(field.value.isEmpty ? "\(field.name);" : "\(field.name): \(field.value)")
      }
      if let referer = request.referer, !names.contains("referer") { lines.append("Referer: \(referer)") }
    }
    if !names.contains("user-agent") { lines.append("User-Agent: \(userAgent)") }
    return lines
  }

  /// A field that violates the grammar could smuggle in others (RFC 9110, sections 5.1 and 5.5).
  private static func isSendable(_ field: HTTPHeader) -> Bool {
    !field.name.isEmpty
      && field.name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"\"(),/:;<=>?@[\\]{}".utf8.contains($0) }
      && field.value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }
  }

  private static func badField(_ name: String, url: String) -> TransferFailure {
    let safe = String(name.prefix(64)).filter { $0.isLetter || $0.isNumber || $0 == "-" }
    return TransferFailure(
      kind: .permanent,
      message: "\(url): the header field “\(safe)” cannot be sent: it contains a control character, "
        + "or one that no field name may have")
  }

  private static func failure(_ problem: WebURL.Problem, url: String, what: String) -> TransferFailure {
    let why =
      switch problem {
      case .malformed: "not a valid URL"
      case .scheme(let scheme): "“\(scheme.prefix(16)):” is neither http nor https"
      }
    return TransferFailure(kind: .permanent, message: "\(url): \(what): \(why)")
  }
}
