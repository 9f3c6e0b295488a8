import Base
import Glibc
import TestSupport
import Testing

/// Every fault, as a client sees it.
@Suite struct OriginFaultTests {
  private let range = "Range: bytes=100-199"

  /// An origin with 100 kB at /a and those faults for all requests.
  private func with(_ faults: OriginFault..., body: (Origin) throws -> Void) throws {
    try withOrigin { origin in
      origin.add("/a", size: 100_000)
      origin.fault(faults)
      try body(origin)
    }
  }

  // MARK: The connection

  @Test func downRefusesUntilUp() throws {
    try with { origin in
      let open = try RawClient(port: origin.port)
      try open.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      _ = open.receiveHead()
      try origin.setUp(false)
      #expect(throws: Errno(rawValue: ECONNREFUSED)) { _ = try RawClient(port: origin.port) }
      #expect(open.receive(100_000).end == .filled, "open connections stay")
      origin.dropConnections()
      #expect(open.receive().end == .reset)
      try origin.setUp(true)
      #expect(try origin.ask("/a").status == 200)
    }
  }

  @Test func goDownComesBackByItself() throws {
    try with { origin in
      origin.fault(.goDown(seconds: 3), next: 1)
      try #expect(origin.ask("/a").end == .reset)
      #expect(throws: Errno(rawValue: ECONNREFUSED)) { _ = try RawClient(port: origin.port) }
      #expect(eventually { RawClient.isAccepted(port: origin.port) })
      try #expect(origin.ask("/a").status == 200)
    }
  }

  @Test func breaksOffBeforeTheHead() throws {
    try with(.resetBeforeHeaders) { origin in
      let answer = try origin.ask("/a")
      #expect(answer.end == .reset && answer.lines.isEmpty)
      #expect(eventually { origin.log.entries.first?.end == .fault })
    }
    try with(.closeBeforeHeaders) { origin in
      let answer = try origin.ask("/a")
      #expect(answer.end == .closed && answer.lines.isEmpty)
    }
    try with(.stallBeforeHeaders) { origin in
      let answer = try origin.ask("/a", timeout: 0.2)
      #expect(answer.end == .timedOut && answer.lines.isEmpty)
      #expect(eventually { origin.log.entries.first?.end == .clientClosed }, "it sees the client leave")
    }
  }

  @Test func breaksOffInMidBody() throws {
    for (fault, end) in [
      (OriginFault.resetAfter(70_000), RawClient.End.reset), (.closeAfter(70_000), .closed),
      (.stallAfter(70_000), .timedOut),
    ] {
      try with(fault) { origin in
        let answer = try origin.ask("/a", timeout: end == .timedOut ? 3 : 10)
        #expect(answer.status == 200 && answer.field("Content-Length") == "100000")
        #expect(answer.end == end && answer.body.count == 70_000)
        #expect(Pattern.check(answer.body, name: "/a", offset: 0) == nil)
        #expect(origin.log.bytesSent(of: "/a") == 70_000)
      }
    }
  }

  @Test func tricklesFromAByteOn() throws {
    try with(.slow(bytesPerSecond: 20, after: 1000)) { origin in
      let began = Instant.now
      let answer = try origin.ask("/a", timeout: 1)
      let most = 1005 + 20 * Instant.now.seconds(since: began)
      #expect(answer.end == .timedOut && answer.body.count > 1000 && Double(answer.body.count) <= most)
    }
  }

