import Base
import Glibc
import Testing

@testable import Fetching

/// Connections that are made before a request needs them, and those that leave idle ones to others.
extension TransferLoopTests {
  /// Serves `/slow` once `goesOn` says so, and everything else at once.
  private func withSlowServer(
    _ head: String = "HTTP/1.1 206 Partial Content", kept: Double = 60, isSerial: Bool = false,
    _ body: (RecordingClient, ScriptedServer, _ goOn: () -> Void) throws -> Void
  ) throws {
    let goesOn = Lock(false)
    var options = TransferOptions()
    options.spareSeconds = kept
    try withServer(
      { request, connection in
        if request.path == "/slow" { eventually { goesOn.withLock { $0 } } }
        let fields = ["Content-Length: 10", "Content-Range: bytes 0-9/100"]
        return connection.send([head] + fields, body: pattern(0..<10)) && head.hasPrefix("HTTP/1.1")
      }, options: options, isSerial: isSerial
    ) { client, server in
      defer { goesOn.withLock { $0 = true } }
      try body(client, server) { goesOn.withLock { $0 = true } }
    }
  }

  @Test("A second connection is there before a request needs it, and the next new one is that")
  func makesTwo() throws {
    try withSlowServer { client, server, goOn in
      let first = client.start(server.url("/slow"), 0..<10) { $0.opensAnother = true }
      eventually { server.connections == 2 && server.seen.count == 1 }
      let second = client.get(server.url("/fast"), 0..<10)
      #expect(second.isFinished && second.head?.reusedConnection == false)
      goOn()
      #expect(client.wait(first).isFinished)
      // A third at once with both would be a third connection: these go over the two that are idle.
      for _ in 0..<3 { #expect(client.get(server.url("/fast"), 0..<10).head?.reusedConnection == true) }
      #expect(server.connections == 2)
      #expect(Set(server.seen.map(\.connection)).count == 2)
    }
  }

  @Test("Only who says so makes a second one, and only where it finds none that is idle")
  func makesOne() throws {
    try withSlowServer { client, server, _ in
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      #expect(client.get(server.url("/"), 0..<10) { $0.opensAnother = true }.head?.reusedConnection == true)
      #expect(server.connections == 1)
    }
  }

  @Test("Requests that come together make no connection more than they need")
  func makesNoThird() throws {
    try withSlowServer { client, server, goOn in
      let urls = (0..<3).map { _ in server.url("/slow") }
      let requests = urls.enumerated().map { number, url in
        var request = TransferRequest(id: client.newID(), url: url, range: ByteRange(0, 10))
        request.opensAnother = number == 0
        return request
      }
      client.perform { commands in for request in requests { commands.start(request) } }
      eventually { server.seen.count == 3 }
      goOn()
      for request in requests { #expect(client.wait(request.id).isFinished) }
      // A request later, it would have been made.
      #expect(client.get(server.url("/fast"), 0..<10).isFinished)
      #expect(server.connections == 3)
    }
  }

  @Test("A second connection that nobody needs is closed")
  func closesUnused() throws {
    try withSlowServer(kept: 0.2) { client, server, _ in
      #expect(client.get(server.url("/"), 0..<10) { $0.opensAnother = true }.isFinished)
      eventually { server.connections == 2 }
      eventually { server.open == 1 }
      #expect(client.get(server.url("/"), 0..<10).head?.reusedConnection == true)
    }
  }

  @Test("Of an origin whose connections end with each response, none is kept")
  func closesAfterOldHTTP() throws {
    try withSlowServer("HTTP/1.0 206 Partial Content") { client, server, _ in
      #expect(client.get(server.url("/"), 0..<10) { $0.opensAnother = true }.isFinished)
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      #expect(Set(server.seen.map(\.connection)).count == 2 && server.connections == 3, "the second was closed")
    }
  }

  @Test("A server that takes one connection after the other gets the request's own first")
  func comesSecond() throws {
    try withSlowServer("HTTP/1.0 206 Partial Content", isSerial: true) { client, server, _ in
      for _ in 0..<3 { #expect(client.get(server.url("/"), 0..<10) { $0.opensAnother = true }.isFinished) }
      #expect(server.seen.map(\.connection) == [1, 3, 5])
    }
  }

  @Test("A request whose spare connection the server closes is made once more")
  func repeats() throws {
    let goesOn = Lock(false)
    var options = TransferOptions()
    options.spareSeconds = 60
    try withServer(
      { request, connection in
        if request.path == "/slow" { eventually { goesOn.withLock { $0 } } }
        // As when the end of a connection and a request on it cross each other.
        if request.path == "/fast", request.connection == 2 { return false }
        return serveRange(request, connection, size: 100)
      }, options: options
    ) { client, server in
      defer { goesOn.withLock { $0 = true } }
      let first = client.start(server.url("/slow"), 0..<10) { $0.opensAnother = true }
      eventually { server.connections == 2 && server.seen.count == 1 }
      let second = client.get(server.url("/fast"), 0..<10)
      #expect(second.isFinished, "\(second.failure?.message ?? "")")
      #expect(server.seen.map(\.connection) == [1, 2, 3])
      goesOn.withLock { $0 = true }
      #expect(client.wait(first).isFinished)
    }
  }

  @Test("A redirect takes the wish for a second connection, and for a fresh one, no further")
  func redirects() throws {
    try withServer({ serveRange($0, $1, size: 100) }) { client, there in
      let target = there.url("/there")
      let server = ScriptedServer { _, connection in
        connection.send(["HTTP/1.1 302 Found", "Location: \(target)", "Content-Length: 0"])
      }
      defer { server.stop() }
      #expect(client.get(server.url("/"), 0..<10) { $0.opensAnother = true }.isFinished)
      #expect(client.get(server.url("/"), 0..<10) { $0.isFresh = true }.head?.reusedConnection == true)
      #expect(there.connections == 1)
    }
  }

  @Test("Only the request on the spare connection is made once more, not that to which it was redirected")
  func repeatsOnlyThere() throws {
    let goesOn = Lock(false)
    var options = TransferOptions()
    options.spareSeconds = 60
    let dead = ScriptedServer { _, _ in false }
    defer { dead.stop() }
    let target = dead.url("/there")
    try withServer(
      { request, connection in
        if request.path == "/slow" { eventually { goesOn.withLock { $0 } } }
        if request.path != "/away" { return serveRange(request, connection, size: 100) }
        return connection.send(["HTTP/1.1 302 Found", "Location: \(target)", "Content-Length: 0"])
      }, options: options
    ) { client, server in
      defer { goesOn.withLock { $0 = true } }
      let first = client.start(server.url("/slow"), 0..<10) { $0.opensAnother = true }
      eventually { server.connections == 2 && server.seen.count == 1 }
      #expect(client.get(server.url("/away"), 0..<10).failure?.kind == .transient)
      #expect(server.connections == 2 && dead.seen.count == 1)
      goesOn.withLock { $0 = true }
      #expect(client.wait(first).isFinished)
    }
  }

  @Test("One that the server closed is not taken")
  func leavesDead() throws {
    let goesOn = Lock(false)
    var options = TransferOptions()
    options.spareSeconds = 60
    try withServer(
      { request, connection in
        if request.path == "/slow" { eventually { goesOn.withLock { $0 } } }
        return serveRange(request, connection, size: 100)
      }, options: options
    ) { client, server in
      defer { goesOn.withLock { $0 = true } }
      let first = client.start(server.url("/slow"), 0..<10) { $0.opensAnother = true }
      eventually { server.connections == 2 && server.seen.count == 1 }
      server.closeSilent()
      eventually { server.open == 1 }
      let second = client.get(server.url("/fast"), 0..<10)
      #expect(second.isFinished, "\(second.failure?.message ?? "")")
      #expect(server.connections == 3)
      goesOn.withLock { $0 = true }
      #expect(client.wait(first).isFinished)
    }
  }

  @Test("A fresh request leaves the idle connection to others")
  func fresh() throws {
    try withServer({ serveRange($0, $1, size: 100) }) { client, server in
      #expect(client.get(server.url("/"), 0..<10).isFinished)
      let fresh = client.get(server.url("/"), 0..<10) { $0.isFresh = true }
      #expect(fresh.isFinished && fresh.head?.reusedConnection == false)
      #expect(client.get(server.url("/"), 0..<10).head?.reusedConnection == true)
      #expect(server.connections == 2)
      #expect(server.seen.last?.connection == 1, "libcurl takes the one that was made first")
    }
  }
}
