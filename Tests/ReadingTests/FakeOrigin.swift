import Base
import Fetching
import TestSupport

import Reading

/// A resource at an origin that does what a test says. Its bytes are the pattern of its name and version.
struct FakeResource {
  var name: String
  var version: UInt64 = 1
  var size: Int64
  var etag: String? = "\"1\""
  var isWeak = false
  var lastModified: Int64? = 1_600_000_000
  var mediaType: String? = "video/mp4"
  /// Answers 200 with the whole to a ranged request.
  var ignoresRanges = false
  /// Says neither in 200 nor in 206 how long it is.
  var hidesLength = false
  /// Ends a body early, as finished, though no length was told: what chunked coding allows.
  var endsEarly: Int64?
  /// Fails so far behind a body's start.
  var breaksAfter: Int64?
  /// Sends nothing any more so far behind a body's start.
  var stallsAfter: Int64?
  /// Sends nothing at all.
  var isSilent = false
  /// What it answers instead.
  var failure: TransferFailure?
  /// Answers 200 to any request that has If-Range.
  var distrustsIfRange = false
  var httpVersion = 11
  /// The URL that answers in the end; nil: the one that was asked.
  var redirect: String?
  /// Bytes a second of one transfer.
  var rate: Double = 4_000_000
  /// Seconds from the request to the head.
  var latency = 0.02

  /// The same resource with other bytes.
  mutating func change(size: Int64? = nil) {
    version += 1
    etag = etag.map { _ in "\"\(version)\"" }
    lastModified = lastModified.map { $0 + 1 }
    if let size { self.size = size }
  }

  static let gone = TransferFailure(kind: .permanent, status: 404, message: "the origin does not have it (HTTP 404)")
  static let reset = TransferFailure(kind: .transient, message: "the connection was reset")
  static let odd = TransferFailure(kind: .unusable, status: 206, message: "another range than was asked for")

  func head(for request: TransferRequest) -> ResponseHead {
    let validators = Validators(etag: etag, etagIsWeak: isWeak, lastModified: lastModified)
    var isWhole = ignoresRanges || request.range == nil
    if let expected = request.ifRange {
      let current = !isWeak && etag != nil ? etag : nil
      if distrustsIfRange || (current != nil && expected.hasPrefix("\"") && expected != current) { isWhole = true }
    }
    let body: ResponseHead.Body
    if isWhole || size == 0 {
      body = .whole(length: hidesLength ? nil : size)
    } else {
      let range = request.range ?? ByteRange(0, size)
      body = .part(ByteRange(range.start, min(range.end, size)), total: hidesLength ? nil : size)
    }
    return ResponseHead(
      body: body, validators: validators, mediaType: mediaType, url: redirect ?? request.url,
      isRedirected: redirect != nil, firstByteSeconds: latency, httpVersion: httpVersion)
  }
}

/// Transfers of a simulated time: nothing happens but in ``move(to:)``.
final class FakeService: TransferService, @unchecked Sendable {
  // @unchecked: used by one thread, the test's.
  final class Transfer {
    let request: TransferRequest
    /// When the origin has the request: later than it was made when a connection had to be made for it.
    let begun: Instant
    var resource: FakeResource?
    var head: ResponseHead?
    var position: Int64 = 0
    var sent: Int64 = 0
    var last: Instant
    var isCancelled = false
    /// What its own rate lets it send now.
    var room = 0.0
    /// Where it comes over ``FakeService/network``.
    var response: FakeNetwork.Response?
    init(_ request: TransferRequest, _ now: Instant) {
      self.request = request
      begun = now
      last = now
    }
    /// Whether it sends nothing any more (``FakeResource/stallsAfter``).
    var isStalled: Bool { resource?.stallsAfter.map { sent >= $0 } ?? false }
    var end: Int64 {
      switch head?.body {
      case .part(let range, _)?: range.end
      case .whole?: resource?.size ?? 0
      case nil: 0
      }
    }
  }

  var resources: [String: FakeResource] = [:]
  /// Given the first word on each request: an answer to this one alone.
  var answer: ((TransferRequest, FakeResource) -> FakeResource)?
  /// Bytes a second of all transfers together, shared evenly; nil: each has its resource's rate.
  var line: Double?
  /// Bytes a second of one transfer on that line, at most; nil: as much as the line gives.
  var connectionRate: Double?
  /// Whether bytes come in the order of the requests, as where they wait in a router's queue, or in one connection: a
  /// response begins when those before it have come. The bytes that are in flight are then what a newcomer waits for.
  var isInOrder = false
  /// TCP connections, instead of a line that all transfers share evenly.
  var network: FakeNetwork?
  /// What a new connection costs, in seconds. One that is free is used again; one whose transfer is ended is lost.
  var connectSeconds = 0.0
  private(set) var connections = 0
  private var spare = FakeSpare()
  private var lineRoom = 0.0
  private var nextSender = 0
  private(set) var requests: [TransferRequest] = []
  private(set) var sent: Int64 = 0
  /// What was on its way when its transfer was ended, and nobody took.
  private(set) var lost: Int64 = 0
  private(set) var running: [Transfer] = []
  private(set) var mostRunning = 0
  private var ends: [(TransferID, TransferEnd)] = []
  private var now = Instant(nanoseconds: 0)
  var client: (any TransferClient)?
  var trace: Trace?

