import Base
import CCurl
import Testing

@testable import Fetching

/// A head out of its lines, as libcurl hands them over.
private func head(_ lines: [String]) -> ResponseFields {
  var fields = ResponseFields()
  var ended = false
  for line in lines + [""] {
    ended = Array((line + "\r\n").utf8).withUnsafeBytes { fields.add(line: $0) }
  }
  #expect(ended)
  return fields
}

private func judge(_ lines: [String], range: ByteRange? = ByteRange(100, 200)) -> ResponseVerdict {
  verdict(on: head(lines), in: ResponseContext(range: range, url: "http://host/file", now: 100))
}

private func body(_ verdict: ResponseVerdict) -> ResponseHead.Body? {
  if case .accepted(let head) = verdict { head.body } else { nil }
}

private func failure(_ verdict: ResponseVerdict) -> TransferFailure? {
  if case .failed(let failure) = verdict { failure } else { nil }
}

@Suite("Response checks")
struct ResponseTests {
  @Test(
    "Heads that are accepted",
    arguments: [
      (["206", "Content-Range: bytes 100-199/1000", "Content-Length: 100"], .part(ByteRange(100, 200), total: 1000)),
      (["206", "content-range: bytes 100-199/*"], .part(ByteRange(100, 200), total: nil)),
      // Shorter than asked: at the end of the file, or as the origin likes.
      (["206", "Content-Range: bytes 100-149/150"], .part(ByteRange(100, 150), total: 150)),
      (["206", "Content-Range: bytes 100-100/1000", "Content-Length: 1"], .part(ByteRange(100, 101), total: 1000)),
      // Chunked: a Content-Length besides means nothing.
      (
        ["206", "Content-Range: bytes 100-199/1000", "Content-Length: 7", "Transfer-Encoding: chunked"],
        .part(ByteRange(100, 200), total: 1000)
      ),
      (["200", "Content-Length: 1000"], .whole(length: 1000)),
      (["200", "Content-Length: 0"], .whole(length: 0)),
      (["200", "Content-Length: 10", "Content-Length: 10"], .whole(length: 10)),
      (["200", "Content-Length: 10, 10"], .whole(length: 10)),
      (["200"], .whole(length: nil)),
      (["200", "Transfer-Encoding: chunked", "Content-Length: 5"], .whole(length: nil)),
      (["200", "Content-Encoding: identity", "Content-Length: 5"], .whole(length: 5)),
      (["200", "Content-Range: bytes 0-4/5", "Content-Length: 5"], .whole(length: 5)),
    ] as [([String], ResponseHead.Body)])
  func accepts(lines: [String], expected: ResponseHead.Body) {
    #expect(body(judge(["HTTP/1.1 \(lines[0]) x"] + lines.dropFirst())) == expected)
  }

  @Test(
    "Heads of documents",
    arguments: [
      (["200", "Content-Length: 10"], .whole(length: 10)), (["207"], .whole(length: nil)),
      (["200", "Content-Encoding: gzip", "Content-Length: 10"], .whole(length: nil)),
      (["304", "Content-Length: 10"], .whole(length: nil)), (["206", "Content-Range: bytes 0-9/10"], nil),
      (["404"], nil), (["401"], nil),
    ] as [([String], ResponseHead.Body?)])
  func documents(lines: [String], expected: ResponseHead.Body?) {
    let context = ResponseContext(range: nil, url: "http://host/list", isDocument: true, now: 100)
    #expect(body(verdict(on: head(["HTTP/1.1 \(lines[0]) x"] + lines.dropFirst()), in: context)) == expected)
  }

