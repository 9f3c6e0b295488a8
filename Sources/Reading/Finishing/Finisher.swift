import Base
import Manifest
import Storing

/// Verifies complete files and places them in the library. It has its own thread because hashing a film takes long.
///
/// Order (P6): sync, check of length and checksum, a durable intent, rename, sync of the folders, commit. Only after
/// the commit the file counts as complete.
///
/// All that it owns is made on its thread, and no other thread can reach it.
final class Finisher {
  private let room: ReadingRoom
  /// Files that found no room, and how often. Whoever is forgotten is only hashed in vain.
  private var waiting: [ResourceKey: Int] = [:]
  private static let mostWaiting = 1024
  /// How often room is held free for a file. Two that wait for each other's room must not stop all downloads.
  private static let mostPromises = 6
  /// Files that are in the library while the catalog does not know that, the one that is due next first.
  private var unsettled: [Unsettled] = []

  /// A file that was renamed into the library when what follows the rename failed. Its state stays `verifying`: it is
  /// not put away, and nothing of it is evicted.
  private struct Unsettled {
    let content: Content
    let generation: GenerationRecord
    let size: Int64
    /// The file in which it was stored: its descriptor leads to the copy.
    let served: ServedFile
    /// The path of its intent, which the rename gave it.
    let path: String
    /// Why it is not settled, and when that is tried again.
    var message = ""
    var due = Instant.never
  }

  /// Called on the finisher's thread.
  init(room: ReadingRoom) { self.room = room }

  /// Works until the server ends. Hashing stops then, and is done again after the next mount.
  func run() {
    while !room.isEnding {
      if turn() { continue }
      ThreadRecord.rest()
      room.finisherSignal.wait(seconds: unsettled.first.map { max(0, $0.due.seconds(since: room.clock.now)) })
    }
  }

  /// Finishes the next content; false when there is none.
  func turn() -> Bool {
    if let first = unsettled.first, first.due <= room.clock.now {
      unsettled.removeFirst()
      settle(first)
      return true
    }
    guard let next = room.finisher.takeFirst() else { return false }
    finish(next)
    return true
  }

  /// Asked between the pieces of long work.
  private func mustStop() -> Bool {
    ThreadRecord.work(.finishing)
    return room.isEnding
  }

  private func finish(_ content: Content) {
    ThreadRecord.work(.finishing)
    // nil: before the finisher took it, the keeper found that the disk had lost a part of it.
    guard let (generation, served) = content.guarded.withLock({ $0.held.taken() }) else { return }
    guard let partial = served.partial, let size = generation.size else { return release(content) }
    // Once it waited for room, it is not read again before it has some.
    let space = ByteRange(0, size).blocks(of: StoreSpace.block).count
    let isReserved = waiting[content.key] != nil && room.reserve(space, for: .copy(content.key))
    if waiting[content.key] != nil, !isReserved, mayFit(space) { return wait(content, space) }
    var reserved = isReserved ? space : 0
    var lacking: Int64?
    var intent: String?
    defer { room.ledger.release(reserved) }  // what is there of a copy that failed, the next measurement finds
    do {
      // The sync comes before the checksum, so that bytes lost by the disk do not show up as a wrong checksum.
      try calling("its partial file cannot be synced") { () throws(Errno) in try partial.syncData() }
      room.health.syncSucceeded(content.key)
      if let problem = try mismatch(content, partial.fileDescriptor, size) {
        if room.isEnding { return release(content) }
        // Bytes that the disk lost do not mean that the origin sent wrong ones.
        if let error = partial.syncFailure { return syncFailed(content, served, error) }
        return reject(content, problem, isWrong: true)
      }
      let copy = try place(
        content, generation, partial, size, reserved: &reserved, lacking: &lacking, intent: &intent)
      complete(content, copy, served)
    } catch {
      if let error = partial.syncFailure { return syncFailed(content, served, error) }
      if room.isEnding { return release(content) }
      if error.kind == .full, let lacking { return wait(content, lacking) }
      if let intent, (try? partial.isMoved()) ?? false {
        let file = Unsettled(content: content, generation: generation, size: size, served: served, path: intent)
        return settleLater(file, error)
      }
      reject(content, "complete, but it cannot be placed in the library: \(error.message)", isWrong: false)
    }
  }