  func start(_ request: TransferRequest) {
    requests.append(request)
    trace?.asked(request)
    if let network {
      let transfer = Transfer(request, now)
      let isMultiplexed = resources[request.url]?.httpVersion == 20 && !request.isAlone
      transfer.response = network.request(request, isMultiplexed: isMultiplexed, at: now.elapsed)
      running.append(transfer)
      mostRunning = max(mostRunning, running.count)
      return
    }
    let isNew = request.isFresh || running.count >= connections
    var readyAt = now
    if isNew {
      connections += 1
      if !spare.take(at: now.elapsed) { readyAt = now.adding(seconds: connectSeconds) }
      if request.opensAnother { spare.make(readyAt: now.elapsed + connectSeconds) }
    }
    running.append(Transfer(request, readyAt))
    mostRunning = max(mostRunning, running.count)
  }

  func cancel(_ id: TransferID) {
    guard let index = running.firstIndex(where: { $0.request.id == id }) else { return }
    let transfer = running.remove(at: index)
    transfer.isCancelled = true
    trace?.ended(id, "ended by the room", sent: transfer.sent)
    if let response = transfer.response {
      network?.close(response)
      ends.append((id, .cancelled))
      return
    }
    if let line, let resource = resources[transfer.request.url] {
      let rest = transfer.head == nil ? transfer.request.range?.count ?? 0 : transfer.end - transfer.position
      lost += min(rest, Int64(line * min(resource.latency, now.seconds(since: transfer.begun))))
    }
    connections -= 1
    ends.append((id, .cancelled))
  }

  func misorderedPackets(of id: TransferID) -> Int? {
    running.first { $0.request.id == id }?.response?.connection.misordered
  }

  func limit(_ rates: TransferRates) {}

  func dropConnections() {
    trace?.dropped()
    for transfer in running { ends.append((transfer.request.id, .failed(FakeResource.reset))) }
    running = []
    connections = 0
  }

  /// The loop's end: every transfer ends as cancelled.
  func stop() {
    for transfer in running { ends.append((transfer.request.id, .cancelled)) }
    running = []
    tellEnds()
  }

  private func tellEnds() {
    let told = ends
    ends = []
    for (id, end) in told { client?.transfer(id, ended: end) }
  }

  func move(to now: Instant) {
    let elapsed = now.seconds(since: self.now)
    self.now = now
    tellEnds()
    if let network {
      network.move(to: now.elapsed)
      for transfer in running where !transfer.isCancelled { stepNetwork(transfer, network) }
      if let client { _ = client.turn(now: now) }
      return
    }
    for transfer in running where !transfer.isCancelled { step(transfer) }
    if let connectionRate {
      let most = max(2 * Double(packet), connectionRate * min(elapsed, 1))
      for transfer in running where transfer.resource != nil {
        transfer.room = min(transfer.room + connectionRate * min(elapsed, 1), most)
      }
    }
    if let line { share(line * min(elapsed, 1)) }
    if let client { _ = client.turn(now: now) }
  }

  /// What a packet carries: those who send take turns at such pieces.
  var packet: Int64 = 1460

  /// Sends so many bytes, in turns, of all that have something to send. What nobody can send is lost.
  private func share(_ bytes: Double) {
    lineRoom += bytes
    while lineRoom >= Double(packet) {
      let sending = running.filter {
        $0.resource != nil && !$0.isCancelled && $0.position < $0.end && !$0.isStalled
          && (connectionRate == nil || $0.room >= Double(min(packet, $0.end - $0.position)))
      }
      let senders = isInOrder ? Array(sending.prefix(1)) : sending
      guard !senders.isEmpty else {
        lineRoom = 0
        return
      }
      nextSender += 1
      let transfer = senders[nextSender % senders.count]
      let count = min(packet, transfer.end - transfer.position)
      lineRoom -= Double(count)
      transfer.room -= Double(count)
      guard let resource = transfer.resource else { continue }
      send(transfer, resource, count)
      if transfer.position >= transfer.end, !transfer.isCancelled, running.contains(where: { $0 === transfer }) {
        finish(transfer, .finished)
      }
    }
  }

  /// Hands over the next `count` bytes.
  private func send(_ transfer: Transfer, _ resource: FakeResource, _ count: Int64) {
    let bytes = Pattern.bytes(
      name: resource.name, generation: resource.version, offset: transfer.position, count: Int(count))
    transfer.position += count
    transfer.sent += count
    sent += count
    let goesOn = bytes.withUnsafeBytes { client?.transfer(transfer.request.id, received: $0) ?? false }
    if !goesOn { finish(transfer, .cancelled) }
  }

