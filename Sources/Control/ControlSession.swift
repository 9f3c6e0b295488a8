import Base
import Glibc

/// One client's connection on the server's side: reads a request, answers it, reads the next. Its thread owns it.
///
/// The session treats the client as hostile: it bounds, checks and normalizes every request before the handler sees it.
/// It answers a wrong request with an error, and ends the connection only if it cannot find the next line.
struct ControlSession {
  private let socket: ControlSocket
  private var lines: LineReader
  private let handler: any ControlHandler
  private let identity: ServerIdentity
  private let patience: ControlListener.Patience
  private var outgoing: [UInt8] = []
  /// Whether the client listens to events: it may read when it likes.
  private var isListening = false

  init(
    socket: ControlSocket, handler: any ControlHandler, identity: ServerIdentity, patience: ControlListener.Patience
  ) {
    self.socket = socket
    lines = LineReader(socket)
    self.handler = handler
    self.identity = identity
    self.patience = patience
  }

  /// Serves until the client closes, sends something that is not a line, or takes too long.
  mutating func run() {
    do throws(ControlFailure) {
      while let line = try nextLine() {
        do throws(ControlFailure) {
          try answer(try decodeLine(ControlRequest.self, line))
        } catch let failure where failure.kind == .gone || failure.kind == .silent {
          throw failure
        } catch {
          try put(ControlReply(error))
        }
        try flush()
      }
    } catch {
      Log.debug("control: a connection ended: \(error)")
    }
  }

  /// Reads the line of the next request. If the client is there but sends no valid line, tells it why before throwing.
  private mutating func nextLine() throws(ControlFailure) -> [UInt8]? {
    do throws(ControlFailure) {
      return try lines.next(until: Instant.now.adding(seconds: patience.request))
    } catch {
      if error.kind != .gone {
        try put(ControlReply(error))
        try flush()
      }
      throw error
    }
  }

  private mutating func answer(_ request: ControlRequest) throws(ControlFailure) {
    guard request.version == ControlLimits.version else {
      throw ControlFailure(
        .version,
        "this server speaks version \(ControlLimits.version) of the control protocol, not \(request.version): "
          + "use the mediafs program that mounted it, or unmount and mount again")
    }
    let takesPatterns = request.request == .rule || request.request == .cancel
    let paths = try request.paths.map { (paths) throws(ControlFailure) in try normalized(paths, takesPatterns) }
    switch request.request {
    case .hello:
      var reply = ControlReply(.hello)
      reply.version = ControlLimits.version
      reply.server = identity
      reply.upgrade = handler.upgradeFacts
      try put(reply)
    case .status: try status(request, paths)
    case .ready:
      if let from = request.from, !(from >= 0 && from < 1e9) {
        throw ControlFailure(.malformed, "\"from\" is not a number of seconds")
      }
      for file in try handler.readiness(try some(paths), from: request.from) {
        var reply = ControlReply(.ready)
        reply.ready = file
        try put(reply)
      }
      try put(ControlReply(.done))
    case .fetch: try fetch(try some(paths), wait: request.wait ?? false)
    case .clear:
      var reply = ControlReply(.cleared)
      var report = try handler.clear(try clearOrder(request, paths)) { [socket] in socket.isLeft }
      report.kept = Array(report.kept.prefix(ControlLimits.shown))
      reply.cleared = report
      try put(reply)
      try put(ControlReply(.done))
    case .metrics:
      var reply = ControlReply(.metrics)
      reply.metrics = try handler.metrics()
      try put(reply)
    case .events: try listen()
    case .rule:
      guard let word = request.rule else { throw ControlFailure(.malformed, "\"rule\" is missing") }
      var reply = ControlReply(.ruled)
      reply.ruled = try handler.rule(word, try some(paths)) { [socket] in socket.isLeft }
      try put(reply)
      try put(ControlReply(.done))
    case .cancel:
      var reply = ControlReply(.cancelled)
      var report = try handler.cancel(try some(paths))
      report.kept = Array(report.kept.prefix(ControlLimits.shown))
      reply.cleared = report
      try put(reply)
      try put(ControlReply(.done))
    case .set:
      var reply = ControlReply(.settings)
      reply.settings = Array(
        try handler.set(request.values ?? [:], host: request.host).prefix(ControlLimits.settings))
      try put(reply)
      try put(ControlReply(.done))
    case .reload:
      var reply = ControlReply(.reloaded)
      reply.reloaded = try handler.reload { [socket] in socket.isLeft }
      try put(reply)
      try put(ControlReply(.done))
    case .stop:
      // The answer goes first: when the server stops, it closes this connection, perhaps before another send.
      try put(ControlReply(.done))
      try flush()
      handler.stop()
    case .upgrade:
      guard let program = request.program else { throw ControlFailure(.malformed, "\"program\" is missing") }
      try handler.agreeToUpgrade(to: program)
      defer { handler.handOver() }  // also if the client is gone
      try put(ControlReply(.done))
      try flush()
    }
  }

