import Base
import CSystem
import Glibc

/// A client of a running server. One thread owns it.
///
/// It treats the server as hostile: root asks servers of other users. Every call takes a bounded time and a bounded
/// memory, but a fetch that is waited for takes as long as the server says.
package final class ControlClient: StatusSource {
  /// What it takes at most: times in seconds, and bytes.
  struct Limits {
    /// For a whole answer, whatever number of lines it has. During a fetch that is waited for, for each report, of
    /// which the server sends five a second.
    var answer = 60.0
    /// For a whole answer to `clear`, before which the server frees disk blocks, or to `rule`, before which it looks
    /// for the files.
    var clear = 600.0
    /// For all pages of a listing together, without what the caller does between them.
    var listing = 600.0
    /// Of one answer.
    var bytes = ControlLimits.answer
  }

  /// What is left of the bounds of one answer.
  struct Allowance {
    let deadline: Instant
    var bytes: Int
  }

  /// What the pages of one listing have brought and taken so far.
  private struct Listing {
    var files: Int64 = 0
    var seconds = 0.0
  }

  private let socket: ControlSocket
  var lines: LineReader
  let store: String
  let limits: Limits
  private var listing = Listing()
  /// How many files the server told last; nil if it was not asked.
  private var total: Int64?

  private init(socket: ControlSocket, store: String, limits: Limits) {
    self.socket = socket
    lines = LineReader(socket)
    self.store = store
    self.limits = limits
  }

  /// Connects to the server of `store`. Throws `notRunning` if no server runs on it, and `refused` if the store belongs
  /// to another user.
  ///
  /// `owner`: root asks the server of that user, and of no other: the user could have put a link to another socket
  /// there. Then there is never `notRunning`, after which a command would read the store itself.
  package static func connect(store: String, owner: uid_t? = nil) throws(ControlFailure) -> ControlClient {
    let limits = Limits()
    guard let owner else { return try reach(store, limits) }
    let client: ControlClient
    do throws(ControlFailure) {
      client = try reach(store, limits)
    } catch let failure where failure.kind == .notRunning {
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

  static func reach(_ store: String, _ limits: Limits) throws(ControlFailure) -> ControlClient {
    do throws(Errno) {
      let folder = try FileDescriptor.open(store, FileDescriptor.onlyPath | O_DIRECTORY)
      // A link in its place leads nowhere, and neither does a mount, whose filesystem may never answer.
      let name = FileDescriptor(owning: try retrying { csystem_open_entry(folder.rawValue, controlSocketName) })
      guard case .socket = FileKind(try name.status()) else { throw Errno(rawValue: ENOTSOCK) }
      let descriptor = FileDescriptor(owning: try retrying { Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0) })
      try makeNonblocking(descriptor.rawValue)
      let deadline = Instant.now.adding(seconds: 5)
      while withControlAddress(at: "/proc/self/fd/\(name.rawValue)", { Glibc.connect(descriptor.rawValue, $0, $1) })
        != 0
      {
        let error = Errno.current
        // EAGAIN: the server's backlog is full. No call waits for room in the backlog of a Unix socket, so try again.
        guard error == .interrupted || (error.rawValue == EAGAIN && Instant.now < deadline) else { throw error }
        usleep(20_000)
      }
      return ControlClient(socket: try ControlSocket(owning: descriptor), store: store, limits: limits)
    } catch {
      switch error.rawValue {
      case ENOENT, ENOTDIR, ECONNREFUSED:
        throw ControlFailure(.notRunning, "no server runs on the store \(store)")
      case ENOTSOCK, EXDEV:
        throw ControlFailure(
          .refused,
          "\(store)/\(controlSocketName) is not the socket of a server: move it away, and start the mount anew")
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
    return try identified().server
  }

  /// Asks which server answers, and what it tells for an upgrade; nil from a server that cannot be upgraded.
  package func upgradeFacts() throws(ControlFailure) -> (server: ServerIdentity, facts: UpgradeFacts?) {
    try send(ControlRequest(.hello))
    return try identified()
  }

  /// The answer of a server that says who it is. Commands show its program's path on a terminal.
  private func identified() throws(ControlFailure) -> (server: ServerIdentity, facts: UpgradeFacts?) {
    let reply = try next(.hello)
    guard let server = reply.server else { throw unexpected(reply) }
    if server.program.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) {
      throw malformed("names a program with control characters")
    }
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
    if query.active { request.active = true }
    request.totals = true
    request.limit = 0
    var allowance = self.allowance(limits.answer)
    try send(request)
    let reply = try next(.totals, &allowance)
    guard let totals = reply.totals, totals.lines?.count ?? 0 <= ControlLimits.lines,
      totals.mount?.settings.count ?? 0 <= ControlLimits.settings
    else { throw unexpected(reply) }
    _ = try next(.done, &allowance)
    total = totals.files
    return totals
  }

  /// Asks for the next page. Throws `malformed` if the listing so far has far more files than the last totals told.
  package func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    if query.after == nil { listing = Listing() }
    let start = Instant.now
    let page = try answer(query)
    listing.seconds += Instant.now.seconds(since: start)
    listing.files += Int64(page.files.count)
    guard page.next != nil else { return page }
    if let total, listing.files > .clampedSum(total, Int64(ControlLimits.answered)) {
      throw malformed("lists more files than the \(total) that it tells")
    }
    guard page.next != query.after else { throw malformed("lists the same page again") }
    guard listing.seconds < limits.listing else {
      throw ControlFailure(
        .silent, "the server of the store \(store) has listed files for \(Int(limits.listing)) s: not waited for")
    }
    return page
  }

  private func answer(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    var request = ControlRequest(.status)
    request.paths = query.paths
    request.all = query.all
    request.brief = true
    if query.film { request.film = true }
    if query.story { request.story = true }
    if query.active { request.active = true }
    request.ranges = query.ranges
    request.after = query.after
    request.limit = min(max(query.limit, 1), ControlLimits.page)
    var allowance = self.allowance(limits.answer)
    try send(request)
    var page = StatusPage(files: [], next: nil)
    while true {
      let reply = try next(&allowance)
      switch (reply.reply, reply.file) {
      case (.file, let file?):
        guard file.ranges.count <= ControlLimits.ranges, file.readers?.count ?? 0 <= ControlLimits.readers,
          file.story?.isBounded ?? true
        else { throw unexpected(reply) }
        page.files.append(file)
      case (.remote, _):
        guard let files = RemoteFiles.files(of: reply) else { throw unexpected(reply) }
        page.files += files
      case (.done, _):
        page.next = reply.next
        return page
      default: throw unexpected(reply)
      }
      guard page.files.count <= ControlLimits.answered else { throw malformed("answers with too many files") }
    }
  }

  /// Asks whether the files at and below `paths` play without a stall, from the second `from` on, or, for nil, from
  /// where a program reads them, or their start.
  package func readiness(_ paths: [String], from: Double?) throws(ControlFailure) -> [FileReadiness] {
    var request = ControlRequest(.ready)
    request.paths = paths
    request.from = from
    var allowance = self.allowance(limits.answer)
    try send(request)
    var files: [FileReadiness] = []
    while true {
      let reply = try next(&allowance)
      switch (reply.reply, reply.ready) {
      case (.ready, let file?):
        guard files.count < ControlLimits.polled else { throw malformed("answers with too many files") }
        files.append(file)
      case (.done, _): return files
      default: throw unexpected(reply)
      }
    }
  }

  /// Asks the server to download the files at and below `paths`. Without `wait`, returns once the server has accepted
  /// the request; with `wait`, once every file is over. Calls `report` with each report and stops waiting when that
  /// returns false, or no report comes for `silence` seconds. Returns the last report.
  @discardableResult
  package func fetch(
    _ paths: [String], wait: Bool, silence: Double = .infinity, report: (FetchReport) -> Bool = { _ in true }
  ) throws(ControlFailure) -> FetchReport {
    var request = ControlRequest(.fetch)
    request.paths = paths
    request.wait = wait
    var allowance = self.allowance(limits.answer)
    try send(request)
    var last: FetchReport?
    while true {
      if wait { allowance = self.allowance(min(limits.answer, silence)) }
      let reply = try next(&allowance)
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

  func allowance(_ seconds: Double) -> Allowance {
    Allowance(deadline: .now.adding(seconds: seconds), bytes: limits.bytes)
  }

  func send(_ request: ControlRequest) throws(ControlFailure) {
    let line: [UInt8]
    do throws(ControlFailure) {
      line = try encodeLine(request)
    } catch {
      throw ControlFailure(.malformed, "too many paths for one request: name a folder, or use several commands")
    }
    do throws(ControlFailure) {
      try socket.send(line, until: Instant.now.adding(seconds: limits.answer))
    } catch {
      // A server that rejects a client sends the reason and closes. The reason says more than the broken pipe.
      if error.kind == .gone, let words = try lines.next(until: .now.adding(seconds: 1)) {
        _ = try accepted(words)
      }
      throw error
    }
  }

  /// Reads the lines of an answer up to `done`.
  func skipToDone() throws(ControlFailure) {
    var allowance = self.allowance(limits.answer)
    while try next(&allowance).reply != .done {}
  }

  /// An answer of one line.
  func next(_ kind: ControlReply.Kind) throws(ControlFailure) -> ControlReply {
    var allowance = self.allowance(limits.answer)
    return try next(kind, &allowance)
  }

  func next(_ kind: ControlReply.Kind, _ allowance: inout Allowance) throws(ControlFailure) -> ControlReply {
    let reply = try next(&allowance)
    guard reply.reply == kind else { throw unexpected(reply) }
    return reply
  }

  private func next(_ allowance: inout Allowance) throws(ControlFailure) -> ControlReply {
    // A line that is there already is read without a look at the clock.
    guard Instant.now < allowance.deadline else { throw silent }
    let line: [UInt8]?
    do throws(ControlFailure) {
      line = try lines.next(until: allowance.deadline)
    } catch let failure where failure.kind == .silent {
      throw silent
    }
    guard let line else { throw ControlFailure(.gone, "the server of the store \(store) ended before it answered") }
    allowance.bytes -= line.count + 1
    guard allowance.bytes >= 0 else { throw malformed("answers with more than \(limits.bytes) bytes") }
    return try accepted(line)
  }

  func accepted(_ line: [UInt8]) throws(ControlFailure) -> ControlReply {
    let reply = try decodeLine(ControlReply.self, line)
    if reply.reply == .failed {
      throw ControlFailure(reply.code ?? .failed, reply.message ?? "the server of the store \(store) failed")
    }
    guard reply.isPossible else { throw malformed("answers with numbers that cannot be") }
    return reply
  }

  private var silent: ControlFailure {
    ControlFailure(.silent, "the server of the store \(store) does not answer in time")
  }

  func malformed(_ what: String) -> ControlFailure {
    ControlFailure(.malformed, "the server of the store \(store) \(what)")
  }

  func unexpected(_ reply: ControlReply) -> ControlFailure {
    ControlFailure(.malformed, "the server of the store \(store) answered \"\(reply.reply.rawValue)\" out of turn")
  }
}
