import Base
import Fetching
import Storing

/// From bytes that came to answered reads: into the partial file or, when the store takes no more, into memory for a
/// while.
extension Engine {
  /// Puts what is not here yet where it belongs and answers the reads that are whole with it. False when it cannot be
  /// kept.
  func land(_ bytes: UnsafeRawBufferPointer, at start: Int64, _ source: Source) -> Bool {
    let content = source.content
    let whole = ByteRange(at: start, count: Int64(bytes.count))
    var position = start
    while position < whole.end {
      let rest = ByteRange(position, whole.end)
      let isUnstored = isUnstored(source)
      let (file, isFrozen, gap) = content.guarded.withLock { guarded in
        let gap = isUnstored ? guarded.state.available.firstGap(in: rest) : guarded.state.stored.firstGap(in: rest)
        return (guarded.file, guarded.isFrozen || guarded.phase != .partial, gap)
      }
      guard let gap else { break }
      if isFrozen { return false }
      let part = UnsafeRawBufferPointer(rebasing: bytes[Int(gap.start - start)..<Int(gap.end - start)])
      if isUnstored {
        guard keep(part, at: gap.start, source) else { return false }
      } else {
        do throws(Errno) {
          let current = if let file { file } else { try openAgain(content) }
          guard let current, let partial = current.partial else { return false }  // taken away meanwhile
          try partial.write(part, at: gap.start)
          // Written to a file whose sync failed meanwhile: once more, to what took its place.
          if !stored(part, at: gap.start, in: current, source) { continue }
        } catch {
          cannotStore(source, error)
          continue
        }
      }
      source.freshBytes += gap.count
      position = gap.end
    }
    return true
  }

  /// Whether what comes for it is kept in memory for a while, and that is all.
  func isUnstored(_ source: Source) -> Bool {
    isFull || source.isRefused || source.content.guarded.withLock { $0.isOverclaimed }
  }

  /// Opens the partial file of a content that has none open: it could not be opened before. nil when its bytes are
  /// being taken away.
  private func openAgain(_ content: Content) throws(Errno) -> ServedFile? {
    guard let id = content.guarded.withLock({ $0.generation?.id }) else { return nil }
    let opened: ServedFile
    do throws(StoreError) {
      opened = ServedFile(partial: try PartialFile(in: store.folder, id: id, create: true))
    } catch {
      Log.error("\(content.path): \(error.message)")
      throw error.errno
    }
    return content.guarded.withLock { guarded in
      if guarded.isFrozen || guarded.isOverclaimed || guarded.phase != .partial { return nil }
      if guarded.file == nil { guarded.file = opened }
      return guarded.file
    }
  }

  /// Bytes were written: answers the reads that are whole with them. False when `file` is not the content's any more:
  /// then nothing is stored.
  func stored(
    _ bytes: UnsafeRawBufferPointer, at offset: Int64, in file: ServedFile, _ source: Source
  ) -> Bool {
    let content = source.content
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    let now = source.lastBytes
    let landed = content.guarded.withLock { guarded -> (released: [ParkedRead], wasClean: Bool)? in
      guard guarded.file === file else { return nil }
      guarded.unsynced += range.count
      if guarded.unsyncedSince == nil { guarded.unsyncedSince = now }
      let wasClean = !guarded.state.isDirty
      return (guarded.state.landed(range), wasClean)
    }
    guard let landed else { return false }
    if landed.wasClean { keeper.markDirty(content) }
    for read in landed.released {
      if range.contains(read.range) {
        // All of it has just come: it need not be read back from the file.
        let first = Int(read.range.start - offset)
        port.reply(
          read.ticket, data: UnsafeRawBufferPointer(rebasing: bytes[first..<first + Int(read.range.count)]))
      } else {
        answer(read, content)
      }
    }
    return true
  }

