import Base
import Control

/// Whoever asks for a reload of the list and waits for it. Any thread may call.
final class ReloadAsking: Sendable {
  private let answered = Signal()
  private let answer = Lock<Result<ReloadReport, ControlFailure>?>(nil)

  func settle(_ result: Result<ReloadReport, ControlFailure>) {
    answer.withLock { $0 = result }
    answered.raise()
  }

  /// The answer, which may come within so many seconds; nil: it has not.
  func wait(seconds: Double) -> Result<ReloadReport, ControlFailure>? {
    _ = answered.wait(seconds: seconds)
    return answer.withLock { $0 }
  }
}
