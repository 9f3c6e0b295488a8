import Base
import Glibc

/// A client of a running server. One thread owns it. Every call waits for the server, for a bounded time.
package final class ControlClient: StatusSource {
  /// How long to wait for the next line of an answer, in seconds. During a fetch, the server reports five times a
  /// second.
  private static let answerTime = 60.0
  /// The same for `clear`: the server frees disk blocks before it answers.
  private static let clearTime = 600.0

  private let socket: ControlSocket
  var lines: LineReader
  private let store: String

  private init(socket: ControlSocket, store: String) {
    self.socket = socket
    lines = LineReader(socket)
    self.store = store
  }

  /// Connects to the server of `store`. Throws `notRunning` if no server runs on it, and `refused` if the store belongs
  /// to another user.
  ///
  /// `owner`: root asks the server of that user, and of no other: the user could have put a link to another socket
  /// there. Then there is never `notRunning`, after which a command would read the store itself.
  package static func connect(store: String, owner: uid_t? = nil) throws(ControlFailure) -> ControlClient {
    guard let owner else { return try reach(store) }
    let client: ControlClient
    do throws(ControlFailure) { client = try reach(store) } catch let failure where failure.kind == .notRunning {
      throw ControlFailure(
        .failed, "no server of the user \(owner) answers for this mount now; the mount helper starts the next one")
    }
    try client.check(owner: owner)
    return client
  }

  /// Throws `refused` if the server is not one of `owner`.
  package func check(owner: uid_t) throws(ControlFailure) {
    guard socket.peerUser == owner else {
      throw ControlFailure(.refused, "the server of the store \(store) is not one of the user \(owner): not asked")
    }
  }

  private static func reach(_ store: String) throws(ControlFailure) -> ControlClient {
    do throws(Errno) {
      let folder = try FileDescriptor.open(store, O_RDONLY | O_DIRECTORY)
      let descriptor = FileDescriptor(owning: try retrying { Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0) })
      try makeNonblocking(descriptor.rawValue)
      let deadline = Instant.now.adding(seconds: 5)
      while withControlAddress(in: folder, { Glibc.connect(descriptor.rawValue, $0, $1) }) != 0 {
        let error = Errno.current
        // EAGAIN: the server's backlog is full. No call waits for room in the backlog of a Unix socket, so try again.
        guard error == .interrupted || (error.rawValue == EAGAIN && Instant.now < deadline) else { throw error }
        usleep(20_000)
      }
      return ControlClient(socket: try ControlSocket(owning: descriptor), store: store)
    } catch {
      switch error.rawValue {
      case ENOENT, ENOTDIR, ECONNREFUSED:
        throw ControlFailure(.notRunning, "no server runs on the store \(store)")
      case EACCES, EPERM:
        throw ControlFailure(
          .refused, "the store \(store) belongs to another user: only that user and root may use its server")
      case EAGAIN:
        throw ControlFailure(.busy, "the server of the store \(store) accepts no more connections now: try again")
      default:
        throw ControlFailure(.failed, "cannot reach the server of the store \(store): \(error)")
      }
    }
  }

  /// Asks which server answers.
  package func hello() throws(ControlFailure) -> ServerIdentity {
    try send(ControlRequest(.hello))
    let reply = try next(.hello)
    guard let server = reply.server else { throw unexpected(reply) }
    return server
  }

  /// Asks which server answers, and what it tells for an upgrade; nil from a server that cannot be upgraded.
  package func upgradeFacts() throws(ControlFailure) -> (server: ServerIdentity, facts: UpgradeFacts?) {
    try send(ControlRequest(.hello))
    let reply = try next(.hello)
    guard let server = reply.server else { throw unexpected(reply) }
    return (server, reply.upgrade)
  }

  /// Asks the server to end, so that `program` goes on with its mount. Returns once it has agreed.
  package func upgrade(to program: ProgramFile) throws(ControlFailure) {
    var request = ControlRequest(.upgrade)
    request.program = program
    try send(request)
    _ = try next(.done)
  }

  /// Asks for the sums over the files that `query.paths` name.
  package func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals {
    var request = ControlRequest(.status)
    request.paths = query.paths
    request.totals = true
    request.limit = 0
    try send(request)
    let reply = try next(.totals)
    guard let totals = reply.totals else { throw unexpected(reply) }
    _ = try next(.done)
    return totals
  }

  /// Asks for the next page.
  package func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    var request = ControlRequest(.status)
    request.paths = query.paths
    request.all = query.all
    request.brief = true
    if query.film { request.film = true }
    request.after = query.after
    request.limit = min(max(query.limit, 1), ControlLimits.page)
    try send(request)
    var page = StatusPage(files: [], next: nil)
    while true {
      let reply = try next()
      switch (reply.reply, reply.file) {
      case (.file, let file?): page.files.append(file)
      case (.remote, _):
        guard let files = RemoteFiles.files(of: reply) else { throw unexpected(reply) }
        page.files += files
      case (.done, _):
        page.next = reply.next
        return page
      default: throw unexpected(reply)
      }
    }
  }

  /// Asks whether the files at and below `paths` play without a stall, from the second `from` on, or, for nil, from
  /// where a program reads them, or their start.
  package func readiness(_ paths: [String], from: Double?) throws(ControlFailure) -> [FileReadiness] {
    var request = ControlRequest(.ready)
    request.paths = paths
    request.from = from
    try send(request)
    var files: [FileReadiness] = []
    while true {
      let reply = try next()
      switch (reply.reply, reply.ready) {
      case (.ready, let file?): files.append(file)
      case (.done, _): return files
      default: throw unexpected(reply)
      }
    }
  }

  /// Asks the server to download the files at and below `paths`. Without `wait`, returns once the server has accepted
  /// the request; with `wait`, once every file is over. Calls `report` with each report and stops waiting when that
  /// returns false. Returns the last report.
  @discardableResult
  package func fetch(
    _ paths: [String], wait: Bool, report: (FetchReport) -> Bool = { _ in true }
  ) throws(ControlFailure) -> FetchReport {
    var request = ControlRequest(.fetch)
    request.paths = paths
    request.wait = wait
    try send(request)
    var last: FetchReport?
    while true {
      let reply = try next()
      switch (reply.reply, reply.report) {
      case (.report, let news?):
        last = news
        if !report(news) { return news }
      case (.done, _):
        guard let last else { throw unexpected(reply) }
        return last
      default: throw unexpected(reply)
      }
    }
  }

  /// Asks the server to delete the stored data of the files at and below `paths`, or of all files for nil.
  package func clear(_ paths: [String]?) throws(ControlFailure) -> ClearReport {
    var request = ControlRequest(.clear)
    request.paths = paths
    if paths == nil { request.all = true }
    try send(request)
    let reply = try next(.cleared, within: Self.clearTime)
    guard let cleared = reply.cleared else { throw unexpected(reply) }
    _ = try next(.done)
    return cleared
  }

  func send(_ request: ControlRequest) throws(ControlFailure) {
    let line: [UInt8]
    do throws(ControlFailure) {
      line = try encodeLine(request)
    } catch {
      throw ControlFailure(.malformed, "too many paths for one request: name a folder, or use several commands")
    }
    do throws(ControlFailure) {
      try socket.send(line, until: Instant.now.adding(seconds: Self.answerTime))
    } catch {
      // A server that rejects a client sends the reason and closes. The reason says more than the broken pipe.
      if error.kind == .gone, let words = try lines.next(until: .now.adding(seconds: 1)) {
        _ = try accepted(words)
      }
      throw error
    }
  }

  func next(_ kind: ControlReply.Kind, within seconds: Double = answerTime) throws(ControlFailure)
    -> ControlReply
  {
    let reply = try next(within: seconds)
    guard reply.reply == kind else { throw unexpected(reply) }
    return reply
  }

  private func next(within seconds: Double = answerTime) throws(ControlFailure) -> ControlReply {
    let line: [UInt8]?
    do throws(ControlFailure) {
      line = try lines.next(until: Instant.now.adding(seconds: seconds))
    } catch let failure where failure.kind == .silent {
      throw ControlFailure(.silent, "the server of the store \(store) does not answer")
    }
    guard let line else { throw ControlFailure(.gone, "the server of the store \(store) ended before it answered") }
    return try accepted(line)
  }

  private func accepted(_ line: [UInt8]) throws(ControlFailure) -> ControlReply {
    let reply = try decodeLine(ControlReply.self, line)
    if reply.reply == .failed {
      throw ControlFailure(reply.code ?? .failed, reply.message ?? "the server of the store \(store) failed")
    }
    return reply
  }

  private func unexpected(_ reply: ControlReply) -> ControlFailure {
    ControlFailure(.malformed, "the server of the store \(store) answered \"\(reply.reply.rawValue)\" out of turn")
  }
}
