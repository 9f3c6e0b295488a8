import Base
import Testing

@testable import Fetching

@Suite("Redirects and what is sent where")
struct RedirectChainTests {
  private let id = TransferID(1)

  private func chain(
    _ url: String, home: String? = nil, options: TransferOptions = TransferOptions(),
    change: (inout TransferRequest) -> Void = { _ in }
  ) throws(TransferFailure) -> RedirectChain {
    var request = TransferRequest(id: id, url: url, homeURL: home, range: ByteRange(10, 20), ifRange: "\"v\"")
    request.headers = [HTTPHeader(name: "X-Key", value: "secret"), HTTPHeader(name: "X-Empty", value: "")]
    request.referer = "http://from/"
    change(&request)
    return try RedirectChain(request, options: options)
  }

  @Test(
    "Locations are resolved",
    arguments: [
      ("/c", "http://h/c"), ("c", "http://h/a/c"), ("?q=1", "http://h/a/b?q=1"), ("//o/c", "http://o/c"),
      ("https://o:444/c#frag", "https://o:444/c"), ("../c", "http://h/c"), ("http://u:p@o/c", "http://o/c"),
      ("/a b", "http://h/a%20b"), ("HTTP://O/c", "http://O/c"),
    ])
  func resolves(location: String, expected: String) throws {
    var chain = try chain("http://u:p@h/a/b?x=y")
    try chain.follow(location, mayStore: true)
    #expect(chain.url.text.lowercased() == expected.lowercased())
  }

  @Test(
    "Other schemes are refused",
    arguments: ["ftp://h/x", "file:///etc/passwd", "gopher://h/", "http://", "javascript:alert(1)", "https://h:99999/"])
  func refuses(location: String) throws {
    var chain = try chain("http://h/a")
    let failure = #expect(throws: TransferFailure.self) { try chain.follow(location, mayStore: true) }
    #expect(failure?.kind == .permanent)
    #expect(chain.url.text == "http://h/a")
  }

  @Test("A document's own fields go everywhere, the entry's only home") func documentFields() throws {
    var chain = try chain("http://h/a") { request in
      request.range = nil
      request.headers.append(HTTPHeader(name: "accept", value: "text/plain"))
      request.document = DocumentRequest(headers: [HTTPHeader(name: "Accept", value: "text/html")])
    }
    let home = chain.headerLines()
    #expect(home.contains("Accept: text/html") && home.contains("X-Key: secret"))
    #expect(!home.contains { $0.hasPrefix("accept:") || $0.hasPrefix("Accept-Encoding") })
    try chain.follow("http://o/c", mayStore: true)
    #expect(chain.headerLines().contains("Accept: text/html") && !chain.headerLines().contains("X-Key: secret"))
  }

  @Test("A loop is found") func loops() throws {
    var chain = try chain("http://h/a?token=secret")
    try chain.follow("/b", mayStore: true)
    let failure = #expect(throws: TransferFailure.self) { try chain.follow("/a?token=secret#x", mayStore: true) }
    #expect(failure?.kind == .permanent)
    #expect(failure?.message.contains("loop") == true)
    #expect(failure?.message.contains("secret") == false)
  }

  @Test("Ten redirects, not eleven") func limit() throws {
    var chain = try chain("http://h/0")
    for step in 1...10 { try chain.follow("/\(step)", mayStore: true) }
    let failure = #expect(throws: TransferFailure.self) { try chain.follow("/11", mayStore: true) }
    #expect(failure?.kind == .permanent)
  }

  @Test(
    "Only the home origin gets what the entry brings",
    arguments: [
      ("http://h/other", true), ("http://h:80/other", true), ("http://H/other", true), ("https://h/a", false),
      ("http://h:8080/a", false), ("http://other/a", false), ("http://h.evil/a", false), ("http://sub.h/a", false),
    ])
  func home(location: String, isHome: Bool) throws {
    var options = TransferOptions()
    options.headers = [HTTPHeader(name: "X-Global", value: "g"), HTTPHeader(name: "x-key", value: "replaced")]
    // Once by a redirect, once as a remembered URL.
    var redirected = try chain("http://user:p%40ss@h/a", options: options)
    try redirected.follow(location, mayStore: true)
    let remembered = try chain(location, home: "http://user:p%40ss@h/a", options: options)
    for chain in [redirected, remembered] {
      let lines = chain.headerLines()
      #expect(lines.contains("X-Key: secret") == isHome)
      #expect(lines.contains("X-Empty;") == isHome)
      #expect(lines.contains("X-Global: g") == isHome)
      #expect(!lines.contains("x-key: replaced"))
      #expect(lines.contains("Referer: http://from/") == isHome)
      #expect((chain.credentials(nil) == WebURL.Credentials(user: "user", password: "p@ss")) == isHome)
      #expect((chain.credentials(nil) == nil) == !isHome)
      #expect(chain.isWithholding == !isHome)
      // These everywhere.
      #expect(lines.contains("Range: bytes=10-19"))
      #expect(lines.contains("If-Range: \"v\""))
      #expect(lines.contains("Accept-Encoding: identity"))
      #expect(lines.contains("User-Agent: mediafs"))
    }
  }