  @Test(
    "Heads that must not be believed",
    arguments: [
      ["206"],
      ["206", "Content-Type: multipart/byteranges; boundary=x"],
      ["206", "Content-Type: Multipart/ByteRanges; boundary=x", "Content-Range: bytes 100-199/1000"],
      ["206", "Content-Range: bytes 0-99/1000"],
      ["206", "Content-Range: bytes 101-199/1000"],
      ["206", "Content-Range: bytes 99-199/1000"],
      ["206", "Content-Range: bytes 100-200/1000"],
      ["206", "Content-Range: bytes 100-199/9223372036854775807"],
      ["206", "Content-Range: bytes 100-199/150"],
      ["206", "Content-Range: bytes */1000"],
      ["206", "Content-Range: nonsense"],
      ["206", "Content-Range: bytes 100-199/1000", "Content-Range: bytes 100-198/1000"],
      ["206", "Content-Range: bytes 100-199/1000", "Content-Length: 99"],
      ["206", "Content-Range: bytes 100-199/1000", "Content-Length: 101"],
      ["206", "Content-Range: bytes 100-199/1000", "Content-Encoding: gzip"],
      ["200", "Content-Encoding: br", "Content-Length: 5"],
      ["200", "Content-Encoding: identity, gzip"],
      ["200", "Content-Length: 5", "Content-Length: 6"],
      ["200", "Content-Length: -5"],
      ["200", "Content-Length: 99999999999999999999"],
      ["200", "Content-Range: bytes 100-199/1000", "Content-Length: 100"],
      ["200", "Content-Range: bytes 0-4/5", "Content-Length: 6"],
      ["200", "Content-Length: 9223372036854775807"],
      ["204"], ["205"], ["202"], ["226"], ["304"], ["412"], ["300"], ["302"], ["301", "Location:"], ["101"], ["600"],
      ["0"],
    ])
  func refuses(lines: [String]) {
    let failure = failure(judge(["HTTP/1.1 \(lines[0]) x"] + lines.dropFirst()))
    #expect(failure?.kind == .unusable)
    #expect(failure?.message.contains("http://host/file") == true)
  }

  @Test("A part that was not asked for") func unaskedPart() {
    #expect(failure(judge(["HTTP/1.1 206 x", "Content-Range: bytes 0-9/10"], range: nil))?.kind == .unusable)
  }

  @Test("An open end takes what comes") func openEnd() {
    let verdict = judge(["HTTP/1.1 206 x", "Content-Range: bytes 5-9/10"], range: ByteRange(5, .max))
    #expect(body(verdict) == .part(ByteRange(5, 10), total: 10))
  }

  @Test(
    "Statuses",
    arguments: [
      (401, .denied), (403, .denied), (404, .permanent), (410, .permanent), (451, .permanent), (400, .permanent),
      (405, .permanent), (407, .permanent), (418, .permanent), (408, .transient), (425, .transient), (429, .transient),
      (500, .transient), (502, .transient), (503, .transient), (504, .transient), (599, .transient),
      (416, .unsatisfiable(total: nil)),
    ] as [(Int, TransferFailure.Kind)])
  func statuses(status: Int, kind: TransferFailure.Kind) {
    let failure = failure(judge(["HTTP/1.1 \(status) Whatever", "Retry-After: 3"]))
    #expect(failure?.kind == kind)
    #expect(failure?.status == status)
    #expect(failure?.retryAfter == 3)
  }

  @Test("416 tells the length") func unsatisfiable() {
    let verdict = judge(["HTTP/1.1 416 x", "Content-Range: bytes */99"])
    #expect(failure(verdict)?.kind == .unsatisfiable(total: 99))
  }

  @Test("Redirects", arguments: [301, 302, 303, 307, 308]) func redirects(status: Int) {
    guard case .redirected("/there?x", true) = judge(["HTTP/1.1 \(status) x", "Location:  /there?x "]) else {
      Issue.record("not a redirect that may be stored")
      return
    }
    let stored = ["HTTP/1.1 \(status) x", "Location: /a", "Cache-Control: private, No-Store"]
    guard case .redirected("/a", false) = judge(stored) else {
      Issue.record("not a redirect that may not be stored")
      return
    }
  }

  @Test("A Location is taken byte for byte") func location() {
    var fields = ResponseFields()
    let lines: [[UInt8]] = [
      Array("HTTP/1.1 302 x\r\n".utf8), Array("Location: /a b".utf8) + [0xE9, 0x0D, 0x0A], [0x0D, 0x0A],
    ]
    for line in lines { _ = line.withUnsafeBytes { fields.add(line: $0) } }
    #expect(fields[.location] == "/a%20b%E9")
  }

  @Test("What else a head says") func details() {
    let verdict = judge([
      "HTTP/2 200 ", "ETag: W/\"v1\"", "LAST-MODIFIED: Thu, 01 Jan 1970 00:01:00 GMT", "Content-Type: Video/MP4; a=b",
      "Content-Disposition: attachment;", " filename=\"folded.mp4\"", "no colon here", "X-Other: y",
    ])
    guard case .accepted(let head) = verdict else {
      Issue.record("not accepted")
      return
    }
    #expect(head.validators == Validators(etag: "\"v1\"", etagIsWeak: true, lastModified: 60))
    #expect(head.mediaType == "video/mp4")
    #expect(head.suggestedName == "folded.mp4")
  }