  private mutating func status(_ request: ControlRequest, _ paths: [String]?) throws(ControlFailure) {
    let limit = request.limit ?? ControlLimits.page
    guard 0...ControlLimits.page ~= limit else {
      throw ControlFailure(.malformed, "\"limit\" must be from 0 to \(ControlLimits.page)")
    }
    var query = StatusQuery(paths: paths, all: request.all ?? false, after: request.after, limit: limit)
    query.film = request.film ?? false
    query.story = request.story ?? false
    query.active = request.active ?? false
    guard !query.active || paths == nil else {
      throw ControlFailure(.malformed, "\"active\" and \"paths\" exclude each other")
    }
    if let ranges = request.ranges {
      guard 1...ControlLimits.ranges ~= ranges else {
        throw ControlFailure(.malformed, "\"ranges\" must be from 1 to \(ControlLimits.ranges)")
      }
      query.ranges = ranges
    }
    if request.totals ?? false {
      var reply = ControlReply(.totals)
      reply.totals = try handler.totals(query)
      try put(reply)
    }
    var done = ControlReply(.done)
    if limit > 0 {
      let page = try handler.page(query)
      try put(page.files, ranges: query.ranges, isBrief: request.brief ?? false)
      done.next = page.next
    }
    try put(done)
  }

  /// Sends the files in their order. With `isBrief`, one line holds a run of files of which nothing is stored.
  private mutating func put(_ files: [FileStatus], ranges: Int?, isBrief: Bool) throws(ControlFailure) {
    var remote = RemoteFiles()
    for file in files {
      if isBrief, file.isUntouched {
        if remote.add(file) { continue }
        if let full = remote.take() { try put(full) }
        if remote.add(file) { continue }
      }
      if let run = remote.take() { try put(run) }
      var bounded = file
      bounded.coarsen(to: ranges ?? .max)
      bounded.ranges = Array(bounded.ranges.prefix(ControlLimits.ranges))
      var reply = ControlReply(.file)
      reply.file = bounded
      try put(reply)
    }
    if let run = remote.take() { try put(run) }
  }

  private mutating func fetch(_ paths: [String], wait: Bool) throws(ControlFailure) {
    var watch = FetchWatch(try handler.fetch(paths))
    var report = watch.look(handler)
    while wait, !report.isOver {
      try put(report)
      try flush()
      // A client that leaves or sends another request stops waiting. The download itself goes on.
      if socket.isDisturbed(within: patience.report) { return }
      report = watch.look(handler)
    }
    try put(report)
    try put(ControlReply(.done))
  }

  /// Sends what happens, until the client leaves or sends something. While the client does not read, its thread waits
  /// here and its queue fills; nobody else waits for it.
  private mutating func listen() throws(ControlFailure) {
    let queue = try handler.events.listen()
    isListening = true
    defer {
      isListening = false
      handler.events.leave(queue)
    }
    try put(ControlReply(.listening))
    while true {
      let (events, lost, isClosed) = queue.take()
      var reply = ControlReply(.event)
      for event in events {
        reply.event = event
        try put(reply)
      }
      if lost > 0 {
        reply.event = ControlEvent(.lost, at: Self.date, count: lost)
        try put(reply)
      }
      if isClosed {
        try put(ControlReply(.done))
        return try flush()
      }
      try flush()
      if socket.isDisturbed(orReadable: queue.wake) { return }
    }
  }

  /// Seconds since 1970.
  private static var date: Double {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec / 1_000_000) / 1000
  }

  /// Sends a report, in several messages if many files ended at once: the size of a message is limited.
  private mutating func put(_ report: FetchReport) throws(ControlFailure) {
    var reply = ControlReply(.report)
    reply.report = report
    var rest = report.changes[...]
    repeat {
      reply.report?.changes = Array(rest.prefix(ControlLimits.shown))
      rest = rest.dropFirst(ControlLimits.shown)
      try put(reply)
    } while !rest.isEmpty
  }

  /// Queues one line. The session sends queued lines together in larger pieces.
  private mutating func put(_ reply: ControlReply) throws(ControlFailure) {
    outgoing += try encodeLine(reply)
    if outgoing.count >= 64 << 10 { try flush() }
  }

  private mutating func flush() throws(ControlFailure) {
    let piece = outgoing
    outgoing.removeAll(keepingCapacity: true)
    try socket.send(piece, until: isListening ? .never : Instant.now.adding(seconds: patience.reply))
  }
}

private func clearOrder(_ request: ControlRequest, _ paths: [String]?) throws(ControlFailure) -> ClearOrder {
  let files: ClearOrder.Files
  switch (request.all ?? false, request.unlisted ?? false, paths) {
  case (true, false, nil): files = .all
  case (false, true, nil): files = .unlisted
  case (false, false, let paths?): files = .at(try some(paths))
  default:
    throw ControlFailure(.malformed, "clear takes one of \"paths\", \"all\": true and \"unlisted\": true")
  }
  return ClearOrder(files, isForced: request.force ?? false, isDryRun: request.dryRun ?? false)
}

private func some(_ paths: [String]?) throws(ControlFailure) -> [String] {
  guard let paths, !paths.isEmpty else { throw ControlFailure(.malformed, "\"paths\" is missing or empty") }
  return paths
}

/// Removes leading, trailing and doubled slashes and `.`; but of a pattern of one name, a leading slash says that it is
/// for the root alone. Throws `malformed` for `..`, NUL, or too many paths.
private func normalized(_ paths: [String], _ arePatterns: Bool) throws(ControlFailure) -> [String] {
  guard paths.count <= ControlLimits.paths else {
    throw ControlFailure(.malformed, "\(paths.count) paths in one request: the limit is \(ControlLimits.paths)")
  }
  var result: [String] = []
  for path in paths {
    let parts = pathParts(path)
    guard !parts.contains(".."), !path.utf8.contains(0) else {
      throw ControlFailure(.malformed, "a path contains \"..\" or NUL")
    }
    let isBound = arePatterns && parts.count == 1 && path.utf8.first == UInt8(ascii: "/")
    result.append((isBound ? "/" : "") + parts.joined(separator: "/"))
  }
  return result
}
