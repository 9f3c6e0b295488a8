import Base
import Manifest
import Synchronization

/// Reads a manifest on a thread of its own, while the caller's thread uses its items.
///
/// Items come in the manifest's order, in batches. Only a few batches are queued: a reading thread that is ahead of the
/// caller waits. Only one thread may use a feed at a time.
struct ManifestFeed {
  /// How long an unwanted reading thread may take to stop, in seconds. One that waits for a pipe takes longer.
  private static let patience = 0.2

  let batches: ManifestBatches
  private let thread: OwnedThread

  /// Starts reading. It passes on the first problems at once and, with `strict`, each error: a caller that stops at an
  /// error need not wait until a batch is full. Throws if the system refuses the thread.
  init(_ reader: consuming ManifestReader, strict: Bool) throws(Errno) {
    let batches = ManifestBatches()
    let handover = Handover(reader)
    self.batches = batches
    thread = try OwnedThread(ifPossible: "manifest") {
      guard var reader = handover.take() else { return }
      batches.fill(from: &reader, handingOverErrors: strict)
    }
  }

  /// The next entries and problems; nil at the end and after an error. `disks`: those that the reading thread calls.
  /// One that is silent is an error.
  func next(_ disks: ListDisks? = nil) throws(ManifestError) -> ImportBatch? { try batches.take(disks) }

  /// Stops reading. The caller must call it exactly once, and must not call ``next()`` afterwards. Returns whether the
  /// thread has ended. A thread that waits for a pipe ends when data comes or the pipe is closed. `waiting`: for the
  /// thread, however long that takes.
  @discardableResult
  func end(waiting: Bool = false) -> Bool {
    let isGone = batches.refuse(patience: waiting ? nil : Self.patience)
    if isGone { thread.join() } else { thread.detach() }
    return isGone
  }
}

/// Passes a reader to its thread.
private final class Handover: @unchecked Sendable {
  // @unchecked: the reader is stored before the thread starts, and that thread takes it. A reader cannot be copied, so
  // no other thread has it.
  private var reader: ManifestReader?
  init(_ reader: consuming ManifestReader) { self.reader = consume reader }
  func take() -> ManifestReader? { reader.take() }
}

/// The batches between the two threads.
final class ManifestBatches: Sendable {
  /// The first 100 problems are passed on at once: the list may come from a slow pipe while a user waits. The import
  /// reports only the number of further problems.
  private static let urgent = 100
  /// How many batches may be queued: a megabyte.
  static let maximum = 4

  private struct State {
    var waiting: [ImportBatch] = []
    var isComplete = false
    var failure: ManifestError?
  }
  private enum Put { case done, full, refused }

  private let state = Lock(State())
  /// Whether no more batches are wanted. The reading thread asks after each item, which a lock would slow down.
  private let isRefused = Atomic<Bool>(false)
  /// Signals the taking thread: there is a batch, or the end.
  private let arrived = Signal()
  /// Signals the filling thread: there is room, or no more batches are wanted.
  private let taken = Signal()
  /// Signals that the filling thread is done.
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
        } else if isRefused.load(ordering: .relaxed) {
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

  /// Waits for room; false if no more batches are wanted.
  private func put(_ batch: ImportBatch) -> Bool {
    while true {
      let result = state.withLock { state -> Put in
        if isRefused.load(ordering: .relaxed) { return .refused }
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

  // MARK: - The caller's thread

  /// Waits for a batch; nil at the end and after an error, which it throws once.
  func take(_ disks: ListDisks? = nil) throws(ManifestError) -> ImportBatch? {
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
      guard !arrived.wait(seconds: disks.map { min($0.patience, 1) }) else { continue }
      if let disks, let name = disks.calls.silent(for: disks.patience) { throw .silent(name: name) }
    }
  }

  /// Refuses further batches. Waits at most that many seconds for the reading thread (nil: without limit); returns
  /// whether it is done.
  fileprivate func refuse(patience: Double?) -> Bool {
    isRefused.store(true, ordering: .relaxed)
    let rest = state.withLock { state in
      defer { state.waiting = [] }
      return state.waiting
    }
    _ = consume rest  // freed here, not under the lock
    taken.raise()
    return waitForEnd(seconds: patience)
  }

  /// How many batches are queued. For tests.
  var count: Int { state.withLock { $0.waiting.count } }

  /// Waits at most that many seconds for the reading thread; returns whether it is done. Returns true only once.
  func waitForEnd(seconds: Double?) -> Bool { ended.wait(seconds: seconds) }
}