  private func finish(_ transfer: Transfer, _ end: TransferEnd) {
    running.removeAll { $0 === transfer }
    trace?.ended(transfer.request.id, Self.name(end), sent: transfer.sent)
    client?.transfer(transfer.request.id, ended: end)
  }

  private static func name(_ end: TransferEnd) -> String {
    switch end {
    case .finished: "finished"
    case .cancelled: "refused by the room"
    case .failed(let failure): "failed (\(failure.message))"
    }
  }

  /// Hands over what its connection has brought.
  private func stepNetwork(_ transfer: Transfer, _ network: FakeNetwork) {
    guard let response = transfer.response, let resource = resources[transfer.request.url] else { return }
    let usable = network.usable(response)
    guard usable > transfer.sent else { return }
    if transfer.head == nil {
      var head = resource.head(for: transfer.request)
      head.firstByteSeconds = now.elapsed - max(transfer.begun.elapsed, response.connection.readyAt)
      head.reusedConnection = response.begun > 0
      head.connection = response.connection.number
      head.httpVersion = response.connection.isMultiplexed ? 20 : 11
      transfer.resource = resource
      transfer.head = head
      if case .part(let range, _) = head.body { transfer.position = range.start }
      if client?.transfer(transfer.request.id, responded: head) != true {
        network.close(response)
        return finish(transfer, .cancelled)
      }
    }
    while transfer.sent < usable, !transfer.isCancelled, running.contains(where: { $0 === transfer }) {
      send(transfer, resource, min(FakeNetwork.record, usable - transfer.sent))
    }
    guard !transfer.isCancelled, running.contains(where: { $0 === transfer }) else {
      if !transfer.isCancelled { network.close(response) }
      return
    }
    if transfer.position >= transfer.end {
      network.finish(response)
      finish(transfer, .finished)
    }
  }

  private func step(_ transfer: Transfer) {
    let id = transfer.request.id
    if transfer.head == nil {
      guard var resource = resources[transfer.request.url] else { return finish(transfer, .failed(FakeResource.gone)) }
      if let answer { resource = answer(transfer.request, resource) }
      guard now.seconds(since: transfer.begun) >= resource.latency, !resource.isSilent else { return }
      if let failure = resource.failure { return finish(transfer, .failed(failure)) }
      if let range = transfer.request.range, range.start > 0, range.start >= resource.size, !resource.ignoresRanges {
        let failure = TransferFailure(
          kind: .unsatisfiable(total: resource.size), status: 416, message: "nothing there (HTTP 416)")
        return finish(transfer, .failed(failure))
      }
      if isInOrder, running.first(where: { !$0.isCancelled }) !== transfer { return }
      var head = resource.head(for: transfer.request)
      if isInOrder { head.firstByteSeconds = now.seconds(since: transfer.begun) }
      transfer.resource = resource
      transfer.head = head
      transfer.last = now
      if case .part(let range, _) = head.body { transfer.position = range.start }
      if client?.transfer(id, responded: head) != true { return finish(transfer, .cancelled) }
    }
    guard let resource = transfer.resource, !transfer.isCancelled else { return }
    if line != nil { return transfer.position < transfer.end ? () : finish(transfer, .finished) }
    var room = Int64(resource.rate * now.seconds(since: transfer.last))
    let chunk: Int64 = 16 << 10
    while true {
      if transfer.isStalled { return }
      if let limit = resource.breaksAfter, transfer.sent >= limit {
        return finish(transfer, .failed(FakeResource.reset))
      }
      let end = min(transfer.end, resource.endsEarly ?? .max)
      if transfer.position >= end { return finish(transfer, .finished) }
      var count = min(chunk, end - transfer.position)
      if let limit = resource.breaksAfter { count = min(count, limit - transfer.sent) }
      if let stall = resource.stallsAfter { count = min(count, stall - transfer.sent) }
      guard room >= count else { return }
      room -= count
      transfer.last = transfer.last.adding(seconds: Double(count) / resource.rate)
      send(transfer, resource, count)
      if transfer.isCancelled || !running.contains(where: { $0 === transfer }) { return }
    }
  }
}

extension Instant {
  /// Seconds since the machine started.
  fileprivate var elapsed: Double { Double(nanoseconds) / 1e9 }
}

/// The connection that is made beside a host's first one, as ``TransferRequest/opensAnother`` has it.
struct FakeSpare {
  private static let kept = 2.0
  private var readyAt: Double?

  mutating func make(readyAt: Double) { self.readyAt = readyAt }

  /// Whether the next new connection is that one.
  mutating func take(at now: Double) -> Bool {
    guard let ready = readyAt, ready <= now else { return false }
    readyAt = nil
    return now - ready < Self.kept
  }
}