  @Test("Range fields") func range() throws {
    let open = try chain("http://h/") { $0.range = ByteRange(7, .max) }
    #expect(open.headerLines().contains("Range: bytes=7-"))
    let whole = try chain("http://h/") { $0.range = nil }
    #expect(!whole.headerLines().contains { $0.hasPrefix("Range") || $0.hasPrefix("If-Range") })
    #expect(throws: TransferFailure.self) { _ = try chain("http://h/") { $0.range = ByteRange(7, 7) } }
  }

  @Test("Fields of the entry's own cannot change what is asked") func reserved() throws {
    let chain = try chain("http://h/") {
      $0.headers = [
        HTTPHeader(name: "RANGE", value: "bytes=0-0"), HTTPHeader(name: "Accept-Encoding", value: "gzip"),
        HTTPHeader(name: "User-Agent", value: "own"), HTTPHeader(name: "Referer", value: "http://own/"),
      ]
    }
    #expect(
      chain.headerLines() == [
        "Accept-Encoding: identity", "Range: bytes=10-19", "If-Range: \"v\"", "User-Agent: own", "Referer: http://own/",
      ])
  }

  @Test(
    "Fields that would smuggle others",
    arguments: [
      ("X", "a\r\nEvil: b"), ("X", "a\nb"), ("X\u{0}", "a"), ("X", "\u{0}"), ("X:", "a"), ("", "a"), ("X Y", "a"),
    ])
  func smuggling(name: String, value: String) {
    let failure = #expect(throws: TransferFailure.self) {
      _ = try chain("http://h/") { $0.headers = [HTTPHeader(name: name, value: value)] }
    }
    #expect(failure?.kind == .permanent)
    #expect(failure?.message.contains("Evil") == false)
    #expect(throws: TransferFailure.self) { _ = try chain("http://h/") { $0.userAgent = "a\r\nb: c" } }
    #expect(throws: TransferFailure.self) { _ = try chain("http://h/") { $0.referer = "a\r\nb: c" } }
    #expect(throws: TransferFailure.self) { _ = try chain("http://h/") { $0.ifRange = "a\r\nb: c" } }
  }

  @Test("Unusable URLs", arguments: ["", "ftp://h/", "h/a", "http://", "http://h\u{0}x/", "http://[::1/"])
  func badURLs(url: String) {
    let failure = #expect(throws: TransferFailure.self) { _ = try chain(url) }
    #expect(failure?.kind == .permanent)
  }

  @Test("When the resolved URL may be remembered") func remembering() throws {
    var plain = try chain("http://h/a")
    #expect(!plain.isRememberable)
    try plain.follow("/b", mayStore: true)
    #expect(plain.isRememberable)
    try plain.follow("/c", mayStore: false)
    #expect(!plain.isRememberable)
    try plain.follow("/d", mayStore: true)
    #expect(!plain.isRememberable)
    #expect(try chain("http://cdn/x", home: "http://h/a").isRememberable)
  }

  private let netrc = Netrc(
    parsing: """
      # comment machine h login wrong password wrong
      machine h login alice password "a \\"b\\\\"
      machine CDN
        login carl
        password c#1 account x
      macdef init
      machine trap login evil password evil

      machine h login bob password b
      default login anyone password any
      """)

  @Test("Netrc") func parsesNetrc() {
    #expect(netrc.login(host: "h") == WebURL.Credentials(user: "alice", password: "a \"b\\"))
    #expect(netrc.login(host: "h", user: "bob")?.password == "b")
    #expect(netrc.login(host: "h", user: "carol") == nil)
    #expect(netrc.login(host: "cdn") == WebURL.Credentials(user: "carl", password: "c#1"))
    #expect(netrc.login(host: "trap") == nil)
    #expect(netrc.login(host: "other") == nil)
    #expect(netrc.defaultLogin == WebURL.Credentials(user: "anyone", password: "any"))
    for text in ["", "machine", "machine h login", "default", "password x", "\"", "machine \"h", "macdef x"] {
      #expect(Netrc(parsing: text).login(host: "h") == nil)
    }
  }

  @Test(
    "Which login goes where",
    arguments: [
      ("http://u:p@h/", nil, "u:p"),  // the URL's before netrc's
      ("http://bob@h/", nil, "bob:b"),
      ("http://h/", nil, "alice:a \"b\\"),
      ("http://unknown/", nil, "anyone:any"),  // default at home
      ("http://h/", "http://cdn/x", "carl:c#1"),  // named elsewhere
      ("https://h/", "http://cdn/x", nil),  // not in clear when the entry is not
      ("https://h/", "http://h/x", nil),
      ("http://h/", "http://stranger/x", nil),  // default never elsewhere
      ("http://u:p@h/", "https://h/x", "alice:a \"b\\"),
    ] as [(String, String?, String?)])
  func logins(home: String, location: String?, expected: String?) throws {
    var chain = try chain(home)
    if let location { try chain.follow(location, mayStore: true) }
    #expect(chain.credentials(netrc).map { "\($0.user):\($0.password ?? "")" } == expected)
  }
}
