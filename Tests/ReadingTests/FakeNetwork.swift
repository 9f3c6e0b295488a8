import Base
import Fetching
import TestSupport

/// A server's TCP connections over one line with a router's queue, in simulated time: slow start, losses, what idle
/// connections forget, and TLS records, which a client has whole or not at all. Over HTTP/2 one connection brings all
/// responses, one after the other.
///
/// As Linux does it: CUBIC (RFC 9438) with HyStart, a smaller congestion window after idleness (RFC 2861), losses that
/// a later acknowledgement shows, and a probe for the last packet (RFC 8985). Sizes of windows are in packets. Losses
/// do not slow a server that `keepsRate`, as one with BBR.
final class FakeNetwork {
  /// Bytes of a packet without its headers, and those of the headers.
  private static let packet: Int64 = 1448
  private static let headers: Int64 = 52
  /// Bytes of a TLS record.
  static let record: Int64 = 16 << 10
  /// Round trips before the first request of a new connection is sent: TCP's, and two of TLS 1.2.
  private static let handshake = 3.0
  private static let firstWindow = 10.0
  /// Bytes that a server's socket takes beyond those that were sent. Beside a copy nginx's had 1.1 to 1.9 MB, together
  /// with those that were not acknowledged.
  private static let socket: Int64 = 1 << 20
  /// What is left of a window after a loss.
  private static let kept = 0.7
  private static let cubic = 0.4

  fileprivate struct Sent {
    var order: Int
    var range: ByteRange
    var at: Double
  }

  /// A response: where it lies in what its connection brings.
  final class Response {
    let connection: Connection
    let begun: Int64
    fileprivate let end: Int64
    fileprivate init(_ connection: Connection, _ count: Int64) {
      self.connection = connection
      begun = connection.asked
      end = begun + count
      connection.asked = end
    }
  }

  final class Connection {
    let number: Int
    /// When its first request can be sent.
    let readyAt: Double
    let isMultiplexed: Bool
    fileprivate var isBusy = true
    fileprivate var isClosed = false
    /// The end of all that was asked for, and of what the server has been asked for.
    fileprivate var asked: Int64 = 0
    fileprivate var end: Int64 = 0
    fileprivate var sentEnd: Int64 = 0
    fileprivate var arrived = ByteRangeSet()
    /// What the client gave up.
    fileprivate var given = ByteRangeSet()
    fileprivate var outstanding: [Sent] = []
    fileprivate var lost: [ByteRange] = []
    /// How many packets came after one that was lost.
    fileprivate(set) var misordered = 0
    fileprivate var lastSent = -1.0
    fileprivate var hasProbed = false
    fileprivate var control: Control
    fileprivate init(number: Int, readyAt: Double, isMultiplexed: Bool, keepsRate: Bool) {
      control = Control(keepsRate: keepsRate)
      self.number = number
      self.readyAt = readyAt
      self.isMultiplexed = isMultiplexed
    }
  }

