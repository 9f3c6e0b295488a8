import Base
import Glibc

extension Origin {
  /// Takes over a socket that was accepted: gives it a thread, or turns it away.
  func accepted(_ descriptor: Int32) {
    let (id, isAbove) = state.withLock { state -> (Int?, Bool) in
      let isAbove = state.connections.count >= state.settings.maxConnections ?? .max
      if state.isStopped || (isAbove && state.settings.aboveMaximum == .reset) { return (nil, isAbove) }
      state.lastConnection += 1
      state.connections[state.lastConnection] = descriptor
      return (state.lastConnection, isAbove)
    }
    if isAbove { log.connectionTurnedAway() }
    guard let id else {
      OriginSocket.resetAtClose(descriptor)
      close(descriptor)
      return
    }
    let madePeak = isAbove ? false : log.connectionOpened()
    startDetachedThread(name: "origin-\(id)") { [self] in
      var connection = OriginConnection(self, id: id, descriptor: descriptor, isTurnedAway: isAbove, madePeak: madePeak)
      connection.run()
      if connection.isCounted { log.connectionClosed() }
      // Out of the list first: who drops connections must not meet a descriptor that was closed and given anew. But not
      // before the very last: stop() waits for the list to be empty.
      state.withLock { state in
        state.connections[id] = nil
        close(descriptor)
      }
    }
  }
}

/// One connection, on its own thread.
struct OriginConnection {
  let origin: Origin
  let id: Int
  var socket: OriginSocket
  /// What the rate of this connection is measured on.
  let ownLine = OriginLine()
  /// Whether the log counts it as open.
  private(set) var isCounted: Bool
  private let madePeak: Bool
  private var requests = 0
  private var space: UnsafeMutableRawBufferPointer?

  init(_ origin: Origin, id: Int, descriptor: Int32, isTurnedAway: Bool, madePeak: Bool) {
    self.madePeak = madePeak
    self.origin = origin
    self.id = id
    socket = OriginSocket(descriptor, stopSignal: origin.stopSignal.rawValue)
    isCounted = !isTurnedAway
  }

  /// Answers requests until one side has enough.
  mutating func run() {
    defer { space?.deallocate() }
    do throws(OriginGone) {
      try socket.wait(until: Instant.now.adding(seconds: origin.settings.acceptDelay))
      while let head = try socket.readHead(timeout: origin.settings.idleTimeout) {
        guard try answer(head) else { return }
      }
    } catch {
      if case .fault(reset: true) = error { OriginSocket.resetAtClose(socket.descriptor) }
    }
  }

