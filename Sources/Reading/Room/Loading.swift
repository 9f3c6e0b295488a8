import Base
import Glibc
import Manifest
import Storing

/// Loads contents from the catalog into memory.
extension ReadingRoom {
  /// The content behind an inode; loads it when it is not in memory. `opening` counts an open at once, so that the
  /// transfer thread does not put the content away before the caller uses it. ESTALE when a newer generation has
  /// replaced the inode's.
  func content(of inode: Inode, opening: Bool = false) throws(Errno) -> Content {
    while true {
      let (there, departures) = inMemory(inode, opening: opening)
      if let there { return there }
      // The kernel has no inode that the catalog did not have: its version was replaced. At ESTALE the kernel looks the
      // name up again, also if it was not told, or not yet, that the name leads elsewhere.
      guard let entry = try io({ () throws(StoreError) in try store.tree.entry(inode) }) else {
        guard table.withLock({ $0.owedOpens[inode] != nil }) else { throw .stale }
        return try superseded(inode, opening: opening)
      }
      if entry.node.kind == .folder { throw .isDirectory }
      let isLeaving = table.withLock { $0.leaving.contains(entry.node.key) }
      if isLeaving {
        usleep(1000)  // the keeper is unlinking its bytes: this waits for the disk, never for the network
        continue
      }
      let loaded = try load(entry)
      try recallProblem(of: entry.node.key)
      let content = table.withLock { table -> Content? in
        // Since this thread read the catalog, the resource may have been cleared, evicted or superseded.
        if table.leaving.contains(entry.node.key) || table.departures != departures { return nil }
        let content = table.insert(loaded, inode: inode)
        table.listedSizes.loaded(inode, size: entry.source.facts?.size)
        if opening { content.guarded.withLock { $0.waiters.opened() } }
        return content
      }
      guard let content else { continue }
      if content === loaded {
        let (isUnsynced, isModified) = content.guarded.withLock { ($0.held.unsynced > 0, $0.held.holding == .modified) }
        // The keeper also syncs what an earlier server left unsynced.
        if isUnsynced { keeper.post(.grew(content)) }
        if isModified { happened(.changed, to: content, "its copy in the library was changed or removed") }
      }
      return content
    }
  }

  private func inMemory(_ inode: Inode, opening: Bool) -> (Content?, departures: UInt64) {
    table.withLock { table in
      guard let content = table.contents[inode] else { return (nil, table.departures) }
      if opening { content.guarded.withLock { $0.waiters.opened() } }
      return (content, table.departures)
    }
  }

  /// An error that an earlier server recorded is shown until bytes arrive.
  private func recallProblem(of key: ResourceKey) throws(Errno) {
    guard let problem = try io({ () throws(StoreError) in try store.notes.problem(of: key) }) else { return }
    let error = LastError(problem, now: clock.now)
    table.withLock { if $0.errors[key] == nil { $0.errors.note(error, of: key) } }
  }

  private func load(_ entry: EntryRecord) throws(Errno) -> Content {
    let held = try io { () throws(StoreError) in
      let isPinned = try store.notes.isPinned(entry.node.key)
      // Looked up before the catalog is: the keeper may record it in between.
      let unrecorded = table.withLock { $0.unrecorded[entry.node.key] }
      let recorded = try store.generations.current(of: entry.node.key)
      let isNewer = (unrecorded?.id ?? 0) > (recorded?.id ?? 0)
      guard let generation = isNewer ? unrecorded : recorded else { return FileState(isPinned: isPinned) }
      return try self.held(try ofThisMount(generation), entry, isPinned: isPinned)
    }
    let rules = try io { () throws(StoreError) in try self.rules(of: entry.node.key) }
    return Content(record: entry, held: held, rules: rules)
  }

  /// What is held of `generation`, with its file open.
  func held(
    _ generation: GenerationRecord, _ entry: EntryRecord, isPinned: Bool
  ) throws(StoreError) -> FileState {
    var held = FileState(
      loading: generation, try loaded(generation, entry), isPinned: isPinned, now: clock.now)
    if held.isCopy || held.generation == nil { return held }
    do throws(StoreError) {
      held.serves(ServedFile(partial: try store.partials.open(generation.id, create: true)))
    } catch {
      // Without stored bytes nothing is lost: reads are answered from memory.
      if !held.stored.isEmpty { throw error }
      Log.error("\(entry.path): \(error.message)")
    }
    return held
  }

  private func loaded(_ generation: GenerationRecord, _ entry: EntryRecord) throws(StoreError) -> FileState.Loaded {
    if generation.state != .partial, let copy = generation.copy {
      if try store.copies.check(copy) == .intact {
        return .copy(copy, file: ServedFile(copy: try store.copies.open(copy)))
      }
      try setAside(generation, path: entry.path)
      // Also for a removed copy: while the file was not in memory, the user may have changed the copy before.
      return .modified
    }
    // Without a length nobody can tell what is missing: the file is fetched from its start as a new generation.
    if generation.size == nil { return .useless }
    let stored = try present(generation, entry)
    // Of the bytes that a killed server left, only the synced ones are known to survive a power loss.
    return .partial(stored: stored, synced: stored.intersection(generation.synced))
  }

