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

  /// A client in an array.
  private final class Client {
    private let socket: RawClient

    /// Asks for the whole of /a, and takes the answer's head.
    init(_ origin: Origin) throws {
      socket = try RawClient(port: origin.port)
      try socket.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
      _ = socket.receiveHead()
    }

    /// Takes what is there or comes within a millisecond.
    func drain() -> Int { socket.receive(timeout: 0.001).bytes.count }
  }

  @Test func theLineIsSharedEvenly() throws {
    var settings = OriginSettings()
    settings.lineRate = 2_000_000
    settings.sendBuffer = 16 << 10
    try withOrigin(settings) { origin in
      origin.add("/a", size: 1 << 40)
      // One thread reads for all: on a busy machine, threads of their own would not get even shares of its processors.
      let clients = try (0..<4).map { _ in try Client(origin) }
      // What came before all of them were there is not shared by four.
      for _ in 0..<50 { for client in clients { _ = client.drain() } }
      let start = Instant.now
      var counts = [0, 0, 0, 0]
      while counts.reduce(0, +) < 3_000_000 { for index in 0..<4 { counts[index] += clients[index].drain() } }
      let seconds = Instant.now.seconds(since: start)
      let sum = counts.reduce(0, +)
      // No more than the line carries, its 5 ms of credit, and what the buffers of the sockets held (the kernel doubles
      // their sizes).
      #expect(Double(sum) <= 2_000_000 * (seconds + 0.05) + Double(4 * 2 * 16 << 10), "\(counts) in \(seconds) s")
      // Nobody is far from a fourth of what came.
      for count in counts { #expect(abs(count - sum / 4) < sum / 20, "\(counts)") }
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
      // Until its buffers are full: then nothing is written to it any more. A busy machine may hold the origin up for a
      // while: only five looks that see the same say so.
      var (last, same): (Int64, Int) = (-1, 0)
      try waitUntil(timeout: 60, interval: 0.3, "the idle client's buffers to be full") {
        let sent = origin.log.bytesSent(of: "/a")
        same = sent == last && sent > 0 ? same + 1 : 0
        last = sent
        return same == 4
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
