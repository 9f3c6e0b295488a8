import Base
import TestSupport
import Testing

@testable import Manifest

@Suite("What resolvers are asked, and what they answer")
struct ResolverTests {
  private let key = ResourceKey(high: 1, low: 0xabc)
  private let hex = "00000000000000010000000000000abc"

  private func answer(_ fields: String) throws -> ResolverAnswer {
    try #require(ResolverAnswer(line: #"{"key":"\#(hex)",\#(fields)}"#.utf8))
  }

  private func link(_ fields: String) throws -> ResolvedLink { try answer(fields).link.get() }

  private func refusal(_ fields: String) throws -> String {
    guard case .failure(let refusal) = try answer(fields).link else { return "" }
    return refusal.words
  }

  @Test func linesOfAsks() {
    let ask = ResolverAsk(key: key, source: "https://h/a\"b", why: .forbidden, size: 7, validator: "\"x\"")
    let fields = #""key":"\#(hex)","size":7,"source":"https://h/a\"b","validator":"\"x\"","why":"403""#
    #expect(ask.line == "{\(fields)}")
    let bare = ResolverAsk(key: key, source: "https://h/a\nb", why: .first)
    #expect(bare.line == #"{"key":"\#(hex)","source":"https://h/a\nb","why":"first"}"#)
    #expect(ResolverAsk.Reason(status: 410) == .gone && ResolverAsk.Reason(status: 500) == nil)
  }

