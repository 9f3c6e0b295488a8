import Base
import Glibc

/// Asks a running server. One thread's own; every call waits, each for a bounded time.
package final class ControlClient: StatusSource {
  /// How long to wait for the next line of an answer, in seconds. A waiting fetch hears from the server five times a
  /// second.
  private static let answerTime = 60.0
  /// For `clear`, which frees disk blocks before it answers.
  private static let clearTime = 600.0

  private let socket: ControlSocket
  private var lines: LineReader
  private let store: String

  private init(socket: ControlSocket, store: String) {
    self.socket = socket
    lines = LineReader(socket)
    self.store = store
  }

  /// Connects to the server of `store`. `notRunning` when none serves it, `refused` when it is another user's.
  package static func connect(store: String) throws(ControlFailure) -> ControlClient {
    do throws(Errno) {
      let folder = try FileDescriptor.open(store, O_RDONLY | O_DIRECTORY)
      let descriptor = FileDescriptor(owning: try retrying { Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0) })
      try makeNonblocking(descriptor.rawValue)
      let deadline = Instant.now.adding(seconds: 5)
      while withControlAddress(in: folder, { Glibc.connect(descriptor.rawValue, $0, $1) }) != 0 {
        let error = Errno.current
        // EAGAIN: the server's backlog is full. A Unix socket has no other way to tell when there is room again.
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
          .refused, "the store \(store) belongs to another user, who alone (and root) may ask its server")
      case EAGAIN:
        throw ControlFailure(.busy, "the server of the store \(store) takes no more connections: try again")
      default:
        throw ControlFailure(.failed, "cannot reach the server of the store \(store): \(error)")
      }
    }
  }

  /// Who serves.
  package func hello() throws(ControlFailure) -> ServerIdentity {
    try send(ControlRequest(.hello))
    let reply = try next(.hello)
    guard let server = reply.server else { throw unexpected(reply) }
    return server
  }

  /// Sums over what `query.paths` name.
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

  /// The next page.
  package func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    var request = ControlRequest(.status)
    request.paths = query.paths
    request.all = query.all
    request.brief = true
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

  /// Asks for `paths` to be completed. Without `wait` it returns when the server has accepted that; with it, when
  /// nothing is left to wait for. `report` hears how it goes, and says whether to wait on; the last report is returned.
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

  /// Drops what is stored of the files at and below `paths`; of all, for nil.
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

  /// Asks the server to end. It has been told when this returns; it is gone when ``waitForEnd(seconds:)`` says so.
  package func stop() throws(ControlFailure) {
    try send(ControlRequest(.stop))
    _ = try next(.done)
  }

  /// Waits until the server closes this connection, which it does when it ends: false when it has not by then.
  package func waitForEnd(seconds: Double) -> Bool {
    let deadline = Instant.now.adding(seconds: seconds)
    do throws(ControlFailure) {
      while try lines.next(until: deadline) != nil {}
      return true
    } catch {
      return error.kind != .silent
    }
  }

  private func send(_ request: ControlRequest) throws(ControlFailure) {
    let line: [UInt8]
    do throws(ControlFailure) {
      line = try encodeLine(request)
    } catch {
      throw ControlFailure(.malformed, "too many paths for one request: name a folder, or ask in several commands")
    }
    do throws(ControlFailure) {
      try socket.send(line, until: Instant.now.adding(seconds: Self.answerTime))
    } catch {
      // A server that turned this client away has said why, and closed: its words tell more than the broken pipe.
      if error.kind == .gone, let words = try lines.next(until: .now.adding(seconds: 1)) {
        _ = try accepted(words)
      }
      throw error
    }
  }

  private func next(_ kind: ControlReply.Kind, within seconds: Double = answerTime) throws(ControlFailure)
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
    guard let line else { throw ControlFailure(.gone, "the server of the store \(store) ended before it had answered") }
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
