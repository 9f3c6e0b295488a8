import Base
import Glibc
import Testing

@testable import Fetching

/// What the loop makes of what servers answer, redirects included.
extension TransferLoopTests {
  @Test("Bodies without a length, chunked and to the end of the connection") func unknownLengths() throws {
    try withServer({ request, connection in
      switch request.path {
      case "/chunked":
        return connection.send(
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: a\r\n\r\n")
      case "/cut":
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n wo")
        return false
      default:
        connection.send("HTTP/1.0 200 OK\r\n\r\nhello world")
        return false
      }
    }) { client, server in
      let chunked = client.get(server.url("/chunked"), 5..<9)
      #expect(chunked.isFinished)
      #expect(chunked.head?.body == .whole(length: nil))
      #expect(chunked.bytes == Array("hello world".utf8))
      let closed = client.get(server.url("/closed"))
      #expect(closed.isFinished)
      #expect(closed.head?.httpVersion == 10)
      #expect(closed.bytes == Array("hello world".utf8))
      let cut = client.get(server.url("/cut"))
      #expect(cut.failure?.kind == .transient)
      #expect(cut.bytes == Array("hello wo".utf8))
    }
  }

  @Test("Interim responses are passed over") func interim() throws {
    try withServer({ request, connection in
      connection.send(["HTTP/1.1 103 Early Hints", "ETag: \"wrong\""])
      connection.send(["HTTP/1.1 100 Continue"])
      return serveRange(request, connection, size: 100)
    }) { client, server in
      let record = client.get(server.url("/"), 0..<100)
      #expect(record.isFinished)
      #expect(record.head?.validators.etag == nil)
      #expect(record.bytes == pattern(0..<100))
    }
  }

  @Test("A header line without end is refused in its own words") func endlessLine() throws {
    try withServer({ _, connection in
      connection.send("HTTP/1.1 200 OK\r\nX-Filler: ")
      while connection.send(String(repeating: "x", count: 16 << 10)) {}
      return false
    }) { client, server in
      let failure = client.get(server.url("/"), 0..<100).failure
      #expect(failure?.kind == .unusable)
      #expect(failure?.status == 200)
      #expect(failure?.message.contains("a header line of more than 100 KiB") == true)
      #expect(failure?.message.contains("list another URL") == true)
      #expect(failure?.message.lowercased().contains("memory") == false)
    }
  }

  @Test("A redirect to another origin gets nothing that is the entry's") func redirectStrips() throws {
    let other = ScriptedServer { serveRange($0, $1, size: 1000) }
    defer { other.stop() }
    let target = other.url("/real?sig=1")
    try withServer({ request, connection in
      switch request.path {
      case "/start":
        connection.send(["HTTP/1.1 301 x", "Location: step", "Content-Length: 4"], body: Array("gone".utf8))
      default:
        connection.send(
          ["HTTP/1.1 302 x", "Location: \(target)", "Transfer-Encoding: chunked"], body: Array("0\r\n\r\n".utf8))
      }
    }) { client, server in
      let home = "http://user:pass@127.0.0.1:\(server.port)/start"
      let adjust = { (request: inout TransferRequest) in
        request.headers = [HTTPHeader(name: "X-Key", value: "secret")]
        request.referer = "http://from/"
        request.userAgent = "agent/1"
        request.ifRange = "\"v\""
      }
      let record = client.get(home, 10..<20, change: adjust)
      #expect(record.isFinished)
      #expect(record.bytes == pattern(10..<20))
      #expect(record.head?.url == target)
      #expect(record.head?.isRedirected == true)
      #expect(server.seen.map(\.path) == ["/start", "/step"])
      #expect(server.connections == 1)  // the bodies of redirects were read to keep it
      for request in server.seen {
        #expect(request.fields["authorization"] == "Basic dXNlcjpwYXNz")
        #expect(request.fields["x-key"] == "secret")
        #expect(request.fields["referer"] == "http://from/")
      }
      // The remembered URL later: the same rule.
      #expect(client.get(target, 20..<30, home: home, change: adjust).isFinished)
      #expect(other.seen.count == 2)
      for request in other.seen {
        #expect(request.fields["authorization"] == nil)
        #expect(request.fields["x-key"] == nil)
        #expect(request.fields["referer"] == nil)
        #expect(request.fields["user-agent"] == "agent/1")
        #expect(request.fields["if-range"] == "\"v\"")
        #expect(request.fields["range"] != nil)
      }
    }
  }

  @Test("Redirects that lead nowhere") func badRedirects() throws {
    try withServer({ request, connection in
      let location =
        switch request.path {
        case "/loop": "/loop2"
        case "/loop2": "/loop"
        case "/ftp": "ftp://127.0.0.1/x"
        case "/file": "file:///etc/passwd"
        case "/missing": nil as String?
        default: request.path + "x"  // without end
        }
      return connection.send(
        ["HTTP/1.1 302 x", "Content-Length: 0"] + (location.map { ["Location: \($0)"] } ?? []))
    }) { client, server in
      for path in ["/loop", "/ftp", "/file", "/far"] {
        let failure = client.get(server.url(path), 0..<1).failure
        #expect(failure?.kind == .permanent, "\(path)")
      }
      #expect(client.get(server.url("/missing"), 0..<1).failure?.kind == .unusable)
      #expect(server.seen.filter { $0.path.hasPrefix("/far") }.count == 11)
    }
  }

  @Test("A redirect whose body never comes is followed all the same") func stuckRedirect() throws {
    try withServer({ request, connection in
      if request.path == "/ok" { return serveRange(request, connection, size: 10) }
      connection.send(["HTTP/1.1 302 x", "Location: /ok", "Content-Length: 100"])
      connection.waitForClose()
      return false
    }) { client, server in
      #expect(client.get(server.url("/a"), 0..<10).bytes == pattern(0..<10))
    }
  }

  @Test("Answers that must not be believed") func wrongAnswers() throws {
    try withServer({ request, connection in
      switch request.path {
      case "/shifted":
        return connection.send(
          ["HTTP/1.1 206 x", "Content-Range: bytes 1-10/50", "Content-Length: 10"], body: pattern(1..<11))
      case "/gzip":
        return connection.send(
          ["HTTP/1.1 200 x", "Content-Encoding: gzip", "Content-Length: 10"], body: pattern(0..<10))
      case "/none": return connection.send(["HTTP/1.1 206 x", "Content-Length: 10"], body: pattern(0..<10))
      case "/garbage":
        connection.send("this is not HTTP\r\n\r\nat all\r\n")
        return false
      case "/headers":
        connection.send("HTTP/1.1 200 OK\r\n")
        let line = "X: \(String(repeating: "y", count: 1000))\r\n"
        while connection.send(line) {}
        return false
      case "/line":
        connection.send("HTTP/1.1 200 OK\r\nX: ")
        let part = String(repeating: "y", count: 10_000)
        while connection.send(part) {}
        return false
      case "/trailers":
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n")
        let line = "X: \(String(repeating: "y", count: 1000))\r\n"
        while connection.send(line) {}
        return false
      default: return false
      }
    }) { client, server in
      for path in ["/shifted", "/gzip", "/none", "/garbage", "/headers"] {
        let record = client.get(server.url(path), 0..<10)
        #expect(record.failure?.kind == .unusable, "\(path): \(record.failure?.message ?? "none")")
        #expect(record.head == nil)
        #expect(record.bytes.isEmpty)
      }
      #expect(client.get(server.url("/line"), 0..<10).failure != nil)
      let trailers = client.get(server.url("/trailers"), 0..<10)
      #expect(trailers.failure != nil)
      #expect(trailers.bytes == Array("hi".utf8))
    }
  }

  @Test("A body longer than announced is cut, a shorter one fails") func lengths() throws {
    try withServer({ request, connection in
      switch request.path {
      case "/long":
        // Chunked, so that only the Content-Range tells.
        connection.send(["HTTP/1.1 206 x", "Content-Range: bytes 0-9/50", "Transfer-Encoding: chunked"])
        return connection.send(Array("14\r\n".utf8) + pattern(0..<20) + Array("\r\n0\r\n\r\n".utf8))
      case "/short":
        connection.send(["HTTP/1.1 206 x", "Content-Range: bytes 0-9/50", "Transfer-Encoding: chunked"])
        return connection.send(Array("5\r\n".utf8) + pattern(0..<5) + Array("\r\n0\r\n\r\n".utf8))
      case "/reset":
        connection.send(["HTTP/1.1 206 x", "Content-Range: bytes 0-9/50", "Content-Length: 10"], body: pattern(0..<5))
        usleep(50_000)
        connection.armReset()
        return false
      default:  // closed
        connection.send(["HTTP/1.1 206 x", "Content-Range: bytes 0-9/50", "Content-Length: 10"], body: pattern(0..<5))
        return false
      }
    }) { client, server in
      let long = client.get(server.url("/long"), 0..<10)
      #expect(long.failure?.kind == .unusable)
      #expect(long.bytes == pattern(0..<10))
      for path in ["/short", "/closed", "/reset"] {
        let record = client.get(server.url(path), 0..<10)
        #expect(record.failure?.kind == .transient, "\(path)")
        #expect(record.failure?.message.contains("5 of 10 bytes") == true, "\(record.failure?.message ?? "")")
        #expect(record.bytes == pattern(0..<5))
      }
    }
  }

  @Test("Statuses with their waits") func statuses() throws {
    try withServer({ request, connection in
      let status = request.path.dropFirst()
      return connection.send(
        ["HTTP/1.1 \(status) x", "Retry-After: 5", "Content-Range: bytes */77", "Content-Length: 3"], body: [1, 2, 3])
    }) { client, server in
      let busy = client.get(server.url("/503?token=secret"), 0..<10).failure
      #expect(busy?.kind == .transient)
      #expect(busy?.retryAfter == 5)
      #expect(busy?.message.contains("secret") == false)
      #expect(client.get(server.url("/403"), 0..<10).failure?.kind == .denied)
      #expect(client.get(server.url("/404"), 0..<10).failure?.kind == .permanent)
      #expect(client.get(server.url("/416"), 90..<99).failure?.kind == .unsatisfiable(total: 77))
      #expect(server.connections == 1)
    }
  }
}
