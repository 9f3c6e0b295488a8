import Base
import Glibc
import Testing

@testable import Fetching

/// Connections: made, kept, lost, and those that never come.
extension TransferLoopTests {
  @Test("Ranges over one kept connection") func keepsConnections() throws {
    try withServer({ serveRange($0, $1, size: 100_000, extra: ["ETag: \"v\"", "Content-Type: Audio/FLAC; x=y"]) }) {
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

  @Test("The kernel counts packets out of order for each transfer's connection, until the transfer is over")
  func misorderedPackets() throws {
    try withServer({ serveRange($0, $1, size: 100_000) }) { client, server in
      let counts = Lock<[Int?]>([])
      client.onBytes { commands, id in
        counts.withLock { $0.append(commands.misorderedPackets(of: id)) }
        return true
      }
      client.onEnd { commands, id in
        let (known, unknown) = (commands.misorderedPackets(of: id), commands.misorderedPackets(of: TransferID(9999)))
        counts.withLock { $0 += [known, unknown] }
      }
      for _ in 0..<2 { #expect(client.get(server.url("/a"), 0..<500).isFinished) }
      // On loopback none is out of order.
      #expect(counts.withLock { $0 } == [0, nil, nil, 0, nil, nil])
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
    #expect(failure?.message.contains("the connection was not established in time") == true)
    #expect(failure?.message.contains("secret") == false)
  }

  @Test("A name that does not resolve holds up nobody") func slowName() throws {
    try withServer({ serveRange($0, $1, size: 100) }) { client, server in
      let stuck = client.start("http://nonexistent.invalid/secret?key=1", 0..<10)
      let other = client.get(server.url("/"), 0..<10)
      #expect(other.isFinished)
      client.perform { $0.cancel(stuck) }
      let record = client.wait(stuck)
      #expect(record.isCancelled || record.failure?.kind == .transient)
      #expect(client.get(server.url("/"), 10..<20).isFinished)
    }
  }

  @Test("The connection limit of options is kept") func keptConnections() throws {
    var options = TransferOptions()
    options.keptConnections = 2
    try withServer({ serveRange($0, $1, size: 100) }, options: options) { client, server in
      for id in (0..<8).map({ client.start(server.url("/\($0)"), 0..<10) }) { #expect(client.wait(id).isFinished) }
      let before = server.connections
      #expect(client.get(server.url("/"), 0..<10).head?.reusedConnection == true)
      #expect(server.connections == before)
    }
  }

  @Test("A connection that died while idle costs nothing but a new one") func deadIdle() throws {
    try withServer({ request, connection in
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
    try withServer({ request, connection in
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

  @Test("The receive buffer is set before the connection is made") func receiveBuffer() throws {
    // Seen from the sender: with a small buffer at the other end, little can be on its way unread.
    let sent = Lock(0)
    try withServer({ request, connection in
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
