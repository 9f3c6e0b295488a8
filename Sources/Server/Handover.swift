import Base
import Control
import Glibc
import Mount
import Storing

/// A server's end for an upgrade: another program goes on with its mount (mount-helper/PROTOCOL.md, "An upgrade").
///
/// Any thread may call any method. A thread of the control socket asks and waits; the link's thread brings the answer.
final class Handover: Sendable {
  /// `overdue`: asked, and nobody waits for the answer any more.
  private enum Phase { case none, asked, overdue, agreed }
  private struct State {
    var phase = Phase.none
    var verdict: String?
    var serves = false
    var isCancelled = false
    var isAnswered: Bool { phase == .agreed || verdict != nil }
  }

  private let link: HelperLink
  private let failedUpgrade: String?
  private let patience: Double
  private let end: @Sendable () -> Void
  private let state = Lock(State())
  private let answered = Signal()

  /// `failedUpgrade`: why the mount's last upgrade failed. `patience`: how long the helper may take to answer, in
  /// seconds: it opens a file, perhaps on a slow disk. `end` ends the server.
  init(_ link: HelperLink, failedUpgrade: String?, patience: Double = 10, end: @escaping @Sendable () -> Void) {
    self.link = link
    self.failedUpgrade = failedUpgrade
    self.patience = patience
    self.end = end
  }

  /// Asks the helper.
  func agree(to program: ProgramFile) throws(ControlFailure) {
    let isFirst = state.withLock { state in
      defer { if state.phase == .none && state.serves { state.phase = .asked } }
      return state.phase == .none && state.serves && !state.isCancelled
    }
    guard isFirst else {
      throw ControlFailure(.busy, "the server starts or ends, or another upgrade is under way: try again")
    }
    do throws(ServerError) { try link.askForUpgrade(to: program) } catch {
      throw ControlFailure(.failed, "the mount helper cannot be asked: \(error)")
    }
    let deadline = Instant.now.adding(seconds: patience)
    while !isAnswered, deadline.seconds(since: .now) > 0 { answered.wait(seconds: deadline.seconds(since: .now)) }
    let isOverdue = state.withLock { state in
      defer { if !state.isAnswered { state.phase = .overdue } }
      return !state.isAnswered
    }
    if isOverdue {
      throw ControlFailure(.failed, "the mount helper does not answer: if it still agrees, the upgrade goes on")
    }
    if let why = state.withLock({ $0.verdict }) {
      state.withLock { ($0.phase, $0.verdict) = (.none, nil) }
      throw ControlFailure(.failed, why)
    }
  }

  /// The helper's answer: nil if it agrees, or if it has this server end for the next one without being asked. It then
  /// kills this server if it does not end: where nobody waits for the answer, this ends it.
  func take(_ verdict: String?) {
    let isAwaited = state.withLock { state in
      let isAwaited = state.phase == .asked
      if isAwaited { state.verdict = verdict }
      if verdict == nil { state.phase = .agreed } else if state.phase == .overdue { state.phase = .none }
      return isAwaited
    }
    if isAwaited { answered.raise() } else if verdict == nil { end() }
  }

  private var isAnswered: Bool { state.withLock { $0.isAnswered } }

  /// The server serves from now on.
  func serve() { state.withLock { $0.serves = true } }

  /// The server is told to end the mount.
  func cancel() { state.withLock { $0.isCancelled = true } }

  /// Whether the server ends for an upgrade.
  var isAgreed: Bool { state.withLock { $0.phase == .agreed && !$0.isCancelled } }

  /// What this server tells for an upgrade.
  var facts: UpgradeFacts {
    UpgradeFacts(
      formats: .current, program: .running, serves: state.withLock { $0.serves }, failure: failedUpgrade)
  }
}

extension ServerFormats {
  /// Those of this program.
  package static var current: ServerFormats {
    ServerFormats(helper: HelperMessage.version, memory: SessionMemory.layoutVersion, store: Catalog.format)
  }
}

extension ProgramFile {
  /// The file that this process runs.
  package static var running: ProgramFile? {
    var status = stat()
    guard stat("/proc/self/exe", &status) == 0 else { return nil }
    return ProgramFile(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
  }
}
