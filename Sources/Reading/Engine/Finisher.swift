import Base
import Manifest
import Storing

/// Verifies what is whole and places it in the library: a thread of its own, since hashing a film takes long.
///
/// Order (P6): sync, length and checksum, a durable intent, rename, sync of the folders, commit. Only then is it
/// complete.
final class Finisher: @unchecked Sendable {
  // @unchecked: `engine` is written once, before the thread starts; the rest is immutable or guards itself.
  private struct Queue: Sendable {
    var contents: [Content] = []
    var isStopping = false
  }

  weak var engine: Engine?
  private let store: StoreAccess
  private let queue = Lock(Queue())
  private let signal = Signal()
  private let thread = Lock<OwnedThread?>(nil)

  init(store: StoreAccess) { self.store = store }

  func start() {
    let started = OwnedThread(name: "finisher") { [self] in run() }
    thread.withLock { $0 = started }
  }

  /// Ends the thread after what it is at; hashing is given up, and done again at the next mount.
  func stop() {
    queue.withLock { $0.isStopping = true }
    signal.raise()
    thread.withLock { thread in
      defer { thread = nil }
      return thread
    }?.join()
  }

  /// `content` is whole: its phase is `completing`, and so nothing else writes to it.
  func submit(_ content: Content) {
    queue.withLock { $0.contents.append(content) }
    signal.raise()
  }

  private var isStopping: Bool { queue.withLock { $0.isStopping } }

  private func run() {
    while !isStopping {
      if !turn() { signal.wait() }
    }
  }

  /// Finishes the next one; false when there is none.
  func turn() -> Bool {
    let next = queue.withLock { $0.contents.isEmpty ? nil : $0.contents.removeFirst() }
    guard let next else { return false }
    finish(next)
    return true
  }

  private func finish(_ content: Content) {
    let (generation, served) = content.guarded.withLock { guarded -> (GenerationRecord?, ServedFile?) in
      // While it waited the keeper may have found that the disk lost a part of it.
      guard guarded.phase == .completing, guarded.state.isWhole else { return (nil, nil) }
      guarded.isFinishing = true
      return (guarded.generation, guarded.file)
    }
    defer { content.guarded.withLock { $0.isFinishing = false } }
    guard let generation, let served, let partial = served.partial, let size = generation.size else { return }
    do {
      // Before its bytes are looked at: what the disk lost is found out here, not as a wrong checksum.
      try calling("its partial file cannot be synced") { () throws(Errno) in try partial.syncData() }
      engine?.keeper.syncSucceeded(content.key)
      if let problem = try mismatch(content, partial, size) {
        if isStopping { return }
        // What a disk loses is no other bytes of the origin's.
        if let error = partial.syncFailure { return distrust(content, served, error) }
        return reject(content, problem, isWrong: true)
      }
      let copy = try place(content, generation, partial, size)
      let file = ServedFile(copy: try store.library.open(copy))
      content.guarded.withLock { guarded in
        guarded.file = file
        guarded.phase = .complete
        guarded.generation?.state = .complete
        guarded.generation?.copy = copy
        guarded.state.stored = ByteRangeSet(ByteRange(0, size))
        guarded.unsynced = 0
        guarded.unsyncedSince = nil
      }
      Log.info("\(content.path): complete, \(size) bytes, in the library as \(copy.path)")
      engine?.post(.completed(content))
    } catch {
      if let error = partial.syncFailure { return distrust(content, served, error) }
      if isStopping { return }
      reject(content, "complete, but it cannot be placed in the library: \(error.message)", isWrong: false)
    }
  }

  private func reject(_ content: Content, _ message: String, isWrong: Bool) {
    content.guarded.withLock { $0.phase = .partial }
    engine?.post(.rejected(content, message: message, isWrong: isWrong))
  }

  /// It could not be synced: what is not on disk is a hole again, and it is partial.
  private func distrust(_ content: Content, _ file: ServedFile, _ error: Errno) {
    file.distrust()  // at once: readers are on their way to it
    guard let engine else { return }
    engine.keeper.perform { [weak engine] in engine?.distrust(content, file, error) }
  }

  /// Why the bytes are not what they should be; nil when they are (or when stopping).
  private func mismatch(_ content: Content, _ partial: PartialFile, _ size: Int64) throws(StoreError) -> String? {
    guard let expected = content.source.checksum else { return nil }
    let found = try Digester.digest(
      of: partial.fileDescriptor, size: size, expected.algorithm, isCancelled: { self.isStopping })
    guard let found else { return "stopped" }
    if found == expected.digest { return nil }
    return "its \(expected.algorithm.rawValue) is not the manifest's (line \(content.source.line))"
  }

  private func place(
    _ content: Content, _ generation: GenerationRecord, _ partial: PartialFile, _ size: Int64
  ) throws(StoreError) -> LibraryCopy {
    let all = ByteRangeSet(ByteRange(0, size))
    try store.catalog.apply(
      [.learned(generation), .extents(generation: generation.id, stored: all, synced: all)], durably: true)
    let catalog = store.catalog
    let placement = try store.library.place(
      partial, as: content.path, size: size, modified: generation.validators.lastModified,
      isCancelled: { self.isStopping }
    ) { (path) throws(StoreError) in
      try catalog.apply([.placing(generation: generation.id, path: path)], durably: true)
    }
    try store.catalog.apply([.placed(generation: generation.id, placement.copy)], durably: true)
    // Still there after an adoption or a copy to another filesystem.
    _ = try PartialFile.remove(generation.id, in: store.folder)
    return placement.copy
  }
}