  /// A write failed, or the file could not be opened: what is read goes on in memory. Where the error speaks of the
  /// disk, of every file, until there is room; where it passes, for a while; else of this one, until it is opened
  /// again.
  func cannotStore(_ source: Source, _ error: Errno) {
    let advice: String
    if error.isOfDisk {
      advice = "free some space or raise --max-size"
      isFull = true
      isAtLimit = true
      keeper.storeFailed()
    } else if error.isPassing {
      advice = "it is tried again in a moment"
      let pause = source.lastBytes.adding(seconds: Keeper.refusedSeconds)
      source.pausedUntil = max(source.pausedUntil ?? pause, pause)
    } else {
      advice = "it is tried again when it is opened"
      source.cannotBeStored = true
    }
    let message = "cannot store: \(error); it is played without being stored: \(advice)"
    if source.lastError?.message != message { Log.error("\(source.content.path): \(message)") }
    note(message, of: source)
  }

  /// Keeps what cannot be stored in memory, within bounds. False when there is no room for it: it is asked for again.
  private func keep(_ bytes: UnsafeRawBufferPointer, at offset: Int64, _ source: Source) -> Bool {
    let content = source.content
    var kept = sources.values.reduce(Int64(0)) { sum, source in
      sum + source.content.guarded.withLock { $0.state.memory.count }
    }
    let others = kept + Int64(bytes.count) > MemoryWindow.mostInAll ? sourcesInOrder : []
    for other in others where kept + Int64(bytes.count) > MemoryWindow.mostInAll && other !== source {
      // Who waits for nothing has read what was kept for it, or reads it once more.
      kept -= other.content.guarded.withLock { guarded -> Int64 in
        guard !guarded.state.hasWaiters else { return 0 }
        defer { guarded.state.memory = MemoryWindow() }
        return guarded.state.memory.count
      }
    }
    // Who has less than the least takes it from those who have more, though they wait: what they wait for stays.
    if content.guarded.withLock({ $0.state.memory.count }) < MemoryWindow.least {
      for other in others where kept + Int64(bytes.count) > MemoryWindow.mostInAll && other !== source {
        kept -= other.content.guarded.withLock { guarded -> Int64 in
          let before = guarded.state.memory.count
          guarded.state.memory.shrink(to: MemoryWindow.least, keeping: guarded.state.parkedReads.map(\.range))
          return before - guarded.state.memory.count
        }
      }
    }
    let released = content.guarded.withLock { guarded -> [ParkedRead]? in
      guard kept + Int64(bytes.count) > MemoryWindow.mostInAll else {
        return guarded.state.kept(bytes, at: offset, most: MemoryWindow.most)
      }
      if guarded.state.memory.isEmpty { return nil }
      // It has to do with what it has.
      let most = max(MemoryWindow.least, guarded.state.memory.count)
      return guarded.state.kept(bytes, at: offset, most: most)
    }
    guard let released else {
      source.retry.failed(
        TransferFailure(kind: .transient, message: "no room in memory"), now: source.lastBytes, random: jitter())
      return false
    }
    for read in released { answer(read, content) }
    return true
  }

  /// There is room again: what was kept in memory is stored, so that no byte is fetched twice.
  func storeWhatIsKept(_ source: Source) {
    let kept = source.content.guarded.withLock { guarded in
      guarded.isFrozen || guarded.phase != .partial ? [] : guarded.state.memory.takeAll()
    }
    for piece in kept {
      let isDone = piece.bytes.withUnsafeBytes { land($0, at: piece.offset, source) }
      if !isDone { return }  // fetched again when it is read
    }
    if !kept.isEmpty { dirty.insert(source.key) }
  }

  /// Answers a read that is whole now.
  func answer(_ read: ParkedRead, _ content: Content) {
    let count = Int(read.range.count)
    if count == 0 { return port.reply(read.ticket, data: UnsafeRawBufferPointer(start: nil, count: 0)) }
    if count <= scratch.count {
      reply(read, through: UnsafeMutableRawBufferPointer(rebasing: scratch[..<count]), content)
    } else {
      let long = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 4096)
      defer { long.deallocate() }
      reply(read, through: long, content)
    }
  }

  private func reply(_ read: ParkedRead, through buffer: UnsafeMutableRawBufferPointer, _ content: Content) {
    if content.fill(buffer, at: read.range.start) {
      port.reply(read.ticket, data: UnsafeRawBufferPointer(buffer))
    } else if content.parkAgain(read) {
      dirty.insert(content.key)  // the disk lost it in between
    } else {
      Log.error("\(content.path): what was just stored at \(read.range) cannot be read: \(Errno.current)")
      port.reply(read.ticket, error: .io)
    }
  }
}
