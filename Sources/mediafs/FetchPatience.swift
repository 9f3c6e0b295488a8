import Base
import Control

/// How long `fetch --wait` waits for origins that fail: the server tries for ever, a script must come to an end.
final class FetchPatience {
  /// Seconds, unless the user says otherwise.
  static let usual = 60.0

  private let seconds: Double
  private var stored: Int64 = -1
  private var since = Instant.now
  private var errors: [String: String] = [:]
  private var healthy: Set<String> = []
  /// Why it is not worth waiting any more; nil while it is.
  private(set) var reason: String?

  init(seconds: Double) { self.seconds = seconds }

  /// Takes a report in. False when nothing came for too long and every file that is left has an error. (A file that is
  /// complete and being verified has none, however long that takes.)
  func isWorthWaiting(_ report: FetchReport) -> Bool {
    for file in report.changes {
      errors[file.path] = file.isOver ? nil : file.error
      if file.isOver || file.error != nil { healthy.remove(file.path) } else { healthy.insert(file.path) }
    }
    if report.stored != stored {
      stored = report.stored
      since = .now
    }
    guard healthy.isEmpty, let first = errors.min(by: { $0.key < $1.key }), Instant.now.seconds(since: since) >= seconds
    else { return true }
    reason = "\(first.key): \(first.value)" + (errors.count > 1 ? " (and \(errors.count - 1) more)" : "")
    return false
  }
}
