import Base
import Glibc
import Storing

/// What a user asks for besides reading: fetch these files now, clear that one.
extension MediaFileSystem {
  /// Completes these files, also after a restart, and tries failed ones again.
  package func fetch(_ inodes: [Inode]) {
    // The keeper's thread loads them, a few milliseconds each, so that a folder of many files does not hold up a
    // client.
    room.keeper.post(.job { $0.each(of: inodes[...]) { keeper, inode in keeper.fetch(inode) } })
  }

  /// Commits everything that memory knows (not durably), for callers that read the catalog instead of the contents.
  /// Blocks for the disk, two seconds at most.
  package func commit() {
    let done = Signal()
    room.keeper.post(
      .job { keeper in
        keeper.commit(everything: false, keeper.room.clock.now)
        done.raise()
      })
    done.wait(seconds: 2)
  }

  /// The files in memory, by entry. The catalog may know less of them, above all while the disk is too full for
  /// commits.
  package func nodesInMemory() throws(Errno) -> [Int64: Node] {
    var nodes: [Int64: Node] = [:]
    for inode in room.table.withLock({ Array($0.contents.keys) }) {
      let node = try room.io { () throws(StoreError) in try store.tree.node(inode) }
      if let node { nodes[node.entry] = node }
    }
    return nodes
  }

  /// Removes a file's stored bytes and its copy, and returns when that is done. False when nothing was stored. Blocks
  /// for the disk: not to be called on a thread that serves the kernel.
  package func clear(_ node: Node) throws(Errno) -> Bool {
    let generation = try room.io { () throws(StoreError) in try store.generations.current(of: node.key) }
    let isInMemory = room.table.withLock { $0.current[node.key] != nil }
    let isPinned = try room.io { () throws(StoreError) in try store.notes.isPinned(node.key) }
    guard generation != nil || isInMemory || isPinned else { return false }
    // Counted as open, so that it is not put away before its bytes are removed.
    let content = try room.content(of: node.inode, opening: true)
    defer { room.uncount(content) }
    let hadBytes = content.guarded.withLock { !$0.held.stored.isEmpty }
    try clear(content)
    return hadBytes
  }

  /// Takes away what is stored of a file that the caller counts as open. Returns once that is so.
  func clear(_ content: Content) throws(Errno) {
    let done = Signal()
    room.transfers.post(.clear(content, then: { done.raise() }))
    // This may have to wait until the finisher has hashed a film, but the server's end must not wait for that.
    while !done.wait(seconds: 0.5) {
      if room.isEnding { throw .interrupted }
    }
  }
}

extension Keeper {
  /// Has the transfer thread fetch all of a file, unless it is complete.
  fileprivate func fetch(_ inode: Inode) {
    do throws(Errno) {
      let content = try room.content(of: inode, opening: true)
      if content.guarded.withLock({ $0.held.isCopy }) {
        do throws(Errno) { try room.recheck(content) } catch {
          room.uncount(content)
          throw error
        }
        if content.guarded.withLock({ $0.held.isCopy }) {
          room.uncount(content)
          return room.transfers.post(.changed(content))  // so that it is put away again
        }
      }
      room.transfers.post(.fetch(content))
    } catch {
      Log.error("\(room.store.name(of: inode)): it cannot be fetched: \(error)")
    }
  }
}
