import Base
import Manifest
import Media
import Storing

/// Jobs of the keeper. Before bytes of a partial file go, the catalog forgets them, durably. It forgets a copy after
/// the copy is gone.
extension Keeper {
  /// How many items one job of ``each(of:_:then:)`` takes: with a few milliseconds each, commits are not late.
  private static let itemsAtOnce = 64

  /// Does `body` with each item, in their order, and then `end`. What is left after some of them is another job, behind
  /// the messages that came meanwhile, so that the keeper commits in time. Once the server ends, it is left out.
  func each<Item: Sendable>(
    of items: ArraySlice<Item>, _ body: @escaping @Sendable (Keeper, Item) -> Void,
    then end: @escaping @Sendable (Keeper) -> Void = { _ in }
  ) {
    for item in items.prefix(Self.itemsAtOnce) {
      if room.isEnding { return end(self) }
      ThreadRecord.work(.messages)  // each item is another piece of work
      body(self, item)
    }
    let rest = items.dropFirst(Self.itemsAtOnce)
    if rest.isEmpty { return end(self) }
    parted += 1
    room.keeper.post(
      .job { keeper in
        keeper.parted -= 1
        keeper.each(of: rest, body, then: end)
      })
  }

  /// Does `body` once the jobs that were given before, and have a part to come, are done.
  func afterParts(_ body: @escaping @Sendable (Keeper) -> Void) {
    if parted == 0 || room.isEnding { return body(self) }
    room.keeper.post(.job { $0.afterParts(body) })
  }

  /// Removes the stored bytes of a frozen content, or its copy in the library, then has it thawed.
  func discard(_ content: Content) {
    defer { room.transfers.post(.thaw(content)) }
    guard let generation = content.guarded.withLock({ $0.held.generation }) else { return }
    do {
      if let copy = generation.copy { try room.remove(copy, of: generation.id) }
      try room.store.changes.apply([.dropped(generation: generation.id)], durably: true)
      let old = content.guarded.withLock { guarded -> ServedFile? in
        guarded.waiters.forgetRuns()
        return guarded.held.dropped()
      }
      room.films.forget(generation.id)
      _ = old  // reads in progress keep it open; its disk space is freed with the last of them
      try room.removePartial(generation.id)
      let file = ServedFile(partial: try room.store.partials.open(generation.id, create: true))
      content.guarded.withLock { $0.held.serves(file) }
    } catch {
      Log.error("\(content.path): the stored bytes cannot be removed: \(error.message)")
    }
  }

  /// Forgets a generation that no inode leads to any more, and deletes its partial file.
  func forget(_ generation: Int64) throws(StoreError) {
    try room.store.changes.apply([.forgotten(generation: generation)], durably: true)
    try room.removePartial(generation)
  }

  /// Tells the transfer thread what earlier mounts learned of hosts.
  func tellHosts() {
    do throws(StoreError) {
      let notes = try room.store.notes.hosts()
      if !notes.isEmpty { room.transfers.post(.hosts(notes)) }
    } catch {
      Log.warning("what earlier mounts learned of hosts cannot be read: \(error.message)")
    }
  }

  // MARK: Unfinished files

  /// Resumes unfinished files, a few at a time.
  func resumeMore(after place: Resuming.Place) {
    var next: Resuming.Place?
    do {
      switch place {
      case .pins(let key): next = try resumePins(after: key)
      case .kept(let walk, let isRetry):
        next = try resumeKept(walk, isRetry: isRetry)
        // Most have no such rule.
        if next == nil { next = try resumeGenerations(after: 0) }
      case .generations(let id): next = try resumeGenerations(after: id)
      }
    } catch {
      Log.error("unfinished downloads cannot be looked up: \(error.message)")
      return room.transfers.post(.resumedUnread(after: place))
    }
    room.transfers.post(.resumedUntil(next))
  }

  private func resumeGenerations(after id: Int64) throws(StoreError) -> Resuming.Place? {
    let found = try room.store.generations.continuing(limit: TransferThread.resumedAtOnce, after: id)
    for generation in found where !(try room.rules(of: generation.key)).isPaused { _ = try resume(generation.key) }
    guard let last = found.last, found.count == TransferThread.resumedAtOnce else { return nil }
    return .generations(after: last.id)
  }

  private func resumePins(after key: ResourceKey?) throws(StoreError) -> Resuming.Place {
    let keys = try room.store.notes.pins(limit: TransferThread.resumedAtOnce, after: key)
    for key in keys where !(try room.rules(of: key)).isPaused {
      let content = try resume(key)
      // An earlier server completed the file, but ended before it committed this, or did not know pins.
      if content?.guarded.withLock({ $0.held.isCopy }) ?? false { room.record(.pinned(key, false)) }
    }
    if let last = keys.last, keys.count == TransferThread.resumedAtOnce { return .pins(after: last) }
    return .kept(KeptWalk(), isRetry: false)
  }

  /// Loads a file and has its rest fetched; nil if it cannot be loaded, or is not listed.
  func resume(_ key: ResourceKey) throws(StoreError) -> Content? {
    guard let entry = try room.store.tree.entries(of: key).first else { return nil }
    // The log says why a content cannot be loaded. The others are resumed.
    guard let content = try? room.content(of: entry.node.inode) else { return nil }
    room.transfers.post(.resume(content))
    return content
  }

  // MARK: What comes next, for ``NextFiles``: the transfer thread reads neither the catalog nor a file.

  /// Finds the files that follow the one of `content`, and tells the transfer thread. Completed ones are left out.
  func findNext(of content: Content, count: Int) {
    measureSpare()
    readIndex(of: content)
    var next: [Content] = []
    do throws(StoreError) {
      let entries = try room.store.tree.entries(of: content.key)
      let opened = content.guarded.withLock { $0.waiters.lastOpened }
      let node = (entries.first { $0.node.inode == opened } ?? entries.first)?.node
      for sibling in try node.map({ (node) throws(StoreError) in try following(node, count: count) }) ?? [] {
        do throws(Errno) {
          let found = try room.content(of: sibling.inode, opening: true)
          next.append(found)
        } catch {
          Log.debug("\(sibling.name): not fetched ahead: \(error)")  // its own open reports it
        }
      }
    } catch {
      Log.error("\(content.path): the files that follow it cannot be looked up: \(error.message)")
    }
    room.transfers.post(.next(of: content, next))
  }

  private func following(_ node: Node, count: Int) throws(StoreError) -> [Node] {
    var files: [Node] = []
    var isWhole = true
    var cookie: Int64 = 0
    var seen = 0
    while true {
      let page = try room.store.tree.list(node.parent, after: cookie, limit: 512)
      seen += page.count
      files += page.filter { $0.kind == .file }
      guard let last = page.last, page.count == 512 else { break }
      cookie = last.entry
      if seen > NextInFolder.mostCompared {
        isWhole = false
        break
      }
    }
    if !isWhole { files = [node] + (try room.store.tree.list(node.parent, after: node.entry, limit: 64)) }
    return NextInFolder.following(node, in: files, count: count)
  }

  /// Reads the index of a file as far as its stored bytes tell.
  func readIndex(of content: Content) { _ = room.films.index(of: content) }
}