  @Test(
    "The time of the origin's clock, also where a cache answers for it",
    arguments: [
      (["Date: Thu, 01 Jan 1970 00:01:00 GMT"], 60), (["Date: Thu, 01 Jan 1970 00:01:00 GMT", "Age: 3600"], 3660),
      (["Date: Thu, 01 Jan 1970 00:01:00 GMT", "Age: soon"], nil), (["Date: today"], nil), (["Age: 5"], nil), ([], nil),
    ] as [([String], Int64?)])
  func time(fields: [String], time: Int64?) {
    guard case .accepted(let head) = judge(["HTTP/2 200 "] + fields) else { return #expect(Bool(false)) }
    #expect(head.date == time)
  }

  @Test("An interim head is forgotten") func interim() {
    var fields = head(["HTTP/1.1 103 Early Hints", "Content-Length: 5", "ETag: \"wrong\""])
    #expect(fields.isInterim)
    for line in ["HTTP/1.1 200 OK", ""] { _ = Array((line + "\r\n").utf8).withUnsafeBytes { fields.add(line: $0) } }
    #expect(!fields.isInterim)
    #expect(fields[.etag] == nil)
    #expect(fields.bytes > 60)
  }

  @Test("Heads without end are noticed") func endless() {
    var fields = head(["HTTP/1.1 103 x"])
    let line = Array("X-Padding: \(String(repeating: "x", count: 1000))\r\n".utf8)
    for _ in 0..<263 where !fields.isTooLong { _ = line.withUnsafeBytes { fields.add(line: $0) } }
    #expect(fields.isTooLong)
  }

  @Test("Bodies are counted") func meter() {
    var meter = BodyMeter(expected: 10)
    #expect(meter.take(4) == 4)
    #expect(!meter.isComplete)
    #expect(meter.take(10) == 6)
    #expect(meter.isComplete)
    #expect(meter.take(1) == 0)
    #expect(meter.progress == "10 of 10 bytes")
    var unknown = BodyMeter(expected: nil)
    #expect(unknown.take(7) == 7)
    #expect(unknown.isComplete)
  }

  @Test(
    "The codes of libcurl",
    arguments: [
      (CURLE_COULDNT_RESOLVE_HOST, .transient), (CURLE_COULDNT_CONNECT, .transient),
      (CURLE_OPERATION_TIMEDOUT, .transient),
      (CURLE_RECV_ERROR, .transient), (CURLE_SEND_ERROR, .transient), (CURLE_GOT_NOTHING, .transient),
      (CURLE_HTTP2, .transient), (CURLE_HTTP2_STREAM, .transient), (CURLE_PARTIAL_FILE, .transient),
      (CURLE_SSL_CONNECT_ERROR, .transient), (CURLE_PEER_FAILED_VERIFICATION, .permanent),
      (CURLE_SSL_CACERT_BADFILE, .permanent), (CURLE_URL_MALFORMAT, .permanent), (CURLE_WEIRD_SERVER_REPLY, .unusable),
      (CURLE_UNSUPPORTED_PROTOCOL, .unusable),
    ] as [(CURLcode, TransferFailure.Kind)])
  func codes(code: CURLcode, kind: TransferFailure.Kind) {
    let found = failure(of: code, detail: "", url: "http://host/file", progress: nil)
    #expect(found.kind == kind)
    #expect(found.message.hasPrefix("http://host/file: "))
    let later = failure(of: code, detail: "its words", url: "http://host/file", progress: "1 of 2 bytes")
    #expect(later.kind == .transient)
    #expect(later.message.contains("its words"))
  }

  @Test(
    "What a proxy's answer to CONNECT means, whatever libcurl calls it",
    arguments: [(407, "the proxy needs a login"), (403, "the proxy refuses"), (405, "the proxy refuses")])
  func refusalsOfProxies(status: Int, words: String) {
    for code in [CURLE_RECV_ERROR, CURLE_COULDNT_CONNECT, CURLE_PROXY] {
      let found = failure(of: code, detail: "", url: "https://host/file", progress: nil, connectStatus: status)
      #expect(found.kind == .permanent && found.status == nil && found.message.contains(words), "\(found)")
      // No proxy, a tunnel that was there before the connection broke, and what passes.
      for other in [0, 200, 429, 503] {
        let passing = failure(of: code, detail: "", url: "https://host/file", progress: nil, connectStatus: other)
        #expect(passing.kind == .transient, "\(passing)")
      }
    }
  }
}
