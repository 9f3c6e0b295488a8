import Base
import Control

/// How long `fetch --wait` waits for files that cannot go on. The server retries for ever, but a script has to end.
final class FetchPatience {
  /// The default, in seconds.
  static let usual = 60.0

  private let seconds: Double
  private var stored: Int64 = -1
  private var since = Instant.now
  private var heldUp: [String: FetchProgress] = [:]
  /// Why it is not worth waiting any more; nil while it is.
  private(set) var reason: String?

  init(seconds: Double) { self.seconds = seconds }

  /// Records a report. Returns false if no byte has arrived for too long and every remaining file is held up: it has
  /// an error, or it waits for disk space or its origin. A file that is being verified is not held up, however long
  /// that takes.
  func isWorthWaiting(_ report: FetchReport) -> Bool {
    for file in report.changes { heldUp[file.path] = file.isHeldUp ? file : nil }
    if report.stored != stored {
      stored = report.stored
      since = .now
    }
    let left = report.files - report.complete - report.failed
    guard left > 0, let count = report.heldUp, count >= left, Instant.now.seconds(since: since) >= seconds else {
      return true
    }
    let first = heldUp.min { $0.key < $1.key }?.value
    let why = first.map { "\($0.path): \(TerminalText.holdUp($0) ?? "no reason is known")" } ?? "no reason is known"
    reason = why + (left > 1 ? " (and \(left - 1) more)" : "")
    return false
  }
}
