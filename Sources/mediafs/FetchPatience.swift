import Base
import Control

/// How long `fetch --wait` waits for files that do not go on. The server retries for ever, but a script has to end.
final class FetchPatience {
  /// The default, in seconds.
  static let usual = 60.0
  /// Of files that are whole and are being verified no data arrives: they have so many times as long.
  private static let verifying = 10.0

  /// Of so many held-up files the first by name can be the reason: a fetch may have a million.
  private static let named = 1000

  private let seconds: Double
  private var stored: Int64 = -1
  private var since = Instant.now
  private var heldUp: [String: FetchProgress] = [:]
  /// Why it is not worth waiting any more; nil while it is.
  private(set) var reason: String?
  /// For how long no data had arrived then, in seconds.
  private(set) var waited = 0.0

  init(seconds: Double) { self.seconds = seconds }

  /// For how long the server may say nothing, in seconds. It sends five reports a second.
  var silence: Double { max(5, seconds) }

  /// Records a report. Returns false if no byte has arrived for too long.
  func isWorthWaiting(_ report: FetchReport) -> Bool {
    for file in report.changes {
      let isNamed = (file.isHeldUp || file.waitsFor != nil) && (heldUp.count < Self.named || heldUp[file.path] != nil)
      heldUp[file.path] = isNamed ? file : nil
    }
    if report.stored != stored {
      stored = report.stored
      since = .now
    }
    let left = report.files - report.complete - report.failed
    let isVerifying = report.unknownSizes == 0 && report.stored >= report.size && report.heldUp ?? 0 == 0
    waited = Instant.now.seconds(since: since)
    guard left > 0, waited >= (isVerifying ? Self.verifying * seconds : seconds) else { return true }
    let first = heldUp.min { $0.key < $1.key }?.value
    let why = first.map { "\($0.path): \(TerminalText.holdUp($0) ?? "no reason is known")" }
    reason = (why ?? (isVerifying ? "the files are still being verified" : "no reason is known")) + more(left)
    return false
  }

  private func more(_ left: Int) -> String { left > 1 ? " (and \(left - 1) more)" : "" }
}
