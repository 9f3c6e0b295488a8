import Base
import Control
import Glibc
import Mount
import Storing

/// A server's end for an upgrade: another program goes on with its mount (mount-helper/PROTOCOL.md, "An upgrade").
///
/// Any thread may call any method. A thread of the control socket asks and waits; the link's thread brings the answer.
final class Handover: Sendable {
  private enum Phase { case none, asked, agreed }
  private struct State {
    var phase = Phase.none
    var verdict: String?
    var serves = false
    var isCancelled = false
  }

  private let link: HelperLink
  private let failedUpgrade: String?
  private let state = Lock(State())
  private let answered = Signal()

  /// `failedUpgrade`: why the mount's last upgrade failed.
  init(_ link: HelperLink, failedUpgrade: String?) {
    self.link = link
    self.failedUpgrade = failedUpgrade
  }

  /// How long the helper may take to answer, in seconds: it opens a file, perhaps on a slow disk.
  private static let patience = 10.0

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
    guard answered.wait(seconds: Self.patience) else {
      // The answer may still come, so this server asks no more.
      throw ControlFailure(.failed, "the mount helper does not answer: unmount, and mount again")
    }
    if let why = state.withLock({ $0.verdict }) {
      state.withLock { ($0.phase, $0.verdict) = (.none, nil) }
      throw ControlFailure(.failed, why)
    }
  }

  /// The helper's answer: nil if it agrees.
  func take(_ verdict: String?) {
    state.withLock { state in
      state.verdict = verdict
      if verdict == nil { state.phase = .agreed }
    }
    answered.raise()
  }

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
