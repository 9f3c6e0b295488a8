import Base
import Fetching
import Manifest

/// One resource on the transfer thread: where its bytes come from and what is under way.
final class Download {
  /// What is wanted of a resource besides what readers wait for.
  struct Wish {
    /// The rest of the file: it was played, or the policy or a user says so.
    var rest = false
    /// A user asked for it by name: policies do not stop it.
    var isByName = false
    /// A sibling was looked at: its size is wanted, though nobody waits.
    var head = false
    /// Its tail was asked for, or is not worth it.
    var tailDone = false
  }

  /// What was tried, and what went wrong.
  struct Attempts {
    var retry = Retry()
    /// Why nothing more is asked for, until someone opens the file again.
    var failure: (error: Errno, message: String)?
    /// What went wrong last, also when it is tried again, until bytes come.
    var lastError: LastError?
  }

  /// Whether its own partial file takes bytes.
  struct OwnFile {
    /// It takes no more, though the disk may: the file goes on in memory until it is opened again.
    var isUnwritable = false
    /// Until when nothing of it is stored, though the disk may take others: its syncs fail, or the system was short of
    /// something.
    var pausedUntil: Instant?
    var isPaused: Bool { isUnwritable || pausedUntil != nil }
  }

  /// Its place among those that use the same line.
  struct LineUse {
    /// The number of the transfer that was started last.
    var lastStart: UInt64 = 0
    /// The line on which its readers wait or are behind, as counted there; nil while none does.
    var waitsOn: String?
    /// Whether a reader is behind: counted with those that wait.
    var isBehind = false
    var lanes = LaneControl()
  }

  let key: ResourceKey
  private let service: any TransferService
  var content: Content
  var mirrors: MirrorList
  var ranges = RangeUse()
  var opinion = SecondOpinion()
  var transfers: [Running] = []
  var attempts = Attempts()
  var pace: DownloadPace
  var wish = Wish()
  var ownFile = OwnFile()
  var lineUse = LineUse()
  /// The file name that Content-Disposition gave.
  var suggestedName: String?
  /// Processes whose reads were judged: looker or not.
  private var judged: [Int32: Bool] = [:]
  /// Messages that wait until the finisher is through with it.
  var postponed: [TransferMessage] = []

  init(content: Content, service: any TransferService, timeout: Double) {
    key = content.key
    self.service = service
    self.content = content
    mirrors = MirrorList(content.entry.urls)
    pace = DownloadPace(seconds: Int(timeout.rounded(.up)))
  }

  /// Whether every byte is stored.
  var isWhole: Bool { content.guarded.withLock { $0.held.isWhole } }
  var hasStored: Bool { content.guarded.withLock { !$0.held.stored.isEmpty } }
  /// What is known of its version; nil before the first answer.
  var identity: GenerationCheck.Identity? {
    content.guarded.withLock { guarded in
      guarded.held.generation.map {
        GenerationCheck.Identity(validators: $0.validators, size: $0.size, mediaType: $0.mediaType)
      }
    }
  }

  func index(of id: TransferID) -> Int? { transfers.firstIndex { $0.active.id == id } }

  /// Ends a transfer; it stays in the list until its end is reported.
  func cancel(_ id: TransferID, _ reason: Running.Cancellation = .unwanted) {
    guard let index = index(of: id), !transfers[index].isCancelled else { return }
    transfers[index].cancellation = reason
    service.cancel(id)
  }

  /// Ends every transfer but one.
  func cancelAll(except kept: TransferID? = nil) {
    for running in transfers where running.active.id != kept { cancel(running.active.id) }
  }

  /// What failed is tried again.
  func forgive() {
    attempts.failure = nil
    attempts.retry.progressed()
    ranges.unusableAnswers = 0
    mirrors.forgive()
    content.guarded.withLock { $0.waiters.clearRefusal() }
  }

  /// Whether `process` is a program that looks at many files and plays none.
  func isLooker(_ process: Int32) -> Bool {
    if let known = judged[process] { return known }
    let isLooker = Lookers.contains(process: process)
    if judged.count > 64 { judged.removeAll() }
    judged[process] = isLooker
    return isLooker
  }

  /// Bytes that were asked for in windows and have not come yet. What is silent for longer than `patience` seconds may
  /// never come: it takes nothing from others.
  func outstanding(_ now: Instant, patience: Double) -> Int64 {
    transfers.reduce(0) { sum, running in
      if running.active.isStream || running.active.end == .max { return sum }
      return now.seconds(since: running.lastByte) > patience ? sum : sum + running.active.rest.count
    }
  }
}
