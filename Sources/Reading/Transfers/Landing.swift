import Base
import Fetching
import Storing

/// Stores the bytes that arrive, and answers the reads that they complete. When the store takes no more, the bytes are
/// kept in memory for a while. Owned by the transfer thread.
final class Landing {
  private let room: ReadingRoom
  private let answers: Answers
  private let downloads: Downloads
  private let jitter: () -> Double
  /// What the store takes in this turn.
  var intake = StoreHealth.Intake.everything
  /// Where the bytes come from that land now.
  var source = ReadSource.origin

  init(room: ReadingRoom, answers: Answers, downloads: Downloads, jitter: @escaping () -> Double) {
    self.room = room
    self.answers = answers
    self.downloads = downloads
    self.jitter = jitter
  }

  /// Stores or keeps the bytes that are still missing, and answers the reads that they complete. False when they could
  /// not be kept.
  func land(_ bytes: UnsafeRawBufferPointer, at start: Int64, _ download: Download) -> Bool {
    let content = download.content
    let whole = ByteRange(at: start, count: Int64(bytes.count))
    var position = start
    var lacksRoom = false
    while position < whole.end {
      let rest = ByteRange(position, whole.end)
      let isUnstored = lacksRoom || isUnstored(download)
      let (file, isLeaving, gap, space, isOpen) = content.guarded.withLock { guarded in
        let gap = isUnstored ? guarded.held.available.firstGap(in: rest) : guarded.held.stored.firstGap(in: rest)
        let space = gap.map { StoreLedger.space(of: $0, in: guarded.held.stored) } ?? 0
        let isLeaving = !guarded.held.isPartial || guarded.held.removal != .none
        return (guarded.held.file, isLeaving, gap, space, guarded.waiters.opens > 0)
      }
      guard let gap else { break }
      if isLeaving { return false }
      if isUnstored, isOpen, lacksRoom || room.ledger.isFull, room.ledger.lacksRoomForReader() {
        room.keeper.post(.measureSpace)
      }
      if !isUnstored, !room.reserve(space, for: isOpen ? .reader : .background) {
        lacksRoom = true
        continue
      }
      let part = UnsafeRawBufferPointer(rebasing: bytes[Int(gap.start - start)..<Int(gap.end - start)])
      if isUnstored {
        guard keep(part, at: gap.start, download) else { return false }
      } else {
        do throws(Errno) {
          let current = if let file { file } else { try openAgain(content) }
          guard let current, let partial = current.partial else {  // removed meanwhile
            room.ledger.release(space)
            return false
          }
          try partial.write(part, at: gap.start)
          room.ledger.written(space)
          // The file's sync failed meanwhile: writes once more, to the file that replaced it.
          if !noteStored(part, at: gap.start, in: current, download) { continue }
        } catch {
          // What was written of it, the next measurement finds.
          room.ledger.release(space)
          cannotStore(download, error)
          continue
        }
      }
      download.pace.fresh += gap.count
      position = gap.end
    }
    return true
  }

  /// Whether the bytes that arrive for the download are only kept in memory.
  func isUnstored(_ download: Download) -> Bool {
    intake == .nothing || room.ledger.isFull || download.ownFile.isPaused || download.wish.rules.storage == .online
      || download.content.guarded.withLock { $0.held.claim == .overclaimed }
  }

  /// Opens the partial file of a content whose file could not be opened before. nil while its bytes are being removed.
  private func openAgain(_ content: Content) throws(Errno) -> ServedFile? {
    guard let id = content.guarded.withLock({ $0.held.generation?.id }) else { return nil }
    let opened: ServedFile
    do throws(StoreError) {
      opened = ServedFile(partial: try room.store.partials.open(id, create: true))
    } catch {
      Log.error("\(content.path): \(error.message)")
      throw error.errno
    }
    return content.guarded.withLock { $0.held.reopened(opened) }
  }

