import Control
import TestSupport
import Testing

@testable import mediafs

/// `fetch --wait` ends by its timeout, whatever the files wait for.
@Suite struct FetchPatienceTests {
  private func report(
    stored: Int64, _ changes: [FetchProgress] = [], unknown: Int = 0, heldUp: Int? = 0
  ) -> FetchReport {
    var report = FetchReport()
    (report.files, report.stored, report.size, report.unknownSizes) = (1, stored, 10, unknown)
    (report.heldUp, report.changes) = (heldUp, changes)
    return report
  }

  /// Whether the reason has come that ends the wait.
  private func reason(_ patience: FetchPatience, _ report: FetchReport) -> String? {
    _ = eventually { !patience.isWorthWaiting(report) }
    return patience.reason
  }

  @Test(arguments: [FileWait.turn, .line, .space, .origin, .reader, nil]) func itEndsWhateverAFileWaitsFor(
    _ wait: FileWait?
  ) throws {
    let file = FetchProgress(path: "a.bin", state: .partial, stored: 5, size: 10, waitsFor: wait)
    for unknown in [0, 1] {
      let news = report(stored: 5, [file], unknown: unknown, heldUp: file.isHeldUp ? 1 : 0)
      let patience = FetchPatience(seconds: 0.05)
      let told = try #require(reason(patience, news))
      if let wait { #expect(told == "a.bin: it waits for \(TerminalText.wait(wait, until: nil))") }
      #expect(patience.waited >= 0.05)
    }
    // A server of an earlier version does not tell who is held up.
    #expect(reason(FetchPatience(seconds: 0.05), report(stored: 5, heldUp: nil)) != nil)
  }

  @Test func dataAndVerificationAreProgress() {
    let patience = FetchPatience(seconds: 0.05)
    for stored in 0..<8 {
      #expect(patience.isWorthWaiting(report(stored: Int64(stored))))
      sleep(seconds: 0.02)
    }
    let verifying = FetchPatience(seconds: 0.5)
    #expect(verifying.isWorthWaiting(report(stored: 10)))
    sleep(seconds: 0.6)
    #expect(verifying.isWorthWaiting(report(stored: 10)), "it has ten times as long")
    #expect(reason(verifying, report(stored: 10))?.contains("being verified") == true)
  }

  @Test func theTimeLeftIsToldWhileSizesAreUnknown() {
    var news = report(stored: 4)
    news.rate = 2
    #expect(TerminalProgress.left(news) == "3s left")
    news.unknownSizes = 2
    #expect(TerminalProgress.left(news) == "3s left at least, 2 sizes unknown")
    news.rate = 0
    #expect(TerminalProgress.left(news) == "2 sizes unknown")
    news.unknownSizes = 0
    #expect(TerminalProgress.left(news).isEmpty)
  }
}
