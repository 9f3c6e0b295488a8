import Base
import Glibc
import Testing

@testable import Fetching

/// The loop against servers of the test's own, on loopback.
@Suite("The transfer loop")
struct TransferLoopTests {
  @Test("Cancelled from within a callback, by the client and by another transfer's bytes") func cancelsInCallback()
    throws
  {
    try withServer({ request, connection in
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
    try withServer({ serveRange($0, $1, size: 100) }) { client, server in
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
    try withServer({ request, connection in
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
    try withServer({ request, connection in
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
    try withServer({ serveRange($0, $1, size: 1_000_000) }) { client, server in
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
      private let isGone: Lock<Bool>
      init(_ isGone: Lock<Bool>) { self.isGone = isGone }
      deinit { isGone.withLock { $0 = true } }
      func turn(now: Instant) -> Instant { .never }
      func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool { true }
      func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool { true }
      func transfer(_ id: TransferID, ended end: TransferEnd) {}
    }
    let isGone = Lock(false)
    do {
      let forgotten = try TransferLoop(options: TransferOptions())
      try forgotten.run { _ in Idle(isGone) }
    }
    eventually { isGone.withLock { $0 } }
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

  @Test("A netrc file is looked at every few seconds at most, and read again when it changed") func netrc() throws {
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
    try withServer({ serveRange($0, $1, size: 100) }, options: options) { client, server in
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      #expect(server.seen.map { $0.fields["authorization"] } == ["Basic YTox"])
    }
    var file = try NetrcFile(named: path)
    let start = Instant.now
    func password(after seconds: Double) -> String? {
      file.logins(now: start.adding(seconds: seconds))?.login(host: "127.0.0.1")?.password
    }
    #expect(password(after: 0) == "1")
    try write("machine 127.0.0.1 login a password 22")
    #expect(password(after: 4) == "1")
    #expect(password(after: 6) == "22")
    unlink(path)
    #expect(password(after: 9) == "22")
    #expect(password(after: 12) == nil)
  }

  @Test("The time of the first byte leaves out the connecting, and the loop waits rather than turns") func timing()
    throws
  {
    try withServer({ request, connection in
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
      let (former, start) = (client.turns, Instant.now)
      usleep(100_000)
      let turns = client.turns - former
      // On a busy machine more time passes than was asked for. A loop that spins makes a hundred thousand a second.
      #expect(Double(turns) < 5000 * Instant.now.seconds(since: start), "\(turns) turns")
    }
  }
}