  /// Answers one request: whether the connection can take another.
  private mutating func answer(_ bytes: [UInt8]) throws(OriginGone) -> Bool {
    guard let head = OriginHead(bytes) else {
      try sendText("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
      return false
    }
    let (path, query) = head.location
    let length = head.headers.first { $0.name.lowercased() == "content-length" }.flatMap { Int($0.value) } ?? 0
    _ = try socket.readBody(min(length, 1 << 20), timeout: 10)
    if path.hasPrefix(OriginControl.prefix) { return try answerControl(head, path: path, query: query) }

    requests += 1
    let request = origin.log.begin(
      { id, indexOfPath, time in
        OriginRequest(
          id: id, connection: self.id, indexOnConnection: requests, indexOfPath: indexOfPath, time: time,
          method: head.method, target: head.target, path: path, version: head.version, headers: head.headers, range: nil
        )
      }, path: path)
    do throws(OriginGone) {
      let keeps = try respond(to: request)
      origin.log.ended(request.id, .complete)
      return keeps
    } catch {
      switch error {
      case .client: origin.log.ended(request.id, .clientClosed)
      case .stopped: origin.log.ended(request.id, .stopped)
      case .fault: origin.log.ended(request.id, .fault)
      }
      throw error
    }
  }

  private mutating func respond(to request: OriginRequest) throws(OriginGone) -> Bool {
    let quirks = OriginQuirks(isCounted ? origin.faults(for: request) : [.status(503)], request: request)
    if let seconds = quirks.down { try goDown(seconds: seconds) }
    try socket.wait(until: Instant.now.adding(seconds: origin.settings.latency + quirks.delay))
    switch quirks.before {
    case .reset: throw .fault(reset: true)
    case .close: throw .fault(reset: false)
    case .stall: try socket.wait(until: .never)
    case .endlessHeaders(let rate): try sendEndlessHeaders(rate: rate)
    case .endlessHeaderLine: try sendEndlessHeaderLine()
    case .interimAnswers(let seconds): try sendInterimAnswers(secondsApart: seconds)
    case nil: break
    }
    try waitWhileFrozen()
    var plan = origin.plan(for: request, quirks: quirks)
    if !isCounted { plan.keepsConnection = false }
    if plan.keepsConnection == false || request.asksToClose { plan.close() }
    shrinkSendBuffer(rate: quirks.slow?.rate)
    origin.log.answered(request.id, status: plan.status, range: plan.requestedRange)
    try sendHead(plan.head(of: request))
    if request.method != "HEAD", let body = plan.body { try send(body, plan: plan, quirks: quirks, request: request) }
    return plan.keepsConnection
  }

  private func goDown(seconds: Double?) throws(OriginGone) {
    let origin = origin
    startDetachedThread(name: "origin-down") {
      do {
        try origin.setUp(false)
        origin.dropConnections()
        guard let seconds else { return }
        sleep(seconds: seconds)
        try origin.setUp(true)
      } catch {
        Log.error("the origin cannot come up again: \(error)")
      }
    }
    // Answered by nothing; the thread above resets this connection with the others.
    try socket.wait(until: .never)
  }

  private func sendEndlessHeaders(rate: Double) throws(OriginGone) {
    try sendText("HTTP/1.1 200 OK\r\n")
    var count = 0
    while true {
      count += 1
      let line = "X-Filler-\(count): \(String(repeating: "x", count: 80))\r\n"
      try socket.wait(until: ownLine.reserve(line.utf8.count, rate: rate))
      try sendText(line)
    }
  }

  private func sendEndlessHeaderLine() throws(OriginGone) {
    try sendText("HTTP/1.1 200 OK\r\nX-Filler: ")
    let piece = [UInt8](repeating: UInt8(ascii: "x"), count: 16 << 10)
    while true { try sendAll(piece) }
  }

  private func sendInterimAnswers(secondsApart seconds: Double) throws(OriginGone) {
    while true {
      try sendText("HTTP/1.1 102 Processing\r\n\r\n")
      try socket.wait(until: Instant.now.adding(seconds: seconds))
    }
  }

  /// A shaped response gets a small buffer, so that the rate shows at the socket.
  private func shrinkSendBuffer(rate: Double?) {
    let settings = origin.settings
    let rates = [settings.lineRate, settings.connectionRate, rate].compactMap { $0 }
    if let bytes = settings.sendBuffer {
      socket.setSendBuffer(bytes)
    } else if let slowest = rates.min() {
      socket.setSendBuffer(Int32(min(65536, max(4096, slowest * 0.02))))
    }
  }

  private func sendHead(_ head: String) throws(OriginGone) {
    if let rate = origin.settings.lineRate {
      try socket.wait(until: origin.line.reserve(head.utf8.count, rate: rate))
    }
    try sendText(head)
  }

  private func sendText(_ text: String) throws(OriginGone) { try sendAll(Array(text.utf8)) }

  func sendAll(_ bytes: [UInt8]) throws(OriginGone) {
    let socket = socket
    let result = bytes.withUnsafeBytes { buffer -> OriginGone? in
      do throws(OriginGone) { try socket.send(buffer) } catch { return error }
      return nil
    }
    if let result { throw result }
  }

  func waitWhileFrozen() throws(OriginGone) {
    while origin.settings.isFrozen { try socket.wait(until: Instant.now.adding(seconds: 0.01)) }
  }

  /// Room for one piece of a body, kept as long as the connection.
  mutating func pieceSpace() -> UnsafeMutableRawBufferPointer {
    if let space { return space }
    let made = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.largestPiece, alignment: 64)
    space = made
    return made
  }

  /// What is made and sent at a time at most: fits the second-level cache.
  static let largestPiece = 128 << 10

  private mutating func answerControl(
    _ head: OriginHead, path: String, query: [String: String]
  ) throws(OriginGone) -> Bool {
    if requests == 0, isCounted {
      isCounted = false
      origin.log.connectionIsControl(madePeak: madePeak)
    }
    let (status, type, body) = OriginControl.answer(head.method, path: path, query: query, of: origin)
    let bytes = Array(body.utf8)
    try sendText(
      "HTTP/1.1 \(status)\r\nContent-Type: \(type)\r\nContent-Length: \(bytes.count)\r\nConnection: close\r\n\r\n")
    try sendAll(bytes)
    return false
  }
}

extension OriginRequest {
  /// Whether the connection is to be closed behind the answer.
  var asksToClose: Bool {
    let wish = header("Connection")?.lowercased() ?? ""
    return version == "HTTP/1.0" ? !wish.contains("keep-alive") : wish.contains("close")
  }
}