  /// Without validators, nobody can tell later whether the origin still has the same bytes: partial bytes last one
  /// mount (P1). A new generation takes the place of an earlier mount's.
  private func ofThisMount(_ earlier: GenerationRecord) throws(StoreError) -> GenerationRecord {
    guard earlier.validators.isEmpty, earlier.size != nil, earlier.id < beginning.firstID,
      earlier.state == .partial || earlier.copy == nil
    else { return earlier }
    var generation = GenerationRecord(
      id: try store.changes.nextID(), key: earlier.key, validators: earlier.validators, size: earlier.size,
      mediaType: earlier.mediaType)
    generation.continues = earlier.continues
    do throws(StoreError) {
      try store.changes.apply([.forgotten(generation: earlier.id), .learned(generation)], durably: true)
    } catch {
      // Another thread that loads the same file was faster, with a later number.
      if let other = try store.generations.current(of: earlier.key), other.id >= beginning.firstID { return other }
      throw error
    }
    films.forget(earlier.id)
    try removePartial(earlier.id)
    // The same with an earlier number: the catalog keeps the other thread's generation.
    return try store.generations.current(of: earlier.key) ?? generation
  }

  /// The extents that the catalog claims and the file really has. Drops each claim without bytes, with a warning in the
  /// log.
  private func present(_ generation: GenerationRecord, _ entry: EntryRecord) throws(StoreError) -> ByteRangeSet {
    if generation.stored.isEmpty { return generation.stored }
    let file: any OpenPartialFile
    do {
      file = try store.partials.open(generation.id, create: false)
    } catch {
      // Too many open files say nothing about this one: its bytes are still there.
      if error.errno.isPassing { throw error }
      Log.warning(
        "\(entry.path): its partial file is missing; \(generation.stored.count) bytes are fetched again")
      try forget(generation, except: ByteRangeSet())
      return ByteRangeSet()
    }
    let there: ByteRangeSet
    do throws(Errno) {
      there = try file.dataRanges()
    } catch {
      throw StoreError(kind: .io(error), message: "looking at partial file \(generation.id): \(error)")
    }
    let kept = generation.stored.intersection(there)
    if kept != generation.stored {
      let lost = generation.stored.count - kept.count
      Log.warning("\(entry.path): \(lost) bytes are not in its partial file and are fetched again")
      try forget(generation, except: kept)
    }
    return kept
  }

  /// Corrects the catalog before anything is written to the file again: bytes written behind a lost range would make
  /// that range look stored.
  private func forget(_ generation: GenerationRecord, except kept: ByteRangeSet) throws(StoreError) {
    let synced = kept.intersection(generation.synced)
    try store.changes.apply([.lost(generation: generation.id, stored: kept, synced: synced)], durably: true)
  }

  /// Drops the catalog's claim on a copy that a user changed or removed. The copy is theirs now; the entry is remote
  /// again.
  private func setAside(_ generation: GenerationRecord, path: String) throws(StoreError) {
    Log.info(
      "\(path): its copy in the library was changed or removed, and is left alone; it is fetched again when read")
    try store.changes.apply([.dropped(generation: generation.id)], durably: true)
    films.forget(generation.id)
  }

  /// Checks a completed copy. If a user changed or removed it, the content becomes remote again.
  func recheck(_ content: Content) throws(Errno) {
    let generation = content.guarded.withLock { $0.held.isCopy ? $0.held.generation : nil }
    guard let generation, let copy = generation.copy else { return }
    let state = try io { () throws(StoreError) in try store.copies.check(copy) }
    if state == .intact { return }
    try io { () throws(StoreError) in try setAside(generation, path: content.path) }
    let partial = try io { () throws(StoreError) in try store.partials.open(generation.id, create: true) }
    let file = ServedFile(partial: partial)
    // False: another open was faster.
    let isNews = content.guarded.withLock { guarded in
      let isNews = guarded.held.copyChanged(isModified: state == .modified, file: file)
      if isNews { guarded.waiters.forgetRuns() }
      return isNews
    }
    if isNews {
      happened(.changed, to: content, "its copy in the library was \(state == .modified ? "changed" : "removed")")
    }
  }

  /// Runs `body`. Logs a failure of the store and throws EIO to the reader.
  func io<Value>(_ body: () throws(StoreError) -> Value) throws(Errno) -> Value {
    do {
      return try body()
    } catch {
      Log.error(error.message)
      throw .io
    }
  }
}
