import Base
import Manifest
import Media
import Storing

/// The reports of a running server: what memory knows of a file, and the catalog of the others. Any thread may ask, and
/// waits for the disk.
package struct FileReports: Sendable {
  let room: ReadingRoom
  private var store: StoreAccess { room.store }

  init(_ room: ReadingRoom) { self.room = room }

  /// The state of a file that is in memory; nil when only the catalog knows it.
  package func live(on node: Node, path: String) throws(Errno) -> FileReport? {
    guard let content = room.table.withLock({ $0.contents[node.inode] ?? $0.current[node.key] }) else { return nil }
    return try report(on: content, path: path)
  }

  /// What a resource in memory is called in the mount.
  package func path(of key: ResourceKey) -> String? { room.table.withLock { $0.current[key]?.path } }

  /// The state of a file that is in memory.
  func report(on content: Content, path: String) throws(Errno) -> FileReport {
    var facts = FileFacts()
    let now = room.clock.now
    let (isComplete, generation, isWanted, rules, reading) = content.guarded.withLock { guarded in
      facts.stored = guarded.held.stored
      facts.size = guarded.held.size
      facts.activity = guarded.activity
      facts.opens = guarded.waiters.opens
      facts.readers = guarded.waiters.readers(now)
      return (
        guarded.held.isCopy, guarded.held.generation,
        guarded.rules.storage == .keep || goesOn(guarded.held.generation, guarded.held.isPinned), guarded.rules,
        guarded.waiters.reading(guarded.activity?.film, now)
      )
    }
    facts.readers = facts.readers.compactMap { $0.named() }
    facts.lastError = room.table.withLock { $0.errors[content.key] }
    facts.server = FileFacts.Server(
      lacksSpace: room.health.intake != .everything, lack: room.health.lack, isWanted: isWanted, rules: rules)
    if facts.activity == nil {
      let problem = try room.io { () throws(StoreError) in try store.notes.problem(of: content.key) }
      facts.problem = problem.map { LastError($0, now: room.clock.now) }
    }
    if isComplete, let copy = generation?.copy {
      facts.copy = try room.io { () throws(StoreError) in
        try FileFacts.Copy(copy, store.copies, path: store.copies.path)
      }
    }
    facts.film = room.films.index(of: content).map {
      FilmFacts(index: $0, supply: facts.activity.map(\.supply) ?? supply(of: content.entry), reading: reading)
    }
    return FileReport(path: path, facts, now: now)
  }

  /// What the line of an entry brings; nil: not known.
  private func supply(of entry: ManifestEntry) -> FilmSupply? {
    guard let url = entry.urls.first else { return nil }
    return room.supplies.withLock { $0[Line.key(of: url)] }
  }

  /// The state of a file that is not in memory, with what the catalog knows of it. `readsIndex`: when it plays is told
  /// too, if its stored bytes tell.
  package func report(
    on node: Node, path: String, generation: GenerationRecord?, problem: NotedProblem?, readsIndex: Bool = false
  ) throws(StoreError) -> FileReport {
    let now = room.clock.now
    var facts = try FileFacts(generation, problem, copies: store.copies, libraryPath: store.copies.path, now: now)
    facts.lastError = room.table.withLock { $0.errors[node.key] }
    let rules = try rules(of: node.key)
    var isWanted = rules.storage == .keep || goesOn(generation, false)
    // Of a file that has neither begun nor failed, the catalog can know only a pin. Few files are pinned, and the
    // catalog is not asked for each of a million.
    if !isWanted, generation != nil || facts.lastError != nil { isWanted = try store.notes.isPinned(node.key) }
    facts.server = FileFacts.Server(
      lacksSpace: room.health.intake != .everything, lack: room.health.lack, isWanted: isWanted, rules: rules)
    if let generation, let size = facts.size {
      let index =
        readsIndex ? index(of: generation, size: size, facts.stored) : room.films.known(of: generation.id)
      if let index {
        let entry = try store.tree.entry(node.inode)?.source
        facts.film = FilmFacts(index: index, supply: entry.flatMap { supply(of: $0) })
      }
    }
    return FileReport(path: path, facts, now: now)
  }

  /// The index of a file that is not in memory, from its partial file or its copy.
  private func index(of generation: GenerationRecord, size: Int64, _ stored: ByteRangeSet) -> FilmIndex? {
    var file: ServedFile?
    return room.films.index(
      of: generation.id,
      StoredBytes(size: size, stored: stored) { buffer, offset in
        do throws(StoreError) {
          if file == nil { file = try open(generation) }
          guard file?.fill(buffer, at: offset) ?? false else { return false }
          // The catalog forgets bytes before the keeper punches them out of the file.
          let range = ByteRange(at: offset, count: Int64(buffer.count))
          let now = try store.generations.current(of: generation.key)
          return now?.id == generation.id && now?.stored.contains(range) ?? false
        } catch {
          Log.debug("generation \(generation.id): its index cannot be read: \(error.message)")
          return false
        }
      })
  }

  private func open(_ generation: GenerationRecord) throws(StoreError) -> ServedFile {
    if generation.state == .complete, let copy = generation.copy {
      return ServedFile(copy: try store.copies.open(copy))
    }
    return ServedFile(partial: try store.partials.open(generation.id, create: false))
  }

  /// The state of a file of the tree. `readsIndex`: see above.
  package func report(on node: Node, readsIndex: Bool = false) throws(Errno) -> FileReport {
    let path = try room.io { () throws(StoreError) in try store.tree.path(of: node.inode) } ?? node.name
    if let live = try live(on: node, path: path) { return live }
    return try room.io { () throws(StoreError) in
      try report(
        on: node, path: path, generation: try store.generations.current(of: node.key),
        problem: try store.notes.problem(of: node.key), readsIndex: readsIndex)
    }
  }

  /// The files that something goes on with.
  package var active: ActiveFiles { ActiveFiles(room) }

  /// The lines that were used, the busiest `most`.
  package func lines(_ most: Int) -> [LineReport] { room.lines.busiest(most, now: room.clock.now) }

  /// The resources whose last error is in memory. The catalog may know nothing of them.
  package var failing: [ResourceKey] { room.table.withLock { $0.errors.keys } }

  /// The user's rules.
  package var rules: Rules { room.rules.withLock { $0 } }

  /// What the user's rules say of a resource.
  package func rules(of key: ResourceKey) throws(StoreError) -> FileRules { try room.rules(of: key) }

  /// Whether an error of the resource is in memory.
  package func remembersError(of key: ResourceKey) -> Bool { room.table.withLock { $0.errors[key] != nil } }

  /// Whether a file that nobody has open will be completed when its turn comes.
  private func goesOn(_ generation: GenerationRecord?, _ isPinned: Bool) -> Bool {
    guard isPinned || generation?.continues == true else { return false }
    return room.options.continuation.goesOn(isRequested: isPinned, isOpen: false)
  }
}
