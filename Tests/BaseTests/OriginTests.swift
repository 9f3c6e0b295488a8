import Base
import TestSupport
import Testing

/// What a client saw of one request: its head's lines (status line first), its body, how the connection ended.
struct Answer {
  var lines: [String]
  var body: [UInt8]
  var end: RawClient.End

  var status: Int { lines.first.flatMap { Int($0.split(separator: " ").dropFirst().first ?? "") } ?? 0 }

  func field(_ name: String) -> String? {
    lines.dropFirst().first { $0.lowercased().hasPrefix(name.lowercased() + ":") }
      .map { String($0[$0.index($0.firstIndex(of: ":")!, offsetBy: 2)...]) }
  }
}

extension Origin {
  /// One request over a connection of its own that the origin is asked to close, read to the end (or `count` bytes of
  /// body).
  func ask(
    _ target: String, method: String = "GET", fields: [String] = [], count: Int = .max, timeout: Double = 10
  ) throws -> Answer {
    let client = try RawClient(port: port)
    let extra = (fields + ["Connection: close"]).map { "\($0)\r\n" }.joined()
    try client.send("\(method) \(target) HTTP/1.1\r\nHost: test\r\n\(extra)\r\n")
    let head = client.receiveHead(timeout: timeout)
    if head.end != .filled { return Answer(lines: head.lines, body: [], end: head.end) }
    let rest = client.receive(count, timeout: timeout)
    return Answer(lines: head.lines, body: rest.bytes, end: rest.end)
  }
}

/// The origin when it does everything right.
@Suite struct OriginTests {
  @Test func servesWholesAndParts() throws {
    try withOrigin { origin in
      origin.add("/a.mp4", size: 300_000)
      let whole = try origin.ask("/a.mp4")
      #expect(whole.status == 200 && whole.body.count == 300_000)
      #expect(Pattern.check(whole.body, name: "/a.mp4", offset: 0) == nil)
      #expect(whole.field("Content-Type") == "video/mp4" && whole.field("Accept-Ranges") == "bytes")
      #expect(whole.field("Content-Length") == "300000" && whole.end == .closed)
      for (asked, start, end) in [
        ("bytes=0-0", 0, 1), ("bytes=100-", 100, 300_000), ("bytes=-5", 299_995, 300_000),
        ("bytes=299999-999999", 299_999, 300_000), ("bytes=-999999", 0, 300_000),
      ] {
        let part = try origin.ask("/a.mp4", fields: ["Range: \(asked)"])
        #expect(part.status == 206 && part.field("Content-Range") == "bytes \(start)-\(end - 1)/300000")
        #expect(part.body.count == end - start)
        #expect(Pattern.check(part.body, name: "/a.mp4", offset: Int64(start)) == nil)
      }
      let behind = try origin.ask("/a.mp4", fields: ["Range: bytes=300000-"])
      #expect(behind.status == 416 && behind.field("Content-Range") == "bytes */300000")
      #expect(try origin.ask("/a.mp4", fields: ["Range: lines=1-2"]).status == 200)
      #expect(try origin.ask("/none").status == 404)
      #expect(try origin.ask("/a.mp4", method: "POST").status == 405)
      let head = try origin.ask("/a.mp4", method: "HEAD")
      #expect(head.status == 200 && head.body.isEmpty && head.field("Content-Length") == "300000")
    }
  }

  @Test func servesEmptyAndHugeFiles() throws {
    try withOrigin { origin in
      origin.add("/empty", size: 0)
      origin.add("/huge", size: 1 << 60)
      #expect(try origin.ask("/empty").status == 200)
      let empty = try origin.ask("/empty", fields: ["Range: bytes=0-"])
      #expect(empty.status == 416 && empty.field("Content-Range") == "bytes */0")
      let offset = Int64(1) << 59 + 3
      let part = try origin.ask("/huge", fields: ["Range: bytes=\(offset)-\(offset + 99)"])
      #expect(part.field("Content-Range") == "bytes \(offset)-\(offset + 99)/\(Int64(1) << 60)")
      #expect(Pattern.check(part.body, name: "/huge", offset: offset) == nil)
    }
  }

  @Test func servesFilesBytesAndDecodedPaths() throws {
    try withTemporaryFolder { folder in
      try withOrigin { origin in
        try folder.write("content", to: "sub dir/a.txt")
        origin.serve(folder: folder.path, at: "/files/")
        origin.set("/häuser", OriginResource(bytes: Array("bytes".utf8)))
        let file = try origin.ask("/files/sub%20dir/a.txt", fields: ["Range: bytes=3-"])
        #expect(file.status == 206 && String(decoding: file.body, as: UTF8.self) == "tent")
        #expect(file.field("Content-Type") == "text/plain" && file.field("ETag") != nil)
        #expect(try origin.ask("/files/../../etc/passwd").status == 404)
        #expect(try origin.ask("/files/sub%20dir").status == 404)
        #expect(try origin.ask("/h%C3%A4user?query").body == Array("bytes".utf8))
      }
    }
  }

