import Base
import TestSupport
import Testing

/// Rates and latencies: bounds from below only, which a loaded machine cannot break, and shares among connections.
@Suite struct OriginShapingTests {
  @Test func latencyStandsBeforeTheFirstByte() throws {
    var settings = OriginSettings()
    settings.latency = 0.15
    settings.acceptDelay = 0.1
    try withOrigin(settings) { origin in
      origin.add("/a", size: 10)
      let before = Instant.now
      try #expect(origin.ask("/a").status == 200)
      #expect(Instant.now.seconds(since: before) >= 0.25)
    }
  }

  @Test func aConnectionKeepsItsRate() throws {
    var settings = OriginSettings()
    settings.connectionRate = 1_000_000
    try withOrigin(settings) { origin in
      origin.add("/a", size: 400_000)
      let before = Instant.now
      try #expect(origin.ask("/a").body.count == 400_000)
      #expect(Instant.now.seconds(since: before) >= 0.38)
    }
  }

  @Test func theLineIsSharedEvenly() throws {
    var settings = OriginSettings()
    settings.lineRate = 2_000_000
    try withOrigin(settings) { origin in
      origin.add("/a", size: 1 << 40)
      let start = Lock<Instant?>(nil)
      let counts = Lock<[Int]>([])
      let threads = (0..<4).map { index in
        OwnedThread(name: "client-\(index)") {
          do {
            let client = try RawClient(port: origin.port)
            try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            _ = client.receiveHead()
            start.withLock { if $0 == nil { $0 = .now } }
            let received = client.receive(timeout: 1.5)
            counts.withLock { $0.append(received.bytes.count) }
          } catch {
            Issue.record(error)
          }
        }
      }
      for thread in threads { thread.join() }
      let seconds = Instant.now.seconds(since: try #require(start.withLock { $0 }))
      let all = counts.withLock { $0 }
      let sum = all.reduce(0, +)
      #expect(all.count == 4)
      // No more than the line carries (and its 5 ms of credit), and nobody far from a fourth of what came.
      #expect(Double(sum) <= 2_000_000 * (seconds + 0.05), "\(all)")
      for count in all { #expect(abs(count - sum / 4) < sum / 20, "\(all)") }
    }
  }

  @Test func whoDoesNotReadTakesNoPartOfTheLine() throws {
    var settings = OriginSettings()
    settings.lineRate = 4_000_000
    try withOrigin(settings) { origin in
      origin.add("/a", size: 1 << 40)
      origin.add("/b", size: 1_000_000)
      let idle = try RawClient(port: origin.port)
      try idle.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      // Until its buffers are full: then nothing is written to it any more.
      var last: Int64 = -1
      try waitUntil(timeout: 30, interval: 0.3, "the idle client's buffers to be full") {
        defer { last = origin.log.bytesSent(of: "/a") }
        return origin.log.bytesSent(of: "/a") == last && last > 0
      }
      #expect(try origin.ask("/b").body.count == 1_000_000)
      #expect(origin.log.bytesSent(of: "/a") == last)
    }
  }

  @Test func connectionsAboveTheMaximumAreTurnedAway() throws {
    var settings = OriginSettings()
    settings.maxConnections = 1
    try withOrigin(settings) { origin in
      origin.add("/a", size: 10)
      let first = try RawClient(port: origin.port)
      try first.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      #expect(first.receiveHead().lines.first == "HTTP/1.1 200 OK")
      let second = try RawClient(port: origin.port)
      #expect([.reset, .closed].contains(second.receive().end))
      origin.configure { $0.aboveMaximum = .serviceUnavailable }
      let third = try origin.ask("/a")
      #expect(third.status == 503 && third.end == .closed)
      #expect(origin.log.totals.turnedAway == 2 && origin.log.totals.peakConnections == 1)
    }
  }

  @Test func aFrozenNetworkSaysNothing() throws {
    try withOrigin { origin in
      origin.add("/a", size: 10)
      origin.configure { $0.isFrozen = true }
      let client = try RawClient(port: origin.port)
      try client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      #expect(client.receive(1, timeout: 0.2).end == .timedOut)
      origin.configure { $0.isFrozen = false }
      #expect(client.receiveHead().lines.first == "HTTP/1.1 200 OK")
    }
  }
}
