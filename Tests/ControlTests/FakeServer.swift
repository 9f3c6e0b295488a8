import Base
import Glibc
import TestSupport

@testable import Control

/// A handler over files in memory.
final class FakeServer: ControlHandler {
  struct State {
    var files: [FileStatus] = []
    var steps: [String: [FetchProgress]] = [:]  // what progress(of:) tells, one a look; the last one stays
    var looks: [Int] = []  // how many targets each look asked for
    var queries: [StatusQuery] = []
    var cleared: [ClearOrder] = []
    var holdsClears = false  // until the client leaves
    var wasLeft: Bool?  // whether that came
    var ruled: [(word: RuleWord, paths: [String])] = []
    var counts = false  // whether a rule takes until nobody waits for it
    var abandoned = 0  // how often nobody did
    var ready: [FileReadiness] = []
    var asked: [Double?] = []  // from when on each `ready` was
    var stopped = false
    var upgrades: [ProgramFile] = []
    var refusal: String?  // of an upgrade
    var handedOver = false
    var metrics = "mediafs_up 1\n"
  }

  let state: Lock<State>
  let events = EventHub()

  init(_ files: [FileStatus] = []) {
    state = Lock(State())
    state.withLock { $0.files = files }
  }

  private func selected(_ paths: [String]?, in files: [FileStatus]) throws(ControlFailure) -> [FileStatus] {
    guard let paths else { return files }
    var result: [FileStatus] = []
    for path in paths {
      let below = files.filter { path.isEmpty || $0.path == path || $0.path.hasPrefix(path + "/") }
      guard !below.isEmpty else { throw ControlFailure(.notFound, "there is no \(path) in the mount") }
      result += below
    }
    return result
  }

  func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals {
    var sum = StatusTotals()
    for file in try selected(query.paths, in: state.withLock { $0.files }) { sum.add(file) }
    return sum
  }

  func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    state.withLock { $0.queries.append(query) }
    let all = try selected(query.paths, in: state.withLock { $0.files })
    let start = query.after.flatMap { Int($0) } ?? 0
    let end = min(start + query.limit, all.count)
    return StatusPage(files: Array(all[start..<end]), next: end < all.count ? String(end) : nil)
  }

  func rule(_ word: RuleWord, _ paths: [String], isLeft: () -> Bool) throws(ControlFailure) -> RuleReport {
    state.withLock { $0.ruled.append((word, paths)) }
    if state.withLock({ $0.counts }) {
      let deadline = Instant.now.adding(seconds: 20)
      while !isLeft(), Instant.now < deadline { usleep(1000) }
      if isLeft() { state.withLock { $0.abandoned += 1 } }
    }
    var report = RuleReport()
    report.files = Int64(try selected(paths, in: state.withLock { $0.files }).count)
    return report
  }

  func set(_ values: [String: String], host: String?) throws(ControlFailure) -> [SettingStatus] {
    values.sorted { $0.key < $1.key }.map { SettingStatus(name: $0.key, value: $0.value, from: .set, host: host) }
  }

  func cancel(_ paths: [String]) throws(ControlFailure) -> ClearReport {
    ClearReport(files: Int64(try selected(paths, in: state.withLock { $0.files }).count))
  }

  func fetch(_ paths: [String]) throws(ControlFailure) -> [FetchTarget] {
    try selected(paths, in: state.withLock { $0.files }).enumerated().map {
      FetchTarget(path: $0.element.path)
    }
  }

  func progress(of targets: [FetchTarget]) -> [FetchProgress] {
    state.withLock { state in
      state.looks.append(targets.count)
      return targets.map { target in
        var steps = state.steps[target.path] ?? []
        let now = steps.first ?? FetchProgress(path: target.path, state: .partial, stored: 0)
        if steps.count > 1 { steps.removeFirst() }
        state.steps[target.path] = steps
        return now
      }
    }
  }

  func readiness(_ paths: [String], from: Double?) throws(ControlFailure) -> [FileReadiness] {
    let files = try selected(paths, in: state.withLock { $0.files })
    return state.withLock { state in
      state.asked.append(from)
      return state.ready.filter { ready in files.contains { $0.path == ready.path } }
    }
  }

  func clear(_ order: ClearOrder, isLeft: @escaping () -> Bool) throws(ControlFailure) -> ClearReport {
    state.withLock { $0.cleared.append(order) }
    if state.withLock({ $0.holdsClears }) {
      let wasLeft = eventually(timeout: 10) { isLeft() }
      state.withLock { $0.wasLeft = wasLeft }
    }
    return ClearReport(files: 2, bytes: 300, kept: [.init(path: "mine.mp3", reason: "you changed it")], keptFiles: 1)
  }

  func metrics() throws(ControlFailure) -> String { state.withLock { $0.metrics } }

  func reload(isLeft: () -> Bool) throws(ControlFailure) -> ReloadReport {
    ReloadReport(added: 2, removed: 1, changed: 3, problems: 4)
  }
  func stop() { state.withLock { $0.stopped = true } }

  var upgradeFacts: UpgradeFacts {
    UpgradeFacts(formats: ServerFormats(helper: 1, memory: 2, store: 3), program: nil, serves: true, failure: "why")
  }
  func agreeToUpgrade(to program: ProgramFile) throws(ControlFailure) {
    if let refusal = state.withLock({ $0.refusal }) { throw ControlFailure(.failed, refusal) }
    state.withLock { $0.upgrades.append(program) }
  }
  func handOver() { state.withLock { $0.handedOver = true } }
}

/// A folder of the test's own, removed with its contents when the test is over.
final class TemporaryFolder {
  let path: String

  init(depth: Int = 0) throws(Errno) {
    var template = Array("\(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")/mediafs-control-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Errno.current }
    root = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    var path = root
    for _ in 0..<depth {
      path += "/" + String(repeating: "d", count: 60)
      guard mkdir(path, 0o700) == 0 else { throw Errno.current }
      made.append(path)
    }
    self.path = path
  }

  private let root: String
  private var made: [String] = []

  deinit {
    unlink(path + "/" + controlSocketName)
    for folder in made.reversed() { rmdir(folder) }
    rmdir(root)
  }
}

/// A server that listens in a temporary store, with little patience.
final class RunningServer {
  let folder: TemporaryFolder
  let handler: FakeServer
  let listener: ControlListener

  init(_ files: [FileStatus] = [], depth: Int = 0, patience: Double = 15) throws {
    folder = try TemporaryFolder(depth: depth)
    handler = FakeServer(files)
    var limits = ControlListener.Patience()
    limits.request = patience
    limits.reply = patience
    limits.report = 0.005
    listener = try ControlListener(
      store: folder.path, identity: ServerIdentity(pid: getpid(), mountpoint: "/media", program: "test"),
      handler: handler, patience: limits)
  }

  deinit { listener.stop() }

  func connect() throws -> ControlClient { try ControlClient.connect(store: folder.path) }
}

extension ControlClient {
  /// Sends the request `stop`, which no command uses.
  func stop() throws(ControlFailure) {
    try send(ControlRequest(.stop))
    _ = try next(.done)
  }

  /// Waits until the server closes this connection; false if it has not by then.
  func waitForEnd(seconds: Double) -> Bool {
    let deadline = Instant.now.adding(seconds: seconds)
    do throws(ControlFailure) {
      while try lines.next(until: deadline) != nil {}
      return true
    } catch {
      return error.kind != .silent
    }
  }
}
