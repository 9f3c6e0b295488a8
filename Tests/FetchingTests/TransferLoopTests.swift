import Base
import Glibc
import Testing

@testable import Fetching

/// The loop against servers of the test's own, on loopback.
@Suite("The transfer loop")
struct TransferLoopTests {
  private func with(
    _ script: @escaping ScriptedServer.Script, options: TransferOptions = TransferOptions(),
    _ body: (RecordingClient, ScriptedServer) throws -> Void
  ) throws {
    let server = ScriptedServer(script)
    defer { server.stop() }
    let client = try RecordingClient(options)
    defer { client.loop.stop() }
    try body(client, server)
  }

  @Test("Ranges over one kept connection") func keepsConnections() throws {
    try with({ serveRange($0, $1, size: 100_000, extra: ["ETag: \"v\"", "Content-Type: Audio/FLAC; x=y"]) }) {
      client, server in
      for step in 0..<5 {
        let start = Int64(step * 1000)
        let record = client.get(server.url("/a"), start..<start + 500) { $0.ifRange = "\"v\"" }
        #expect(record.isFinished)
        #expect(record.misplaced == 0)
        #expect(record.bytes == pattern(Int(start)..<Int(start) + 500))
        #expect(record.head?.body == .part(ByteRange(start, start + 500), total: 100_000))
        #expect(record.head?.validators == Validators(etag: "\"v\""))
        #expect(record.head?.mediaType == "audio/flac")
        #expect(record.head?.reusedConnection == (step > 0))
        #expect(record.head?.httpVersion == 11)
        #expect(record.head?.isRedirected == false)
      }
      #expect(server.connections == 1)
      #expect(server.seen.allSatisfy { $0.fields["accept-encoding"] == "identity" })
      #expect(server.seen.allSatisfy { $0.fields["if-range"] == "\"v\"" })
      #expect(server.seen.allSatisfy { $0.fields["authorization"] == nil })
      #expect(server.seen.first?.fields["range"] == "bytes=0-499")
    }
  }

