import Base
import Manifest

/// What is said of a list whose disk does not answer. Such a disk holds the thread of ``ListKeeper``, which cannot say
/// it: so others do, that of a client and the housekeeper's.
final class ListSilence: Sendable {
  private let calls: DiskCalls?
  private let reloading: @Sendable (Bool) -> Void
  /// What the log says.
  private let told = Lock<String?>(nil)

  /// `calls`: those for the lists. `reloading`: see ``ListKeeper``.
  init(_ calls: DiskCalls?, _ reloading: @escaping @Sendable (Bool) -> Void) {
    (self.calls, self.reloading) = (calls, reloading)
  }

  /// Which list it is, and what to do; nil: each disk answers.
  var message: String? {
    guard let list = calls?.silent else { return nil }
    return "\(ManifestError.silent(name: list)); the mount stays as it was, and the server reads the list when the "
      + "disk answers: look after it, or after the network that it is on"
  }

  /// Logs it, and ends the reload that a service manager waits for. To be called every few seconds.
  func tell() {
    let message = message
    let before = told.withLock { told in
      defer { told = message }
      return told
    }
    if let message {
      reloading(false)
      if message != before { Log.warning(message) }
    } else if before != nil {
      Log.info("the disk of the list answers again")
    }
  }
}