  /// What bounds the packets of a connection that are not acknowledged.
  fileprivate struct Control {
    private let keepsRate: Bool
    var window = FakeNetwork.firstWindow
    var threshold = Double.infinity
    /// The window before the last loss, and since when it grows back.
    var most = 0.0
    var epoch: Double?
    /// No further loss counts until this packet is acknowledged.
    var recovery = -1
    var smoothed = 0.0
    var least = Double.infinity
    /// The most packets that were out at once, and whether the window held some back.
    var mostOut = 0
    var isLimited = false
    private var roundEnd = 0
    private var roundBegan = 0.0
    private var roundLeast = Double.infinity
    private var samples = 0
    private var lastAcknowledged = 0.0

    init(keepsRate: Bool) { self.keepsRate = keepsRate }

    var timeout: Double { smoothed + max(0.2, smoothed / 4) }

    mutating func rested(_ idle: Double) {
      if let epoch { self.epoch = epoch + idle }
      guard smoothed > 0, idle > timeout else { return }
      threshold = max(threshold, 0.75 * window)
      var left = idle
      while left > timeout, window > FakeNetwork.firstWindow {
        left -= timeout
        window = max(window / 2, FakeNetwork.firstWindow)
      }
      mostOut = 0
    }

    mutating func acknowledged(_ order: Int, after seconds: Double, newest: Int, _ now: Double) {
      if keepsRate {
        // It leaves about a quarter of a round trip's bytes in the queue.
        let goal = 1.25 * least / seconds
        if goal < 1 { window -= 1 - goal } else if window < 2 * Double(mostOut) { window += 1 }
        return
      }
      guard order >= recovery else { return }
      if window < threshold {
        leaveSlowStart(order, seconds, newest, now)
        if window < 2 * Double(mostOut) { window += 1 }
        return
      }
      guard isLimited else { return }
      let began = epoch ?? now
      epoch = began
      most = max(most, window)
      let elapsed = now - began
      let rise = elapsed + least - (most * (1 - FakeNetwork.kept) / FakeNetwork.cubic).cubeRoot
      let reno = most * FakeNetwork.kept + 0.53 * elapsed / smoothed
      let goal = min(max(FakeNetwork.cubic * rise * rise * rise + most, reno), 1.5 * window)
      window += max(goal - window, 0.01) / window
    }

    /// HyStart: the delay grows, or the acknowledgements come for half of a round trip without a pause.
    private mutating func leaveSlowStart(_ order: Int, _ seconds: Double, _ newest: Int, _ now: Double) {
      if order > roundEnd {
        (roundEnd, roundBegan, roundLeast, samples) = (newest, now, .infinity, 0)
        lastAcknowledged = now
      }
      samples += 1
      roundLeast = min(roundLeast, seconds)
      guard window >= 16 else { return }
      if now - lastAcknowledged <= 0.002 {
        lastAcknowledged = now
        if now - roundBegan > least / 2 { threshold = window }
      }
      if samples > 8, roundLeast >= least + min(max(least / 8, 0.004), 0.016) { threshold = window }
    }

    mutating func lost(_ order: Int, newest: Int) {
      guard order > recovery, !keepsRate else { return }
      recovery = newest
      most = window < most ? window * 0.85 : window
      window = max(2, window * FakeNetwork.kept)
      threshold = window
      epoch = nil
    }

    mutating func timedOut() {
      threshold = max(2, window * FakeNetwork.kept)
      window = 1
      epoch = nil
    }
  }

  private struct Packet {
    var connection: Connection
    var sent: Sent
    var arrives: Double
  }
  private struct Request {
    var connection: Connection
    var count: Int64
    var arrives: Double
  }

  /// Bytes a second, the least seconds from a request to its first byte, and how many bytes wait in front of the line
  /// at most: what comes then is lost.
  private let rate: Double
  private let trip: Double
  private let queue: Double
  /// The part of the packets that the line loses.
  private let loss: Double
  private let keepsRate: Bool
  private var random: SeededRandom
  private var spare = FakeSpare()
  private var connections: [Connection] = []
  /// How many connections were made.
  private(set) var made = 0
  private var requests: [Request] = []
  /// In the order in which they leave the queue; the first `arrived` are at the client.
  private var packets: [Packet] = []
  private var arrived = 0
  /// When the line has sent what waits in front of it.
  private var free = 0.0
  private var order = 0

  init(rate: Double, trip: Double, queue: Double, loss: Double = 0, keepsRate: Bool = false, seed: UInt64 = 1) {
    self.keepsRate = keepsRate
    self.rate = rate
    self.trip = trip
    self.queue = queue
    self.loss = loss
    random = SeededRandom(seed: seed)
  }

  /// A request for so many bytes. Like libcurl it takes the oldest connection that is free, or that of HTTP/2.
  func request(_ request: TransferRequest, isMultiplexed: Bool, at now: Double) -> Response {
    let count = request.range?.count ?? 0
    let connection: Connection
    let isFree = { (connection: Connection) in
      connection.isMultiplexed == isMultiplexed && (isMultiplexed || !connection.isBusy)
    }
    if let free = connections.first(where: isFree), !request.isFresh {
      connection = free
    } else {
      made += 1
      // Of a spare connection TCP's handshake is over, that of TLS is not.
      let trips = Self.handshake - (spare.take(at: now) ? 1 : 0)
      if request.opensAnother { spare.make(readyAt: now + trip) }
      connection = Connection(
        number: made, readyAt: now + trips * trip, isMultiplexed: isMultiplexed, keepsRate: keepsRate)
      connections.append(connection)
    }
    connection.isBusy = true
    requests.append(Request(connection: connection, count: count, arrives: max(now, connection.readyAt) + trip / 2))
    return Response(connection, count)
  }

  /// The response was taken.
  func finish(_ response: Response) { response.connection.isBusy = false }

  /// The client ends a response before its end: over HTTP/2 the server sends no more of it than its socket holds,
  /// otherwise the connection is closed.
  func close(_ response: Response) {
    let connection = response.connection
    if connection.isMultiplexed {
      let written = connection.sentEnd + Self.socket
      connection.given.insert(ByteRange(min(max(response.begun, written), response.end), response.end))
      return
    }
    connection.isClosed = true
    connections.removeAll { $0 === connection }
    requests.removeAll { $0.connection === connection }
  }