  @Test("Bodies without a length, chunked and to the end of the connection") func unknownLengths() throws {
    try with({ request, connection in
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
    try with({ request, connection in
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

  @Test("A redirect to another origin gets nothing that is the entry's") func redirectStrips() throws {
    let other = ScriptedServer { serveRange($0, $1, size: 1000) }
    defer { other.stop() }
    let target = other.url("/real?sig=1")
    try with({ request, connection in
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
    try with({ request, connection in
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
    try with({ request, connection in
      if request.path == "/ok" { return serveRange(request, connection, size: 10) }
      connection.send(["HTTP/1.1 302 x", "Location: /ok", "Content-Length: 100"])
      connection.waitForClose()
      return false
    }) { client, server in
      #expect(client.get(server.url("/a"), 0..<10).bytes == pattern(0..<10))
    }
  }

  @Test("Answers that must not be believed") func wrongAnswers() throws {
    try with({ request, connection in
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
    try with({ request, connection in
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
    try with({ request, connection in
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

  @Test("Nobody there") func unreachable() throws {
    let server = ScriptedServer { _, _ in false }
    let url = server.url("/")
    server.stop()
    let client = try RecordingClient()
    defer { client.loop.stop() }
    #expect(client.get(url, 0..<1).failure?.kind == .transient)
    #expect(client.get("ftp://127.0.0.1/", 0..<1).failure?.kind == .permanent)
    #expect(client.get("nonsense", 0..<1).failure?.kind == .permanent)
  }

  @Test("A connection that does not come is given up in time") func connectTimeout() throws {
    // A listener whose queue is full: the kernel drops what else wants to connect.
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(listener) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    var fillers: [Int32] = []
    defer { for descriptor in fillers { close(descriptor) } }
    withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        #expect(bind(listener, address, length) == 0 && listen(listener, 0) == 0)
        #expect(getsockname(listener, address, &length) == 0)
        for _ in 0..<4 {
          let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
          fillers.append(descriptor)
          _ = connect(descriptor, address, length)
        }
      }
    }
    var options = TransferOptions()
    options.connectTimeout = 0.2
    let client = try RecordingClient(options)
    defer { client.loop.stop() }
    let failure = client.get("http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))/?key=secret", 0..<1).failure
    #expect(failure?.kind == .transient)
    #expect(failure?.message.contains("no connection in time") == true)
    #expect(failure?.message.contains("secret") == false)
  }

  @Test("A name that does not resolve holds up nobody") func slowName() throws {
    try with({ serveRange($0, $1, size: 100) }) { client, server in
      let stuck = client.start("http://nonexistent.invalid/secret?key=1", 0..<10)
      let other = client.get(server.url("/"), 0..<10)
      #expect(other.isFinished)
      client.perform { $0.cancel(stuck) }
      let record = client.wait(stuck)
      #expect(record.isCancelled || record.failure?.kind == .transient)
      #expect(client.get(server.url("/"), 10..<20).isFinished)
    }
  }

  @Test("Cancelled from within a callback, by the client and by another transfer's bytes") func cancelsInCallback()
    throws
  {
    try with({ request, connection in
      if request.path == "/short" { return serveRange(request, connection, size: 100) }
      connection.send(["HTTP/1.1 200 OK", "Content-Length: 100000000"])
      let block = pattern(0..<65536)
      while connection.send(block) {}
      return false
    }) { client, server in
      client.onBytes { _, _ in false }
      let dropped = client.get(server.url("/long"))
      #expect(dropped.isCancelled)
      #expect(!dropped.bytes.isEmpty)
      client.onBytes { loop, id in
        loop.cancel(id)
        loop.cancel(id)
        return true
      }
      let cancelled = client.get(server.url("/long"))
      #expect(cancelled.isCancelled)
      #expect(cancelled.misplaced == 0)
      client.onHead { _, _ in false }
      let refused = client.get(server.url("/long"))
      #expect(refused.isCancelled)
      #expect(refused.bytes.isEmpty)
      client.onHead { _, _ in true }

      // A short transfer's bytes cancel a long one and start a third.
      client.onBytes { _, _ in true }
      let long = client.start(server.url("/long"))
      eventually { !client.record(long).bytes.isEmpty }
      let third = client.newID()
      let url = server.url("/short")
      client.onBytes { loop, id in
        if id != long && id != third {
          loop.cancel(long)
          loop.start(TransferRequest(id: third, url: url, range: ByteRange(50, 60)))
        }
        return true
      }
      #expect(client.get(server.url("/short"), 0..<10).isFinished)
      #expect(client.wait(long).isCancelled)
      #expect(client.wait(third).bytes == pattern(50..<60))
      #expect(client.record(long).misplaced == 0)
    }
  }

  @Test("Cancelling what has not begun, is over, or never was") func cancelsOddly() throws {
    try with({ serveRange($0, $1, size: 100) }) { client, server in
      let id = client.newID()
      let url = server.url("/")
      client.perform { loop in
        loop.start(TransferRequest(id: id, url: url, range: ByteRange(0, 10)))
        loop.cancel(id)
        loop.cancel(TransferID(999_999))
      }
      #expect(client.wait(id).isCancelled)
      client.perform { $0.cancel(id) }
      #expect(client.get(url, 0..<10).isFinished)
      #expect(client.record(id).misplaced == 0)
    }
  }

  @Test("What libcurl has read is handed over at once, not in its pieces") func gathered() throws {
    let isSent = Lock(false)
    try with({ request, connection in
      connection.send(["HTTP/1.1 200 OK", "Content-Length: 100000"])
      connection.send(pattern(0..<100_000))  // no more than the sockets' buffers hold
      isSent.withLock { $0 = true }
      return true
    }) { client, server in
      client.onHead { _, _ in
        eventually { isSent.withLock { $0 } }
        return true
      }
      let record = client.get(server.url("/"))
      #expect(record.isFinished)
      let isRight = record.bytes == pattern(0..<100_000)
      #expect(isRight)
      #expect(record.largestPiece > 32_768)
    }
  }

  @Test("Dropped with its last bytes, when nothing more comes") func droppedAtRest() throws {
    try with({ request, connection in
      connection.send(["HTTP/1.1 200 OK", "Content-Length: 100000"])
      connection.send(pattern(0..<1000))
      connection.waitForClose()
      return false
    }) { client, server in
      client.onBytes { _, _ in false }
      let record = client.get(server.url("/"))
      #expect(record.isCancelled)
      #expect(record.misplaced == 0)
      #expect(record.bytes.count == 1000)
    }
  }

  @Test("A hundred at once") func parallel() throws {
    try with({ serveRange($0, $1, size: 1_000_000) }) { client, server in
      let ids = (0..<100).map { client.start(server.url("/\($0)"), Int64($0 * 1000)..<Int64($0 * 1000 + 50_000)) }
      for (index, id) in ids.enumerated() {
        let record = client.wait(id)
        #expect(record.isFinished)
        #expect(record.misplaced == 0)
        let isRight = record.bytes == pattern(index * 1000..<index * 1000 + 50_000)
        #expect(isRight)
      }
      // Kept connections, as many as the options say, are used again.
      let before = server.connections
      for step in 0..<20 { #expect(client.get(server.url("/"), Int64(step)..<Int64(step) + 1).isFinished) }
      #expect(server.connections == before)
    }
  }

  @Test("The connection limit of options is kept") func keptConnections() throws {
    var options = TransferOptions()
    options.keptConnections = 2
    try with({ serveRange($0, $1, size: 100) }, options: options) { client, server in
      for id in (0..<8).map({ client.start(server.url("/\($0)"), 0..<10) }) { #expect(client.wait(id).isFinished) }
      let before = server.connections
      #expect(client.get(server.url("/"), 0..<10).head?.reusedConnection == true)
      #expect(server.connections == before)
    }
  }

  @Test("A connection that died while idle costs nothing but a new one") func deadIdle() throws {
    try with({ request, connection in
      _ = serveRange(request, connection, size: 100)
      return request.path != "/last"
    }) { client, server in
      #expect(client.get(server.url("/last"), 0..<10).isFinished)
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      #expect(server.connections == 2)
      client.perform { $0.dropConnections() }
      #expect(client.get(server.url("/"), 0..<10).head?.reusedConnection == false)
      #expect(server.connections == 3)
    }
  }

  @Test("Dropping connections fails what is under way") func drops() throws {
    try with({ request, connection in
      connection.send(["HTTP/1.1 200 OK", "Content-Length: 100"], body: [1])
      connection.waitForClose()
      return false
    }) { client, server in
      let id = client.start(server.url("/"))
      eventually { !client.record(id).bytes.isEmpty }
      client.perform { $0.dropConnections() }
      #expect(client.wait(id).failure?.kind == .transient)
    }
  }

  @Test("Stopped during transfers, and while clients start more") func stops() throws {
    let server = ScriptedServer { request, connection in
      connection.send(["HTTP/1.1 200 OK", "Content-Length: 100000000"])
      let block = pattern(0..<65536)
      while connection.send(block) {}
      return false
    }
    defer { server.stop() }
    let client = try RecordingClient()
    let url = server.url("/")
    let ids = (0..<8).map { _ in client.start(url) }
    for id in ids { eventually { client.record(id).head != nil } }
    let extra = client.newID()
    client.onEnd { loop, id in loop.start(TransferRequest(id: TransferID(id.rawValue + 1000), url: url, range: nil)) }
    client.perform { $0.start(TransferRequest(id: extra, url: "http://nonexistent.invalid/", range: nil)) }
    client.loop.stop()
    client.loop.stop()
    for id in ids {
      #expect(client.record(id).isCancelled)
      #expect(client.record(id).misplaced == 0)
    }
    client.loop.wake()
  }

  @Test("A loop that never ran, and one that nobody stops") func lifetimes() throws {
    let loop = try TransferLoop(options: TransferOptions())
    loop.wake()
    loop.stop()
    final class Idle: TransferClient {
      func turn(now: Instant) -> Instant { .never }
      func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool { true }
      func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool { true }
      func transfer(_ id: TransferID, ended end: TransferEnd) {}
    }
    var client: Idle? = Idle()
    weak let gone = client
    do {
      let forgotten = try TransferLoop(options: TransferOptions())
      forgotten.run(client: try #require(client))
    }
    client = nil
    eventually { gone == nil }
  }

  @Test("Files of the options that cannot be read") func badOptions() {
    var options = TransferOptions()
    options.certificateFile = "/nonexistent/ca.pem"
    let certificate = #expect(throws: FetchError.self) { _ = try TransferLoop(options: options) }
    #expect(certificate?.description.contains("--cacert") == true)
    options = TransferOptions()
    options.netrcFile = "/nonexistent/netrc"
    let netrc = #expect(throws: FetchError.self) { _ = try TransferLoop(options: options) }
    #expect(netrc?.description.contains("--netrc-file") == true)
  }

  @Test("A netrc file is read again when it changes") func netrc() throws {
    let path = "/tmp/mediafs-netrc-\(getpid())-\(UInt64.random(in: 0 ... .max))"
    func write(_ text: String) throws {
      unlink(path)
      let file = try FileDescriptor.open(path, O_WRONLY | O_CREAT | O_EXCL)
      try Array(text.utf8).withUnsafeBytes { try file.writeFully($0, at: 0) }
    }
    try write("machine 127.0.0.1 login a password 1")
    defer { unlink(path) }
    var options = TransferOptions()
    options.netrcFile = path
    try with({ serveRange($0, $1, size: 100) }, options: options) { client, server in
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      try write("machine 127.0.0.1 login a password 22")
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      #expect(server.seen.map { $0.fields["authorization"] } == ["Basic YTox", "Basic YToyMg=="])
    }
  }

  @Test("The time of the first byte leaves out the connecting, and the loop waits rather than turns") func timing()
    throws
  {
    try with({ request, connection in
      usleep(200_000)
      return serveRange(request, connection, size: 100)
    }) { client, server in
      let before = client.turns
      let record = client.get(server.url("/"), 0..<10)
      #expect((record.head?.firstByteSeconds ?? 0) >= 0.2)
      // A loop that spins makes thousands of turns in 200 ms.
      #expect(client.turns - before < 60)
      client.setDeadline(.now)  // one that is always past must not make it spin either
      client.loop.wake()
      let start = client.turns
      usleep(100_000)
      #expect(client.turns - start < 500)
    }
  }

  @Test("The receive buffer is set before the connection is made") func receiveBuffer() throws {
    // Seen from the sender: with a small buffer at the other end, little can be on its way unread.
    let sent = Lock(0)
    try with({ request, connection in
      connection.send(["HTTP/1.1 200 OK", "Content-Length: 100000000"])
      var size: Int32 = 16 << 10
      setsockopt(connection.descriptor, SOL_SOCKET, SO_SNDBUF, &size, 4)
      while connection.send(pattern(0..<4096)) { sent.withLock { $0 += 4096 } }
      return false
    }) { client, server in
      let release = Lock(false)
      client.onHead { _, _ in
        // Holds the loop for once, so that the network fills up to what the buffers take.
        var last = -1
        while last != sent.withLock({ $0 }) {
          last = sent.withLock { $0 }
          usleep(300_000)
        }
        release.withLock { $0 = true }
        return false
      }
      #expect(client.get(server.url("/")) { $0.receiveBuffer = 32 << 10 }.isCancelled)
      #expect(release.withLock { $0 })
      let small = sent.withLock { $0 }
      #expect(small < 512 << 10)
    }
  }
}