  @Test func validatorsAndIfRange() throws {
    try withOrigin { origin in
      origin.add("/a", size: 1000)
      let first = try origin.ask("/a", method: "HEAD")
      let tag = try #require(first.field("ETag"))
      let date = try #require(first.field("Last-Modified"))
      let range = "Range: bytes=10-19"
      #expect(try origin.ask("/a", fields: [range, "If-Range: \(tag)"]).status == 206)
      #expect(try origin.ask("/a", fields: [range, "If-Range: \(date)"]).status == 206)
      #expect(try origin.ask("/a", fields: [range, "If-Range: W/\(tag)"]).status == 200)
      origin.nextGeneration("/a", size: 900)
      let changed = try origin.ask("/a", fields: [range, "If-Range: \(tag)"])
      #expect(changed.status == 200 && changed.body.count == 900 && changed.field("ETag") != tag)
      #expect(changed.field("Last-Modified") != date)
      #expect(Pattern.check(changed.body, name: "/a", generation: 2, offset: 0) == nil)
      #expect(try origin.ask("/a", fields: [range, "If-Range: \(date)"]).status == 200)
      origin.change("/a") { $0.tag = .weak }
      #expect(try origin.ask("/a").field("ETag")?.hasPrefix("W/\"") == true)
      origin.change("/a") {
        $0.tag = .none
        $0.modified = nil
        $0.disposition = "attachment; filename=\"x.mkv\""
      }
      let bare = try origin.ask("/a")
      #expect(bare.field("ETag") == nil && bare.field("Last-Modified") == nil)
      #expect(bare.field("Content-Disposition") == "attachment; filename=\"x.mkv\"")
    }
  }

  @Test func keepsConnections() throws {
    try withOrigin { origin in
      origin.add("/a", size: 10)
      let client = try RawClient(port: origin.port)
      // Two at once: the second is answered behind the first.
      try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      for _ in 0..<2 {
        #expect(client.receiveHead().lines.first == "HTTP/1.1 200 OK")
        #expect(Pattern.check(client.receive(10).bytes, name: "/a", offset: 0) == nil)
      }
      try client.send("GET /a HTTP/1.0\r\nHost: x\r\n\r\n")
      _ = client.receiveHead()
      #expect(client.receive().end == .closed)
      #expect(origin.log.entries.map(\.request.indexOnConnection) == [1, 2, 3])
      #expect(Set(origin.log.entries.map(\.request.connection)).count == 1)
      #expect(origin.log.totals.connections == 1)
    }
  }

  @Test func logsWhatWasAskedAndSent() throws {
    try withOrigin { origin in
      origin.add("/a", size: 1000)
      _ = try origin.ask("/a?x=1", fields: ["Range: bytes=0-99", "X-Token: t"])
      _ = try origin.ask("/a", fields: ["Range: bytes=50-149"])
      _ = try origin.ask("/a", fields: ["Range: bytes=60-69"])
      #expect(eventually { origin.log.totals.openConnections == 0 })
      let entry = try #require(origin.log.entries(of: "/a").first)
      #expect(entry.request.target == "/a?x=1" && entry.request.header("x-token") == "t")
      #expect(entry.request.range == ByteRange(0, 100) && entry.status == 206 && entry.end == .complete)
      #expect(entry.sent.map(\.range) == [ByteRange(0, 100)] && entry.sent.first?.generation == 1)
      let coverage = origin.log.coverage(of: "/a")
      let runs = coverage.runs.map { "\($0.range)x\($0.times)" }
      #expect(runs == ["[0, 50)x1", "[50, 60)x2", "[60, 70)x3", "[70, 100)x2", "[100, 150)x1"])
      #expect(coverage.bytesSent == 210 && coverage.distinctBytes == 150 && coverage.bytesSentAgain == 60)
      #expect(origin.log.sentMoreThanOnce(of: "/a").ranges == [ByteRange(50, 100)])
      #expect(origin.log.totals.bytesSent == 210 && origin.log.totals.peakConnections == 1)
      origin.log.reset()
      #expect(origin.log.entries.isEmpty && origin.log.totals.bytesSent == 0)
    }
  }

  @Test func servesHundredsOfConnectionsAtOnce() throws {
    try withOrigin { origin in
      origin.add("/a", size: 50_000)
      // All of them wait here until every one is there, which only that many threads can.
      origin.decide { [log = origin.log] _ in
        _ = eventually(timeout: 60, interval: 0.1) { log.totals.peakRequests == 300 }
        return []
      }
      let wrong = Lock(0)
      let threads = (0..<300).map { index in
        OwnedThread(name: "client-\(index)") {
          do {
            let answer = try origin.ask("/a", timeout: 90)
            if answer.body.count != 50_000 || Pattern.check(answer.body, name: "/a", offset: 0) != nil {
              wrong.withLock { $0 += 1 }
            }
          } catch {
            wrong.withLock { $0 += 1 }
          }
        }
      }
      for thread in threads { thread.join() }
      #expect(wrong.withLock { $0 } == 0)
      #expect(origin.log.totals.peakRequests == 300)
    }
  }

  @Test func stopEndsEverythingAtOnce() throws {
    let origin = try Origin()
    origin.add("/a", size: 1 << 40)
    origin.fault(.stallAfter(10))
    let client = try RawClient(port: origin.port)
    try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    _ = client.receiveHead()
    _ = client.receive(10)
    let before = Instant.now
    origin.stop()
    origin.stop()
    #expect(Instant.now.seconds(since: before) < 20)
    #expect(client.receive().end == .closed)
    #expect(!RawClient.isAccepted(port: origin.port))
    #expect(origin.log.entries.first?.end == .stopped)
  }
}
