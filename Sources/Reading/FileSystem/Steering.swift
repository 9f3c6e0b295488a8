import Base
import Glibc
import Storing

/// What a user asks for besides reading: fetch this now, drop that.
extension MediaFileSystem {
  /// Completes these files, now and over restarts; whatever of them failed is tried again.
  package func fetch(_ inodes: [Inode]) {
    // On the keeper's thread: a folder of many files is loaded there, a few milliseconds each, without holding up a
    // client.
    room.keeper.post(
      .job { keeper in
        let room = keeper.room
        for inode in inodes {
          do throws(Errno) {
            let content = try room.content(of: inode, opening: true)
            if content.guarded.withLock({ $0.held.isCopy }) {
              do throws(Errno) { try room.recheck(content) } catch {
                room.uncount(content)
                throw error
              }
              if content.guarded.withLock({ $0.held.isCopy }) {
                room.uncount(content)
                room.transfers.post(.changed(content))  // so that it is put away again
                continue
              }
            }
            room.transfers.post(.fetch(content))
          } catch {
            Log.error("inode \(inode) cannot be fetched: \(error)")
          }
        }
      })
  }

  /// Brings the catalog up to date with what is known (not durably), for those who ask the catalog and not the files in
  /// memory. Blocks for the disk, for two seconds at most.
  package func commit() {
    let done = Signal()
    room.keeper.post(
      .job { keeper in
        keeper.commit(everything: false, keeper.room.clock.now)
        done.raise()
      })
    done.wait(seconds: 2)
  }

  /// The files in memory, by their entries: of those the catalog may know less than is so, above all while the disk is
  /// too full for it to be told.
  package func nodesInMemory() throws(Errno) -> [Int64: Node] {
    var nodes: [Int64: Node] = [:]
    for inode in room.table.withLock({ Array($0.contents.keys) }) {
      let node = try room.io { () throws(StoreError) in try store.catalog.node(inode) }
      if let node { nodes[node.entry] = node }
    }
    return nodes
  }

  /// Drops what is stored of a file, its completed copy too, and returns when that is done. False when nothing was
  /// stored. Blocks for the disk: not for a thread that serves the kernel.
  package func clear(_ node: Node) throws(Errno) -> Bool {
    let generation = try room.io { () throws(StoreError) in try store.catalog.generation(current: node.key) }
    let isInMemory = room.table.withLock { $0.current[node.key] != nil }
    let isPinned = try room.io { () throws(StoreError) in try store.catalog.isPinned(node.key) }
    guard generation != nil || isInMemory || isPinned else { return false }
    // Open, so that it is not put away before its bytes are removed. A reader that closes it meanwhile is not the last.
    let content = try room.content(of: node.inode, opening: true)
    defer { room.uncount(content) }
    let hadBytes = content.guarded.withLock { !$0.held.stored.isEmpty }
    let done = Signal()
    room.transfers.post(.clear(content, then: { done.raise() }))
    // It may have to wait for a film's digest; the server's end must not wait for that.
    while !done.wait(seconds: 0.5) {
      if room.isEnding { throw .interrupted }
    }
    return hadBytes
  }
}