  /// The catalog has the copy: reads are answered from it from now on.
  private func complete(_ content: Content, _ copy: LibraryCopy, _ served: ServedFile) {
    let file = opened(copy, of: content, served)
    guard content.guarded.withLock({ $0.held.placed(copy, from: served, as: file) }) else {
      return reject(
        content, "it changed while it was placed; its copy is used from the next mount on", isWrong: false)
    }
    waiting[content.key] = nil
    Log.info("\(content.path): complete, \(copy.size) bytes, in the library as \(copy.path)")
    room.transfers.post(.completed(content, copy))
  }

  /// The copy, open for reading. Where it cannot be opened, reads go on from the file that was placed: each later open
  /// looks whether a user changed the copy.
  private func opened(_ copy: LibraryCopy, of content: Content, _ served: ServedFile) -> ServedFile {
    do throws(StoreError) {
      return ServedFile(copy: try room.store.copies.open(copy))
    } catch {
      Log.warning("\(content.path): \(error.message)")
      return ServedFile(placed: served)
    }
  }

  /// What follows the rename of a file into the library failed: it is tried again in a while.
  private func settleLater(_ file: Unsettled, _ error: StoreError) {
    var file = file
    if file.message != error.message {
      Log.error("\(file.content.path): it is in the library, and the store cannot note that yet: \(error.message)")
    }
    file.message = error.message
    file.due = room.clock.now.adding(seconds: StoreHealth.refusedSeconds)
    unsettled.append(file)
  }

  /// Does with a file that is in the library what the next start of the server would do (``StoreRecovery``).
  private func settle(_ file: Unsettled) {
    ThreadRecord.work(.finishing)
    room.ledger.changes()
    var (released, copies): (Int64, Int64) = (0, 0)
    defer { room.ledger.changed(released: released, copies: copies) }
    do throws(StoreError) {
      let found = try room.store.copies.recover(
        intent: file.path, size: file.size, modified: file.generation.validators.lastModified, partialExists: false)
      guard let copy = found else {
        // What is read from the file is the user's. It counts as open until it is cleared, so that it is not put away
        // before. A version that was replaced only lasts as long as its handles.
        let (room, content) = (room, file.content)
        let isCurrent = content.guarded.withLock { guarded in
          if !guarded.held.isSuperseded { guarded.waiters.opened() }
          return !guarded.held.isSuperseded
        }
        reject(content, "its copy in the library was changed or removed", isWrong: false)
        if isCurrent { room.transfers.post(.clear(content, then: { room.uncount(content) })) }
        return
      }
      (released, copies) = try commit(copy, adopted: false, of: file.content, file.generation.id)
      complete(file.content, copy, file.served)
    } catch {
      settleLater(file, error)
    }
  }

  private func reject(_ content: Content, _ message: String, isWrong: Bool) {
    room.transfers.post(.rejected(content, message: message, isWrong: isWrong))
  }

  /// Hands a failed sync to the keeper: the bytes that are not on disk become holes, and the file partial.
  private func syncFailed(_ content: Content, _ file: ServedFile, _ error: Errno) {
    file.invalidate()  // at once, because reads may be about to use it
    room.keeper.post(.job { $0.syncFailed(content, file, error) })
    release(content)
  }

  /// Gives the file up unchanged.
  private func release(_ content: Content) { content.guarded.withLock { $0.held.released() } }

  /// Why the file is not accepted (also when the server ends); nil when its bytes are right.
  private func mismatch(_ content: Content, _ descriptor: Int32, _ size: Int64) throws(StoreError) -> String? {
    let own = content.entry.checksum
    let (link, shared) = content.guarded.withLock { ($0.linkChecksum, $0.shared) }
    let others: Checksum? = if case .sha256(let checksum) = shared { checksum } else { nil }
    guard let expected = own ?? link ?? others else {
      if case .differs = shared { return "blocks of the fleet's store are not those of its digests" }
      return nil
    }
    let found = try Digester.digest(
      of: descriptor, size: size, expected.algorithm, isCancelled: mustStop)
    guard let found else { return "stopped" }
    if found == expected.digest { return nil }
    if own == nil, link == nil { return "its sha-256 is not the one that the fleet's store has of it" }
    if own == nil { return "its \(expected.algorithm.rawValue) is not the one that its resolver tells of" }
    return "its \(expected.algorithm.rawValue) is not the manifest's (line \(content.entry.line))"
  }