  @Test func headersWithoutEnd() throws {
    try with(.endlessHeaders(bytesPerSecond: 100_000)) { origin in
      let client = try RawClient(port: origin.port)
      try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      let text = String(decoding: client.receive(20_000).bytes, as: UTF8.self)
      #expect(
        text.hasPrefix("HTTP/1.1 200 OK\r\nX-Filler-1: ") && !text.contains("\r\n\r\n") && text.utf8.count == 20_000)
    }
  }

  @Test func aHeaderLineWithoutEnd() throws {
    try with(.endlessHeaderLine) { origin in
      let client = try RawClient(port: origin.port)
      try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      let text = String(decoding: client.receive(200_000).bytes, as: UTF8.self)
      #expect(text.hasPrefix("HTTP/1.1 200 OK\r\nX-Filler: xxx") && text.utf8.count == 200_000)
      #expect(text.split(separator: "\r\n").count == 2, "one line")
    }
  }

  @Test func interimAnswersWithoutEnd() throws {
    try with(.interimAnswers(secondsApart: 0.01)) { origin in
      let client = try RawClient(port: origin.port)
      try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      let answer = "HTTP/1.1 102 Processing\r\n\r\n"
      let text = String(decoding: client.receive(10 * answer.utf8.count).bytes, as: UTF8.self)
      #expect(text == String(repeating: answer, count: 10))
    }
  }

  // MARK: The status

  @Test func statusesWithRetryAfter() throws {
    try with(.status(429, retryAfter: .seconds(7))) { origin in
      let answer = try origin.ask("/a")
      #expect(answer.status == 429 && answer.field("Retry-After") == "7")
    }
    try with(.status(503, retryAfter: .date(secondsAhead: 60))) { origin in
      try #expect(origin.ask("/a").field("Retry-After")?.hasSuffix(" GMT") == true)
    }
  }

  @Test func redirects() throws {
    try with(.redirect(308, to: "file:///etc/passwd")) { origin in
      let answer = try origin.ask("/a")
      #expect(answer.status == 308 && answer.field("Location") == "file:///etc/passwd")
    }
    try withOrigin { other in
      other.add("/there", size: 5000)
      try with { origin in
        origin.fault(.redirect(to: other.url("/there")), path: "/a")
        origin.fault(.redirectLoop(), path: "/loop")
        let followed = try Command.run(["curl", "-sL", origin.url("/a")])
        #expect(Pattern.check(followed.standardOutput, name: "/there", offset: 0) == nil)
        #expect(followed.standardOutput.count == 5000)
        #expect(try Command.run(["curl", "-sL", "--max-redirs", "5", origin.url("/loop")]).status == 47)
        #expect(origin.log.entries(of: "/loop").count == 6)
      }
    }
  }

  @Test func refusesHeadAlone() throws {
    try with(.refuseHead(status: 403)) { origin in
      try #expect(origin.ask("/a", method: "HEAD").status == 403)
      try #expect(origin.ask("/a").status == 200)
    }
  }

  @Test func aPageInsteadOfMedia() throws {
    try with(.page()) { origin in
      let answer = try origin.ask("/a", fields: [range])
      #expect(answer.status == 200 && answer.field("Content-Type")?.hasPrefix("text/html") == true)
      #expect(answer.field("ETag") == nil && String(decoding: answer.body, as: UTF8.self).contains("<html>"))
      #expect(origin.log.bytesSent(of: "/a") == 0, "no byte of the resource")
    }
  }

  @Test func rangeNotSatisfiableForNoReason() throws {
    try with(.rangeNotSatisfiable(total: 5)) { origin in
      let answer = try origin.ask("/a", fields: [range])
      #expect(answer.status == 416 && answer.field("Content-Range") == "bytes */5")
    }
  }

  // MARK: Ranges and framing

  @Test func ignoresRangesAlwaysOrSometimes() throws {
    try with(.ignoreRange()) { origin in
      try #expect(origin.ask("/a", fields: [range]).body.count == 100_000)
    }
    try with(.ignoreRange(everyNth: 2)) { origin in
      let statuses = try (0..<4).map { _ in try origin.ask("/a", fields: [range]).status }
      #expect(statuses == [206, 200, 206, 200])
    }
  }

  @Test func ignoresIfRange() throws {
    try with(.ignoreIfRange) { origin in
      try #expect(origin.ask("/a", fields: [range, "If-Range: \"old\""]).status == 206)
    }
  }

  @Test func mistakesInContentRange() throws {
    for (mistake, field, start, count) in [
      (OriginFault.RangeMistake.otherStart(by: 50), "bytes 150-249/100000", 150, 100),
      (.otherStart(by: -1000), "bytes 0-0/100000", 0, 1), (.shorter(by: 40), "bytes 100-159/100000", 100, 60),
      (.total(7), "bytes 100-199/7", 100, 100), (.unknownTotal, "bytes 100-199/*", 100, 100),
      (.missing, nil as String?, 100, 100), (.text("items 1-2"), "items 1-2", 100, 100),
    ] {
      try with(.contentRange(mistake)) { origin in
        let answer = try origin.ask("/a", fields: [range])
        #expect(answer.status == 206 && answer.field("Content-Range") == field)
        #expect(answer.body.count == count && answer.field("Content-Length") == "\(count)")
        #expect(Pattern.check(answer.body, name: "/a", offset: Int64(start)) == nil)
      }
    }
  }

  @Test func multipart() throws {
    try with(.multipart) { origin in
      let answer = try origin.ask("/a", fields: [range])
      #expect(answer.field("Content-Type") == "multipart/byteranges; boundary=mediafs-test")
      #expect(answer.field("Content-Length") == "\(answer.body.count)" && answer.field("Content-Range") == nil)
      let text = String(decoding: answer.body, as: UTF8.self)
      #expect(text.contains("Content-Range: bytes 100-199/100000") && text.hasSuffix("--mediafs-test--\r\n"))
    }
  }

  /// The origin's header lines as curl writes them down: what curl says of its own is different in each version.
  @Test func framings() throws {
    for (faults, told, isClosed) in [
      ([OriginFault.noContentLength], "HTTP/1.1 206", true), ([.chunked()], "Transfer-Encoding: chunked", false),
      ([.chunked(trailers: true)], "Trailer: X-Trailer", false), ([.http10], "HTTP/1.0 206", true),
      ([.chunked(), .ignoreRange()], "HTTP/1.1 200", false),
    ] {
      try withOrigin { origin in
        origin.add("/a", size: 100_000)
        origin.fault(faults)
        let twice = ["curl", "-s", "-D", "/dev/stderr", "-r", "100-199", origin.url("/a"), origin.url("/a")]
        let result = try Command.run(twice)
        #expect(result.succeeded && result.errors.contains(told), "\(result.errors)")
        let count = result.standardOutput.count / 2
        let isWhole = count == 100_000
        #expect(isWhole || count == 100)
        for body in [result.standardOutput.prefix(count), result.standardOutput.suffix(count)] {
          #expect(Pattern.check(Array(body), name: "/a", offset: isWhole ? 0 : 100) == nil)
        }
        #expect(!result.errors.contains("Content-Length") || told == "HTTP/1.0 206")
        #expect(origin.log.entries.map(\.request.connection) == (isClosed ? [1, 2] : [1, 1]), "\(told)")
      }
    }
  }

  @Test func chunksAndTrailersOnTheWire() throws {
    try with(.chunked(trailers: true)) { origin in
      let body = try origin.ask("/a", fields: ["Range: bytes=0-9"]).body
      #expect(
        body == Array("a\r\n".utf8) + Pattern.bytes(name: "/a", offset: 0, count: 10)
          + Array("\r\n0\r\nX-Trailer: done\r\n\r\n".utf8))
    }
  }

  @Test func contentLengthWrongBothWays() throws {
    try with(.contentLengthOff(by: 10)) { origin in
      let answer = try origin.ask("/a")
      #expect(answer.field("Content-Length") == "100010" && answer.body.count == 100_000 && answer.end == .closed)
      #expect(try Command.run(["curl", "-s", origin.url("/a")]).status == 18, "curl calls it a partial file")
    }
    try with(.contentLengthOff(by: -10)) { origin in
      let answer = try origin.ask("/a")
      #expect(answer.field("Content-Length") == "99990" && answer.body.count == 100_000)
    }
  }

  @Test(arguments: [0, 1, 65_535, 65_536, 300_001]) func gzipNobodyAskedFor(size: Int64) throws {
    try withOrigin { origin in
      origin.add("/a", size: size)
      origin.fault(.gzip)
      let answer = try origin.ask("/a")
      #expect(answer.field("Content-Encoding") == "gzip" && answer.field("Content-Length") == "\(answer.body.count)")
      let unpacked = try Command.run(["gzip", "-dc"], input: answer.body)
      #expect(unpacked.succeeded && unpacked.standardOutput.count == size)
      #expect(Pattern.check(unpacked.standardOutput, name: "/a", offset: 0) == nil)
      #expect(try origin.ask("/a", method: "HEAD").field("Content-Length") == "\(answer.body.count)")
    }
  }

  // MARK: Versions

  @Test func tagsThatFlap() throws {
    try with(.flappingTag(["\"a\"", "\"b\""])) { origin in
      let tags = try (0..<4).map { _ in try origin.ask("/a").field("ETag") }
      #expect(tags == ["\"b\"", "\"a\"", "\"b\"", "\"a\""])
    }
  }

  @Test func changesInMidBody() throws {
    try with { origin in
      origin.fault(.nextGenerationAfter(30_001), next: 1)
      let mixed = try origin.ask("/a")
      #expect(Pattern.check(Array(mixed.body[..<30_001]), name: "/a", generation: 1, offset: 0) == nil)
      #expect(Pattern.check(Array(mixed.body[30_001...]), name: "/a", generation: 2, offset: 30_001) == nil)
      let after = try origin.ask("/a")
      #expect(after.field("ETag") != mixed.field("ETag"))
      #expect(Pattern.check(after.body, name: "/a", generation: 2, offset: 0) == nil)
      #expect(origin.log.coverage(of: "/a", generation: 1).bytesSent == 30_001)
    }
  }

  // MARK: Who gets them

  @Test func theNearestDecisionHolds() throws {
    try with(.status(500)) { origin in
      origin.add("/b", size: 10)
      origin.fault(.status(501), path: "/b")
      origin.fault(.status(502), path: "/b", next: 2)
      origin.fault(.status(503), next: 1)
      let statuses = try (0..<3).map { _ in try origin.ask("/b").status }
      #expect(statuses == [502, 502, 503])
      #expect(try origin.ask("/b").status == 501)
      #expect(try origin.ask("/a").status == 500)
      origin.decide { request in request.path == "/a" ? [] : nil }
      #expect(try origin.ask("/a").status == 200)
      #expect(try origin.ask("/b").status == 501)
      origin.clearFaults()
      #expect(try origin.ask("/b").status == 200)
    }
  }
}
