import Base
import TestSupport
import Testing

@testable import Fetching

/// Responses, redirects and netrc files that mean harm, given to the pure checks.
@Suite("Hostile responses")
struct ResponseFuzzTests {
  private static let heads: [[UInt8]] = [
    "HTTP/1.1 206 x\r\nContent-Range: bytes 100-199/1000\r\nContent-Length: 100\r\nETag: \"a\"\r\n\r\n",
    "HTTP/2 200\r\nContent-Length: 12\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: W/\"b\"\r\n\r\n",
    "HTTP/1.1 302 Found\r\nLocation: //user:pw@h/../x?y#z\r\nCache-Control: a, no-store\r\n\r\n",
    "HTTP/1.1 503 x\r\nRetry-After: Sun, 06 Nov 2094 08:49:37 GMT\r\nContent-Type: text/html; a=b\r\n\r\n",
    "HTTP/1.0 416\r\nContent-Range: bytes */5\r\nContent-Encoding: gzip, identity\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename=\"../\\\"x\\\"\"; "
      + "filename*=UTF-8''%2e%2e%2fx\r\n y\r\n\r\n",
  ].map { Array($0.utf8) }
  private static let words = tokens(
    "\r\n", "\n", "\r\n ", ":", "bytes ", "bytes */", "-", "/", "*", "9223372036854775807", "18446744073709551616",
    "-1",
    "0", "\0", "\u{7F}", "\"", "\\", ";", "=", "''", "%", "%00", "utf-8", "W/", "HTTP/1.1 206\r\n", "Content-Range: ",
    "ETag: ", "Location: ", "Content-Disposition: ", "Retry-After: ", "Content-Length: ", "\u{301}", "\u{E9}",
    "multipart/",
    String(repeating: "9", count: 40), String(repeating: " ", count: 50), "GMT", "Jan")

