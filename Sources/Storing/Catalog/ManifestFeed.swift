import Base
import Manifest

/// A manifest that is read on a thread of its own, while its items are used on the caller's.
///
/// Items come in the manifest's order, in batches of which a few wait at most: whoever reads faster than items are used
/// waits. Not for several threads at once.
struct ManifestFeed {
  /// How long an unwanted reader may take to notice it, in seconds. One that waits for a pipe does not.
  private static let patience = 0.2

  let batches: ManifestBatches
  private let thread: OwnedThread

  /// Starts reading. The first problems are handed over at once, and with `strict` each error: whoever ends with it
  /// need not wait for a batch to fill.
  init(_ reader: consuming ManifestReader, strict: Bool) {
    let batches = ManifestBatches()
    let handover = Handover(reader)
    self.batches = batches
    thread = OwnedThread(name: "manifest") {
      guard var reader = handover.take() else { return }
      batches.fill(from: &reader, handingOverErrors: strict)
    }
  }

  /// The next entries and problems; nil at the end, and behind an error.
  func next() throws(ManifestError) -> ImportBatch? { try batches.take() }

  /// Reads no further. To be called in any case, once, and ``next()`` no more then. Returns whether the thread is gone;
  /// one that waits for a pipe ends when that gives something, or is closed.
  @discardableResult
  func end() -> Bool {
    let isGone = batches.refuse(patience: Self.patience)
    if isGone { thread.join() } else { thread.detach() }
    return isGone
  }
}

/// Carries a reader to its thread.
private final class Handover: @unchecked Sendable {
  // @unchecked: put in before the thread starts and taken out by that thread. A reader cannot be copied, so nobody else
  // has it.
  private var reader: ManifestReader?
  init(_ reader: consuming ManifestReader) { self.reader = consume reader }
  func take() -> ManifestReader? { reader.take() }
}

/// The batches between the two threads.
final class ManifestBatches: Sendable {
  /// So many problems are handed over as they are found: a list may come from a pipe that gives little, and whoever
  /// waits for it is to hear what is wrong. Of more than these only the number is told.
  private static let urgent = 100
  /// How many wait at most: a megabyte.
  static let maximum = 4

  private struct State {
    var waiting: [ImportBatch] = []
    var isComplete = false
    var failure: ManifestError?
    var isRefused = false
  }
  private enum Put { case done, full, refused }

  private let state = Lock(State())
  /// Raised for who takes: a batch, or the end.
  private let arrived = Signal()
  /// Raised for who fills: there is room, or nobody wants more.
  private let taken = Signal()
  /// Raised when the filling thread has nothing more to do.
  private let ended = Signal()

  // MARK: - The reading thread

  fileprivate func fill(from reader: inout ManifestReader, handingOverErrors: Bool) {
    defer { ended.raise() }
    var failure: ManifestError?
    var batch = ImportBatch(capacity: ImportBatch.most)
    var problems = 0
    do throws(ManifestError) {
      while let item = try reader.next() {
        var isUrgent = false
        if case .problem(let problem) = item {
          problems += 1
          isUrgent = problems <= Self.urgent || (handingOverErrors && problem.severity == .error)
        }
        batch.append(item)
        if batch.isFull || isUrgent {
          guard put(batch) else { return }
          batch = ImportBatch(capacity: ImportBatch.most)
        } else if state.withLock({ $0.isRefused }) {
          return
        }
      }
    } catch {
      failure = error
    }
    guard put(batch) else { return }
    state.withLock { state in
      state.failure = failure
      state.isComplete = true
    }
    arrived.raise()
  }

  /// Waits for room; false when nobody wants more.
  private func put(_ batch: ImportBatch) -> Bool {
    while true {
      let result = state.withLock { state -> Put in
        if state.isRefused { return .refused }
        if state.waiting.count == Self.maximum { return .full }
        state.waiting.append(batch)
        return .done
      }
      switch result {
      case .done:
        arrived.raise()
        return true
      case .full: taken.wait()
      case .refused: return false
      }
    }
  }

  // MARK: - The other one

  /// Waits for a batch; nil at the end, and behind an error, which is thrown once.
  func take() throws(ManifestError) -> ImportBatch? {
    while true {
      let (batch, isComplete, failure) = state.withLock { state -> (ImportBatch?, Bool, ManifestError?) in
        if !state.waiting.isEmpty { return (state.waiting.removeFirst(), false, nil) }
        defer { state.failure = nil }
        return (nil, state.isComplete, state.failure)
      }
      if let batch {
        taken.raise()
        return batch
      }
      if let failure { throw failure }
      if isComplete { return nil }
      arrived.wait()
    }
  }

  /// Takes no more. Waits so many seconds at most for the reading thread to have done; returns whether it has.
  fileprivate func refuse(patience: Double) -> Bool {
    let rest = state.withLock { state in
      state.isRefused = true
      defer { state.waiting = [] }
      return state.waiting
    }
    _ = consume rest  // freed here, not under the lock
    taken.raise()
    return waitForEnd(seconds: patience)
  }

  /// How many wait to be taken. For tests.
  var count: Int { state.withLock { $0.waiting.count } }

  /// Waits so many seconds at most for the reading thread to have done; whether it has. Says so once.
  func waitForEnd(seconds: Double) -> Bool { ended.wait(seconds: seconds) }
}