  /// The file is complete, and `--max-size` leaves no room for its copy yet: the keeper makes some, and the
  /// transfer thread brings it back in a while.
  private func wait(_ content: Content, _ space: Int64) {
    if waiting.count >= Self.mostWaiting { waiting = [:] }
    let tries = (waiting[content.key] ?? 0) + 1
    waiting[content.key] = tries
    if tries <= Self.mostPromises {
      let until = room.clock.now.adding(seconds: 3 * StoreHealth.refusedSeconds)
      room.ledger.promise(space, to: content.key, until: until)
      room.keeper.post(.measureSpace)
    }
    room.transfers.post(.waitsForRoom(content))
  }

  /// Whether the partial file and a copy of it may be there at once, when all goes that may.
  private func mayFit(_ space: Int64) -> Bool { room.ledger.balance.forOthers - space >= space }

  /// `reserved`: what was reserved for a copy, and is not yet written. `lacking`: what has to be free first, if it
  /// fails for that. `intent`: the path that was last noted.
  private func place(
    _ content: Content, _ generation: GenerationRecord, _ partial: any OpenPartialFile, _ size: Int64,
    reserved: inout Int64, lacking: inout Int64?, intent: inout String?
  ) throws(StoreError) -> LibraryCopy {
    let all = ByteRangeSet(ByteRange(0, size))
    try room.store.changes.apply(
      [.learned(generation), .extents(generation: generation.id, stored: all, synced: all)], durably: true)
    // A copy on another filesystem takes long. Until its rename, what is reserved for it counts.
    var isChanging = false
    var (released, copies): (Int64, Int64) = (0, 0)
    defer { if isChanging { room.ledger.changed(released: released, copies: copies) } }
    func begin() {
      if !isChanging { room.ledger.changes() }
      isChanging = true
    }
    let placed = try partial.place(
      as: content.path, size: size, modified: generation.validators.lastModified, isCancelled: mustStop,
      reserve: { (bytes) throws(StoreError) in
        // On another filesystem the file is there twice for a while.
        if isChanging { room.ledger.changed() }
        isChanging = false
        if reserved > 0 { return }
        let space = ByteRange(0, bytes).blocks(of: StoreSpace.block).count
        guard room.reserve(space, for: .copy(content.key)) else {
          if mayFit(space) { lacking = space }
          throw StoreError(
            kind: .full,
            message: "--max-size has no room for it: a library on another filesystem takes twice its size, beside the "
              + "complete files that stay: raise it")
        }
        reserved = space
      },
      recordIntent: { (path) throws(StoreError) in
        begin()
        try room.store.changes.apply([.placing(generation: generation.id, path: path)], durably: true)
        intent = path
      })
    begin()
    (released, copies) = try commit(placed.copy, adopted: placed.adopted, of: content, generation.id)
    if placed.adopted { return placed.copy }
    room.ledger.written(reserved)
    reserved = 0
    return placed.copy
  }

  /// Has the catalog know the copy, durably, and removes what the copy leaves of the partial file. Returns the space
  /// that this gives back, and how much of what stays is in complete copies from now on.
  private func commit(
    _ copy: LibraryCopy, adopted: Bool, of content: Content, _ generation: Int64
  ) throws(StoreError) -> (released: Int64, copies: Int64) {
    try room.store.changes.apply([.placed(generation: generation, copy, adopted: adopted)], durably: true)
    let copies = adopted ? 0 : ByteRange(0, copy.size).blocks(of: StoreSpace.block).count
    do throws(StoreError) {
      // The partial file is still there after an adoption or a copy to another filesystem.
      return (try room.store.partials.remove(generation), copies)
    } catch {
      Log.error("\(content.path): \(error.message)")  // the next start removes it
      return (0, copies)
    }
  }
}