  /// Notes that bytes were written, and answers the reads that they complete. False when `file` is not the content's
  /// any more: then nothing counts as stored.
  func noteStored(
    _ bytes: UnsafeRawBufferPointer, at offset: Int64, in file: ServedFile, _ download: Download
  ) -> Bool {
    let content = download.content
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    let now = download.pace.lastBytes
    let landed = content.guarded.withLock { $0.landed(range, in: file, now: now) }
    guard let landed else { return false }
    room.counters.add(landed.stalled, to: .stalledNanoseconds)
    for read in landed.released {
      if range.contains(read.range) {
        room.counters.read(Int(read.range.count), from: source, isScan: read.isScan)
        // All of the read has just arrived: it need not be read back from the file.
        let first = Int(read.range.start - offset)
        answers.reply(
          read.ticket, data: UnsafeRawBufferPointer(rebasing: bytes[first..<first + Int(read.range.count)]))
      } else {
        answers.answer(read, content, from: source)
      }
    }
    if landed.isNews { room.keeper.post(.grew(content)) }
    return true
  }

  /// Handles a failed write or open of the partial file: reads go on from memory. An error of the disk stops storing
  /// for every file until there is space. A passing error stops it for this file for ``StoreHealth/refusedSeconds``.
  /// Any other error stops it for this file until someone opens the file again.
  func cannotStore(_ download: Download, _ error: Errno) {
    let advice: String
    if error.isOfDisk {
      advice = "free some space"
      intake = .nothing
      room.health.writeFailed()
      room.keeper.post(.measureSpace)
    } else if error.isPassing {
      advice = "mediafs tries again in a moment"
      let pause = download.pace.lastBytes.adding(seconds: StoreHealth.refusedSeconds)
      download.ownFile.pausedUntil = max(download.ownFile.pausedUntil ?? pause, pause)
    } else {
      advice = "mediafs tries again at the next open"
      download.ownFile.isUnwritable = true
    }
    let message = "cannot store: \(error); reads go on without storing: \(advice)"
    if download.attempts.lastError?.message != message { Log.error("\(download.content.path): \(message)") }
    downloads.note(message, of: download)
  }

  /// Keeps bytes that cannot be stored in memory, within bounds. False when there is no space: they are requested
  /// again.
  private func keep(_ bytes: UnsafeRawBufferPointer, at offset: Int64, _ download: Download) -> Bool {
    let content = download.content
    var kept = downloads.all.reduce(Int64(0)) { sum, download in
      sum + download.content.guarded.withLock { $0.held.memory.count }
    }
    let others = kept + Int64(bytes.count) > MemoryWindow.mostInAll ? downloads.inOrder : []
    for other in others where kept + Int64(bytes.count) > MemoryWindow.mostInAll && other !== download {
      // A file without waiters gives up its bytes: they were read, or are fetched once more.
      kept -= other.content.guarded.withLock { guarded -> Int64 in
        guard guarded.waiters.isEmpty else { return 0 }
        return guarded.held.shrankMemory(to: 0, waited: [])
      }
    }
    // A file below its minimum takes memory from larger ones, but never bytes that a parked read needs.
    if content.guarded.withLock({ $0.held.memory.count }) < MemoryWindow.least {
      for other in others where kept + Int64(bytes.count) > MemoryWindow.mostInAll && other !== download {
        kept -= other.content.guarded.withLock { guarded -> Int64 in
          guarded.held.shrankMemory(to: MemoryWindow.least, waited: guarded.waiters.parkedReads.map(\.range))
        }
      }
    }
    let released = content.guarded.withLock { guarded -> [ParkedRead]? in
      guard kept + Int64(bytes.count) > MemoryWindow.mostInAll else {
        return guarded.kept(bytes, at: offset, most: MemoryWindow.most)
      }
      if guarded.held.memory.isEmpty { return nil }
      // The file gets no more memory than it has.
      let most = max(MemoryWindow.least, guarded.held.memory.count)
      return guarded.kept(bytes, at: offset, most: most)
    }
    guard let released else {
      download.attempts.retry.failed(
        TransferFailure(kind: .transient, message: "no space in memory"), now: download.pace.lastBytes, random: jitter()
      )
      return false
    }
    for read in released { answers.answer(read, content, from: source) }
    return true
  }

  /// Stores the bytes that were kept in memory, once there is space again, so that no byte is fetched twice.
  func storeWhatIsKept(_ download: Download) {
    let kept = download.content.guarded.withLock { guarded in
      guarded.held.removal != .none || !guarded.held.isPartial ? [] : guarded.held.emptiedMemory()
    }
    for piece in kept {
      let isDone = piece.bytes.withUnsafeBytes { land($0, at: piece.offset, download) }
      if !isDone { return }  // fetched again when it is read
    }
    if !kept.isEmpty { downloads.changed(download) }
  }
}