  @Test func everyHeadIsJudged() {
    var accepted = 0
    Fuzzing("response", cases: 6000).run { random, place in
      let bytes = random.mutated(Self.heads.randomElement(using: &random) ?? [], tokens: Self.words)
      var fields = ResponseFields()
      for line in bytes.split(separator: 10, omittingEmptySubsequences: false) {
        let isEnd = (line + [10]).withUnsafeBytes { fields.add(line: $0) }
        if isEnd, !fields.isInterim { break }
      }
      let start = Int64.random(in: 0...200, using: &random)
      let range = random.oneIn(4) ? nil : ByteRange(start, random.oneIn(2) ? .max : start + 100)
      let context = ResponseContext(range: range, url: "http://h/", now: 1_700_000_000)
      switch verdict(on: fields, in: context) {
      case .accepted(let head):
        accepted += 1
        Self.check(head, range, "\(place)")
      case .redirected(let location, _): #expect(location.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "\(place)")
      case .failed(let failure):
        #expect(!failure.message.isEmpty, "\(place)")
        #expect(failure.message.utf8.count < 600, "\(place)")
        if let wait = failure.retryAfter { #expect((0...86_400).contains(wait), "\(place)") }
      }
    }
    #expect(accepted > 0)
  }

  private static func check(_ head: AcceptedHead, _ asked: ByteRange?, _ place: Comment) {
    switch head.body {
    case .whole(let length): #expect((length ?? 0) >= 0, place)
    case .part(let range, let total):
      #expect(range.start == asked?.start && range.start < range.end && range.end <= asked?.end ?? 0, place)
      if let total { #expect(range.end <= total, place) }
    }
    // A strong tag is sent back with If-Range: it must be one that can be sent, and that the origin will know again.
    if let tag = head.validators.etag, !head.validators.etagIsWeak {
      #expect(tag.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } && tag.utf8.count <= 1024, place)
    }
    if let type = head.mediaType {
      #expect(type.utf8.count <= 255 && type.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, place)
    }
  }

  @Test func everyRedirectStaysOnTheWebAndKeepsSecretsHome() throws {
    let words = tokens(
      "file:", "ftp:", "http:", "https:", "//", "/", "..", "@", ":", "?", "#", "\\", "%", "%40", "%00", "\0", "[", "]",
      "h",
      "home", "127.0.0.1", "0x7f.1", "\u{301}", "\t", " ", "//user:other@", ":80", ":443", ":99999", "\u{FF0F}", "。")
    var followed = 0
    try Fuzzing("redirect", cases: 3000).run { random, place in
      var request = TransferRequest(id: TransferID(1), url: "http://user:secret@home/x?token=secret", range: nil)
      request.headers = [HTTPHeader(name: "Authorization", value: "secret")]
      request.referer = "http://home/?secret"
      var chain = try RedirectChain(request, options: TransferOptions())
      let netrc = Netrc(parsing: "default login d password secret\n")
      for _ in 0..<3 {
        let location = random.mutated(Array("http://h/../x?y".utf8), tokens: words)
        do throws(TransferFailure) {
          try chain.follow(String(decoding: location, as: UTF8.self), mayStore: true)
        } catch {
          #expect(!error.message.contains("secret"), "\(place): \(error.message)")
          return
        }
        followed += 1
        let url = chain.url.text
        let isWeb = url.utf8.starts(with: "http://".utf8) || url.utf8.starts(with: "https://".utf8)
        #expect(isWeb && !url.utf8.contains(UInt8(ascii: "#")), "\(place): \(url)")
        let isHome = chain.url.origin == WebURL.Origin(scheme: "http", host: "home", port: "80")
        if !isHome {
          #expect(!chain.headerLines().joined().contains("secret"), "\(place): \(url)")
          #expect(chain.credentials(netrc) == nil, "\(place): \(url)")
        }
      }
    }
    #expect(followed > 0)
  }

  @Test func everyNetrcIsRead() {
    let words = tokens(
      "machine ", "login ", "password ", "default ", "macdef ", "account ", "\"", "\\", "#", "\n\n", "\n", "\t", "\0",
      "h")
    Fuzzing("netrc", cases: 2000).run { random, place in
      let text = random.mutated(
        Array("machine h login u password \"p\\\"w\"\nmacdef x\ny\n\ndefault login d\n".utf8), tokens: words)
      let netrc = Netrc(parsing: String(decoding: text, as: UTF8.self))
      #expect(netrc.login(host: "other.example") == nil, "\(place)")
    }
  }

  /// A field of thousands of lines, folded tens of thousands of times: read at a cost that grows with its length alone
  /// (a cost that grows with both took 20 s here, in which every other transfer would have stood still).
  @Test func manyFoldedLinesAreRead() {
    var fields = ResponseFields()
    func add(_ line: String) { Array(line.utf8).withUnsafeBytes { _ = fields.add(line: $0) } }
    add("HTTP/1.1 302 x\r\n")
    var lines = 0
    for _ in 0..<4000 { add("Location: http://host/a/longer/one\n") }
    while !fields.isTooLong {
      add(" y\n")
      lines += 1
    }
    #expect(lines > 30_000)
    #expect(fields.all(.location).last == "http://host/a/longer/one" + String(repeating: " y", count: lines))
  }

  @Test(arguments: ["\"a\u{1}b\"", "\"\u{E9}\"", "\"" + String(repeating: "x", count: 5000) + "\"", "\"a\u{7F}\""])
  func aTagThatCannotBeSentBackIsWeak(tag: String) {
    #expect(validators(etag: tag, lastModified: nil).etagIsWeak)
  }

  /// libcurl's own words name a proxy's whole URL when it is a bad one.
  @Test func noPasswordOfAProxyIsInAMessage() {
    let words = "Unsupported proxy syntax in 'http://user:secret@pro xy': Malformed"
    let message = failure(of: .init(rawValue: 5), detail: words, url: "http://h/", progress: nil).message
    #expect(!message.contains("secret"), "\(message)")
    let plain = failure(of: .init(rawValue: 6), detail: "Could not resolve host: h", url: "http://h/", progress: nil)
      .message
    #expect(plain.contains("Could not resolve host: h"), "\(plain)")
  }
}