  /// How many bytes of the response under way the client can use: whole records, or all.
  func usable(_ response: Response) -> Int64 {
    let (begun, end) = (response.begun, response.end)
    let there = response.connection.arrived.firstGap(in: ByteRange(begun, max(begun, end)))?.start ?? end
    return there == end ? end - begun : (there - begun) / Self.record * Self.record
  }

  func move(to now: Double) {
    var acknowledged = 0
    while true {
      let next = requests.indices.min { requests[$0].arrives < requests[$1].arrives }
      let asked = next.map { requests[$0].arrives } ?? .infinity
      let heard = acknowledged < packets.count ? packets[acknowledged].arrives + trip / 2 : .infinity
      if min(asked, heard) > now { break }
      if let next, asked <= heard {
        let request = requests.remove(at: next)
        begin(request.connection, request.count, asked)
      } else {
        acknowledge(packets[acknowledged].connection, packets[acknowledged].sent, heard)
        acknowledged += 1
      }
    }
    for connection in connections { probe(connection, now) }
    while arrived < packets.count, packets[arrived].arrives <= now {
      packets[arrived].connection.arrived.insert(packets[arrived].sent.range)
      arrived += 1
    }
    packets.removeFirst(acknowledged)
    arrived -= acknowledged
  }

  private func begin(_ connection: Connection, _ count: Int64, _ now: Double) {
    connection.end += count
    if connection.outstanding.isEmpty { connection.control.rested(now - connection.lastSent) }
    send(connection, now)
  }

  private func send(_ connection: Connection, _ now: Double) {
    guard !connection.isClosed else { return }
    while Double(connection.outstanding.count) < connection.control.window.rounded(.down) {
      if !connection.lost.isEmpty {
        put(connection, connection.lost.removeFirst(), now)
      } else if let next = connection.given.firstGap(in: ByteRange(connection.sentEnd, connection.end)) {
        let range = ByteRange(next.start, min(next.start + Self.packet, next.end))
        connection.sentEnd = range.end
        put(connection, range, now)
      } else {
        connection.control.isLimited = false
        return
      }
    }
    connection.control.isLimited = true
  }

  private func put(_ connection: Connection, _ range: ByteRange, _ now: Double) {
    order += 1
    let sent = Sent(order: order, range: range, at: now)
    connection.outstanding.append(sent)
    connection.control.mostOut = max(connection.control.mostOut, connection.outstanding.count)
    connection.lastSent = now
    let bytes = Double(range.count + Self.headers)
    let begins = max(now, free)
    if (begins - now) * rate + bytes > queue { return }
    free = begins + bytes / rate
    if loss > 0, Double.random(in: 0..<1, using: &random) < loss { return }
    packets.append(Packet(connection: connection, sent: sent, arrives: free + trip / 2))
  }

  private func acknowledge(_ connection: Connection, _ sent: Sent, _ now: Double) {
    guard !connection.isClosed, let index = connection.outstanding.firstIndex(where: { $0.order == sent.order })
    else { return }
    let seconds = now - sent.at
    connection.hasProbed = false
    let smoothed = connection.control.smoothed
    connection.control.smoothed = smoothed == 0 ? seconds : smoothed * 0.875 + seconds * 0.125
    connection.control.least = min(connection.control.least, seconds)
    // Packets stay in order: those that were sent before it are lost.
    let lost = connection.outstanding[..<index]
    connection.lost += lost.map(\.range)
    if !lost.isEmpty { connection.misordered += 1 }
    if let first = lost.first { connection.control.lost(first.order, newest: order) }
    connection.outstanding.removeFirst(index + 1)
    connection.control.acknowledged(sent.order, after: seconds, newest: order, now)
    send(connection, now)
  }

  /// Looks after packets that no acknowledgement tells of any more.
  private func probe(_ connection: Connection, _ now: Double) {
    guard let last = connection.outstanding.last else { return }
    let waited = now - connection.lastSent
    if !connection.hasProbed, waited > 2 * max(connection.control.smoothed, trip) {
      connection.hasProbed = true
      put(connection, last.range, now)
    } else if connection.hasProbed, waited > max(0.2 + trip, connection.control.timeout) {
      connection.lost = connection.outstanding.map(\.range)
      connection.outstanding = []
      connection.control.timedOut()
      connection.hasProbed = false
      send(connection, now)
    }
  }
}

extension Double {
  /// By Newton's steps.
  fileprivate var cubeRoot: Double {
    var root = max(self, 0.001) / 3 + 0.3
    for _ in 0..<40 { root -= (root * root * root - self) / (3 * root * root) }
    return root
  }
}