  @Test func aWholeAnswer() throws {
    let found = try link(
      #""url":"HTTPS://cdn.example/f?x=1#t","mirrors":["http://b.example/f","https://cdn.example/f?x=1","nonsense"],"#
        + #""headers":{"X-A":"1","Referer":"https://p/","User-Agent":"U"},"cookies":"a=1; b=2","expires":1767225600,"#
        + #""not_before":"2026-01-01T00:00:00Z","size":12,"digest":"md5=d41d8cd98f00b204e9800998ecf8427e""#)
    #expect(found.urls == ["https://cdn.example/f?x=1", "http://b.example/f"])
    #expect(found.headers.map(\.name) == ["X-A", "Cookie"] && found.headers.map(\.value) == ["1", "a=1; b=2"])
    #expect(found.referer == "https://p/" && found.userAgent == "U")
    #expect(found.begin == 1_767_225_600 && found.end == 1_767_225_600 && found.size == 12)
    #expect(found.checksum?.algorithm == .md5)
    // The earlier of what the resolver and the link say.
    #expect(try link(#""url":"http://h/?expire=1767225600","expires":"1767225601""#).end == 1_767_225_600)
    #expect(try link(#""url":"http://h/?expire=1767225600","expires":1767225599.7"#).end == 1_767_225_599)
    // Milliseconds, as a number or a text.
    #expect(try link(#""url":"http://h/","expires":1767225600123"#).end == 1_767_225_600)
    #expect(try link(#""url":"http://h/","expires":"1767225600123","not_before":1767225600999"#).begin == 1_767_225_600)
  }

  @Test("What a header may not be is left out of an answer, and of what has another type nothing is taken")
  func lies() throws {
    let found = try link(
      #""url":"http://h/","headers":{"Range":"bytes=0-1","A\nB":"x","C":"x\r\nD: y","Host":"z"},"cookies":7,"#
        + #""expires":{},"size":-1,"mirrors":"x","digest":"sha-256=zz","not_before":1e300"#)
    #expect(found == ResolvedLink(urls: ["http://h/"]))
    #expect(try link(#""url":"http://h/","size":0"#).size == nil, "0 is no length")
  }

  @Test(arguments: [
    "", "x", "[]", "{}", #"{"key":"12","url":"http://h/"}"#, #"{"key":7}"#, #"{"url":"http://h/"}"#, "\u{0}\u{ff}",
    #"{"key":"0000000000000001000000000000+abc","url":"http://h/"}"#, String(repeating: "[", count: 60_000),
  ])
  func noAnswers(_ line: String) { #expect(ResolverAnswer(line: line.utf8) == nil) }

  @Test func answersHaveBounds() throws {
    let long = String(repeating: "a", count: ResolverAnswer.longest)
    #expect(ResolverAnswer(line: #"{"key":"\#(hex)","url":"http://h/\#(long)"}"#.utf8) == nil)
    let mirrors = (0..<100).map { "\"http://m\($0)/\"" }.joined(separator: ",")
    #expect(try link(#""url":"http://h/","mirrors":[\#(mirrors)]"#).urls.count == 17)
  }

  @Test("An answer without a link says why, and nothing of a link")
  func refusals() throws {
    #expect(try refusal(#""size":1"#) == "its answer has no link")
    #expect(try refusal(#""url":"file:///etc/passwd""#).hasPrefix("its link cannot be fetched: file: URLs"))
    #expect(try refusal(#""error":"Video is private""#) == "Video is private")
    #expect(try refusal(#""error":"no https://h/?sig=ab\n\u001b[31m token=x abc""#) == "no … … … abc")
    #expect(try refusal(#""error":"""#) == "it says nothing")
    let long = String(repeating: "word ", count: 1000)
    #expect(try refusal(#""error":"\#(long)""#).utf8.count < 250)
  }

  @Test(
    "Words that may be a token, a password or a number of somebody's are left out",
    arguments: [
      ("HTTP 403: it is (Forbidden), e.g. for film.mp4 or .M4A", "HTTP 403: it is (Forbidden), e.g. for … or .M4A"),
      ("Requested format mp4 is not available (1080).", "Requested format mp4 is not available (1080)."),
      ("token a1B2c3D4 sid 4f3a9b2c", "token … sid …"), ("key AKIAIOSFODNN, pass aGVsBGw", "key … pass …"),
      ("code 1767225600 x7 é5 ٤a", "code … … … …"),
      ("user-7-abc YouTube URLs DRM 2026-11-25", "… YouTube URLs DRM 2026-11-25"),
      ("Zugriff verweigert für das Gerät, 视频不可用", "Zugriff verweigert für das Gerät, 视频不可用"),
    ]) func tokensInRefusals(_ words: String, _ shown: String) throws
  {
    #expect(try refusal(#""error":"\#(words)""#) == shown)
  }

  @Test("An entry whose resolver's name is refused is left out: its page is no file")
  func aRefusedNameLeavesItsEntryOut() throws {
    for value in ["a b", "", "x\u{1}y", String(repeating: "a", count: 33)] {
      let reading = try read("https://h/page\n resolver=\(value)\n out=a.mp4\nhttps://h/b.mp4\n out=c.mp4\n")
      #expect(reading.paths == ["c.mp4"] && reading.problems.map(\.line) == [2])
      #expect(reading.errors.first?.message.hasSuffix("its entry is left out") == true, "\(reading.errors)")
    }
    #expect(try read("https://h/page\n resolver=good\n resolver=b/d\n").entries.isEmpty)
  }

  @Test func aListNamesAResolverAndNoProgram() throws {
    #expect(try entry("resolver=yt-dlp_2").resolver == "yt-dlp_2")
    #expect(try entry("out=a").resolver == nil)
    for name in ["a b", "/bin/sh", "a=b", "$(x)", "..", String(repeating: "a", count: 33)] {
      let reading = try read("https://h/a.mp4\n resolver=\(name)\n")
      #expect(reading.errors.map(\.line) == [2] && reading.entries.isEmpty)
    }
    // Whose page a resolver looks up needs no warning.
    #expect(try entry("resolver=y", url: "https://youtu.be/abc").resolver == "y")
    for text in ["https://youtu.be/abc\n", "#EXTM3U\n#EXTINF:1,T\nhttps://youtu.be/abc\n"] {
      #expect(try read(text).problems.map(\.severity) == [.warning])
      var reader = ManifestReader(bytes: Array(text.utf8), name: "l")
      reader.take(ListResolvers(standard: "y"))
      let reading = try readAll(reader)
      #expect(reading.problems == [] && reading.entries.map(\.resolver) == ["y"])
    }
    #expect(try read("https://youtu.be/abc\n").problems.count == 1)
  }

  @Test func keysAsText() {
    #expect(key.hex == hex && ResourceKey(hex: hex) == key && ResourceKey(hex: hex.uppercased()) == key)
    #expect(ResourceKey(hex: String(hex.dropLast())) == nil && ResourceKey(hex: hex + "0") == nil)
  }

  @Test("Random bytes and broken answers are no link and no crash")
  func fuzz() {
    let whole = #"{"key":"\#(hex)","url":"http://h/a?expires=1767225600","headers":{"a":"b"},"expires":1}"#
    Fuzzing("resolvers", cases: 3000).run { random, place in
      let bytes = random.mutated(
        Array(whole.utf8), tokens: ["\"", "http://", "{", "eyJ", "\\u0000"].map { Array($0.utf8) })
      guard case .success(let link)? = ResolverAnswer(line: bytes)?.link else { return }
      #expect(link.urls.allSatisfy { $0.hasPrefix("http") }, "\(place)")
    }
  }
}

@Suite("When links say that they end")
struct ExpiryTests {
  /// `printf '{"exp":1767225600}' | basenc --base64url`, in front of which a header stands.
  private static let token = "eyJhbGciOiJub25lIn0.eyJleHAiOjE3NjcyMjU2MDB9.c2ln"

  private static let links: [(String, Int64?)] = [
    ("http://h/a.mp4", nil), ("http://h/a?expire=1767225600", 1_767_225_600),
    ("http://h/?Expires=1767225600", 1_767_225_600),
    ("http://h/?exp=1767225600123", 1_767_225_600), ("http://h/?expires=3600", nil), ("http://h/?expires=x", nil),
    ("http://h/?expires=2026-01-01T00%3A00%3A00Z", 1_767_225_600), ("http://h/a#?expire=1767225600", nil),
    ("http://h/?X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600", 1_767_229_200),
    ("http://h/?X-Amz-Date=20260101T000000Z", nil), ("http://h/?X-Amz-Expires=3600", nil),
    ("http://h/?X-Amz-Date=2026&X-Amz-Expires=3600", nil),
    ("http://h/?X-Amz-Date=20260101T000000Z&X-Amz-Expires=99999999999999999999", nil),
    ("http://h/?X-Goog-Date=20260101T000000Z&X-Goog-Expires=60", 1_767_225_660),
    ("http://h/?se=2026-01-01T00%3A00%3A00Z&sig=abc", 1_767_225_600), ("http://h/?se=2026-01-01", nil),
    ("http://h/?ex=6955b900&is=1&hm=2", 1_767_225_600), ("http://h/?ex=6955b900", nil),
    ("http://h/?hdnts=exp%3D1767225600~acl%3D%2F*~hmac%3Dab", 1_767_225_600),
    ("http://h/?token=\(token)", 1_767_225_600), ("http://h/?token=eyJ.eyJ.x", nil), ("http://h/?token=eyJa.b", nil),
    ("http://h/\(token)/a.mp4", 1_767_225_600), ("http://h/hls/token=\(token);x/a", 1_767_225_600),
    ("http://h/%65yJhbGciOiJub25lIn0.eyJleHAiOjE3NjcyMjU2MDB9.c2ln/a", 1_767_225_600), ("http://h/eyJ.eyJ.x/a", nil),
    // No time of this century: `{"exp":99999999999999}`, `{"exp":1e300}`.
    ("http://h/eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTk5OTk5fQ.c2ln/a", nil),
    ("http://h/?t=eyJhbGciOiJub25lIn0.eyJleHAiOjFlMzAwfQ.c2ln", nil),
    ("http://h/videoplayback/expire/1767225600/x", 1_767_225_600), ("http://h/expire/soon", nil),
    // The earliest counts.
    ("http://h/?expire=1767225601&token=\(token)", 1_767_225_600),
  ]

  @Test(arguments: links)
  func ends(_ url: String, _ end: Int64?) { #expect(Expiry.end(of: url) == end) }

  @Test(
    "Tokens in the fields that authorize",
    arguments: [
      ("Cookie", "a=1; s=\(token); b=2", 1_767_225_600), ("cookie", "s=\"\(token)\"", 1_767_225_600),
      ("Authorization", "Bearer \(token)", 1_767_225_600), ("Authorization", "Basic YTpi", nil),
      ("Cookie", "s=eyJ.eyJ.x; t=eyJhbGciOiJub25lIn0.eyJleHAiOjFlMzAwfQ.c2ln", nil), ("X-Token", token, nil),
    ] as [(String, String, Int64?)])
  func endsOfFields(_ name: String, _ value: String, _ end: Int64?) {
    #expect(Expiry.end(of: HTTPHeader(name: name, value: value)) == end)
  }

  @Test func theFirstPartOfALinkToEnd() {
    var link = ResolvedLink(urls: ["http://a/", "http://b/?expire=1767225700", "http://c/?expire=1767225500"])
    link.headers = [HTTPHeader(name: "Cookie", value: "s=\(Self.token)")]
    let ends = [1_767_225_400, 1_767_225_500, 1_767_225_600, 1_767_225_700].map { link.firstEnd(after: $0) }
    #expect(ends == [1_767_225_500, 1_767_225_600, 1_767_225_700, nil])
    link.end = 1_767_225_450
    #expect(link.firstEnd(after: 1_767_225_400) == 1_767_225_450)
  }
}
